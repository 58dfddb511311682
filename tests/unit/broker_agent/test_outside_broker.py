"""Edge: a broker written from docs/formats.md alone follows our log and reaches the same state."""

import ast
import asyncio
import json
import random
import sys
from pathlib import Path

import pytest

from metadata_log.apply import apply, image_of
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode
from metadata_log.digest import digest
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from snapshots.snapshot_file import snapshot_frames
from tests.support import outside_broker
from tests.support.fake_controller import CLUSTER_ID, FakeCluster, FakeController

SOURCE = Path(outside_broker.__file__)
U = Uuid(bytes(range(16)))
ORDERS = TopicId(U)


def test_it_imports_nothing_of_ours() -> None:
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name.split(".")[0] for alias in aliases}
            case ast.ImportFrom(module=str(module)):
                names.add(module.split(".")[0])
    assert names - sys.stdlib_module_names == {"msgpack"}


def test_the_empty_states_digest_and_the_one_of_the_formats() -> None:
    state = outside_broker.State()
    assert state.digest() == "8fff1ee8114d122380b437c5e03a9210abd50271b1f4f5262f8330f1e2b3d186"
    header = SnapshotHeaderRecord("A" * 22, 14, 1, 0, 0)
    broker = RegisterBrokerRecord(
        BrokerId(11),
        U,
        7,
        (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0),),
        (FeatureRange("metadata.version", 25, 30), FeatureRange("metaquorum.version", 1, 1)),
        "r1",
        False,
        False,
        (U,),
        None,
    )
    image = image_of(
        [
            QuorumVersionRecord(1),
            VotersRecord((Voter(NodeId(1), U, (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),), 0, 1),)),
            FeatureLevelRecord("metadata.version", 30),
            FeatureLevelRecord("metaquorum.version", 1),
            broker,
            TopicRecord(ORDERS, "orders"),
            ConfigRecord(2, "orders", "retention.ms", "1000"),
            PartitionRecord(
                ORDERS, 0, (BrokerId(11),), (BrokerId(11),), BrokerId(11), 0, 0, 0, (), (), (), (), (U,)
            ),
            ProducerIdsRecord(BrokerId(-1), -1, 1000),
        ],
        header=header,
    )
    state.take(b"".join(snapshot_frames(image)))
    assert state.digest() == "49620dfbf63daa46f63136b73bc72f0ad6d8f6085d60dd781b2648182c0b32e1"
    assert (state.offset, state.epoch, state.crc) == (14, 1, 0)


def test_it_folds_every_kind_of_record_as_we_do() -> None:
    cluster = FakeCluster()
    log = cluster.log
    brokers = [BrokerId(11), BrokerId(12)]
    log.append(QuorumVersionRecord(1), FeatureLevelRecord("metadata.version", 30))
    for broker_id in brokers:
        log.append(
            RegisterBrokerRecord(
                broker_id,
                U,
                log.image.end_offset,
                (BrokerEndpoint("Ä", "host", 1, 0),),
                (),
                None,
                True,
                False,
                (U,),
                None,
            )
        )
    epochs = {broker_id: log.image.brokers[broker_id].broker_epoch for broker_id in brokers}
    log.append(BrokerRegistrationChangeRecord(brokers[0], epochs[brokers[0]], fenced=False))
    log.append(
        BrokerRegistrationChangeRecord(
            brokers[0], epochs[brokers[0]], None, True, (U, Uuid(bytes([5]) * 16)), (U,)
        )
    )
    log.topic("kept", partitions=2, replicas=brokers)
    log.topic("gone", partitions=3, replicas=brokers)
    kept = log.image.topics.ids["kept"]
    log.append(
        PartitionChangeRecord(kept, 0, leader=brokers[1], isr=(brokers[1],)),
        PartitionChangeRecord(kept, 1, isr=(brokers[0],)),
        PartitionChangeRecord(
            kept,
            1,
            brokers[1],
            tuple(brokers),
            (brokers[1], brokers[0]),
            (BrokerId(13),),
            (brokers[0],),
            1,
            (brokers[0],),
            (brokers[1],),
            (U, U),
        ),
        ConfigRecord(2, "kept", "retention.ms", "1"),
        ConfigRecord(2, "gone", "retention.ms", "1"),
        ConfigRecord(4, "", "ssl.key.password", "hidden"),
        ConfigRecord(4, "11", "a", "b"),
        ConfigRecord(4, "11", "a", None),
        FeatureLevelRecord("x", 2),
        FeatureLevelRecord("x", 0),
        ProducerIdsRecord(brokers[0], 3, 5000),
    )
    log.append(
        RemoveTopicRecord(log.image.topics.ids["gone"]),
        UnregisterBrokerRecord(brokers[1], epochs[brokers[1]]),
    )
    state = outside_broker.State()
    state.take(b"".join(frame for _, frame in log.frames))
    assert state.digest() == digest(log.image)
    assert (state.offset, state.epoch, state.crc) == (log.image.end_offset, 1, log.image.last_crc)


@pytest.mark.parametrize("harm", ["bit", "gap", "cut"])
def test_it_sees_what_is_wrong(harm: str) -> None:
    log = FakeCluster().log
    log.fill(50)
    frames = [frame for _, frame in log.frames]
    data = bytearray(b"".join(frames))
    match harm:
        case "bit":
            data[random.Random(1).randrange(len(data))] ^= 4
        case "gap":
            data = bytearray(b"".join(frames[:2] + frames[3:]))
        case "cut":
            del data[-1]
    with pytest.raises(AssertionError):
        outside_broker.State().take(bytes(data))


@pytest.mark.parametrize("kind", ["DELTA", "IMAGE"])
async def test_it_registers_follows_and_leaves_with_the_same_digest(kind: str) -> None:
    cluster = FakeCluster()
    cluster.log.topic("orders", partitions=3)
    if kind == "IMAGE":
        cluster.snapshot_at = cluster.log.log_start_offset = cluster.log.image.end_offset
    async with (
        FakeController(cluster, 1).running() as first,
        FakeController(cluster, 2).running() as second,
    ):
        cluster.active = second
        process = await asyncio.create_subprocess_exec(
            sys.executable, SOURCE, CLUSTER_ID, "11", first.url, second.url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        async with asyncio.timeout(60):
            while not any(not broker.fenced for broker in cluster.log.image.brokers.values()):
                await asyncio.sleep(0.01)
            cluster.log.topic("later")
            cluster.tell()
            process.stdin.close()
            out, _ = await process.communicate()
        told = json.loads(out)
        assert process.returncode == 0
        image = cluster.log.image
        assert told == {
            "end_offset": image.end_offset,
            "controller_epoch": image.controller_epoch,
            "digest": digest(image),
        }


def test_it_begins_at_an_image_where_the_log_does_not_reach_back() -> None:
    """Goal: a snapshot folds to the same state. Method: the same history, read whole and from the middle on."""
    log = FakeCluster().log
    for number in range(5):
        log.topic(f"t{number}", partitions=3)
    middle = log.images[3]
    state = outside_broker.State()
    state.take(b"".join(snapshot_frames(middle)))
    state.take(b"".join(frame for header, frame in log.frames if header.base_offset >= middle.end_offset))
    assert state.digest() == digest(log.image)


def test_a_claim_of_a_later_epoch_is_followed() -> None:
    log = FakeCluster().log
    log.claim()
    batch, frame = encode(
        base_offset=log.image.end_offset,
        controller_epoch=5,
        appended_at_ms=1,
        previous_crc=log.image.last_crc,
        envelope=NO_ENVELOPE,
        records=[ControllerClaimRecord(NodeId(2), 5, CLUSTER_ID)],
    )
    state = outside_broker.State()
    state.take(b"".join(frame for _, frame in log.frames) + frame)
    image = apply(log.image, batch).image
    assert (state.offset, state.epoch, state.crc) == (image.end_offset, 5, image.last_crc)
