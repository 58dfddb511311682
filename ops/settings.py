"""Edge: settings files: each key described once, for reading, writing (`ops/settings_writing.py`) and docs/settings.md.

Every key of a file is checked: one that is missing, unknown or of another kind is named with its file. Defaults are those of
the settings' classes, bounds those of `quorum/node/config.py` and `broker_agent/config.py`.
"""

import difflib
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from broker_agent.config import BrokerSettings
from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import WILDCARDS, HostPort, read_url
from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.disk.data_directory import Role
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.records.brokers import BrokerEndpoint
from ops import settings_values as of
from ops.settings_values import (
    Around,
    Kind,
    cluster_id,
    host_name,
    host_port,
    list_of,
    listen_address,
    mapping,
    shown,
    text,
    whole_number,
    yes_or_no,
)
from quorum.node.config import (
    KAFKA_SECURITY,
    AclSettings,
    ControllerSettings,
    DelegationTokenSettings,
    ElectionSettings,
    FeatureSettings,
    KafkaSettings,
    LogSettings,
    SnapshotSettings,
    TimingSettings,
    TopicSettings,
    VoterSettings,
)

T = TypeVar("T")
SETTINGS_BYTES_MAX: Final = 1024 * 1024
BOTH: Final[tuple[Role, ...]] = ("controller", "broker")
CONTROLLER: Final[tuple[Role, ...]] = ("controller",)
BROKER: Final[tuple[Role, ...]] = ("broker",)
GROUPS: Final[Mapping[str, type]] = {
    "timing": TimingSettings,
    "log": LogSettings,
    "snapshot": SnapshotSettings,
    "elections": ElectionSettings,
    "topics": TopicSettings,
    "features": FeatureSettings,
    "kafka": KafkaSettings,
    "audit": AuditSettings,
    "acls": AclSettings,
    "delegation_tokens": DelegationTokenSettings,
    "tls": TlsFiles,
    "voters": VoterSettings,
}
"""Tables that become values of their own."""
_PREFIXES: Final = {"": "", "listen": "listen_", "advertised": "advertised_", "http": "", "identity": ""}


class Key(NamedTuple):
    """One key of the settings files of `roles`: `table` is empty at the top of a file, `does` says what the key is for."""

    table: str
    key: str
    kind: Kind
    does: str
    roles: tuple[Role, ...]

    @property
    def field(self) -> tuple[str, ...]:
        """The names that lead from the settings of a node to the value."""
        if self.table in _PREFIXES:
            return (_PREFIXES[self.table] + self.key,)
        return (self.table, self.key)

    def default(self, role: Role) -> Any:
        """Return the value where the key is absent; MISSING: the key is needed (with [tls], in each of [[voters]])."""
        owner: Any = GROUPS.get(self.table, ControllerSettings if role == "controller" else BrokerSettings)
        field = owner.__dataclass_fields__.get(self.field[-1])
        return None if field is None else field.default


def _keys(table: str, roles: tuple[Role, ...], kind: Kind, /, **does: str) -> Iterator[Key]:
    for key, told in does.items():
        yield Key(table, key, kind, told, roles)


_REMOTE: Final = (
    "As remote.log.storage.system.enable of Kafka's brokers: topics may have remote.storage.enable; "
    "the same on all controllers."
)
_UNSTABLE: Final = "Whether levels that Kafka may still change can be finalized; the same on all controllers."
_FOUNDING: Final = "With which a cluster is founded: a level, its name, or a release (4.1)."
KEYS: Final = (
    *_keys("", BOTH, of.CLUSTER_ID, cluster_id="The cluster, the same in every file of it."),
    *_keys(
        "", CONTROLLER, of.NUMBER, node_id="This controller; one that is not among the voters is an observer."
    ),
    *_keys("", BROKER, of.NUMBER, broker_id="This broker; one id space with the controllers."),
    *_keys("", BOTH, of.FILE, data_dir="Log and snapshots, and a controller's journal."),
    *_keys(
        "",
        BOTH,
        of.YES_OR_NO,
        insecure="Needed without [tls] or without principals, and refused beside both.",
    ),
    *_keys("", BROKER, of.TEXT, rack="Replicas are spread over racks."),
    *_keys("", BROKER, of.URLS, controllers="Where the controllers are asked."),
    *_keys(
        "",
        BROKER,
        of.NUMBER,
        registration_timeout_ms="How long to wait for another process of this id to end.",
        shutdown_timeout_ms="How long a stopping broker waits for its leaderships to move away.",
    ),
    *_keys("listen", BOTH, of.LISTENS_HTTP, http="Where clients and other nodes ask over HTTP."),
    *_keys("listen", CONTROLLER, of.LISTENS, raft="Where the other controllers connect."),
    *_keys(
        "listen", CONTROLLER, of.LISTENS, kafka="Where Kafka's brokers and tools connect; left out: nowhere."
    ),
    *_keys(
        "advertised",
        CONTROLLER,
        of.TOLD_URL,
        http="What others are told; else the voter's entry, else [listen].",
    ),
    *_keys(
        "advertised",
        CONTROLLER,
        of.TOLD,
        raft="What others are told; else the voter's entry, else [listen].",
        kafka="What Kafka's brokers are told; else the voter's entry, else [listen].",
    ),
    *_keys(
        "advertised", BROKER, of.TOLD_HTTP, http="What clients are told; else [listen], then no wildcard."
    ),
    *_keys("advertised.listeners", BROKER, of.LISTENER, NAME="A further listener, of the host program."),
    *_keys(
        "http", BOTH, of.HOSTS, allowed_hosts="Further names, without ports, by which clients may ask here."
    ),
    *_keys(
        "identity",
        BOTH,
        of.FILE,
        principals="Who may do what: roles, and the SHA-256 of tokens.",
        token_file="Holds the token with which this node asks the controllers.",  # noqa: S106 no token
    ),
    *_keys(
        "tls",
        BOTH,
        of.FILE,
        certificate="PEM: the node's certificate, which names it and its hosts.",
        key="PEM: its key, readable by this user alone.",
        ca="PEM: the authority of this cluster alone.",
        revoked="TOML: its certificates that count no longer.",
    ),
    *_keys(
        "voters", CONTROLLER, of.NUMBER, id="A founder of the quorum; once founded, the log names the voters."
    ),
    *_keys("voters", CONTROLLER, of.TOLD, raft="Where the other controllers reach it."),
    *_keys("voters", CONTROLLER, of.TOLD_URL, http="Where it is asked over HTTP."),
    *_keys(
        "voters",
        CONTROLLER,
        of.DIRECTORY_ID,
        directory_id="Its disk, as `metaquorum storage format` printed it.",
    ),
    *_keys(
        "voters", CONTROLLER, of.TOLD, kafka="Where Kafka's brokers reach it; needed with [listen] kafka."
    ),
    *_keys(
        "timing",
        CONTROLLER,
        of.NUMBER,
        heartbeat_ms="Period of the leader's heartbeats.",
        election_timeout_min_ms="Shortest silence of a leader before an election; at least 3 heartbeats.",
        election_timeout_max_ms="Longest such silence; each election draws one between both.",
        session_timeout_ms="A broker silent for this long is fenced; at least 3 longest election timeouts.",
        commit_timeout_ms='A write not committed by then is answered "outcome unknown".',
    ),
    *_keys(
        "log",
        CONTROLLER,
        of.NUMBER,
        segment_bytes="Size at which a segment file of the log ends; one frame must fit.",
        retention_bytes="Size of the log that is kept; left out: all of it.",
        retention_ms="Age of the log that is kept, in whole segments below a kept snapshot; left out: any.",
    ),
    *_keys(
        "snapshot",
        CONTROLLER,
        of.NUMBER,
        bytes="Bytes of new log that make a snapshot due.",
        age_ms="Age of the newest snapshot that makes one due; 0: never by age.",
        keep="Snapshots that are kept.",
    ),
    *_keys(
        "elections",
        CONTROLLER,
        of.NUMBER,
        leader_imbalance_check_interval_seconds="How often preferred replicas get leaderships back; 0: never.",
        leader_imbalance_per_broker_percentage="A broker gets them back if it lacks more than this share.",
        unclean_leader_election_interval_ms="How often topics that accept losses get leaders; 0: never.",
    ),
    *_keys(
        "topics",
        CONTROLLER,
        of.NUMBER,
        num_partitions="Partitions of a topic whose creator names none.",
        default_replication_factor="Replicas of a topic whose creator names none.",
        min_insync_replicas="min.insync.replicas of a new cluster, whose log keeps it, or of one whose log has none.",
        undelete_window_ms="How long a deleted topic can be restored; 0: it is gone at once, as in Kafka.",
        partitions_per_topic_max="More partitions are refused with POLICY_VIOLATION.",
        replication_factor_min="A new topic with fewer replicas is refused with POLICY_VIOLATION.",
    ),
    *_keys("topics", CONTROLLER, of.YES_OR_NO, remote_log_storage_system_enable=_REMOTE),
    *_keys("features", CONTROLLER, of.METADATA_VERSION, founding_metadata_version=_FOUNDING),
    *_keys("features", CONTROLLER, of.YES_OR_NO, unstable_levels=_UNSTABLE),
    *_keys(
        "kafka",
        CONTROLLER,
        of.LISTENER_NAME,
        listener_name="The first of the brokers' `controller.listener.names`; the same on all controllers.",
    ),
    *_keys(
        "kafka",
        CONTROLLER,
        of.one_of(KAFKA_SECURITY),
        security="sasl_ needs principals; left out: tls beside [tls], else plaintext.",
    ),
    *_keys(
        "kafka",
        CONTROLLER,
        of.YES_OR_NO,
        other_brokers="Whether brokers that are not Kafka's may register, too, and get replicas.",
    ),
    *_keys("audit", BOTH, of.FILE, file="The audit log, JSON lines; left out: there is none."),
    *_keys(
        "audit",
        BOTH,
        of.NUMBER,
        file_bytes="Size at which the file is moved aside.",
        files_kept="Files moved aside that are kept: FILE.1 is the newest.",
    ),
    *_keys("audit", BOTH, of.YES_OR_NO, reads="Whether what only reads is logged, too."),
    *_keys(
        "acls",
        CONTROLLER,
        of.YES_OR_NO,
        enforced="Whether ACLs give principals what their roles do not; needs principals.",
        allow_everyone_if_no_acl_found="Whether every principal may do what no ACL concerns.",
    ),
    *_keys(
        "delegation_tokens",
        CONTROLLER,
        of.FILE,
        secret_key_file="Holds Kafka's `delegation.token.secret.key`, the same on all nodes; left out: no tokens.",  # noqa: S106
    ),
    *_keys(
        "delegation_tokens",
        CONTROLLER,
        of.NUMBER,
        max_lifetime_ms="How long a token can be renewed.",
        expiry_time_ms="When a token ends unless it is renewed.",
        expiry_check_interval_ms="How often tokens that have ended are removed.",
    ),
)


def load_controller_settings(path: Path) -> ControllerSettings:
    """Return a controller's settings, validated.

    Raises:
        InvalidSettings: names the file and the key.
    """
    settings = ControllerSettings(**_load(path, "controller"))
    _validate(path, settings.validate)
    _check_same_port(path, settings)
    return settings


def load_broker_settings(path: Path) -> BrokerSettings:
    """Return a broker's settings, validated.

    Raises:
        InvalidSettings: names the file and the key.
    """
    settings = BrokerSettings(**_load(path, "broker"))
    _validate(path, settings.validate)
    return settings


def load_checked(path: Path) -> tuple[ControllerSettings | BrokerSettings | None, list[str]]:
    """Return the settings of a node's file, None if it has a fault, and all its faults, each with file and key.

    What relates values to each other is looked at once each value by itself is right.
    """
    faults: list[InvalidSettings] = []
    settings: ControllerSettings | BrokerSettings | None = None
    with _noting(faults):
        role: Role = "broker" if _Table.read(path).has("broker_id") else "controller"
        values = _load(path, role, faults)
        if not faults:
            settings = ControllerSettings(**values) if role == "controller" else BrokerSettings(**values)
            with _noting(faults):
                _validate(path, settings.validate)
            if isinstance(settings, ControllerSettings):
                with _noting(faults):
                    _check_same_port(path, settings)
    return None if faults else settings, [fault.message for fault in faults]


@contextmanager
def _noting(faults: list[InvalidSettings]) -> Iterator[None]:
    try:
        yield
    except InvalidSettings as fault:
        faults.append(fault)


def _load(path: Path, role: Role, faults: list[InvalidSettings] | None = None) -> dict[str, Any]:
    """Return what the settings of a node of this role are made of.

    With `faults`, what is wrong is added to them and left out, and the rest is looked at, too.
    """
    top = _Table.read(path, faults)
    around = Around(path, tls=top.has("tls"))
    tables: dict[str, _Table] = {"": top}
    found: dict[str, dict[str, Any]] = defaultdict(dict)

    def take(*names: str) -> None:
        for key in keys_of(role):
            if key.table in names and (key.table != "tls" or around.tls):
                if key.table not in tables:
                    tables[key.table] = top.table(key.table, default=MISSING if key.table == "listen" else {})
                value = tables[key.table].take_key(key, around, role)
                if value is not None:
                    found["".join(key.field[:-1])][key.field[-1]] = value

    take("tls", "identity")  # first, as they say what addresses must look like
    with nullcontext() if faults is None else _noting(faults):
        _check_security(
            path,
            insecure=bool(top.take("insecure", yes_or_no, default=False)),
            tls=around.tls,
            principals="principals" in found[""],
        )
    tops = {key.table for key in keys_of(role)} - {"tls", "identity", "voters", "advertised.listeners"}
    take(*tops)
    if role == "controller":
        found[""]["voters"] = tuple(_voter(table, around, faults) for table in top.tables("voters"))
    else:
        listeners = tables["advertised"].table("listeners", default={})
        read = listeners.rest(lambda value: of.LISTENER.read(value, around))
        found[""]["advertised_listeners"] = tuple(BrokerEndpoint(name, *at) for name, at in read.items())
    for table in tables.values():
        table.done()
    if faults:
        return {}
    return found.pop("") | {name: GROUPS[name](**values) for name, values in found.items()}


def keys_of(role: Role) -> list[Key]:
    return [key for key in KEYS if role in key.roles]


def _voter(
    table: "_Table", around: Around, faults: list[InvalidSettings] | None = None
) -> VoterSettings | None:
    """Return a voter; None if something is wrong, and `faults` has it."""
    keys = [key for key in KEYS if key.table == "voters"]
    values = {key.key: table.take_key(key, around, "controller") for key in keys}
    table.done()
    return None if faults else VoterSettings(**values)


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
        listen.take("kafka", host_port, default=None)
    return (
        role,
        node_id,
        path.parent / top.take("data_dir", text),
        top.take("cluster_id", cluster_id, default=None),
    )


def load_for_founding(path: Path) -> tuple[bool, FeatureSettings]:
    """Return whether a file has [listen] kafka, and its levels of features; the file need not be complete before formatting.

    Raises:
        InvalidSettings: names the file and the key.
    """
    top = _Table.read(path)
    has_kafka = top.table("listen", default={}).take("kafka", host_port, default=None) is not None
    given, usual, around = top.table("features", default={}), FeatureSettings(), Around(path, tls=False)
    return has_kafka, FeatureSettings(
        founding_metadata_version=given.take(
            "founding_metadata_version",
            lambda value: of.METADATA_VERSION.read(value, around),
            default=usual.founding_metadata_version,
        ),
        unstable_levels=given.take("unstable_levels", of.yes_or_no, default=usual.unstable_levels),
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
        addresses.append(table.take("kafka", host_port, default=None))
    hosts = [address[0] for address in addresses if address is not None and address[0] not in WILDCARDS]
    http = top.table("http", default={})
    return tuple(dict.fromkeys([*hosts, *http.take("allowed_hosts", list_of(host_name), default=())]))


def _check_same_port(path: Path, settings: ControllerSettings) -> None:
    """Refuse a node that advertises a port of its listening host on which it does not listen.

    Host and port may both differ: where a node listens on all interfaces, or behind a translation of addresses.
    """
    advertised_http = read_url(settings.http_url)
    origin = f"the [[voters]] entry of node {settings.node_id}"
    for key, advertised, listens in (
        ("http", advertised_http, settings.listen_http),
        ("raft", settings.raft_address, settings.listen_raft),
        ("kafka", settings.kafka_address, settings.listen_kafka),
    ):
        where = origin if getattr(settings, f"advertised_{key}") is None else f"advertised.{key}"
        if advertised is None or listens is None:
            continue
        if advertised[0] == listens[0] and advertised[1] != listens[1]:
            raise InvalidSettings(
                f"{path}: listen.{key} is port {listens[1]}, but {where} tells the others port {advertised[1]}"
            )


def _check_security(path: Path, *, insecure: bool, tls: bool, principals: bool) -> None:
    """Refuse a file without TLS or principals that does not say so, and one that has both and says that it has not."""
    if not tls and not insecure:
        raise InvalidSettings(
            f"{path}: there is neither [tls] nor `insecure = true`: without TLS whoever reaches a port reads and changes "
            "what passes. Write `insecure = true` at the top of this file where only trusted machines reach its ports, "
            "as on loopback, or give it [tls] with certificate, key and ca (`metaquorum storage format --secure` makes them)"
        )
    if not principals and not insecure:
        raise InvalidSettings(
            f"{path}: there is [tls], but neither [identity] with principals nor `insecure = true`: without identity "
            "whoever reaches a port may do everything. Give it [identity] principals, the file that says who may do what "
            "(`metaquorum storage format --secure` makes one), or write `insecure = true` at the top of this file where "
            "only trusted machines reach its ports"
        )
    if tls and principals and insecure:
        raise InvalidSettings(
            f"{path}: there are [tls] and [identity] principals, and `insecure = true`: remove `insecure = true`"
        )


def _validate(path: Path, validate: Callable[[], None]) -> None:
    try:
        validate()
    except InvalidSettings as error:
        raise InvalidSettings(f"{path}: {error.message}") from error


class _Table:
    """One table of a settings file, whose values are taken one by one; `done` refuses the keys that are left."""

    def __init__(
        self,
        path: Path,
        name: str,
        values: Mapping[str, Any],
        faults: list[InvalidSettings] | None = None,
    ) -> None:
        """With `faults`, these get what is wrong; without them the first is raised."""
        self._path = path
        self._name = name
        self._values = dict(values)
        self._faults = faults
        self._known: set[str] = set()

    @classmethod
    def read(cls, path: Path, faults: list[InvalidSettings] | None = None) -> "_Table":
        try:
            with path.open("rb") as file:
                content = file.read(SETTINGS_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidSettings(f"{path}: {error.strerror}") from error
        if len(content) > SETTINGS_BYTES_MAX:
            raise InvalidSettings(f"{path}: larger than {SETTINGS_BYTES_MAX} bytes: not a settings file")
        try:
            return cls(path, "", tomllib.loads(content.decode()), faults)
        except UnicodeDecodeError as error:
            raise InvalidSettings(f"{path}: byte {error.start} is not UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise InvalidSettings(f"{path}: not TOML: {error}") from error
        except RecursionError as error:
            raise InvalidSettings(f"{path}: nested too deeply") from error

    def has(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, kind: Callable[[object], T], *, default: Any = MISSING) -> T:
        self._known.add(key)
        if key not in self._values:
            if default is not MISSING:
                return default  # type: ignore[no-any-return]  # the caller's own
            return self._refused(self._wrong(key, "is missing"))  # type: ignore[no-any-return]  # left out
        value = self._values.pop(key)
        try:
            return kind(value)
        except ValueError as error:
            wrong = self._wrong(key, f"= {shown(value)}: {error}")
            return self._refused(wrong, error)  # type: ignore[no-any-return]  # left out

    def _refused(self, wrong: InvalidSettings, why: Exception | None = None) -> Any:
        """Note a fault, and return None in place of the value; raise it where faults are not gathered."""
        if self._faults is None:
            raise wrong from why
        self._faults.append(wrong)
        return None

    def take_key(self, key: Key, around: Around, role: Role) -> Any:
        default = MISSING if key.default(role) is MISSING else None
        return self.take(key.key, lambda value: key.kind.read(value, around), default=default)

    def rest(self, kind: Callable[[object], T]) -> dict[str, T]:
        """Take all keys that are left: the file's author chose their names."""
        return {key: self.take(key, kind) for key in list(self._values)}

    def table(self, key: str, *, default: Any = MISSING) -> "_Table":
        values = self.take(key, mapping, default=default) or {}
        return _Table(self._path, f"{self._name}{key}.", values, self._faults)

    def tables(self, key: str) -> list["_Table"]:
        found = self.take(key, list_of(mapping)) or ()
        name = f"{self._name}{key}"
        return [_Table(self._path, f"{name}[{at}].", values, self._faults) for at, values in enumerate(found)]

    def done(self) -> None:
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, n=1)
            self._refused(self._wrong(key, "is unknown" + (f"; did you mean {near[0]}?" if near else "")))

    def _wrong(self, key: str, what: str) -> InvalidSettings:
        return InvalidSettings(f"{self._path}: {self._name}{key} {what}", path=str(self._path), key=key)
