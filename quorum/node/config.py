"""Pure: a controller's settings, frozen, and how they must relate to each other.
Tests: tests/unit/quorum/node/test_server.py.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.ids import NodeId, Uuid
from metadata_log.kafka_settings import REMOTE_STORAGE_SYSTEM
from metadata_log.metadata_versions import OUR_BROKERS_FROM, UNSTABLE_LEVEL, newest
from metadata_log.node.addresses import HostPort, address_text, http_url, is_reachable, read_url
from metadata_log.node.audit_settings import BOUNDS as OF_AUDIT
from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.rights import ByAcls
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS
from metadata_log.records.features import (
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
)
from metadata_log.wire.shapes import INT32_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterSettings:
    """One controller of the quorum: `http` is its URL without trailing slash, `raft` where voters reach it."""

    id: NodeId
    raft: HostPort
    http: str
    directory_id: Uuid
    kafka: HostPort | None = None
    """Where Kafka's brokers and tools reach it; None: it has no listener for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSettings:
    """All in milliseconds."""

    heartbeat_ms: int = limits.HEARTBEAT_MS
    election_timeout_min_ms: int = limits.ELECTION_TIMEOUT_MIN_MS
    election_timeout_max_ms: int = limits.ELECTION_TIMEOUT_MAX_MS
    session_timeout_ms: int = limits.SESSION_TIMEOUT_MS
    commit_timeout_ms: int = limits.COMMIT_TIMEOUT_MS

    @property
    def max_wait_ms(self) -> int:
        """The longest a fetch is parked: a third of the session, so that two may be lost."""
        return self.session_timeout_ms // 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What of the committed log is kept; None keeps it for ever."""

    segment_bytes: int = limits.SEGMENT_BYTES
    retention_bytes: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """When a snapshot is due (0 for `age_ms`: never by age) and how many are kept."""

    bytes: int = limits.SNAPSHOT_BYTES
    age_ms: int = limits.SNAPSHOT_AGE_MS
    keep: int = limits.SNAPSHOTS_KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """How often the controller looks for elections without a request; 0: never. The names are Kafka's.

    Kafka's controllers ignored the percentage under KRaft, and 4.3.1 does not know it; 0 is what that amounts to.
    """

    leader_imbalance_check_interval_seconds: int = limits.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS
    leader_imbalance_per_broker_percentage: int = 0
    """A broker gets leaderships back if it lacks more than this share of those it is preferred for. 0: if it lacks any."""
    unclean_leader_election_interval_ms: int = limits.UNCLEAN_LEADER_ELECTION_INTERVAL_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What topics get whose creators say nothing else, with Kafka's names; and what they may not ask for.

    min_insync_replicas counts where neither the topic nor the cluster has a setting of its own in the log.
    """

    num_partitions: int = 1
    default_replication_factor: int = 3
    min_insync_replicas: int = 1
    undelete_window_ms: int = 0
    """For how long a deleted topic can be restored; 0 is Kafka's way: it is gone at once."""
    partitions_per_topic_max: int = INT32_MAX
    """More are refused with POLICY_VIOLATION, at a creation and when a topic grows."""
    replication_factor_min: int = 1
    """A new topic with fewer replicas is refused with POLICY_VIOLATION."""
    remote_log_storage_system_enable: bool | None = None
    """Whether Kafka's brokers have a remote storage, so that topics may have remote.storage.enable; None: they have none.

    A file without it is one that earlier releases read.
    """

    @property
    def static_configs(self) -> dict[str, str]:
        """The settings of this file that count where the log has none, by their names in the log."""
        named = {MIN_IN_SYNC_REPLICAS: str(self.min_insync_replicas)}
        return named | ({REMOTE_STORAGE_SYSTEM: "true"} if self.remote_log_storage_system_enable else {})


KAFKA_SECURITY: Final = ("plaintext", "tls", "sasl_plaintext", "sasl_tls")
"""Each at the number of Kafka's security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The listener for Kafka's brokers and tools."""

    listener_name: str = "CONTROLLER"
    """What brokers call the listener: the first of their `controller.listener.names`. The same on all controllers."""
    security: str | None = None
    """One of KAFKA_SECURITY. None: tls beside [tls], else plaintext."""
    other_brokers: bool = False
    """Whether brokers that are not Kafka's may register, too. They would be given replicas of Kafka's topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSettings:
    """The levels of features: with which a cluster is founded, and which can be finalized later."""

    founding_metadata_version: int = METADATA_VERSION_LEVEL
    """Read at the founding alone. Levels of other features follow from it, as `kafka-storage format` chooses them."""
    unstable_levels: bool = False
    """Whether this controller finalizes levels that Kafka may still change. The same on all controllers."""


_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenSettings:
    """Delegation tokens, with Kafka's names after `delegation.token.`; the same on all controllers and brokers."""

    secret_key_file: Path | None = None
    """Holds the secret key, of which the HMACs are made; None: there are no tokens."""
    max_lifetime_ms: int = 7 * _DAY_MS
    expiry_time_ms: int = _DAY_MS
    expiry_check_interval_ms: int = _DAY_MS // 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AclSettings:
    """Whether access control lists count on the doors of this controller; the second name is Kafka's."""

    enforced: bool = False
    """ACLs may give principals what their roles do not."""
    allow_everyone_if_no_acl_found: bool = False
    """What no ACL concerns is allowed to every principal that shows an identity."""

    @property
    def by_acls(self) -> ByAcls | None:
        """How ACLs count; None: not at all."""
        return ByAcls(self.allow_everyone_if_no_acl_found) if self.enforced else None


_INT64_MAX: Final = 2**63 - 1
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys((f"timing.{name}" for name in TimingSettings.__slots__), (1, _DAY_MS)),
    "log.segment_bytes": (limits.FRAME_BYTES_MAX, _INT64_MAX),
    "snapshot.bytes": (1, _INT64_MAX),
    "snapshot.age_ms": (0, _INT64_MAX),
    "snapshot.keep": (1, _INT64_MAX),
    **dict.fromkeys((f"elections.{name}" for name in ElectionSettings.__slots__), (0, INT32_MAX)),
    "elections.leader_imbalance_per_broker_percentage": (0, 100),
    **dict.fromkeys((f"topics.{name}" for name in TopicSettings.__slots__[:-1]), (1, limits.LIST_ITEMS_MAX)),
    **dict.fromkeys(
        (f"delegation_tokens.{name}" for name in DelegationTokenSettings.__slots__[1:]), (1, _INT64_MAX)
    ),
    "topics.undelete_window_ms": (0, limits.UNDELETE_WINDOW_MS_MAX),
    "topics.partitions_per_topic_max": (1, INT32_MAX),
    **OF_AUDIT,
}
"""The least and the most of each number, by its key in a settings file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    cluster_id: str
    node_id: NodeId
    data_dir: Path
    listen_http: HostPort
    listen_raft: HostPort
    listen_kafka: HostPort | None = None
    """Where Kafka's brokers and tools are served; None: nowhere."""
    voters: tuple[VoterSettings, ...]
    """The founding ones, and where the quorum is found; once it is founded the log says who votes."""
    advertised_http: str | None = None
    advertised_raft: HostPort | None = None
    advertised_kafka: HostPort | None = None
    """Where others reach this node; None: as its entry among the voters says, else where it listens."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which clients may ask for this node."""
    tls: TlsFiles | None = None
    """None: everything passes in the clear, which a settings file must say (`insecure = true`)."""
    principals: Path | None = None
    """The file of principals; None: everybody may do everything, which a settings file must say (`insecure = true`)."""
    token_file: Path | None = None
    """Holds the bearer token with which this controller asks the others."""
    timing: TimingSettings = field(default_factory=TimingSettings)
    log: LogSettings = field(default_factory=LogSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    elections: ElectionSettings = field(default_factory=ElectionSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    acls: AclSettings = field(default_factory=AclSettings)
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)

    @property
    def own(self) -> VoterSettings:
        """This node's entry among the voters; a node without one is an observer until the log says otherwise."""
        return next(voter for voter in self.voters if voter.id == self.node_id)

    @property
    def is_listed(self) -> bool:
        return any(voter.id == self.node_id for voter in self.voters)

    @property
    def http_url(self) -> str:
        """This node's URL, as other nodes use it."""
        if self.advertised_http is not None:
            return self.advertised_http
        return self.own.http if self.is_listed else http_url(self.listen_http, tls=self.tls is not None)

    @property
    def own_hosts(self) -> tuple[str, ...]:
        """The names by which clients may ask for this node, numeric addresses and `localhost` aside."""
        listed = [self.own.http] if self.is_listed else []
        urls = {self.http_url, *listed}
        return (self.listen_http[0], *sorted(read_url(url)[0] for url in urls), *self.allowed_hosts)

    @property
    def raft_address(self) -> HostPort:
        """Where other controllers reach this node."""
        if self.advertised_raft is not None:
            return self.advertised_raft
        return self.own.raft if self.is_listed else self.listen_raft

    @property
    def kafka_address(self) -> HostPort | None:
        """Where Kafka's brokers and tools reach this node; None: it has no listener for them."""
        if self.listen_kafka is None or self.advertised_kafka is not None:
            return self.advertised_kafka
        own = self.own.kafka if self.is_listed else None
        return own or self.listen_kafka

    @property
    def kafka_security(self) -> str:
        """One of KAFKA_SECURITY."""
        return self.kafka.security or ("plaintext" if self.tls is None else "tls")

    def url_of(self, node_id: NodeId) -> str | None:
        return next((voter.http for voter in self.voters if voter.id == node_id), None)

    def _check_schemes(self) -> None:
        """Check that with TLS no other node is told to come without."""
        urls = [("voters.http", voter.http) for voter in self.voters]
        if self.advertised_http is not None:
            urls.append(("advertised.http", self.advertised_http))
        for name, url in urls:
            if self.tls is not None and not url.startswith("https://"):
                raise InvalidSettings(f"{name} = {url!r}: wanted https://HOST:PORT, as there is [tls]")

    def validate(self) -> None:
        """Check how the settings relate.

        Raises:
            InvalidSettings: names the first that contradicts another, and by how much.
        """
        self._check_schemes()
        self._check_voters()
        self._check_bounds()
        self._check_timing()
        self._check_features()
        self._check_kafka()
        self._check_acls()

    def _check_voters(self) -> None:
        ids = [voter.id for voter in self.voters]
        if len(set(ids)) != len(ids) or not 1 <= len(ids) <= limits.CONTROLLERS_MAX:
            raise InvalidSettings(f"voters {ids}: 1 to {limits.CONTROLLERS_MAX} different ids are needed")
        for node_id in (self.node_id, *ids):
            if not 0 <= node_id <= INT32_MAX:
                raise InvalidSettings(f"controller id {node_id} is outside 0 to {INT32_MAX}")
        for what in ("raft", "http", "kafka", "directory_id"):
            values = [value for voter in self.voters if (value := getattr(voter, what)) is not None]
            if len(set(values)) != len(values):
                raise InvalidSettings(f"two voters have the same {what}")
        for key, advertised, listens in (
            ("http", self.advertised_http, self.listen_http),
            ("raft", self.advertised_raft, self.listen_raft),
            ("kafka", self.advertised_kafka, self.listen_kafka),
        ):
            if listens is None or is_reachable(listens):
                continue
            if advertised is None and not self.is_listed:
                raise InvalidSettings(
                    f"others cannot reach {address_text(listens)}, where node {self.node_id} listens: set advertised.{key}"
                )

    def _check_bounds(self) -> None:
        """Check each number by itself."""
        for key, (least, most) in BOUNDS.items():
            table, _, name = key.partition(".")
            value = getattr(getattr(self, table), name)
            if not least <= value <= most:
                raise InvalidSettings(f"{key} = {value} is outside {least} to {most}")

    def _check_timing(self) -> None:
        timing = self.timing
        if timing.election_timeout_min_ms < 3 * timing.heartbeat_ms:
            raise InvalidSettings(
                f"timing.election_timeout_min_ms = {timing.election_timeout_min_ms} must be at least three heartbeats "
                f"({3 * timing.heartbeat_ms}), or one lost heartbeat starts an election"
            )
        if timing.election_timeout_max_ms <= timing.election_timeout_min_ms:
            raise InvalidSettings(
                "timing.election_timeout_max_ms must exceed election_timeout_min_ms, or votes split"
            )
        if timing.session_timeout_ms < 3 * timing.election_timeout_max_ms:
            raise InvalidSettings(
                f"timing.session_timeout_ms = {timing.session_timeout_ms} must be at least three election timeouts "
                f"({3 * timing.election_timeout_max_ms}), or a failover fences brokers that are well"
            )
        if timing.commit_timeout_ms < timing.election_timeout_max_ms:
            raise InvalidSettings("timing.commit_timeout_ms must be at least election_timeout_max_ms")

    def _check_features(self) -> None:
        """Check the levels of a founding, and that they go together."""
        level, most = self.features.founding_metadata_version, newest(unstable=self.features.unstable_levels)
        if not METADATA_VERSION_MIN <= level <= most:
            raise InvalidSettings(
                f"features.founding_metadata_version = {level} is outside {METADATA_VERSION_MIN} to {most}"
                + (" (unstable_levels = true adds the unstable one)" if level == UNSTABLE_LEVEL else "")
            )
        if self.listen_kafka is None and level < OUR_BROKERS_FROM:
            raise InvalidSettings(
                f"features.founding_metadata_version = {level}: without listen.kafka it must be at least "
                f"{OUR_BROKERS_FROM}: other brokers say their log directories"
            )

    def _check_kafka(self) -> None:
        """Check what a listener for Kafka's brokers asks of the other settings."""
        if self.listen_kafka is None:
            self._check_no_kafka()
            return
        if self.is_listed and self.own.kafka is None:
            raise InvalidSettings(
                f"listen.kafka is set, but voters.kafka of node {self.node_id} is missing: the log would not tell Kafka's "
                "brokers where this controller is"
            )
        if self.kafka.security not in (None, *KAFKA_SECURITY):
            raise InvalidSettings(
                f"kafka.security = {self.kafka.security!r}: wanted one of {', '.join(KAFKA_SECURITY)}"
            )
        is_encrypted = self.kafka_security.endswith("tls")
        if is_encrypted != (self.tls is not None):
            there_is = "no" if self.tls is None else "a"
            raise InvalidSettings(f"kafka.security = {self.kafka_security!r}, but there is {there_is} [tls]")
        if self.kafka_security.startswith("sasl") and self.principals is None:
            raise InvalidSettings(
                f"kafka.security = {self.kafka_security!r}, but there is no [identity] principals"
            )
        if self.timing.session_timeout_ms < limits.KAFKA_SESSION_TIMEOUT_MIN_MS:
            raise InvalidSettings(
                f"timing.session_timeout_ms = {self.timing.session_timeout_ms} must be at least "
                f"{limits.KAFKA_SESSION_TIMEOUT_MIN_MS} with listen.kafka: Kafka's brokers send a heartbeat every 2,000 ms"
            )
        if self.topics.undelete_window_ms:
            raise InvalidSettings(
                f"topics.undelete_window_ms = {self.topics.undelete_window_ms} must be 0 with listen.kafka: Kafka's brokers "
                "delete a topic's data at once, and their log has no record that restores a topic"
            )

    def _check_acls(self) -> None:
        """Check what enforced ACLs ask of the other settings."""
        if self.acls.enforced and self.principals is None:
            raise InvalidSettings(
                "acls.enforced = true, but there is no [identity] principals: nobody would be known by a name"
            )
        if self.acls.allow_everyone_if_no_acl_found and not self.acls.enforced:
            raise InvalidSettings(
                "acls.allow_everyone_if_no_acl_found = true, but acls.enforced is not: no ACL counts"
            )

    def _check_no_kafka(self) -> None:
        for key, value in (
            ("advertised.kafka", self.advertised_kafka),
            (f"voters.kafka of node {self.node_id}", self.own.kafka if self.is_listed else None),
            ("[kafka]", None if self.kafka == KafkaSettings() else self.kafka),
        ):
            if value is not None:
                raise InvalidSettings(
                    f"{key} is set, but listen.kafka is not: it has no listener for Kafka's brokers"
                )


def settings_in_decisions(settings: ControllerSettings) -> dict[str, Any]:
    """Return what a controller's file adds to the log when it decides, as plain values."""
    return {
        "topics": {key: value for key, value in asdict(settings.topics).items() if value is not None},
        "elections": asdict(settings.elections),
        "features": asdict(settings.features),
        "session_timeout_ms": settings.timing.session_timeout_ms,
    }
