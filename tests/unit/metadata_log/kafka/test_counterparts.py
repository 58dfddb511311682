"""Our records and Kafka's become each other without loss, by one table."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log.ids import MIGRATING, BrokerId, NodeId, TopicId, Uuid
from metadata_log.kafka.batches import batches
from metadata_log.kafka.counterpart import Counterpart
from metadata_log.kafka.counterparts import (
    COUNTERPARTS,
    NOT_IN_KAFKA,
    READ,
    WRITTEN,
    NoCounterpart,
    all_encoded,
    encoded,
    ours,
)
from metadata_log.kafka.records import Decoded, decode, decode_control, is_control
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from metadata_log.records.controllers import UnregisterControllerRecord
from metadata_log.records.features import METADATA_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.registry import RECORD_TYPES, Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRestoreRecord, TopicTombstoneRecord
from metadata_log.replay.kinds import PARTITION
from tests.support import kafka_log as by_hand
from tests.support.kafka_records import vectors

LEVEL = 30

# --- our records, at random

_UUIDS = st.binary(min_size=16, max_size=16)
_IDS = st.integers(0, 2**31 - 1)
_SOME_UUIDS = st.lists(_UUIDS, min_size=1, max_size=3).map(tuple)
_BY_NAME: Mapping[str, st.SearchStrategy[Any]] = {
    "leader": st.integers(-1, 2**31 - 1),
    "leader_recovery_state": st.sampled_from([0, 1]),
    "broker_epoch": st.integers(-1, 2**63 - 1),
    "next_producer_id": st.integers(0, 2**63 - 1),
    "last_time_ms": st.integers(0, 2**63 - 1),
    "in_controlled_shutdown": st.booleans(),
    "port": st.integers(0, 65_535),
    "rack": st.text(min_size=1, max_size=9),
    "partition_id": _IDS,
    "leader_epoch": _IDS,
    "partition_epoch": _IDS,
}
_NEVER: Mapping[tuple[type, str], st.SearchStrategy[Any]] = {
    # Only ever set; and never empty.
    (BrokerRegistrationChangeRecord, "in_controlled_shutdown"): st.sampled_from([None, True]),
    (BrokerRegistrationChangeRecord, "log_dirs"): st.none() | _SOME_UUIDS,
    (PartitionRecord, "directories"): _SOME_UUIDS,
}


def records(of: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(of)
    fields = [
        _NEVER[of, name] if (of, name) in _NEVER else _values(name, hints[name])
        for name in of._fields  # type: ignore[attr-defined]
    ]
    return st.tuples(*fields).map(of._make)  # type: ignore[attr-defined]


def _values(name: str, hint: Any) -> st.SearchStrategy[Any]:
    inner = get_args(hint)
    if type(None) in inner:
        return st.none() | (_SOME_UUIDS if name == "directories" else _values(name, inner[0]))
    if name in _BY_NAME:
        return _BY_NAME[name]
    if inner and inner[-1] is Ellipsis:
        return st.lists(_values(name, inner[0]), max_size=4).map(tuple)
    if hasattr(hint, "_fields"):
        return records(hint)
    if hint in (TopicId, Uuid, bytes):
        return _UUIDS
    if hint in (BrokerId, NodeId):
        return _IDS
    if hint is float:
        return st.floats(min_value=0, allow_infinity=False)
    return {int: st.integers(0, 127), str: st.text(max_size=9), bool: st.booleans()}[hint]


TWO_WAY = [row for row in COUNTERPARTS if row.is_read and row.is_written]


@pytest.mark.slow
@pytest.mark.parametrize("row", TWO_WAY, ids=lambda row: row.kafka)
@given(data=st.data())
def test_our_record_is_the_same_after_kafkas(row: Counterpart, data: st.DataObject) -> None:
    """Goal: nothing is lost on the way there and back. Method: any record; what Kafka's lacks has the row's values."""
    record = data.draw(records(row.ours))
    raw = encoded(record, level=LEVEL)
    assert ours(_decoded(row, raw)) == record._replace(**row.ours_alone)
    if not is_control(row.kafka):
        assert all_encoded([record] * 3, level=LEVEL) == [raw] * 3


def _decoded(row: Counterpart, raw: bytes) -> Decoded:
    return decode_control(row.schema.number, raw) if is_control(row.kafka) else decode(raw)


def test_every_record_of_ours_has_a_counterpart_or_a_reason() -> None:
    assert {*WRITTEN, *NOT_IN_KAFKA} == {*RECORD_TYPES}
    assert not {*WRITTEN} & {*NOT_IN_KAFKA}


def test_kafkas_records_without_a_counterpart_are_these() -> None:
    found = {vector.schema.name for vector in vectors()} - {*READ}
    assert found == {
        *("BeginTransaction", "EndTransaction", "AbortTransaction", "ZkMigrationState", "ClearElr"),
    }


# --- Kafka's records


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.unpacked(tmp_path_factory.mktemp("kafka"))


def kafkas(file: Path) -> Iterator[tuple[Decoded, bytes]]:
    for batch in batches(file.read_bytes()):
        for key, value in batch.records:
            assert value is not None
            yield (decode_control(key[3], value) if batch.is_control and key else decode(value)), value


def test_the_recorded_log_is_the_same_after_our_records(recording: Path) -> None:
    """Goal: what Kafka wrote is said by our records, and they say it as Kafka does. Method: both controllers' files, whose
    level of metadata.version rises amid the log; the voters of a LeaderChange are known beside it.
    """
    compared = 0
    for file in [*recording.glob(f"*/{PARTITION}/*.log"), *recording.glob(f"*/{PARTITION}/*.checkpoint")]:
        level = LEVEL if file.stem == f"{2956:020d}" else 25
        for record, raw in kafkas(file):
            found = ours(record)
            if found is None:
                continue
            if isinstance(found, FeatureLevelRecord) and found.name == METADATA_VERSION:
                level = found.level
            row = READ[record.name]
            beside = dict(zip(row.schema.names, record.values or (), strict=True)) if row.kafka_alone else {}
            assert encoded(found, level=level, beside=beside) == raw
            if not is_control(record.name):
                assert all_encoded([found], level=level) == [raw]
            compared += 1
    assert compared > 6_000


@pytest.mark.parametrize("name", [row.kafka for row in TWO_WAY])
def test_kafkas_record_is_the_same_after_ours(name: str) -> None:
    """Goal: every field is said. Method: the random records of Kafka's classes, as far as their values mean something."""
    row, compared = READ[name], 0
    for vector in vectors():
        if vector.schema.name != name:
            continue
        record = ours(vector.decoded(vector.raw))
        assert record is not None
        if row.version_of(record, LEVEL) != vector.version or not vector.has_meaning:
            continue
        beside = dict(zip(row.schema.names, vector.values, strict=True))
        assert row.encoded(record, vector.version, beside) == vector.raw
        compared += 1
    assert compared


def test_an_old_fencing_is_read() -> None:
    fenced = BrokerRegistrationChangeRecord(BrokerId(7), 9, fenced=True)
    assert ours(decode(by_hand.fence_broker(7, 9))) == fenced


def test_a_partition_of_the_first_version_has_unassigned_directories() -> None:
    body = (3).to_bytes(4, "big") + bytes(16) + by_hand.ints([1, 2]) * 2 + by_hand.ints([]) * 2 + bytes(12)
    found = ours(decode(by_hand.value(3, 0, body)))
    assert isinstance(found, PartitionRecord) and found.directories == (MIGRATING, MIGRATING)


# --- what goes in one direction


def test_what_kafka_cannot_say_takes_an_offset_or_is_refused() -> None:
    topic_id = TopicId(bytes(16))
    deleted: list[Record] = [
        TopicTombstoneRecord(topic_id, "t", 1, 2, (), 0),
        UnregisterControllerRecord(NodeId(1), 5),
    ]
    assert all_encoded(deleted, level=LEVEL) == all_encoded(
        [RemoveTopicRecord(topic_id), NoOpRecord()], level=LEVEL
    )
    with pytest.raises(NoCounterpart, match="brings back a topic"):
        all_encoded([TopicRestoreRecord(topic_id)], level=LEVEL)


def test_the_level_decides_the_version() -> None:
    registered = RegisterBrokerRecord(
        BrokerId(1), Uuid(bytes(16)), 7, (), (), None, True, False, (), (Uuid(bytes(16)),)
    )
    found = {level: decode(all_encoded([registered], level=level)[0]) for level in (25, 29, 30, 31)}
    assert {level: each.version for level, each in found.items()} == {25: 3, 29: 3, 30: 4, 31: 4}
    assert ours(found[29]) == registered._replace(cordoned_log_dirs=None)
    assert ours(found[30]) == registered
    with pytest.raises(ValueError, match=r"metadata\.version 6 is below 7"):
        all_encoded([registered], level=6)
