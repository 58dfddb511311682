"""Our log, as Kafka's: the same offsets, the same bytes on every controller, the same state for those who read it."""

from collections.abc import Iterator

import pytest

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.kafka.batches import Batch, batches
from metadata_log.kafka.checkpoints import BATCH_BYTES, BATCH_RECORDS, checkpoint
from metadata_log.kafka.counterparts import NoCounterpart, ours
from metadata_log.kafka.records import Decoded, decode, decode_control
from metadata_log.kafka.translation import translating
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import BegunChangeRecord, RequestResultRecord, SnapshotHeaderRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.replay.kafka.files import checkpoint_image
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, at_once
from tests.support.histories import CLUSTER_ID, Step, claim, history_of, step_of

LEVEL = 30
TOPIC = TopicId(b"t" * 16)


def translated(before: MetadataImage, step: Step) -> bytes:
    voters = step.image.quorum.voters or ()
    return at_once(translating(step.batch, level=LEVEL, voters=voters, deleted=before.topics.deleted.keys()))


def read_back(data: bytes, cluster_id: str = CLUSTER_ID) -> tuple[list[Batch], list[Record]]:
    """Return the batches, and our records of all of theirs."""
    found, records = [*batches(data)], list[Record]()
    for batch in found:
        for decoded in _decoded(batch):
            record = ours(decoded)
            assert record is not None
            if isinstance(record, ControllerClaimRecord):
                record = record._replace(controller_epoch=batch.leader_epoch, cluster_id=cluster_id)
            records.append(record)
    return found, records


def _decoded(batch: Batch) -> Iterator[Decoded]:
    for key, value in batch.records:
        assert value is not None
        yield decode_control(key[3], value) if batch.is_control and key else decode(value)


@pytest.mark.parametrize("seed", range(30))
def test_the_translated_log_adds_up_to_the_same_state(seed: int) -> None:
    """Goal: Kafka's brokers see what ours see. Method: a random history up to the first restored topic, translated, read,
    and folded; what Kafka has not (deleted topics, answers, keys of masks) is not compared.
    """
    before = back = EMPTY
    for step in history_of(seed, 40):
        if any(isinstance(record, TopicRestoreRecord) for record in step.batch.records):
            break
        data = translated(before, step)
        assert data == translated(before, step)
        found, records = read_back(data)
        assert found[0].base_offset == step.batch.base_offset
        assert found[-1].end_offset == step.batch.end_offset
        assert {(each.leader_epoch, each.max_timestamp) for each in found} == {
            (step.batch.controller_epoch, step.batch.appended_at_ms)
        }
        back = step_of(back, records, appended_at_ms=step.batch.appended_at_ms).image
        assert back.end_offset == step.image.end_offset
        for part in ("brokers", "features", "next_producer_id", "quorum", "controller_epoch"):
            assert getattr(back, part) == getattr(step.image, part), part
        assert back.topics.by_id == step.image.topics.by_id
        assert {key: dict(of) for key, of in back.configs.items() if of} == {
            key: dict(of) for key, of in step.image.configs.items() if of
        }
        before = step.image


def test_records_of_the_quorum_are_batches_of_their_own() -> None:
    step = history_of(3, 1)[0]
    data = translated(EMPTY, step)
    found, _ = read_back(data)
    assert [batch.is_control for batch in found] == [True, False]
    assert [record.name for record in _decoded(found[0])] == ["LeaderChange", "KRaftVersion", "KRaftVoters"]
    (change, *_) = _decoded(found[0])
    voters = [{"voter_id": voter.node_id} for voter in step.image.quorum.voters or ()]
    assert change.fields is not None
    for name in ("voters", "granting_voters"):
        assert [{"voter_id": row["voter_id"]} for row in change.fields[name]] == voters


def test_static_voters_are_no_records_of_kafkas_log() -> None:
    """With kraft.version 0 Kafka's log names voters with the leader alone; what raises it is the quorum's own again."""
    first, second = _history(
        [claim(EMPTY), QuorumVersionRecord(0), VOTERS, FeatureLevelRecord("metadata.version", 30)],
        [QuorumVersionRecord(1), VOTERS],
    )

    def kinds(step: Step, kraft_version: int) -> list[list[str]]:
        work = translating(step.batch, level=LEVEL, voters=VOTERS.voters, kraft_version=kraft_version)
        return [[each.name for each in _decoded(batch)] for batch in batches(at_once(work))]

    assert kinds(first, 0) == [["LeaderChange"], ["NoOp", "NoOp", "FeatureLevel"]]
    assert kinds(second, 1) == [["KRaftVersion", "KRaftVoters"]]
    header = SnapshotHeaderRecord(CLUSTER_ID, 4, 1, 0, 0)
    for step, wanted in ((first, []), (second, ["KRaftVersion", "KRaftVoters"])):
        head, *_ = batches(b"".join(checkpoint(step.image.to_records(), header=header)))
        assert [each.name for each in _decoded(head)] == ["SnapshotHeader", *wanted]


def test_a_large_batch_rests_and_is_the_same() -> None:
    changes = tuple(PartitionChangeRecord(TOPIC, number, BrokerId(1)) for number in range(1_000))
    batch = RecordBatch(
        base_offset=7,
        controller_epoch=2,
        appended_at_ms=5,
        previous_crc=0,
        crc=0,
        envelope=step_of(EMPTY, [claim(EMPTY)]).batch.envelope,
        records=changes,
    )
    work, rests = translating(batch, level=LEVEL, voters=()), 0
    try:
        while True:
            next(work)
            rests += 1
    except StopIteration as ended:
        data = ended.value
    assert rests == len(changes) // ITEMS_BETWEEN_RESTS
    found, records = read_back(data)
    assert (len(found), records) == (1, [*changes])


def _history(*batches_of_records: list[Record]) -> list[Step]:
    steps: list[Step] = []
    image = EMPTY
    for records in batches_of_records:
        steps.append(step_of(image, records))
        image = steps[-1].image
    return steps


PARTITION = PartitionRecord(
    *(TOPIC, 0, (BrokerId(1),), (BrokerId(1),), BrokerId(1), 0, 0, 0, (), (), (), ()), (Uuid(b"d" * 16),)
)
CREATED: list[Record] = [claim(EMPTY), TopicRecord(TOPIC, "t"), PARTITION]
DELETED: list[Record] = [TopicTombstoneRecord(TOPIC, "t", 0, 10, (), 0)]


def test_a_deleted_topic_changes_no_more_for_kafka() -> None:
    """Goal: no broker of Kafka gets a record about a topic that it has removed: it would stop. Method: a topic that could be
    restored changes, and is removed for good.
    """
    change = PartitionChangeRecord(TOPIC, 0, isr=(), eligible_leader_replicas=())
    steps = _history(CREATED, [*DELETED, change], [change, RemoveTopicRecord(TOPIC)])
    images = [EMPTY, *(step.image for step in steps)]
    found = [read_back(translated(before, step))[1] for before, step in zip(images, steps, strict=False)]
    assert found[1:] == [[RemoveTopicRecord(TOPIC), NoOpRecord()], [NoOpRecord(), NoOpRecord()]]


VOTERS = VotersRecord(
    tuple(
        Voter(
            NodeId(number),
            Uuid(bytes([number] * 16)),
            (VoterEndpoint("CONTROLLER", "raft", number), VoterEndpoint("KAFKA", "kafka", number)),
            0,
            1,
        )
        for number in (1, 2)
    )
)
REGISTERED = RegisterControllerRecord(
    NodeId(1),
    Uuid(b"i" * 16),
    2,
    False,
    (BrokerEndpoint("HTTP", "http", 1, 0), BrokerEndpoint("KAFKA", "kafka", 1, 1)),
    (),
)


def test_brokers_are_told_of_the_listener_for_them_alone() -> None:
    """Goal: a broker finds each controller at the first of its controller.listener.names, and nowhere else."""
    step = _history([claim(EMPTY), VOTERS, REGISTERED])[0]
    for data in (
        at_once(translating(step.batch, level=LEVEL, voters=(), listener="QUORUM")),
        b"".join(
            checkpoint(
                step.image.to_records(),
                header=SnapshotHeaderRecord(CLUSTER_ID, 3, 1, 0, 0),
                listener="QUORUM",
            )
        ),
    ):
        (first, *others) = batches(data)
        read = [ours(each) for batch in (first, others[0]) for each in _decoded(batch)]
        voters = [voter for record in read if isinstance(record, VotersRecord) for voter in record.voters]
        assert [voter.endpoints for voter in voters] == [
            (VoterEndpoint("QUORUM", "kafka", 1),),
            (VoterEndpoint("QUORUM", "kafka", 2),),
        ]
        registered = [record for record in read if isinstance(record, RegisterControllerRecord)]
        assert [record.endpoints for record in registered] == [(BrokerEndpoint("QUORUM", "kafka", 1, 1),)]


def test_a_restored_topic_is_refused() -> None:
    steps = _history(CREATED, DELETED, [TopicRestoreRecord(TOPIC)])
    with pytest.raises(NoCounterpart, match="brings back a topic"):
        translated(steps[1].image, steps[2])


# --- checkpoints


def checkpoint_of(image: MetadataImage) -> bytes:
    header = SnapshotHeaderRecord(
        CLUSTER_ID, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    return b"".join(checkpoint(image.to_records(), header=header))


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_is_the_state(seed: int, tmp_path) -> None:
    image = history_of(seed, 60)[-1].image
    path = tmp_path / f"{image.end_offset:020d}-{image.controller_epoch:010d}.checkpoint"
    path.write_bytes(checkpoint_of(image))
    found = checkpoint_image(path, cluster_id=CLUSTER_ID)
    for part in ("brokers", "features", "next_producer_id", "quorum", "end_offset", "controller_epoch"):
        assert getattr(found, part) == getattr(image, part), part
    assert found.topics.by_id == image.topics.by_id and not found.topics.deleted
    assert found.last_time_ms == image.last_time_ms


def test_a_checkpoint_has_a_head_bounded_batches_and_a_foot() -> None:
    """Goal: Kafka's reader finds what it wants where it wants it. Method: the names of the first and last records."""
    founding: list[Record] = [
        claim(EMPTY),
        QuorumVersionRecord(1),
        FeatureLevelRecord("metadata.version", 30),
    ]
    topic = TopicRecord(TOPIC, "t")
    partitions: list[Record] = [PARTITION._replace(partition_id=number) for number in range(2_500)]
    image = step_of(EMPTY, [*founding, topic, *partitions]).image
    data = checkpoint_of(image)
    assert data == checkpoint_of(image)
    first, *middle, last = batches(data)
    assert [record.name for record in _decoded(first)] == ["SnapshotHeader", "KRaftVersion"]
    assert [record.name for record in _decoded(last)] == ["SnapshotFooter"]
    assert [len(batch.records) for batch in middle] == [BATCH_RECORDS, BATCH_RECORDS, 502]
    assert [batch.base_offset for batch in (first, *middle, last)] == [0, 2, 1_002, 2_002, 2_504]
    assert {batch.is_control for batch in middle} == {False} and first.is_control and last.is_control


def test_a_batch_of_long_settings_is_bounded_in_bytes() -> None:
    settings: list[Record] = [
        ConfigRecord(BROKER, str(number), "log.dir", "x" * 30_000) for number in range(100)
    ]
    longest = ConfigRecord(BROKER, "7", "advertised.listeners", "y" * 3 * BATCH_BYTES)
    header = SnapshotHeaderRecord(CLUSTER_ID, 200, 1, 0, 0)
    _, *middle, _ = batches(b"".join(checkpoint([*settings, longest], header=header)))
    sizes = [sum(len(value or b"") for _, value in batch.records) for batch in middle]
    assert sum(len(batch.records) for batch in middle) == 101
    assert [size > BATCH_BYTES for size in sizes].count(True) == 1 and len(sizes) in (4, 5)


def test_what_kafka_has_not_is_left_out_of_a_checkpoint() -> None:
    topic = TopicRecord(TOPIC, "t")
    records: list[Record] = [
        topic,
        TopicTombstoneRecord(TopicId(b"u" * 16), "u", 0, 10, (), 0),
        PARTITION._replace(topic_id=TopicId(b"u" * 16)),
        BegunChangeRecord(BrokerId(1), "SESSION_EXPIRED", 5, 1, (), False, None, None),
        RequestResultRecord(Uuid(bytes(16)), "CreateTopics", b"", 0, 1, b"", 0),
    ]
    header = SnapshotHeaderRecord(CLUSTER_ID, 9, 1, 0, 0)
    _, middle, _ = batches(b"".join(checkpoint(records, header=header)))
    assert [ours(record) for record in _decoded(middle)] == [topic]


def test_an_empty_state_has_a_checkpoint() -> None:
    assert [batch.is_control for batch in batches(checkpoint_of(EMPTY))] == [True, True]
