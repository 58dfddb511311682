"""Edge: `bench decisions`: what the decisions about a cluster of many partitions cost, without Raft, disks or HTTP.

A turn is one part of a change as the active controller makes it: the decision, its batch encoded, and its batch applied.
What a client asks in one request is one batch and made in slices; there a turn is a slice. Between two turns the loop serves
everybody else, so the longest turn is how long a heartbeat may wait. Times are those of the processor: nothing here
waits for anything, and what others do on the machine is not counted. Tests: tests/cluster/test_bench.py.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from operator import sub
from typing import Any, Final

from metadata_log.apply import apply, applying, image_of
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import batch_of, encode, encoding
from metadata_log.digest import EMPTY_BUCKETS
from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.snapshot_rows import PlacedPartitions, SnapshotRow
from metadata_log.limits import LOOP_SLICE_MS, PART_MS, RECORDS_PER_PART_MAX
from metadata_log.node.collector import short_collections
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange, RegisterBrokerRecord
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, MIN_IN_SYNC_REPLICAS
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    FeatureLevelRecord,
)
from metadata_log.records.partitions import RECOVERED, PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.sliced import Sliced
from metadata_log.wire.commands import BrokerHeartbeat, Command
from ops.bench.measure import percentile, report
from quorum.controller.changes import Changes, carry_out
from quorum.controller.sessions import Sessions
from quorum.decide.configs import AlterConfigs
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.effective_configs import UNCLEAN_LEADER_ELECTION
from quorum.decide.fencing import fence
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.registry import decide, deciding
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.topics import CreateTopics, DeleteTopics, NewTopic
from quorum.views.partition_health import partition_health, stuck_reassignments

CLUSTER_ID: Final = "BenchBenchBenchBenchBe"
_BROKERS: Final = tuple(BrokerId(broker_id) for broker_id in range(1, 13))
_LOST: Final = _BROKERS[0]
_SHAPES: Final = {"small_topics": 10, "large_topics": 5_000}
"""Partitions of one topic."""
_MANY: Final = 10_000
"""The records of one batch."""


def decisions(*, partitions: int, leaderships: int, rounds: int) -> dict[str, Any]:
    """Return what decisions cost in a cluster of so many partitions, of which one broker leads so many.

    Measure each decision `rounds` times, in clusters of two shapes that are made once.
    """
    ours: dict[str, object] = {"unit": "ms"}
    for shape, per_topic in _SHAPES.items():
        measured: dict[str, _Costs] = {}
        image = cluster(partitions=partitions, per_topic=min(per_topic, partitions), leaderships=leaderships)
        with short_collections(), _collector() as collector:  # as in a controller
            for _ in range(rounds):
                for name, cost in _story(image, per_topic, collector):
                    measured.setdefault(name, []).append(cost)
        ours[shape] = {name: _figures(costs) for name, costs in measured.items()}
    return report(
        "decisions",
        params={
            "partitions": partitions,
            "leaderships": leaderships,
            "brokers": len(_BROKERS),
            "replicas": 3,
        },
        ours=ours,
        peers={},
        rounds=rounds,
        probes={},
    )


# --- the cluster


def cluster(*, partitions: int, per_topic: int, leaderships: int) -> MetadataImage:
    """Return a cluster of twelve brokers. The first leads so many partitions, evenly spread, and has no other replicas."""
    every = partitions // leaderships
    directories = {broker_id: Uuid(bytes(12) + b"dir" + bytes([broker_id])) for broker_id in _BROKERS}
    others = _BROKERS[1:]
    places = cycle([(others[at], others[(at + 1) % 11], others[(at + 2) % 11]) for at in range(11)])

    def rows() -> Iterator[SnapshotRow]:
        for broker_id in _BROKERS:
            yield RegisterBrokerRecord(
                broker_id,
                Uuid(bytes(15) + bytes([broker_id])),
                int(broker_id),
                (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0),),
                (FeatureRange(METADATA_VERSION, 25, 30),),
                None,
                False,
                False,
                (directories[broker_id],),
                None,
            )
        yield FeatureLevelRecord(METADATA_VERSION, 30)
        made: dict[tuple[BrokerId, ...], PartitionImage] = {}

        def partition(number: int) -> PartitionImage:
            replicas = next(places)
            if number % every == 0 and number < every * leaderships:
                replicas = (_LOST, *replicas[:2])
            if replicas not in made:
                of = tuple(directories[broker_id] for broker_id in replicas)
                made[replicas] = PartitionImage(
                    replicas, replicas, replicas[0], 0, 0, RECOVERED, (), (), (), (), of
                )
            return made[replicas]

        rng = random.Random(1)
        for first in range(0, partitions, per_topic):
            topic_id = TopicId(Uuid(rng.randbytes(16)))
            yield TopicRecord(topic_id, f"t{first // per_topic}")
            numbers = range(first, min(first + per_topic, partitions))
            yield PlacedPartitions(topic_id, 0, tuple(map(partition, numbers)))

    header = SnapshotHeaderRecord(CLUSTER_ID, 10_000_000, 1, 0, 0)
    return image_of(rows(), header=header, digest_buckets=EMPTY_BUCKETS)


# --- what is decided


@dataclass(frozen=True, slots=True)
class _Cost:
    """Milliseconds of one change: of each decision, and of each turn."""

    decided: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    collected: list[float] = field(default_factory=list)
    """What the cycle collector took of each turn."""
    records: list[int] = field(default_factory=list)


_Costs = list[_Cost]


class _Leader:
    """The active controller's part in a decision: its tip, its sessions, and the time of a part."""

    def __init__(self, image: MetadataImage, collector: "_Collector") -> None:
        self.image = image
        self._collector = collector
        self.sessions = Sessions(session_timeout_ms=9_000)
        self.sessions.grant_all(image, 0)
        self.changes = Changes()
        self._rng = random.Random(1)

    def make(self, decided: Callable[[DecideContext], Decision]) -> _Cost:
        """Decide in as many parts as it takes."""
        cost, more = _Cost(), True
        while more:
            self._collector.taken()
            began = time.thread_time()
            decision = decided(self._context(began))
            decision.result()
            cost.decided.append(_ms_since(began))
            if decision.records:
                self.write(decision.records)
            carry_out(decision, self.sessions, self.changes, now_ms=0)
            cost.turns.append(_ms_since(began))
            cost.collected.append(self._collector.taken())
            cost.records.append(len(decision.records))
            more = decision.more
        return cost

    def write(self, records: Sequence[Record]) -> None:
        batch, _ = encode(
            base_offset=self.image.end_offset,
            controller_epoch=self.image.controller_epoch,
            appended_at_ms=1,
            previous_crc=self.image.last_crc,
            envelope=NO_ENVELOPE,
            records=records,
        )
        self.image = apply(self.image, batch).image

    def beat(self, command: BrokerHeartbeat) -> _Cost:
        """Carry out a broker's return: its heartbeat, and the elections in parts that go on after it."""

        def decided(context: DecideContext) -> Decision:
            elections = self.changes.next()
            return decide(context, command) if elections is None else elections.next_part(context)

        return self.make(decided)

    def submit(self, command: Command) -> _Cost:
        """Carry out a client's command, in slices."""
        cost, more = _Cost(), True
        while more:
            self._collector.taken()
            began = slice_began = time.thread_time()
            work = self._writing(command, began)
            while True:
                try:
                    next(work)
                    if _ms_since(slice_began) < LOOP_SLICE_MS:
                        continue
                    decision = None
                except StopIteration as ended:
                    decision, decided_ms = ended.value
                    cost.decided.append(decided_ms)
                    cost.records.append(len(decision.records))
                cost.turns.append(_ms_since(slice_began))
                cost.collected.append(self._collector.taken())
                if decision is not None:
                    more = decision.more
                    break
                slice_began = time.thread_time()
        return cost

    def _writing(self, command: Command, began: float) -> Sliced[tuple[Decision, float]]:
        """Decide, encode and apply; return the decision, and the milliseconds it took."""
        decision = yield from deciding(self._context(began), command)
        decision.result()
        decided_ms = _ms_since(began)
        image = self.image
        if decision.records:
            body = yield from encoding(NO_ENVELOPE, decision.records)
            batch, _ = batch_of(
                body,
                base_offset=image.end_offset,
                controller_epoch=image.controller_epoch,
                appended_at_ms=1,
                previous_crc=image.last_crc,
                envelope=NO_ENVELOPE,
                records=decision.records,
            )
            self.image = (yield from applying(image, batch)).image
        carry_out(decision, self.sessions, self.changes, now_ms=0)
        return decision, decided_ms

    def _context(self, began: float) -> DecideContext:
        return DecideContext(
            image=self.image,
            sessions=self.sessions,
            changes=self.changes,
            now_ms=0,
            rng=self._rng,
            cluster_id=CLUSTER_ID,
            ineligible=self.changes.leaving(),
            records_max=RECORDS_PER_PART_MAX,
            is_turn_over=lambda: _ms_since(began) >= PART_MS,
        )


class _Collector:
    """What the cycle collector took since somebody asked, in ms."""

    def __init__(self) -> None:
        self._began, self._taken = 0.0, 0.0

    def watch(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self._taken += _ms_since(self._began)

    def taken(self) -> float:
        taken, self._taken = self._taken, 0.0
        return taken


@contextmanager
def _collector() -> Iterator[_Collector]:
    collector = _Collector()
    gc.callbacks.append(collector.watch)
    try:
        yield collector
    finally:
        gc.callbacks.remove(collector.watch)


def _story(image: MetadataImage, per_topic: int, collector: _Collector) -> Iterator[tuple[str, _Cost]]:
    leader = _Leader(image, collector)
    back = BrokerHeartbeat(
        broker_id=_LOST,
        broker_epoch=int(_LOST),
        incarnation_id=None,
        applied_offset=2**60,
        position=None,
        want_fence=False,
        want_shut_down=False,
    )
    yield "fencing", leader.make(lambda context: fence(context, broker_id=_LOST, broker_epoch=int(_LOST)))
    fenced = leader.image
    yield "health", _read(lambda: partition_health(fenced, 1))
    yield "return", leader.beat(back)

    leaderless = _written(fenced, collector, leader=NO_LEADER, isr=(_LOST,))
    leader = _Leader(leaderless, collector)
    yield "return_to_leaderless", leader.beat(back)
    leader = _Leader(leaderless, collector)
    yield "unclean_sweep_not_allowed", leader.make(Sweep(SweepKind.UNCLEAN).part)
    leader.submit(_setting(UNCLEAN_LEADER_ELECTION, "true"))
    yield "unclean_sweep", leader.make(Sweep(SweepKind.UNCLEAN).part)

    drifted = _written(image, collector, leader=None, isr=None)
    leader = _Leader(drifted, collector)
    yield "preferred_sweep", leader.make(Sweep(SweepKind.BALANCE).part)
    leader = _Leader(drifted, collector)
    yield "elect_all", leader.submit(ElectLeaders(unclean=False, partitions=None))

    leader = _Leader(image, collector)
    to = (_BROKERS[1], _BROKERS[5], _BROKERS[9])
    moves = tuple(Reassignment(f"t{number // per_topic}", number % per_topic, to) for number in range(7_000))
    yield "one_reassignment", leader.submit(_moving(moves[:1]))
    yield "thousand_reassignments", leader.submit(_moving(moves[:1_000]))
    reassigning = leader.image
    yield "stuck_reassignments", _read(lambda: stuck_reassignments(reassigning))

    leader = _Leader(image, collector)
    yield "seven_thousand_reassignments", leader.submit(_moving(moves))
    leader = _Leader(image, collector)
    yield "topic_of_ten_thousand", leader.submit(_creating(["large"], _MANY - 1))
    yield "its_deletion", leader.submit(DeleteTopics(topics=("large",), all_or_nothing=False, now=True))
    names = [f"small{number}" for number in range(_MANY // 11)]
    yield "many_topics_of_ten", leader.submit(_creating(names, 10))
    yield "their_deletion", leader.submit(DeleteTopics(topics=tuple(names), all_or_nothing=False, now=True))

    leader = _Leader(image, collector)
    leader.make(lambda _: Decision(records=(FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1),)))
    leader.submit(_setting(MIN_IN_SYNC_REPLICAS, "3"))
    yield (
        "fencing_to_eligible",
        leader.make(lambda context: fence(context, broker_id=_LOST, broker_epoch=int(_LOST))),
    )
    yield "min_isr_of_the_cluster", leader.submit(_setting(MIN_IN_SYNC_REPLICAS, "2"))


def _written(
    image: MetadataImage,
    collector: _Collector,
    *,
    leader: BrokerId | None,
    isr: tuple[BrokerId, ...] | None,
) -> MetadataImage:
    """Return a cluster whose partitions on the first broker have this leader, None: their second replica, and this ISR."""
    changes = (
        PartitionChangeRecord(
            topic_id,
            partition_id,
            leader=partition.replicas[1] if leader is None else leader,
            isr=partition.isr if isr is None else isr,
        )
        for topic_id, partition_id, partition in image.topics.partitions_on(_LOST)
    )
    writer = _Leader(image, collector)
    while records := tuple(islice(changes, RECORDS_PER_PART_MAX)):
        writer.write(records)
    return writer.image


def _creating(names: Sequence[str], partitions: int) -> CreateTopics:
    topics = tuple(NewTopic(name, partitions, 3) for name in names)
    return CreateTopics(topics=topics, validate_only=False, all_or_nothing=False)


def _moving(moves: tuple[Reassignment, ...]) -> AlterPartitionReassignments:
    return AlterPartitionReassignments(reassignments=moves, allow_replication_factor_change=True)


def _setting(name: str, value: str) -> AlterConfigs:
    return AlterConfigs(resource_type=BROKER, resource_name=CLUSTER_DEFAULT, set={name: value}, unset=())


def _read(view: Callable[[], object]) -> _Cost:
    began = time.thread_time()
    view()
    took = _ms_since(began)
    return _Cost([took], [took], [0.0], [0])


def _ms_since(began: float) -> float:
    return (time.thread_time() - began) * 1000


def _figures(costs: _Costs) -> dict[str, object]:
    return {
        "decided_p50": round(percentile([sum(cost.decided) for cost in costs], 50), 2),
        "longest_decision": round(max(max(cost.decided) for cost in costs), 2),
        "longest_turn": round(max(max(cost.turns) for cost in costs), 2),
        "longest_turn_without_collector": round(
            max(max(map(sub, cost.turns, cost.collected)) for cost in costs), 2
        ),
        "turns": max(len(cost.turns) for cost in costs),
        "records": max(sum(cost.records) for cost in costs),
    }
