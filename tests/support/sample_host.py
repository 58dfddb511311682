"""Pure: a toy data plane in memory: it appends at the leader, replicates by fetching, and keeps high watermarks and ISRs.

    instructions --> SampleHost <--messages--> the hosts of other brokers
                        | ISRs to report, directories to report

Its rules are those of Kafka 4.3.1, few as they are, so that what goes wrong with it would go wrong with Kafka's brokers.
Whoever drives it hands over each batch of the log (`carry_out`), each message of another host (`receive`), each answer to a
report (`isr_answered`), and calls `tick` every few milliseconds. Messages may be lost, late and out of order.

Source: Kafka's Partition, ReplicaManager and AbstractFetcherThread; KIP-101, KIP-497, KIP-903, KIP-966.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, assert_never

from broker_agent.replicas import Delete, Follow, Instruction, Lead, Start, Stop, Stray, Wait
from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.partitions import RECOVERED, RECOVERING
from metadata_log.wire.commands import AlteredPartition, IsrMember, ReportedIsr
from tests.support.replica_log import Disks, EpochEnd, Record, ReplicaLog

REPLICA_LAG_TIME_MAX_MS: Final = 30_000
"""Kafka's default: a follower that has not caught up for longer leaves the ISR."""
FETCH_TIMEOUT_MS: Final = 500
"""A fetch without an answer is given up after this time, as Kafka's replica.fetch.wait.max.ms."""
CHECKPOINT_MS: Final = 5_000
"""Kafka's replica.high.watermark.checkpoint.interval.ms."""
RECORDS_PER_FETCH: Final = 100
OnAppended = Callable[[str | None], None]
"""Called once with None, if the record is committed for good, or the name of the error: it may survive all the same."""


class FetchPosition(NamedTuple):
    """Where a follower's log ends, and with a record of which leader epoch (-1: it is empty)."""

    topic_id: TopicId
    partition_id: int
    leader_epoch: int
    fetch_offset: int
    last_epoch: int


class Fetch(NamedTuple):
    """A follower asks a leader for what follows; `number` rises with each fetch of one process."""

    broker_id: BrokerId
    broker_epoch: int
    number: int
    positions: tuple[FetchPosition, ...]


class FetchedRecords(NamedTuple):
    """What a leader has behind a position: records, or the name of an error, or where the two logs part."""

    topic_id: TopicId
    partition_id: int
    leader_epoch: int
    fetch_offset: int
    error: str | None = None
    diverging: EpochEnd | None = None
    records: tuple[Record, ...] = ()
    high_watermark: int = 0


class FetchAnswer(NamedTuple):
    broker_id: BrokerId
    number: int
    partitions: tuple[FetchedRecords, ...]


Message: TypeAlias = Fetch | FetchAnswer


@dataclass(slots=True)
class FollowerState:
    """What a leader knows of a follower."""

    caught_up_ms: float
    """When it last had all that the leader had."""
    end_offset: int = -1
    broker_epoch: int = -1
    number: int = -1
    fetched_ms: float = 0
    leader_end_at_fetch: int = -1

    def is_caught_up(self, leader_end: int, now_ms: float, lag_max_ms: float) -> bool:
        return self.end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


@dataclass(slots=True)
class Leading:
    start_offset: int
    """Where the leader's epoch begins: a follower that ends before may lack what was committed before."""
    isr: tuple[BrokerId, ...]
    followers: dict[BrokerId, FollowerState]
    proposed: tuple[BrokerId, ...] | None = None
    """The ISR that was reported, until its fate is known. Its members already hold back the high watermark."""
    waiting: deque[tuple[int, OnAppended]] = field(default_factory=deque)

    @property
    def maximal_isr(self) -> set[BrokerId]:
        return {*self.isr, *(self.proposed or ())}


@dataclass(slots=True)
class Replica:
    key: PartitionKey
    log: ReplicaLog
    high_watermark: int
    leader_epoch: int = -1
    partition_epoch: int = -1
    replicas: tuple[BrokerId, ...] = ()
    leading: Leading | None = None
    leader: BrokerId | None = None
    """Whom this replica fetches from."""


class SampleHost:
    """The host on one broker: made anew at each start of its process, on the disks that outlive it.

    `send(to, message)` may lose, delay and reorder messages. `report(isr)` is answered by `isr_answered`.
    `assign(key, directory)` tells the controllers where a replica lies. `may_serve` and `now_ms` are the broker's.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        disks: Disks,
        *,
        now_ms: Callable[[], float],
        may_serve: Callable[[], bool],
        send: Callable[[BrokerId, Message], None],
        report: Callable[[ReportedIsr], None],
        assign: Callable[[PartitionKey, Uuid], None] = lambda _key, _directory: None,
        default_min_isr: int = 1,
        lag_max_ms: float = REPLICA_LAG_TIME_MAX_MS,
    ) -> None:
        self.broker_id = broker_id
        self.disks = disks
        self.image = EMPTY
        self.endpoints: dict[BrokerId, BrokerEndpoint] = {}
        """Of the leaders that are followed."""
        self.truncated_committed = 0
        """Records that were cut below a high watermark: only an unclean election leads to that."""
        self._now_ms = now_ms
        self._may_serve = may_serve
        self._send = send
        self._report = report
        self._assign = assign
        self._default_min_isr = default_min_isr
        self._lag_max_ms = lag_max_ms
        self.replicas = {key: _opened(key, disks.logs[key]) for key in disks.held()}
        self._fetching: dict[BrokerId, tuple[int, float]] = {}
        """The number of the fetch that each leader is asked by, and when it was sent."""
        self._fetches = 0
        self._moving: dict[PartitionKey, Uuid] = {}
        """Where replicas shall lie once the log says that they do."""
        self._checkpointed_ms = now_ms()

    # --- what the log says

    def held(self) -> list[PartitionKey]:
        return self.disks.held()

    @property
    def known_offset(self) -> int:
        return self.disks.known_offset

    def carry_out(self, instructions: Sequence[Instruction], image: MetadataImage) -> None:
        """Carry out what a batch led to; called for each batch, since it may change who is eligible for an ISR."""
        self.image = image
        if instructions:
            self.disks.known_offset = image.end_offset
        for one in instructions:
            match one:
                case Start():
                    self._start(one)
                case Delete():
                    self._drop((one.topic_id, one.partition_id))
                case Stray():
                    log = self._drop((one.topic_id, one.partition_id))
                    if log is not None:
                        self.disks.set_aside[one.topic_id, one.partition_id] = log
                case Lead() | Follow() | Wait() | Stop():
                    self._take_role(one)
                case _:
                    assert_never(one)

    def _start(self, start: Start) -> None:
        key = (start.topic_id, start.partition_id)
        directory = self.disks.choose(start.directory)
        known = self.disks.logs.get(key)
        if known is not None and known.directory != start.directory:
            self._assign(key, known.directory)  # in a directory that failed before this start
        if known is not None or directory is None:
            return
        self.disks.logs[key] = log = ReplicaLog(directory, start.topic)
        self.replicas[key] = _opened(key, log)

    def _drop(self, key: PartitionKey) -> ReplicaLog | None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            self._fail_waiting(replica, "UNKNOWN_TOPIC_OR_PARTITION")
        return self.disks.logs.pop(key, None)

    def _take_role(self, role: Lead | Follow | Wait | Stop) -> None:
        key, partition = (role.topic_id, role.partition_id), role.partition
        replica = self.replicas.get(key)
        if replica is None or partition.partition_epoch < replica.partition_epoch:
            return  # its directory failed, or the answer to a report was earlier
        assigned = partition.directories[partition.replicas.index(self.broker_id)]
        if assigned == self._moving.pop(key, None) and assigned not in self.disks.failed:
            replica.log.directory = assigned
        if assigned != replica.log.directory:
            self._assign(key, replica.log.directory)
        is_news = partition.partition_epoch > replica.partition_epoch
        is_new_epoch = partition.leader_epoch > replica.leader_epoch
        replica.leader_epoch = partition.leader_epoch
        replica.partition_epoch = partition.partition_epoch
        replica.replicas = partition.replicas
        if isinstance(role, Lead):
            replica.leader = None
            if replica.leading is None or is_new_epoch:
                self._fail_waiting(replica, "NOT_LEADER_OR_FOLLOWER")
                replica.log.begin_epoch(partition.leader_epoch)
                replica.leading = Leading(replica.log.end_offset, partition.isr, {})
            self._lead(replica, replica.leading, partition, is_news=is_news)
            return
        self._fail_waiting(replica, "NOT_LEADER_OR_FOLLOWER")
        replica.leading, replica.leader = None, None
        if isinstance(role, Follow):
            replica.leader = partition.leader
            self.endpoints[partition.leader] = role.endpoint

    def _lead(self, replica: Replica, leading: Leading, partition: PartitionImage, *, is_news: bool) -> None:
        known = leading.followers
        leading.followers = {
            broker_id: known.get(broker_id) or self._unknown(broker_id, partition)
            for broker_id in partition.replicas
            if broker_id != self.broker_id
        }
        if is_news:  # an ISR that is proposed on the state before can no longer be accepted
            leading.isr, leading.proposed = partition.isr, None
        if partition.leader_recovery_state == RECOVERING and leading.proposed is None:
            self._propose(replica, leading, partition.isr)  # there is nothing to recover in memory
        self._advance(replica, leading)

    def _unknown(self, broker_id: BrokerId, partition: PartitionImage) -> FollowerState:
        return FollowerState(self._now_ms() if broker_id in partition.isr else float("-inf"))

    # --- clients

    def append(self, key: PartitionKey, value: str, on_done: OnAppended, *, all_acks: bool = True) -> None:
        """Append a record; with `all_acks` it is done once it is below the high watermark."""
        replica = self.replicas.get(key)
        if replica is None:
            return on_done("UNKNOWN_TOPIC_OR_PARTITION")
        if replica.leading is None:
            return on_done("NOT_LEADER_OR_FOLLOWER")
        if not self._may_serve():
            return on_done("BROKER_NOT_AVAILABLE")
        if all_acks and len(replica.leading.isr) < self._min_isr(replica):
            return on_done("NOT_ENOUGH_REPLICAS")
        replica.log.append(Record(replica.leader_epoch, value))
        if all_acks:
            replica.leading.waiting.append((replica.log.end_offset - 1, on_done))
        else:
            on_done(None)
        self._advance(replica, replica.leading)
        return None

    def committed(self, key: PartitionKey) -> list[str]:
        """Return what consumers may see of a replica: what is below its high watermark."""
        replica = self.replicas[key]
        return [record.value for record in replica.log.records[: replica.high_watermark]]

    def read(self, key: PartitionKey, offset: int) -> str | list[str]:
        """Return what a consumer reads from an offset on, or the name of an error."""
        replica = self.replicas[key]
        if replica.leading is None:
            return "NOT_LEADER_OR_FOLLOWER"
        if offset > replica.log.end_offset:
            return "OFFSET_OUT_OF_RANGE"
        return self.committed(key)[offset:]

    def _min_isr(self, replica: Replica) -> int:
        own = self.image.topics.index.min_isr.get(replica.key[0])
        return min(own or self._default_min_isr, len(replica.replicas))

    # --- time

    def tick(self) -> None:
        """Fetch what is due, take followers that lag out of ISRs, and write high watermarks down."""
        now_ms = self._now_ms()
        for replica in self.replicas.values():
            if replica.leading is not None:
                self._shrink(replica, replica.leading, now_ms)
                self._advance(replica, replica.leading)
        for leader in sorted({one.leader for one in self.replicas.values() if one.leader is not None}):
            self._fetch_from(leader, now_ms)
        if now_ms - self._checkpointed_ms >= CHECKPOINT_MS:
            self.checkpoint()

    def checkpoint(self) -> None:
        self._checkpointed_ms = self._now_ms()
        for replica in self.replicas.values():
            replica.log.checkpoint = replica.high_watermark

    def _shrink(self, replica: Replica, leading: Leading, now_ms: float) -> None:
        end = replica.log.end_offset
        stays = tuple(
            broker_id
            for broker_id in leading.isr
            if broker_id == self.broker_id
            or leading.followers[broker_id].is_caught_up(end, now_ms, self._lag_max_ms)
        )
        if leading.proposed is None and stays != leading.isr:
            self._propose(replica, leading, stays)

    # --- fetching

    def receive(self, message: Message) -> None:
        match message:
            case Fetch():
                partitions = tuple(self._serve(message, position) for position in message.positions)
                self._send(message.broker_id, FetchAnswer(self.broker_id, message.number, partitions))
            case FetchAnswer():
                self._take_answer(message)
            case _:
                assert_never(message)

    def _fetch_from(self, leader: BrokerId, now_ms: float) -> None:
        under_way = self._fetching.get(leader)
        own = self.image.brokers.get(self.broker_id)
        if own is None or (under_way is not None and now_ms - under_way[1] < FETCH_TIMEOUT_MS):
            return
        positions = tuple(
            FetchPosition(*key, replica.leader_epoch, replica.log.end_offset, replica.log.last_epoch)
            for key, replica in self.replicas.items()
            if replica.leader == leader
        )
        self._fetches += 1
        self._fetching[leader] = (self._fetches, now_ms)
        self._send(leader, Fetch(self.broker_id, own.broker_epoch, self._fetches, positions))

    def _serve(self, fetch: Fetch, position: FetchPosition) -> FetchedRecords:
        key = (position.topic_id, position.partition_id)
        answer = FetchedRecords(*key, position.leader_epoch, position.fetch_offset)
        replica = self.replicas.get(key)
        if replica is None or replica.leading is None:
            return answer._replace(error="NOT_LEADER_OR_FOLLOWER")
        if position.leader_epoch != replica.leader_epoch:
            is_old = position.leader_epoch < replica.leader_epoch
            return answer._replace(error="FENCED_LEADER_EPOCH" if is_old else "UNKNOWN_LEADER_EPOCH")
        follower = replica.leading.followers.get(fetch.broker_id)
        if follower is None or (fetch.broker_epoch, fetch.number) <= (follower.broker_epoch, follower.number):
            return answer._replace(error="NOT_LEADER_OR_FOLLOWER")  # no replica, or an older process of it
        diverging = replica.log.diverges_at(position.fetch_offset, position.last_epoch)
        if diverging is not None:
            return answer._replace(diverging=diverging)
        self._note_fetch(replica.log, follower, fetch, position.fetch_offset)
        self._expand(replica, replica.leading, fetch.broker_id, follower)
        self._advance(replica, replica.leading)
        behind = replica.log.records[position.fetch_offset : position.fetch_offset + RECORDS_PER_FETCH]
        return answer._replace(records=tuple(behind), high_watermark=replica.high_watermark)

    def _note_fetch(self, log: ReplicaLog, follower: FollowerState, fetch: Fetch, fetch_offset: int) -> None:
        """Note how far a follower is. It caught up when it fetched, or at its last fetch if it has now what stood then."""
        now_ms = self._now_ms()
        if fetch_offset >= log.end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end_at_fetch >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = fetch_offset
        follower.broker_epoch, follower.number = fetch.broker_epoch, fetch.number
        follower.fetched_ms, follower.leader_end_at_fetch = now_ms, log.end_offset

    def _take_answer(self, answer: FetchAnswer) -> None:
        under_way = self._fetching.get(answer.broker_id)
        if under_way is None or under_way[0] != answer.number:
            return
        del self._fetching[answer.broker_id]
        news = False
        for fetched in answer.partitions:
            replica = self.replicas.get((fetched.topic_id, fetched.partition_id))
            if (
                replica is None
                or replica.leader != answer.broker_id
                or replica.leader_epoch != fetched.leader_epoch
                or replica.log.end_offset != fetched.fetch_offset
                or fetched.error is not None
            ):
                continue
            news = news or bool(fetched.records) or fetched.diverging is not None
            self._take_records(replica, fetched)
        if news:
            self._fetch_from(answer.broker_id, self._now_ms())

    def _take_records(self, replica: Replica, fetched: FetchedRecords) -> None:
        if fetched.diverging is not None:
            end = replica.log.common_end(fetched.diverging)
            self.truncated_committed += max(replica.high_watermark - end, 0)
            replica.log.truncate(end)
            replica.high_watermark = min(replica.high_watermark, end)
            return
        for record in fetched.records:
            replica.log.append(record)
        known = min(fetched.high_watermark, replica.log.end_offset)
        replica.high_watermark = max(replica.high_watermark, known)

    # --- high watermark and ISR

    def _advance(self, replica: Replica, leading: Leading) -> None:
        """Raise the high watermark to what every member of the maximal ISR has; not while the ISR is too small (KIP-966)."""
        now_ms, end = self._now_ms(), replica.log.end_offset
        maximal_isr, lowest = leading.maximal_isr, end
        for broker_id, follower in leading.followers.items():
            # One that has caught up but is no member yet is waited for, lest it never joins under steady writes.
            joins = follower.is_caught_up(end, now_ms, self._lag_max_ms) and self._eligible(
                broker_id, follower
            )
            if broker_id in maximal_isr or joins:
                lowest = min(lowest, follower.end_offset)
        is_large_enough = len(leading.isr) >= self._min_isr(replica)
        if is_large_enough and lowest > replica.high_watermark:
            replica.high_watermark = lowest
        while leading.waiting and leading.waiting[0][0] < replica.high_watermark:
            _, on_done = leading.waiting.popleft()
            on_done(None if is_large_enough else "NOT_ENOUGH_REPLICAS_AFTER_APPEND")

    def _expand(
        self, replica: Replica, leading: Leading, broker_id: BrokerId, follower: FollowerState
    ) -> None:
        if (
            leading.proposed is None
            and broker_id not in leading.isr
            and follower.end_offset >= max(replica.high_watermark, leading.start_offset)
            and self._eligible(broker_id, follower)
        ):
            self._propose(replica, leading, (*leading.isr, broker_id))

    def _eligible(self, broker_id: BrokerId, follower: FollowerState) -> bool:
        """Answer whether a follower may join: its broker is active, and it is the process that fetches (KIP-903)."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker.broker_epoch == follower.broker_epoch

    def _propose(self, replica: Replica, leading: Leading, isr: tuple[BrokerId, ...]) -> None:
        leading.proposed = isr
        own = self.image.brokers[self.broker_id].broker_epoch
        members = tuple(
            IsrMember(
                broker_id=one,
                broker_epoch=own if one == self.broker_id else leading.followers[one].broker_epoch,
            )
            for one in isr
        )
        self._report(
            ReportedIsr(
                topic_id=replica.key[0],
                partition_id=replica.key[1],
                leader_epoch=replica.leader_epoch,
                partition_epoch=replica.partition_epoch,
                isr=members,
                leader_recovery_state=RECOVERED,
            )
        )

    def isr_answered(self, reported: ReportedIsr, altered: AlteredPartition) -> None:
        """Take the answer to a report; after most refusals the next batch of the log says what holds."""
        replica = self.replicas.get((reported.topic_id, reported.partition_id))
        if (
            replica is None
            or replica.leading is None
            or replica.leader_epoch != reported.leader_epoch
            or replica.partition_epoch != reported.partition_epoch
        ):
            return
        if altered.error is None and altered.leader_epoch == replica.leader_epoch:
            replica.partition_epoch = altered.partition_epoch
            replica.leading.isr = tuple(map(BrokerId, altered.isr))
            replica.leading.proposed = None
            self._advance(replica, replica.leading)
        elif altered.error in ("INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"):
            replica.leading.proposed = None

    # --- directories

    def move(self, key: PartitionKey, directory: Uuid) -> None:
        """Move a replica to another directory: its data is there once the log says so (AlterReplicaLogDirs)."""
        self._moving[key] = directory
        self._assign(key, directory)

    def fail_directory(self, directory: Uuid) -> None:
        """Lose a directory and the replicas in it; the agent reports it to the controllers.

        They may not know yet that a replica lies there. So that is reported as well, in place of what waits to be sent.
        """
        self.disks.failed.add(directory)
        for replica in [*self.replicas.values()]:
            if replica.log.directory == directory:
                del self.replicas[replica.key]
                self._moving.pop(replica.key, None)
                self._assign(replica.key, directory)
                self._fail_waiting(replica, "KAFKA_STORAGE_ERROR")

    def _fail_waiting(self, replica: Replica, error: str) -> None:
        if replica.leading is not None:
            waiting, replica.leading.waiting = replica.leading.waiting, deque()
            for _, on_done in waiting:
                on_done(error)


def _opened(key: PartitionKey, log: ReplicaLog) -> Replica:
    return Replica(key, log, high_watermark=log.checkpoint)
