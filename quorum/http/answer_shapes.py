"""Pure: the shapes of answers over HTTP, for the description of the API; what makes the answers is in the subjects' files.
Tests: tests/unit/quorum/http/test_openapi.py.
"""

from typing import Any, Literal, NotRequired, TypedDict

from metadata_log.wire.fetch import SnapshotOffer
from quorum.http.acl_answers import Acl
from quorum.http.answer_parts import Listing, Outcome, Written


class Partition(TypedDict):
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    leader_recovery_state: str
    eligible_leader_replicas: list[int]
    last_known_elr: list[int]
    directories: list[str]


class Topic(TypedDict):
    name: str
    topic_id: str | None
    configs: dict[str, str]
    partitions: list[Partition]


class TopicCreated(Topic, Written):
    pass


class TopicOutcome(Outcome):
    name: str
    topic_id: str | None
    partitions: int
    replication_factor: int


class TopicsChanged(Written):
    topics: list[TopicOutcome]


class TopicListed(TypedDict):
    name: str
    topic_id: str
    partition_count: int
    replication_factor: int
    deleted_at_ms: NotRequired[int]
    grace_ms: NotRequired[int]
    left_ms: NotRequired[int]
    gone_at_ms: NotRequired[int]
    offline: NotRequired[int]
    under_replicated: NotRequired[int]
    not_preferred: NotRequired[int]
    reassigning: NotRequired[int]


class TopicsListed(Listing):
    undelete_window_ms: NotRequired[int]
    total: NotRequired[int]
    next_after: NotRequired[str | None]
    items: list[TopicListed]


class NamedOutcome(Outcome):
    name: str | None
    topic_id: str | None
    partitions: NotRequired[int]


class TopicsEnded(Written):
    topics: list[NamedOutcome]


class TopicEnded(Written):
    name: str
    topic_id: str


class PartitionListed(Partition):
    topic: str


class PartitionsListed(Listing):
    items: list[PartitionListed]
    next_after: str | None


class PartitionOutcome(Outcome):
    topic: str
    partition: int
    leader: NotRequired[int]


class PartitionsChanged(Written):
    partitions: list[PartitionOutcome]


class Reassignment(TypedDict):
    topic: str
    partition: int
    replicas: list[int]
    isr: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    why_stuck: str | None


class Reassignments(Listing):
    items: list[Reassignment]


class Imbalance(TypedDict):
    broker_id: int
    preferred: int
    led_elsewhere: int
    percent: float
    exceeds: bool


class Imbalances(Listing):
    items: list[Imbalance]
    percentage: int
    interval_seconds: int


class Endpoint(TypedDict):
    name: str
    host: str
    port: int
    security_protocol: int


class Feature(TypedDict):
    name: str
    min: int
    max: int


class Broker(TypedDict):
    broker_id: int
    state: Literal["OFFLINE", "FENCED", "ONLINE", "STOPPING"]
    broker_epoch: int
    incarnation_id: str
    rack: str | None
    endpoints: list[Endpoint]
    control_state: str
    registration_state: str
    in_controlled_shutdown: bool
    is_cordoned: bool
    shutdown_offset: int | None
    waits_for: str | None
    applied_offset: int | None
    lag_records: int | None
    last_contact_ms_ago: int | None
    metadata_age_ms: int | None
    would_serve_stale: bool | None


class Brokers(Listing):
    items: list[Broker]


class BrokerGone(Written):
    broker_id: int


class Setting(TypedDict):
    name: str
    value: str | None
    source: str


class Config(TypedDict):
    resource_type: str
    resource_name: str
    name: str
    value: str | None
    source: NotRequired[str]
    type: NotRequired[str]
    is_sensitive: NotRequired[bool]
    read_only: NotRequired[bool]
    synonyms: NotRequired[list[Setting]]


class Configs(Listing):
    items: list[Config]


class ConfigsChanged(Written):
    items: list[Config]


class ResourceOutcome(Outcome):
    resource_type: str
    resource_name: str


class ResourcesChanged(Written):
    resources: list[ResourceOutcome]


class QuotaPart(TypedDict):
    entity_type: str
    entity_name: str | None


class Quota(TypedDict):
    entity: list[QuotaPart]
    quotas: dict[str, float]


class Quotas(Listing):
    items: list[Quota]


class QuotaOutcome(Outcome):
    entity: list[QuotaPart]


class QuotasChanged(Written):
    entries: list[QuotaOutcome]


class ScramCredential(TypedDict):
    mechanism: str
    iterations: int


class User(TypedDict):
    user: str
    credentials: list[ScramCredential]


class Users(Listing):
    items: list[User]


class UserOutcome(Outcome):
    user: str


class UsersChanged(Written):
    users: list[UserOutcome]


class Token(TypedDict):
    """A delegation token; times are Unix ms, principals are written `User:NAME`."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int


class Tokens(Listing):
    items: list[Token]


class TokenIssued(Written):
    """`hmac` is what logs in, base64; null in a trial, and for another principal that repeats the request's id."""

    token_id: str
    owner: str
    requester: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: str | None


class TokenMoved(Written):
    expiry_timestamp_ms: int


class FeatureLevel(TypedDict):
    feature: str
    level: int
    supported_min: NotRequired[int]
    supported_max: NotRequired[int]


class Features(Listing):
    items: list[FeatureLevel]


class Added(TypedDict):
    """What a level of metadata.version can say that the one below cannot."""

    level: int
    name: str
    adds: str


class LostField(TypedDict):
    kind: str
    key: str
    field: str
    value: str


class LevelPreview(Listing):
    """The first rows of what a lower level could not hold; `count` of all."""

    items: list[LostField]
    feature: str
    level: int
    present: int
    count: int
    adds: list[Added]


class FeaturesChanged(Written):
    features: list[FeatureLevel]


class Node(TypedDict):
    id: int
    directory_id: str | None
    address: str
    http: str | None
    role: str
    end_offset: int | None
    log_start_offset: int | None
    lag_records: int | None
    last_fetch_ms_ago: int | None
    last_caught_up_ms_ago: int | None
    silent_ms: int | None
    reachable: bool
    locked_out: Any


class ObserverGone(TypedDict):
    id: int
    directory_id: str
    last_fetch_ms_ago: int | None
    last_caught_up_ms_ago: int | None


class Digest(TypedDict):
    end_offset: int
    value: str


class Quorum(TypedDict):
    cluster_id: str
    node_id: int
    version: str
    leader_id: int | None
    controller_epoch: int
    high_watermark: int
    log_start_offset: int
    observed_until_ms: int | None
    digest: Digest
    change_pending: bool
    voters: list[Node]
    observers: list[Node]
    observers_gone: list[ObserverGone]


class QuorumSettings(Listing):
    topics: dict[str, Any]
    elections: dict[str, Any]
    features: dict[str, Any]
    session_timeout_ms: int


class Leader(TypedDict):
    leader_id: int


class VoterNamed(TypedDict):
    id: int
    directory_id: str


class VotersChanged(Written):
    voters: list[VoterNamed]


class Registration(TypedDict):
    controller_id: int
    incarnation_id: str
    registration_epoch: int
    registered_at_ms: int | None
    is_voter: bool
    linked: bool | None
    endpoints: list[Endpoint]
    features: list[Feature]


class Registrations(Listing):
    items: list[Registration]


class ControllerChanged(Written):
    controller_id: int
    registration_epoch: int


class Snapshots(Listing):
    items: list[SnapshotOffer]


class Results(TypedDict):
    """For each command "status", and what the same request alone answers, or an error."""

    results: list[dict[str, Any]]


class Alive(TypedDict):
    ok: bool


class Reason(TypedDict):
    code: str
    detail: NotRequired[Any]


class Ready(TypedDict):
    ready: bool
    reasons: list[Reason]
    recent_warnings: NotRequired[list[dict[str, Any]]]
    partitions: NotRequired[dict[str, int] | None]


class State(Listing):
    time_ms: int
    digest: str
    brokers: list[dict[str, Any]]
    topics: list[Topic]
    deleted_topics: list[TopicListed]
    configs: list[Config]
    features: dict[str, int]
    next_producer_id: int | None
    kraft_version: int | None
    voters: list[dict[str, Any]] | None
    controllers: list[dict[str, Any]]
    quotas: list[Quota]
    users: list[User]
    tokens: list[Token]
    acls: list[Acl]


class Session(TypedDict):
    """Who a browser is to this node, and what it may do."""

    role: str
    node_id: int
    identity: bool
    principal: str | None
    rights: list[str]
    has_session: bool


class Block(TypedDict):
    """A block of producer ids."""

    first: int
    length: int


class Beginning(TypedDict):
    """The batch with which something began."""

    offset: int
    time_ms: int
    actor: str | None
    operation: str | None
    cause: dict[str, Any] | None


class Trouble(TypedDict):
    code: str
    level: Literal["red", "yellow"]
    detail: str
    since: Beginning | None
    subject: str | None


class Overview(Listing):
    cluster_id: str
    node_id: int
    leader_id: int
    leader_url: str | None
    is_active: bool
    log_start_offset: int
    last_time_ms: int
    now_ms: int
    leads_since: Beginning | None
    troubles: list[Trouble]
    recent_warnings: list[dict[str, Any]]
    partitions: dict[str, int]
    topics: int
    deleted_topics: int
    brokers: dict[str, int]
    voters: int


class AtAGlance(Listing):
    time_ms: int
    topics: int
    partitions: dict[str, int]
    brokers: dict[str, str]


class Difference(TypedDict):
    kind: Literal["broker", "topic", "partition"]
    key: str
    field: str
    before: Any
    after: Any


Past = TypedDict("Past", {"from": AtAGlance, "to": AtAGlance | None, "items": list[Difference], "more": bool})


class Suffering(TypedDict):
    topic: str
    partition: int
    leader: int
    isr: list[int]
    replicas: list[int]
    min_isr: int


class Loss(TypedDict):
    broker: int
    records: int
    leaders_moved: int
    unclean: int
    leaderless: int
    under_min_isr: int
    suffering: list[Suffering]


class Losses(TypedDict):
    end_offset: int
    steps: list[Loss]


class PrincipalListed(TypedDict):
    """A principal, as far as one node knows it; times are Unix milliseconds, null where it has not seen one."""

    name: str
    roles: list[str]
    rights: list[str]
    has_token: bool
    user: str | None
    seen_at_ms: int | None
    seen_from: str | None
    certificate_ends_ms: int | None


class RefusedRequest(TypedDict):
    """A request that this node refused last, and how many alike it refused before."""

    at_ms: int
    door: str
    reason: str
    principal: str
    address: str | None
    asked: str
    message: str
    times: int


class Principals(TypedDict):
    node: str
    identity: bool
    items: list[PrincipalListed]
    refused: list[RefusedRequest]
    refused_total: dict[str, int]
