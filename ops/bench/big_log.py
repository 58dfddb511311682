"""Edge: a large synthetic metadata log, quickly: what a busy cluster of 24 brokers writes in weeks, deterministic by seed.

Leader and isr changes make up most of it, beside fencings and returns, re-registrations, config changes (of
min.insync.replicas, too), topics created and removed, reassignments, and new controllers. Records are legal, decisions
are not Kafka's. Tests: tests/cluster/test_bench.py.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.codec import FrameHeader, encode, read_header
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid, random_uuid
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
)
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord

CLUSTER_ID = "BigLogBigLogBigLogBigL"
BROKERS = 24
SEGMENT_BYTES = 16 * 1024 * 1024


class _Partition:
    __slots__ = ("isr", "leader", "replicas")

    def __init__(self, replicas: tuple[BrokerId, ...]) -> None:
        self.replicas = replicas
        self.isr = replicas
        self.leader = replicas[0]


class _Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker_epochs: dict[BrokerId, int] = {}
        self.fenced: set[BrokerId] = set()
        self.topics: dict[TopicId, tuple[str, list[_Partition]]] = {}
        self.topic_ids: list[TopicId] = []
        self.directories = {BrokerId(11 + i): random_uuid(self.rng) for i in range(BROKERS)}
        self.names = 0
        self.epoch = 0
        self.producer_id = 0

    def claim(self) -> list[Record]:
        self.epoch += 1
        return [ControllerClaimRecord(NodeId(1 + self.epoch % 3), self.epoch, CLUSTER_ID)]

    def bootstrap(self) -> list[Record]:
        voters = tuple(
            Voter(
                NodeId(i), random_uuid(self.rng), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9092 + i),), 0, 1
            )
            for i in (1, 2, 3)
        )
        return [
            *self.claim(),
            QuorumVersionRecord(1),
            VotersRecord(voters),
            FeatureLevelRecord("metadata.version", 30),
            FeatureLevelRecord("metaquorum.version", 1),
        ]

    def register(self, broker_id: BrokerId, offset: int) -> list[Record]:
        self.broker_epochs[broker_id] = offset
        self.fenced.add(broker_id)
        return [
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=random_uuid(self.rng),
                broker_epoch=offset,
                endpoints=(BrokerEndpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0),),
                features=(FeatureRange("metadata.version", 25, 30), FeatureRange("metaquorum.version", 1, 1)),
                rack=f"rack-{broker_id % 3}",
                fenced=True,
                in_controlled_shutdown=False,
                log_dirs=(self.directories[broker_id],),
                cordoned_log_dirs=None,
            )
        ]

    def unfence(self, broker_id: BrokerId) -> list[Record]:
        self.fenced.discard(broker_id)
        return [BrokerRegistrationChangeRecord(broker_id, self.broker_epochs[broker_id], fenced=False)]

    def fence(self, broker_id: BrokerId) -> list[Record]:
        self.fenced.add(broker_id)
        return [BrokerRegistrationChangeRecord(broker_id, self.broker_epochs[broker_id], fenced=True)]

    def create_topic(self) -> list[Record]:
        self.names += 1
        topic_id, name = TopicId(random_uuid(self.rng)), f"topic-{self.names}"
        partitions = []
        records: list[Record] = [TopicRecord(topic_id, name)]
        if self.rng.random() < 0.3:
            records.append(ConfigRecord(2, name, "retention.ms", str(self.rng.randrange(10**9))))
        if self.rng.random() < 0.5:
            records.append(ConfigRecord(2, name, "min.insync.replicas", "2"))
        for partition_id in range(self.rng.choice((1, 8, 16, 32))):
            replicas = tuple(BrokerId(11 + i) for i in self.rng.sample(range(BROKERS), 3))
            partitions.append(_Partition(replicas))
            directories = tuple(self.directories[replica] for replica in replicas)
            records.append(
                PartitionRecord(
                    topic_id,
                    partition_id,
                    replicas,
                    replicas,
                    replicas[0],
                    0,
                    0,
                    0,
                    (),
                    (),
                    (),
                    (),
                    directories,
                )
            )
        self.topics[topic_id] = (name, partitions)
        self.topic_ids.append(topic_id)
        return records

    def remove_topic(self) -> list[Record]:
        place = self.rng.randrange(len(self.topic_ids))
        topic_id, self.topic_ids[place] = self.topic_ids[place], self.topic_ids[-1]
        self.topic_ids.pop()
        del self.topics[topic_id]
        return [RemoveTopicRecord(topic_id)]

    def partition_changes(self, count: int) -> list[Record]:
        records: list[Record] = []
        topic_ids, rng = self.topic_ids, self.rng
        for _ in range(count):
            topic_id = topic_ids[int(rng.random() ** 2 * len(topic_ids))]
            partitions = self.topics[topic_id][1]
            partition_id = int(rng.random() * len(partitions))
            partition = partitions[partition_id]
            kind = rng.random()
            if kind < 0.4 and len(partition.isr) > 1:
                gone = partition.isr[int(rng.random() * len(partition.isr))]
                isr = tuple(broker for broker in partition.isr if broker != gone)
                leader = None
                if gone == partition.leader:
                    leader = partition.leader = isr[0]
                partition.isr = isr
                records.append(PartitionChangeRecord(topic_id, partition_id, leader, isr))
            elif kind < 0.75:
                partition.isr = partition.replicas
                records.append(PartitionChangeRecord(topic_id, partition_id, None, partition.replicas))
            elif kind < 0.78:
                partition.leader = NO_LEADER
                records.append(PartitionChangeRecord(topic_id, partition_id, NO_LEADER))
            elif kind < 0.8:
                new = BrokerId(11 + int(rng.random() * BROKERS))
                if new not in partition.replicas:
                    replicas = (*partition.isr[:1], new)
                    partition.replicas = partition.isr = replicas
                    partition.leader = replicas[0]
                    directories = tuple(self.directories[replica] for replica in replicas)
                    records.append(
                        PartitionChangeRecord(
                            topic_id,
                            partition_id,
                            replicas[0],
                            replicas,
                            replicas,
                            (),
                            (),
                            directories=directories,
                        )
                    )
            else:
                partition.leader = partition.isr[int(rng.random() * len(partition.isr))]
                records.append(PartitionChangeRecord(topic_id, partition_id, partition.leader))
        return records


def _batches(record_count: int, *, seed: int, partitions: int) -> Iterator[tuple[list[Record], Envelope]]:
    cluster = _Cluster(seed)
    rng = cluster.rng
    offset = 0
    created = 0

    def counted(records: list[Record], envelope: Envelope = NO_ENVELOPE) -> tuple[list[Record], Envelope]:
        nonlocal offset
        offset += len(records)
        return records, envelope

    yield counted(cluster.bootstrap())
    for index in range(BROKERS):
        yield counted(cluster.register(BrokerId(11 + index), offset))
        yield counted(cluster.unfence(BrokerId(11 + index)))
    while created < partitions and offset < record_count // 2:
        records = cluster.create_topic()
        created += sum(isinstance(record, PartitionRecord) for record in records)
        yield counted(
            records,
            Envelope("admin", Uuid(rng.randbytes(16)), rng.randbytes(32), None, "CreateTopic", b"\x80"),
        )
    while offset < record_count:
        kind = rng.random()
        broker_id = BrokerId(11 + rng.randrange(BROKERS))
        if kind < 0.9:
            yield counted(cluster.partition_changes(1 + int(rng.random() * 10)) or [NoOpRecord()])
        elif kind < 0.93:
            changes = cluster.partition_changes(rng.choice((10, 100, 500)))
            facts = {"broker_id": broker_id, "silent_ms": 9001}
            cause = Cause("SESSION_EXPIRED", cluster.broker_epochs[broker_id], facts)
            yield counted([*changes, *cluster.fence(broker_id)], Envelope(cause=cause))
        elif kind < 0.95:
            yield counted(cluster.unfence(broker_id))
        elif kind < 0.96:
            yield counted(cluster.register(broker_id, offset))
        elif kind < 0.97:
            yield counted(cluster.create_topic())
        elif kind < 0.978 and len(cluster.topic_ids) > 10:
            yield counted(cluster.remove_topic())
        elif kind < 0.99:
            name = cluster.topics[rng.choice(cluster.topic_ids)][0]
            key, value = rng.choice(
                (
                    ("retention.ms", str(rng.randrange(10**9))),
                    ("max.message.bytes", str(rng.randrange(10**9))),
                    ("min.insync.replicas", str(rng.choice((1, 2, 3)))),
                )
            )
            yield counted([ConfigRecord(2, name, key, rng.choice((None, value)))])
        elif kind < 0.993:
            cluster.producer_id += 1000
            yield counted(
                [ProducerIdsRecord(broker_id, cluster.broker_epochs[broker_id], cluster.producer_id)]
            )
        elif kind < 0.994:
            yield counted(cluster.claim())
        else:
            yield counted([NoOpRecord()])


def frames(
    record_count: int, *, seed: int = 0, partitions: int = 20_000
) -> Iterator[tuple[FrameHeader, bytes]]:
    """Yield the frames of a log of at least `record_count` records, from offset 0."""
    rng = random.Random(seed)
    offset, crc, epoch, time_ms = 0, 0, 0, 1_750_000_000_000
    for records, envelope in _batches(record_count, seed=seed, partitions=partitions):
        first = records[0]
        epoch = first.controller_epoch if isinstance(first, ControllerClaimRecord) else epoch
        batch, frame = encode(
            base_offset=offset,
            controller_epoch=epoch,
            appended_at_ms=time_ms,
            previous_crc=crc,
            envelope=envelope,
            records=records,
        )
        yield read_header(frame), frame
        offset, crc = batch.end_offset, batch.crc
        time_ms += int(rng.expovariate(1 / 400))


def write_log(directory: Path, record_count: int, *, seed: int = 0, partitions: int = 20_000) -> int:
    """Write such a log as segment files, and return its end offset."""
    directory.mkdir(parents=True, exist_ok=True)
    end_offset = size = base = 0
    waiting: list[bytes] = []

    def flush() -> None:
        (directory / f"{base:020d}.log").write_bytes(b"".join(waiting))

    for header, frame in frames(record_count, seed=seed, partitions=partitions):
        if size + len(frame) > SEGMENT_BYTES:
            flush()
            waiting, size, base = [], 0, header.base_offset
        waiting.append(frame)
        size += len(frame)
        end_offset = header.end_offset
    flush()
    return end_offset
