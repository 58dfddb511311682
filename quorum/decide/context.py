"""Pure: what a decision may rest on, and nothing else. Tests: tests/property/test_every_decision.py."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.kafka_settings import REMOTE_STORAGE_SYSTEM
from metadata_log.limits import RECORDS_PER_PART_MAX
from metadata_log.wire.shapes import INT32_MAX
from quorum.decide.decision import Walk
from quorum.decide.mutation_quota import Mutations
from quorum.raft.raft_log import RaftStatus

NOBODY: Final[frozenset[BrokerId]] = frozenset()


class PlacementRandom(Protocol):
    """What placement needs of a generator; `random.Random` is one, and so is Java's."""

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, items: list[Any], /) -> None: ...


class TopicDefaults(NamedTuple):
    """What a topic gets whose creator names no numbers."""

    partitions: int = 1
    replication_factor: int = 3
    undelete_window_ms: int = 0
    """For how long a deleted topic can be restored; 0: not at all, as in Kafka."""


class TopicPolicy(NamedTuple):
    """How many partitions a topic may have at its creation or grow to, and how many replicas a new one must have."""

    partitions_max: int = INT32_MAX
    replication_factor_min: int = 1


class TokenRules(NamedTuple):
    """How long delegation tokens last, and how one is found by its HMAC; the names and the defaults are Kafka's."""

    max_lifetime_ms: int
    expiry_time_ms: int
    id_of: Callable[[bytes], str | None]
    """Returns None where no committed token has this HMAC."""


TOPIC_DEFAULTS: Final = TopicDefaults()
NO_POLICY: Final = TopicPolicy()


class SessionsView(Protocol):
    """What a decision may ask of the brokers' sessions; it changes them through `Decision.session_changes` alone."""

    @property
    def session_timeout_ms(self) -> int: ...

    def has_session(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> bool: ...

    def last_contact_ms_ago(self, broker_id: BrokerId, *, now_ms: int) -> int | None: ...

    def registration_offset(self, broker_id: BrokerId, broker_epoch: int) -> int: ...

    def lowest_active_offset(self, image: MetadataImage) -> int: ...

    def shutdown_offset(self, broker_id: BrokerId, broker_epoch: int) -> int | None: ...

    def may_stop(self) -> Collection[BrokerId]: ...

    def is_leaving(self, broker_id: BrokerId, broker_epoch: int) -> bool: ...


class ChangesView(Protocol):
    """What a decision may ask of the long changes under way."""

    @property
    def elected_to(self) -> PartitionKey | None: ...

    def visited(self, walk: Walk) -> PartitionKey | None: ...

    def failing_directories(self, broker_id: BrokerId) -> tuple[Uuid, ...]: ...


class DecideContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state a decision is made on.

    `ineligible` are brokers that a change in parts is taking out of service: until its last part they lead nothing and get
    no replica. `records_max` bounds one part of a change, and so does `is_turn_over`, which answers whether the time of a
    part is over. `node_id` is the controller's, and `static_configs` are the settings of its file, under all dynamic ones.
    `unix_ms` is the time that a batch appended now is stamped with.
    Replicas are placed by `placement_rng`, by default by `rng`. With `checks_as_brokers`, a decision also refuses what
    Kafka's request layer refuses, on its brokers and controllers, before the controller decides (docs/kafka-checks.md).
    With `takes_unstable_levels`, levels of features that Kafka may still change can be finalized.
    `is_linked` answers whether this controller is linked with another one now. `raft_status` returns Raft's view, in which
    a change of voters is pending from its append on; None: changes of voters are decided by the log alone. `mutations`
    counts the partitions that are created and deleted against the client's quota; None: it has none. `requester` is the
    principal that asks, and `is_administrator` says whether its roles give it the right cluster. `tokens` are
    the rules of delegation tokens; None: no secret key is set, so there are none.
    """

    image: MetadataImage
    sessions: SessionsView
    changes: ChangesView
    now_ms: int
    rng: random.Random
    cluster_id: str
    node_id: int = -1
    unix_ms: int = 0
    static_configs: Mapping[str, str] = msgspec.field(default_factory=dict)
    topic_defaults: TopicDefaults = TOPIC_DEFAULTS
    topic_policy: TopicPolicy = NO_POLICY
    checks_as_brokers: bool = False
    takes_unstable_levels: bool = False
    placement_rng: PlacementRandom | None = None
    ineligible: frozenset[BrokerId] = NOBODY
    records_max: int = RECORDS_PER_PART_MAX
    is_turn_over: Callable[[], bool] = lambda: False
    is_linked: Callable[[NodeId], bool] = lambda _: False
    raft_status: Callable[[], RaftStatus] | None = None
    mutations: Mutations | None = None
    requester: str = ""
    is_administrator: bool = False
    tokens: TokenRules | None = None

    @property
    def has_remote_storage(self) -> bool:
        return self.static_configs.get(REMOTE_STORAGE_SYSTEM) == "true"
