"""Pure: HOST:PORT and http://HOST:PORT: how a node's address is read, written and bounded."""

import urllib.parse
from typing import Final, TypeAlias

from metadata_log.limits import TEXT_BYTES_MAX

HostPort: TypeAlias = tuple[str, int]

PORT_MAX: Final = 65_535
WILDCARDS: Final = frozenset({"0.0.0.0", "::", "*", ""})  # noqa: S104 (refused, not bound)
"""Hosts that mean all interfaces: a node may listen on them, and no peer can dial them."""
ADDRESS_BYTES_MAX: Final = TEXT_BYTES_MAX + len(f"[]:{PORT_MAX}")
URL_BYTES_MAX: Final = 2_000
VIA_BROKER: Final = "metaquorum-broker-"
"""Begins each broker's name in the header Via of what it forwards and of what it passes back. A broker forwards nothing that
came by one, so no request circles."""


def address_text(address: HostPort) -> str:
    """Return HOST:PORT; an IPv6 host is in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def http_url(address: HostPort, *, tls: bool = False) -> str:
    return f"{'https' if tls else 'http'}://{address_text(address)}"


def read_address(text: str) -> HostPort:
    """Read HOST:PORT; an IPv6 host is in brackets, and port 0 means any free one.

    Raises:
        ValueError: it is something else.
    """
    host, port = _split(text)
    if port is None:
        raise ValueError("wanted HOST:PORT")
    return host, port


def read_url(url: str) -> HostPort:
    """Return host and port of http://HOST:PORT or https://HOST:PORT, without trailing slash.

    Raises:
        ValueError: it is something else.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in {"http", "https"}:
        raise ValueError("wanted http://HOST:PORT without trailing slash")
    return read_address(rest)


def is_reachable(address: HostPort) -> bool:
    """Answer whether other nodes can dial an address: the host is no wildcard, and the port is known."""
    host, port = address
    return host not in WILDCARDS and port != 0


def is_address(text: str) -> bool:
    """Answer whether a text is HOST:PORT."""
    try:
        read_address(text)
    except ValueError:
        return False
    return True


def is_node_url(url: str) -> bool:
    """Answer whether a URL is http(s)://HOST[:PORT], without path or trailing slash, as nodes report theirs."""
    scheme, _, rest = url.partition("://")
    try:
        _, port = _split(rest)
    except ValueError:
        return False
    return scheme.lower() in {"http", "https"} and port != 0


def is_host(text: str) -> bool:
    """Answer whether a host can have this name: a numeric address, or a name that can be looked up.

    A name with an empty label, or with one of more than 63 characters, cannot be looked up. The attempt ends in a
    UnicodeError, which code that handles network failures does not expect.
    """
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text != "" and text.isprintable() and " " not in text


def _split(text: str) -> tuple[str, int | None]:
    """Return the host and the port, if one is given.

    Raises:
        ValueError: no host can have this name, the port exceeds PORT_MAX, or there is more than host and port.
    """
    parts = urllib.parse.urlsplit(f"//{text}")
    host, port = parts.hostname or "", parts.port
    if not is_host(host) or parts.netloc != text or parts.username is not None:
        raise ValueError("wanted HOST:PORT")
    return host, port
