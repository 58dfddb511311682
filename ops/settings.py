"""Edge: settings files: TOML to the frozen settings of a controller or a broker, and back.

Paths in a file are relative to the file. Every key is checked: one that is missing, unknown or of another kind is
named with its file. `http` is a URL without trailing slash, `raft` is host:port.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_agent.config import SECURITY_PROTOCOLS, BrokerSettings
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId, NodeId, Uuid, is_reserved, uuid_from_text, uuid_text
from metadata_log.node.addresses import (
    WILDCARDS,
    HostPort,
    address_text,
    http_url,
    is_host,
    is_reachable,
    read_address,
    read_url,
)
from metadata_log.node.credentials import TlsFiles
from metadata_log.node.data_directory import Role
from metadata_log.records.brokers import BrokerEndpoint
from quorum.config import (
    ControllerSettings,
    ElectionSettings,
    LogSettings,
    SnapshotSettings,
    TimingSettings,
    TopicSettings,
    VoterSettings,
)

T = TypeVar("T")
SETTINGS_BYTES_MAX: Final = 1024 * 1024
_MISSING: Final = object()
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


def load_controller_settings(path: Path) -> ControllerSettings:
    """Return a controller's settings, validated.

    Raises:
        InvalidSettings: names the file and the key.
    """
    top = _Table.read(path)
    listen, timing = top.table("listen"), top.table("timing", default={})
    log, snapshot = top.table("log", default={}), top.table("snapshot", default={})
    advertised = top.table("advertised", default={})
    elections, topics = top.table("elections", default={}), top.table("topics", default={})
    http, identity = top.table("http", default={}), top.table("identity", default={})
    tls, principals = _tls_and_principals(path, top, identity)
    settings = ControllerSettings(
        cluster_id=top.take("cluster_id", cluster_id),
        node_id=NodeId(top.take("node_id", whole_number)),
        data_dir=path.parent / top.take("data_dir", text),
        listen_http=listen.take("http", _listens(tls)),
        listen_raft=listen.take("raft", host_port),
        voters=tuple(_voter(table) for table in top.tables("voters")),
        advertised_http=advertised.take("http", reachable_url, default=None),
        advertised_raft=advertised.take("raft", reachable, default=None),
        allowed_hosts=tuple(http.take("allowed_hosts", _list_of(host_name), default=[])),
        tls=tls,
        principals=principals,
        token_file=identity.take("token_file", _path_from(path), default=None),
        timing=TimingSettings(**timing.given(TimingSettings.__slots__, whole_number)),
        log=LogSettings(**log.given(LogSettings.__slots__, whole_number)),
        snapshot=SnapshotSettings(**snapshot.given(SnapshotSettings.__slots__, whole_number)),
        elections=ElectionSettings(**elections.given(ElectionSettings.__slots__, whole_number)),
        topics=TopicSettings(**topics.given(TopicSettings.__slots__, whole_number)),
    )
    for table in (listen, timing, log, snapshot, advertised, elections, topics, http, identity, top):
        table.done()
    _validate(path, settings.validate)
    _check_same_port(path, settings)
    return settings


def load_broker_settings(path: Path) -> BrokerSettings:
    """Return a broker's settings, validated.

    Raises:
        InvalidSettings: names the file and the key.
    """
    top = _Table.read(path)
    listen, advertised = top.table("listen"), top.table("advertised", default={})
    listeners = advertised.table("listeners", default={})
    http, identity = top.table("http", default={}), top.table("identity", default={})
    tls, principals = _tls_and_principals(path, top, identity)
    optional: dict[str, Any] = top.given(("rack",), text)
    optional |= top.given(("registration_timeout_ms", "shutdown_timeout_ms"), whole_number)
    settings = BrokerSettings(
        cluster_id=top.take("cluster_id", cluster_id),
        broker_id=BrokerId(top.take("broker_id", whole_number)),
        data_dir=path.parent / top.take("data_dir", text),
        controllers=tuple(top.take("controllers", _list_of(url))),
        listen_http=listen.take("http", _listens(tls)),
        advertised_http=advertised.take("http", _told(tls), default=None),
        allowed_hosts=tuple(http.take("allowed_hosts", _list_of(host_name), default=[])),
        tls=tls,
        principals=principals,
        token_file=identity.take("token_file", _path_from(path), default=None),
        advertised_listeners=tuple(
            BrokerEndpoint(name, *address) for name, address in listeners.rest(listener).items()
        ),
        **optional,
    )
    for table in (listen, advertised, http, identity, top):
        table.done()
    _validate(path, settings.validate)
    return settings


def load_for_format(path: Path) -> tuple[Role, int, Path, str | None]:
    """Return role, id, data directory and cluster id (None: absent) of a file that need not be complete before formatting.

    Raises:
        InvalidSettings: names the file and the key.
    """
    top = _Table.read(path)
    role: Role = "broker" if top.has("broker_id") else "controller"
    node_id = top.take("broker_id" if role == "broker" else "node_id", whole_number)
    listen = top.table("listen", default={})
    listen.take("http", listen_address, default=None)
    if role == "controller":
        listen.take("raft", host_port, default=None)
    return (
        role,
        node_id,
        path.parent / top.take("data_dir", text),
        top.take("cluster_id", cluster_id, default=None),
    )


def hosts_to_certify(path: Path) -> tuple[str, ...]:
    """Return each host at which others dial the node of a settings file, which need not be complete before formatting.

    Raises:
        InvalidSettings: names the file and the key.
    """
    top = _Table.read(path)
    listen, advertised = top.table("listen", default={}), top.table("advertised", default={})
    node_id = top.take("node_id", whole_number, default=None)
    voters = top.tables("voters") if top.has("voters") and node_id is not None else []
    addresses: list[HostPort | None] = []
    for table in (listen, advertised, *(each for each in voters if each.take("id", whole_number) == node_id)):
        addresses.append(table.take("http", listen_address, default=None))
        addresses.append(table.take("raft", host_port, default=None))
    hosts = [address[0] for address in addresses if address is not None and address[0] not in WILDCARDS]
    http = top.table("http", default={})
    return tuple(dict.fromkeys([*hosts, *http.take("allowed_hosts", _list_of(host_name), default=[])]))


def controller_toml(settings: ControllerSettings, *, data_dir: str) -> str:
    """Return the file that `load_controller_settings` reads as `settings`; `data_dir` is relative to the file."""
    optional = [
        (name, getattr(settings.log, name))
        for name in ("retention_bytes", "retention_ms")
        if getattr(settings.log, name) is not None
    ]
    tables: list[tuple[str, Sequence[tuple[str, Any]]]] = [
        (
            "",
            (
                ("cluster_id", settings.cluster_id),
                ("node_id", settings.node_id),
                ("data_dir", data_dir),
                *_insecure(settings),
            ),
        ),
        (
            "[listen]",
            (
                ("http", http_url(settings.listen_http, tls=settings.tls is not None)),
                ("raft", address_text(settings.listen_raft)),
            ),
        ),
    ]
    advertised: list[tuple[str, Any]] = []
    if settings.advertised_http is not None:
        advertised.append(("http", settings.advertised_http))
    if settings.advertised_raft is not None:
        advertised.append(("raft", address_text(settings.advertised_raft)))
    if advertised:
        tables.append(("[advertised]", advertised))
    if settings.allowed_hosts:
        tables.append(("[http]", [("allowed_hosts", list(settings.allowed_hosts))]))
    tables += _identity(settings)
    tables += [
        (
            "[[voters]]",
            (
                ("id", voter.id),
                ("raft", address_text(voter.raft)),
                ("http", voter.http),
                ("directory_id", uuid_text(voter.directory_id)),
            ),
        )
        for voter in settings.voters
    ]
    tables += [
        ("[timing]", [(name, getattr(settings.timing, name)) for name in TimingSettings.__slots__]),
        ("[log]", [("segment_bytes", settings.log.segment_bytes), *optional]),
        ("[snapshot]", [(name, getattr(settings.snapshot, name)) for name in SnapshotSettings.__slots__]),
        ("[elections]", [(name, getattr(settings.elections, name)) for name in ElectionSettings.__slots__]),
        ("[topics]", [(name, getattr(settings.topics, name)) for name in TopicSettings.__slots__]),
    ]
    return _toml(tables)


def broker_toml(settings: BrokerSettings, *, data_dir: str) -> str:
    """Return the file that `load_broker_settings` reads as `settings`; `data_dir` is relative to the file."""
    rack = [] if settings.rack is None else [("rack", settings.rack)]
    advertised: list[tuple[str, Sequence[tuple[str, Any]]]] = []
    if settings.advertised_http is not None:
        advertised.append(
            ("[advertised]", [("http", http_url(settings.advertised_http, tls=settings.tls is not None))])
        )
    if settings.advertised_listeners:
        rows = [
            (
                json.dumps(name),
                f"{SECURITY_PROTOCOLS[security_protocol]}://{address_text((host, port))}",
            )
            for name, host, port, security_protocol in settings.advertised_listeners
        ]
        advertised.append(("[advertised.listeners]", rows))
    if settings.allowed_hosts:
        advertised.append(("[http]", [("allowed_hosts", list(settings.allowed_hosts))]))
    advertised += _identity(settings)
    return _toml(
        [
            (
                "",
                [
                    ("cluster_id", settings.cluster_id),
                    ("broker_id", settings.broker_id),
                    ("data_dir", data_dir),
                    *_insecure(settings),
                    *rack,
                    ("controllers", list(settings.controllers)),
                    ("registration_timeout_ms", settings.registration_timeout_ms),
                    ("shutdown_timeout_ms", settings.shutdown_timeout_ms),
                ],
            ),
            ("[listen]", [("http", http_url(settings.listen_http, tls=settings.tls is not None))]),
            *advertised,
        ]
    )


def _insecure(settings: ControllerSettings | BrokerSettings) -> list[tuple[str, Any]]:
    is_secure = settings.tls is not None and settings.principals is not None
    return [] if is_secure else [("insecure", True)]


def _identity(
    settings: ControllerSettings | BrokerSettings,
) -> list[tuple[str, Sequence[tuple[str, Any]]]]:
    files = (("principals", settings.principals), ("token_file", settings.token_file))
    given = [(name, str(path)) for name, path in files if path is not None]
    tables: list[tuple[str, Sequence[tuple[str, Any]]]] = [("[identity]", given)] if given else []
    if settings.tls is not None:
        names = ("certificate", "key", "ca")
        tables.append(("[tls]", [(name, str(getattr(settings.tls, name))) for name in names]))
    return tables


def _toml(tables: Sequence[tuple[str, Sequence[tuple[str, Any]]]]) -> str:
    """Return TOML; a JSON string, number or list of strings is written in TOML the same way."""
    return "\n".join(
        "".join([f"{head}\n" if head else "", *(f"{name} = {json.dumps(value)}\n" for name, value in rows)])
        for head, rows in tables
    )


def _voter(table: "_Table") -> VoterSettings:
    voter = VoterSettings(
        id=NodeId(table.take("id", whole_number)),
        raft=table.take("raft", reachable),
        http=table.take("http", reachable_url),
        directory_id=table.take("directory_id", directory_id),
    )
    table.done()
    return voter


def _check_same_port(path: Path, settings: ControllerSettings) -> None:
    """Refuse a node that advertises a port of its listening host on which it does not listen.

    Host and port may both differ: where a node listens on all interfaces, or behind a translation of addresses.
    """
    advertised_http = read_url(settings.http_url)
    origin = f"the [[voters]] entry of node {settings.node_id}"
    for key, advertised, listens in (
        ("http", advertised_http, settings.listen_http),
        ("raft", settings.raft_address, settings.listen_raft),
    ):
        where = origin if getattr(settings, f"advertised_{key}") is None else f"advertised.{key}"
        if advertised[0] == listens[0] and advertised[1] != listens[1]:
            raise InvalidSettings(
                f"{path}: listen.{key} is port {listens[1]}, but {where} tells the others port {advertised[1]}"
            )


def _tls_and_principals(path: Path, top: "_Table", identity: "_Table") -> tuple[TlsFiles | None, Path | None]:
    """Return the files of [tls] and the file of principals; one may be None where the file says `insecure = true`.

    Raises:
        InvalidSettings: one is absent without that line, or both are there with it.
    """
    insecure = top.take("insecure", yes_or_no, default=False)
    if not top.has("tls") and not insecure:
        raise InvalidSettings(
            f"{path}: there is neither [tls] nor `insecure = true`: without TLS whoever reaches a port reads and changes "
            "what passes. Write `insecure = true` at the top of this file where only trusted machines reach its ports, "
            "as on loopback, or give it [tls] with certificate, key and ca (`metaquorum storage format --secure` makes them)"
        )
    tls = _tls(path, top) if top.has("tls") else None
    principals: Path | None = identity.take("principals", _path_from(path), default=None)
    if principals is None and not insecure:
        raise InvalidSettings(
            f"{path}: there is [tls], but neither [identity] with principals nor `insecure = true`: without identity "
            "whoever reaches a port may do everything. Give it [identity] principals, the file that says who may do what "
            "(`metaquorum storage format --secure` makes one), or write `insecure = true` at the top of this file where "
            "only trusted machines reach its ports"
        )
    if tls is not None and principals is not None and insecure:
        raise InvalidSettings(
            f"{path}: there are [tls] and [identity] principals, and `insecure = true`: remove `insecure = true`"
        )
    return tls, principals


def _tls(path: Path, top: "_Table") -> TlsFiles:
    table = top.table("tls")
    files = TlsFiles(
        certificate=table.take("certificate", _path_from(path)),
        key=table.take("key", _path_from(path)),
        ca=table.take("ca", _path_from(path)),
    )
    table.done()
    return files


def _listens(tls: TlsFiles | None) -> Callable[[object], HostPort]:
    """Return what reads the URL to listen on; its scheme says that there is TLS."""
    return lambda value: listen_address(value, tls=tls is not None)


def _told(tls: TlsFiles | None) -> Callable[[object], HostPort]:
    return lambda value: reachable_http(value, tls=tls is not None)


def _validate(path: Path, validate: Callable[[], None]) -> None:
    try:
        validate()
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error.message}") from error


# --- kinds of values: each returns the value, or raises ValueError naming what is wanted


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


def directory_id(value: object) -> Uuid:
    wanted = "wanted the 22 characters that `metaquorum storage format` printed"
    try:
        uuid = uuid_from_text(text(value))
    except ValueError:
        raise ValueError(wanted) from None
    if is_reserved(uuid):
        raise ValueError(wanted)
    return uuid


def _path_from(settings_file: Path) -> Callable[[object], Path]:
    """Return what reads a path that is relative to the settings file."""
    return lambda value: settings_file.parent / text(value)


def host_name(value: object) -> str:
    """Read the name of a host, without a port."""
    name = text(value)
    if not is_host(name) or ":" in name or "/" in name:
        raise ValueError("wanted the names of hosts, without ports")
    return name


def host_port(value: object) -> HostPort:
    """Read HOST:PORT; an IPv6 host stands in brackets."""
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


def _list_of(kind: Callable[[object], T]) -> Callable[[object], list[T]]:
    def read(value: object) -> list[T]:
        if not isinstance(value, list):
            raise ValueError("wanted a list in brackets")  # noqa: TRY004 as every kind does
        return [kind(item) for item in value]

    return read


class _Table:
    """One table of a settings file, whose values are taken one by one; `done` refuses the keys that are left."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        self._path = path
        self._name = name
        self._values = dict(values)
        self._known: set[str] = set()

    @classmethod
    def read(cls, path: Path) -> "_Table":
        try:
            with path.open("rb") as file:
                content = file.read(SETTINGS_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidSettings(f"{path}: {error.strerror}") from error
        if len(content) > SETTINGS_BYTES_MAX:
            raise InvalidSettings(f"{path}: larger than {SETTINGS_BYTES_MAX} bytes: not a settings file")
        try:
            return cls(path, "", tomllib.loads(content.decode()))
        except UnicodeDecodeError as error:
            raise InvalidSettings(f"{path}: byte {error.start} is not UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidSettings(f"{path}: not TOML: {error}") from error
        except RecursionError as error:
            raise InvalidSettings(f"{path}: nested too deeply") from error

    def has(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: Callable[[object], T], *, default: Any = _MISSING) -> T:
        self._known.add(key)
        if key not in self._values:
            if default is _MISSING:
                raise self._wrong(key, "is missing")
            return default  # type: ignore[no-any-return]  # the caller's own
        value = self._values.pop(key)
        try:
            return kind(value)
        except ValueError as error:
            raise self._wrong(key, f"= {_shown(value)}: {error}") from error

    def given(self, keys: Sequence[str], kind: Callable[[object], T]) -> dict[str, T]:
        """Take those of `keys` that are present; the others keep their defaults."""
        self._known |= set(keys)
        return {key: self.take(key, kind) for key in keys if key in self._values}

    def rest(self, kind: Callable[[object], T]) -> dict[str, T]:
        """Take all keys that are left: the file's author chose their names."""
        return {key: self.take(key, kind) for key in list(self._values)}

    def table(self, key: str, *, default: Any = _MISSING) -> "_Table":
        return _Table(self._path, f"{self._name}{key}.", self.take(key, _mapping, default=default))

    def tables(self, key: str) -> list["_Table"]:
        found = self.take(key, _list_of(_mapping))
        return [_Table(self._path, f"{self._name}{key}[{at}].", values) for at, values in enumerate(found)]

    def done(self) -> None:
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, n=1)
            raise self._wrong(key, "is unknown" + (f"; did you mean {near[0]}?" if near else ""))

    def _wrong(self, key: str, what: str) -> InvalidSettings:
        return InvalidSettings(f"{self._path}: {self._name}{key} {what}", path=str(self._path), key=key)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("wanted a table")  # noqa: TRY004 as every kind does
    return value


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
