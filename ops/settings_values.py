"""Edge: kinds of values in settings files: each reader returns the value, or raises ValueError saying what is wanted.
Tests: tests/unit/ops/test_settings.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from broker_agent.config import SECURITY_PROTOCOLS
from metadata_log.ids import Uuid, is_reserved, uuid_from_text, uuid_text
from metadata_log.metadata_versions import UNSTABLE_LEVEL, level_of, name_of
from metadata_log.node.addresses import (
    HostPort,
    address_text,
    http_url,
    is_host,
    is_reachable,
    read_address,
    read_url,
)
from metadata_log.records.features import METADATA_VERSION_MIN

T = TypeVar("T")
_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


class Around(NamedTuple):
    """The settings file that has a value, and whether that file has [tls]."""

    file: Path
    tls: bool


class Kind(NamedTuple):
    """A kind of value: what it is called, and how it is read from TOML and written to it."""

    name: str
    read: Callable[[object, Around], Any]
    write: Callable[[Any, Around], Any] = lambda value, _: value


def yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("wanted true or false")  # noqa: TRY004 as every kind does
    return value


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("wanted text in quotes")
    return value


def whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError("wanted a whole number, not negative")
    return value


def cluster_id(value: object) -> str:
    if not isinstance(value, str) or not _CLUSTER_ID.fullmatch(value):
        raise ValueError("wanted the 22 characters of a cluster id")
    return value


def listener_name(value: object) -> str:
    if not isinstance(value, str) or not _LISTENER_NAME.fullmatch(value):
        raise ValueError("wanted the name of a listener: letters, digits, _, . and -")
    return value


def metadata_version(value: object) -> int:
    """Return a level of metadata.version by its number, its name or a release."""
    if isinstance(value, bool) or not isinstance(value, int | str) or (level := level_of(str(value))) is None:
        raise ValueError(
            f"wanted a level of metadata.version: {METADATA_VERSION_MIN} to {UNSTABLE_LEVEL}, a name, or a release (4.1)"
        )
    return level


def one_of(choices: Sequence[str]) -> Kind:
    """Return the kind of a value that is one of these texts."""

    def read(value: object, _: Around) -> str:
        if value not in choices:
            raise ValueError(f"wanted one of {', '.join(choices)}")
        return str(value)

    return Kind(", ".join(choices), read)


def directory_id(value: object) -> Uuid:
    wanted = "wanted the 22 characters that `metaquorum storage format` printed"
    try:
        uuid = uuid_from_text(text(value))
    except ValueError:
        raise ValueError(wanted) from None
    if is_reserved(uuid):
        raise ValueError(wanted)
    return uuid


def host_name(value: object) -> str:
    """Read the name of a host, without a port."""
    name = text(value)
    if not is_host(name) or ":" in name or "/" in name:
        raise ValueError("wanted the names of hosts, without ports")
    return name


def host_port(value: object) -> HostPort:
    """Read HOST:PORT; an IPv6 host is in brackets."""
    try:
        return read_address(text(value))
    except ValueError:
        raise ValueError("wanted HOST:PORT") from None


def reachable(value: object) -> HostPort:
    """Read HOST:PORT as it is advertised to other nodes."""
    address = host_port(value)
    if not is_reachable(address):
        raise ValueError("wanted a HOST:PORT that others can reach")
    return address


def reachable_url(value: object) -> str:
    """Read http://HOST:PORT as it is advertised to other nodes."""
    address = url(value)
    if not is_reachable(read_url(address)):
        raise ValueError("wanted a HOST:PORT that others can reach")
    return address


def reachable_http(value: object, *, tls: bool) -> HostPort:
    """Read http://HOST:PORT as it is told to clients."""
    address = listen_address(value, tls=tls)
    if not is_reachable(address):
        raise ValueError("wanted a HOST:PORT that others can reach")
    return address


def listener(value: object) -> tuple[str, int, int]:
    """Read PROTOCOL://HOST:PORT as it is told to clients; return host, port and the protocol's number."""
    protocol, _, address = (value if isinstance(value, str) else "").partition("://")
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"wanted PROTOCOL://HOST:PORT with one of {', '.join(SECURITY_PROTOCOLS)}")
    return (*reachable(address), SECURITY_PROTOCOLS.index(protocol))


def url(value: object) -> str:
    """Check http://HOST:PORT as it is advertised to other nodes."""
    wanted = "wanted http://HOST:PORT without trailing slash"
    address = value if isinstance(value, str) else ""
    try:
        _, port = read_url(address)
    except ValueError:
        raise ValueError(wanted) from None
    if port == 0:
        raise ValueError(wanted)
    return address


def listen_address(value: object, *, tls: bool | None = None) -> HostPort:
    """Read http://HOST:PORT, https:// with TLS, as what to listen on; port 0 is any free one."""
    scheme = "https" if tls else "http"
    wanted = f"wanted {scheme}://HOST:PORT without trailing slash"
    if tls:
        wanted += ", as there is [tls]"
    address = value if isinstance(value, str) else ""
    if tls is None:
        address = address.replace("https://", "http://", 1)
    if not address.startswith(f"{scheme}://"):
        raise ValueError(wanted)
    try:
        return read_url(address)
    except ValueError:
        raise ValueError(wanted) from None


def mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("wanted a table")  # noqa: TRY004 as every kind does
    return value


def shown(value: object) -> str:
    """Return a value as a message has it."""
    text_of = repr(value)
    return text_of if len(text_of) <= 60 else f"{text_of[:57]}..."


def list_of(kind: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError("wanted a list in brackets")  # noqa: TRY004 as every kind does
        return tuple(kind(item) for item in value)

    return read


def _plain(
    name: str, read: Callable[[object], Any], write: Callable[[Any], Any] = lambda value: value
) -> Kind:
    return Kind(name, lambda value, _: read(value), lambda value, _: write(value))


TEXT: Final = _plain("text", text)
NUMBER: Final = _plain("number", whole_number)
YES_OR_NO: Final = _plain("true or false", yes_or_no)
CLUSTER_ID: Final = _plain("22 characters", cluster_id)
DIRECTORY_ID: Final = _plain("22 characters", directory_id, uuid_text)
FILE: Final = Kind(
    "path", lambda value, around: around.file.parent / text(value), lambda value, _: str(value)
)
HOSTS: Final = _plain("list of hosts", list_of(host_name), list)
URLS: Final = _plain("list of URLs", list_of(url), list)
LISTENS_HTTP: Final = Kind(
    "URL",
    lambda value, around: listen_address(value, tls=around.tls),
    lambda value, around: http_url(value, tls=around.tls),
)
TOLD_HTTP: Final = LISTENS_HTTP._replace(read=lambda value, around: reachable_http(value, tls=around.tls))
TOLD_URL: Final = _plain("URL", reachable_url)
LISTENS: Final = _plain("HOST:PORT", host_port, address_text)
TOLD: Final = _plain("HOST:PORT", reachable, address_text)
LISTENER: Final = _plain(
    "PROTOCOL://HOST:PORT", listener, lambda at: f"{SECURITY_PROTOCOLS[at[2]]}://{address_text(at[:2])}"
)
METADATA_VERSION: Final = _plain("level", metadata_version, name_of)
LISTENER_NAME: Final = _plain("name of a listener", listener_name)
