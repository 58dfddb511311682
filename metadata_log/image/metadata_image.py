"""Pure: the metadata at one position of the log, made of its subjects: immutable, sharing structure with its neighbours.
Tests: tests/unit/metadata_log/test_apply.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final, NamedTuple

import immutables
import msgspec

from metadata_log.digest import EMPTY_BUCKETS, Buckets, DigestBuilder
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid, in_order
from metadata_log.image.acls import AclsBuilder, AclsImage
from metadata_log.image.begun import BegunImage, begun_records
from metadata_log.image.brokers import BrokersBuilder, BrokersImage
from metadata_log.image.configs import ConfigsBuilder, ConfigsImage
from metadata_log.image.controllers import ControllersBuilder, ControllersImage
from metadata_log.image.features import FeaturesBuilder, FeaturesImage
from metadata_log.image.producer_ids import ProducerIdsBuilder, ProducerIdsImage
from metadata_log.image.quorum import Claimant, QuorumBuilder, QuorumImage
from metadata_log.image.quotas import Entity, QuotasBuilder, QuotasImage
from metadata_log.image.results import RequestResults
from metadata_log.image.snapshot_rows import SnapshotRow, records_of
from metadata_log.image.subject import SubjectBuilder
from metadata_log.image.tokens import TokensBuilder, TokensImage
from metadata_log.image.topics import TopicsBuilder, TopicsImage, placed_partitions, tombstones
from metadata_log.image.users import CredentialKey, UsersBuilder, UsersImage
from metadata_log.limits import (
    KIB,
    LINES_COUNTED_AT_ONCE,
    LOG_TIME_STEP_MS,
    UNCOUNTED_BATCHES_MAX,
    UNCOUNTED_BYTES_MAX,
    UNCOUNTED_LINES_MAX,
    UNCOUNTED_SMALL_BATCHES_MAX,
)
from metadata_log.records.registry import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """What the log below `end_offset` (exclusive) adds up to; made by `apply` alone.

    `controller_epoch`, `last_crc` and `last_time_ms` are those of the last batch (0 before the first).
    """

    end_offset: int = 0
    controller_epoch: int = 0
    last_crc: int = 0
    last_time_ms: int = 0
    elapsed_ms: int = field(default=0, compare=False)
    """The log's time since this image's history began, for differences alone; see `log_time_step_ms`."""
    quorum: QuorumImage = field(default_factory=QuorumImage)
    features: FeaturesImage = field(default_factory=immutables.Map)
    brokers: BrokersImage = field(default_factory=immutables.Map)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=immutables.Map)
    next_producer_id: ProducerIdsImage = None
    controllers: ControllersImage = field(default_factory=immutables.Map)
    quotas: QuotasImage = field(default_factory=immutables.Map)
    acls: AclsImage = field(default_factory=AclsImage)
    users: UsersImage = field(default_factory=immutables.Map)
    tokens: TokensImage = field(default_factory=immutables.Map)
    results: RequestResults = field(default_factory=RequestResults)
    begun: BegunImage = field(default_factory=immutables.Map, compare=False)
    """Changes in parts that take brokers out of service; an older snapshot does not say them."""
    claimant: Claimant | None = field(default=None, compare=False)
    """The controller of `controller_epoch`; None where it is unknown: an older snapshot does not say it."""
    state_digest: "StateDigest" = field(
        default_factory=lambda: StateDigest(EMPTY_BUCKETS), repr=False, compare=False
    )

    @property
    def digest_buckets(self) -> Buckets:
        """What the state digest is made of; the first who asks has it counted."""
        return self.state_digest.buckets(self)

    def elapsed_at(self, unix_ms: int) -> int:
        """Return the log's time at a batch that would be appended now."""
        return self.elapsed_ms + log_time_step_ms(self.last_time_ms, unix_ms)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker may lead and join an ISR: registered, unfenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def to_rows(self) -> Iterator[SnapshotRow]:
        """Yield what adds up to this image, in the fixed order of a snapshot; each topic's partitions together."""
        for part, rows in _SNAPSHOT_ORDER:
            if rows is placed_partitions:
                yield from tombstones(self.topics, elapsed_ms=self.elapsed_ms)
            yield from rows(getattr(self, part))
        yield from begun_records(self.begun, self.features)
        for request_id in in_order(self.results.by_id):
            yield self.results.by_id[request_id]

    def without_results(self) -> "MetadataImage":
        """Return what others than controllers see. Its holder keeps no results in memory that are evicted meanwhile."""
        return replace(self, results=RequestResults())

    def to_records(self) -> Iterator[Record]:
        """Yield the records that add up to this image, in the fixed order of a snapshot."""
        return records_of(self.to_rows())


def log_time_step_ms(before_ms: int, now_ms: int) -> int:
    """Return what the time between two batches adds to the log's time.

    Bounded, as each leader stamps with its own clock: a clock that is set, or differs from the last leader's, must not end a
    window early.
    """
    return min(max(0, now_ms - before_ms), LOG_TIME_STEP_MS)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The keys a batch touched; what stood there before and after is read from the two images.

    Each set holds what was created, changed or removed; a key may look the same before and after.
    """

    brokers: frozenset[BrokerId] = frozenset()
    topics: frozenset[TopicId] = frozenset()
    """Topics created, removed, deleted for a time, or restored."""
    partitions: Mapping[TopicId, Sequence[int]] = msgspec.field(default_factory=dict)
    """Partitions created or changed, by topic and in order; those of a removed topic are not listed one by one."""
    configs: frozenset[tuple[int, str, str]] = frozenset()
    features: frozenset[str] = frozenset()
    quorum: bool = False
    """The quorum's version or voters."""
    claim: bool = False
    producer_ids: bool = False
    controllers: frozenset[NodeId] = frozenset()
    quotas: frozenset[tuple[Entity, str]] = frozenset()
    """Entity and key of each."""
    acls: frozenset[Uuid] = frozenset()
    users: frozenset[CredentialKey] = frozenset()
    tokens: frozenset[str] = frozenset()
    """Ids."""


class _Uncounted(NamedTuple):
    """A digest that is not counted: the keys that a batch touched tell it from that of the image before."""

    before: MetadataImage
    touched: Delta
    size: "_Size"
    """Of the batch alone."""
    behind: "_Size"
    """About that of all batches, this one among them, after an image whose digest is counted."""


class _Size(NamedTuple):
    """How many batches there are, about how many lines they touched, and how many bytes of memory they and the images
    before them keep.
    """

    batches: int
    lines: int
    bytes: int

    def plus(self, other: "_Size") -> "_Size":
        return _Size(self.batches + other.batches, self.lines + other.lines, self.bytes + other.bytes)

    @property
    def is_too_large(self) -> bool:
        return (
            self.bytes > UNCOUNTED_BYTES_MAX
            or self.batches > UNCOUNTED_BATCHES_MAX
            or self.lines > UNCOUNTED_LINES_MAX
            or (self.batches > UNCOUNTED_SMALL_BATCHES_MAX and self.lines <= LINES_COUNTED_AT_ONCE)
        )


_IMAGE_BYTES: Final = 4 * KIB
_KEY_BYTES: Final = 800
_PARTITION_BYTES: Final = 8
_TOUCHED_BYTES: Final = 4
"""Measured: what an image and its delta keep that the next image does not share. The first is for the image itself, the
others for each key (a topic, a setting), each partition of a topic that changed, and each partition touched."""


def _size_of(before: MetadataImage, touched: Delta) -> _Size:
    """Return the size of one batch."""
    topics = before.topics
    keys = (
        1
        + len(touched.topics)
        + len(touched.configs)
        + len(touched.brokers)
        + len(touched.quotas)
        + len(touched.acls)
        + len(touched.users)
        + len(touched.tokens)
    )
    lines, size = keys, _IMAGE_BYTES + _KEY_BYTES * (keys + len(touched.partitions))
    for topic_id in touched.topics:
        topic = topics.known(topic_id)
        if topic is not None:
            lines += len(topic.partitions)
            size += _PARTITION_BYTES * len(topic.partitions)
    for topic_id, partition_ids in touched.partitions.items():
        lines += len(partition_ids)
        size += _TOUCHED_BYTES * len(partition_ids)
        topic = topics.known(topic_id)
        if topic is not None:
            size += _PARTITION_BYTES * len(topic.partitions)
    return _Size(1, lines, size)


class StateDigest:
    """What the state digest of one image is made of, counted when somebody asks for it.

    Few ask, and to count it takes longer than to apply the batch. What several batches touched is counted at once, each key
    once. Back to the last image that is counted all stay in memory: UNCOUNTED_BYTES_MAX bounds it. Small batches are counted
    long before that, so that the processor's caches hold the images which the next ones share most of their parts with.
    """

    __slots__ = ("state",)

    def __init__(self, buckets: Buckets) -> None:
        self.state: Buckets | _Uncounted = buckets

    @staticmethod
    def behind(before: MetadataImage, touched: Delta) -> "StateDigest":
        """Return the digest of the image that a batch made of `before`; some that was put off for long is counted."""
        size = behind = _size_of(before, touched)
        earlier = before.state_digest.state
        if isinstance(earlier, _Uncounted):
            behind = behind.plus(earlier.behind)
            if behind.is_too_large:
                behind = reduce(_Size.plus, before.state_digest.count_some(before), size)
        digest = StateDigest(())
        digest.state = _Uncounted(before, touched, size, behind)
        return digest

    def buckets(self, image: MetadataImage) -> Buckets:
        """Return the buckets of `image`, whose digest this is; any thread may ask."""
        while isinstance(state := self.state, _Uncounted):
            self.count_some(image)
        return state

    def count_some(self, image: MetadataImage) -> "list[_Size]":
        """Count what can be counted in about 3 ms, or one batch; return the sizes of the other batches."""
        steps = _steps_to(image)
        count, lines = 0, 0
        while count < len(steps) and (count == 0 or lines + steps[count].size.lines <= LINES_COUNTED_AT_ONCE):
            lines += steps[count].size.lines
            count += 1
        if count:
            counted = image if count == len(steps) else steps[count].before
            counted.state_digest.state = _counted(steps[:count], counted)
        return [step.size for step in steps[count:]]


def _steps_to(image: MetadataImage) -> list[_Uncounted]:
    """Return the batches between the last image that is counted and `image`, in order."""
    steps: list[_Uncounted] = []
    while isinstance(state := image.state_digest.state, _Uncounted):
        steps.append(state)
        image = state.before
    steps.reverse()
    return steps


def _counted(steps: list[_Uncounted], after: MetadataImage) -> Buckets:
    """Count out the line of every key that the batches touched as it was, and count in the one it has in `after`."""
    if not steps:  # another thread has counted it
        return after.digest_buckets
    before = steps[0].before
    touched = steps[0].touched if len(steps) == 1 else _union([step.touched for step in steps])
    digest = DigestBuilder(before.digest_buckets)
    for builder in SUBJECT_BUILDERS:
        digest.remove_all(builder.touched_lines(getattr(before, builder.FIELD), touched))
        digest.add_all(builder.touched_lines(getattr(after, builder.FIELD), touched))
    return digest.buckets()


def _union(deltas: Sequence[Delta]) -> Delta:
    """Return the keys that any of some batches touched."""
    united: dict[str, Any] = {}
    for name in Delta.__struct_fields__:
        values = [getattr(delta, name) for delta in deltas]
        if name == "partitions":
            united[name] = _union_by_topic(values)
        else:
            united[name] = any(values) if isinstance(values[0], bool) else frozenset[Any]().union(*values)
    return Delta(**united)


def _union_by_topic(touched: Sequence[Mapping[TopicId, Sequence[int]]]) -> Mapping[TopicId, Sequence[int]]:
    united: dict[TopicId, set[int]] = {}
    for partitions in touched:
        for topic_id, partition_ids in partitions.items():
            united.setdefault(topic_id, set()).update(partition_ids)
    return {topic_id: sorted(partition_ids) for topic_id, partition_ids in united.items()}


SUBJECT_BUILDERS: Final[tuple[type[SubjectBuilder[Any]], ...]] = (
    BrokersBuilder,
    TopicsBuilder,
    ConfigsBuilder,
    FeaturesBuilder,
    ProducerIdsBuilder,
    QuorumBuilder,
    ControllersBuilder,
    QuotasBuilder,
    AclsBuilder,
    UsersBuilder,
    TokensBuilder,
)
"""A subject comes after those it depends on."""

_SNAPSHOT_ORDER: Final[tuple[tuple[str, Callable[[Any], Iterator[SnapshotRow]]], ...]] = (
    (QuorumBuilder.FIELD, QuorumBuilder.records),
    (FeaturesBuilder.FIELD, FeaturesBuilder.records),
    (BrokersBuilder.FIELD, BrokersBuilder.records),
    (TopicsBuilder.FIELD, TopicsBuilder.records),
    (ConfigsBuilder.FIELD, ConfigsBuilder.records),
    (TopicsBuilder.FIELD, placed_partitions),
    (ProducerIdsBuilder.FIELD, ProducerIdsBuilder.records),
    (ControllersBuilder.FIELD, ControllersBuilder.records),
    (QuotasBuilder.FIELD, QuotasBuilder.records),
    (AclsBuilder.FIELD, AclsBuilder.records),
    (UsersBuilder.FIELD, UsersBuilder.records),
    (TokensBuilder.FIELD, TokensBuilder.records),
)
"""Part of the format: equal images have equal snapshots, byte for byte."""

EMPTY: Final = MetadataImage()


def lines(image: MetadataImage) -> Iterator[str]:
    """Yield every entity's digest line; the reference for what is kept incrementally."""
    for builder in SUBJECT_BUILDERS:
        yield from builder.lines(getattr(image, builder.FIELD))


def buckets_of(image: MetadataImage) -> Buckets:
    """Return the digest's buckets of an image, from nothing."""
    builder = DigestBuilder(EMPTY_BUCKETS)
    builder.add_all(lines(image))
    return builder.buckets()
