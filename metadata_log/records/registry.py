"""Pure: all records: their numbers, their rows of plain values, their JSON, and the entity each is about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

from metadata_log.errors import UnsupportedVersion
from metadata_log.ids import TopicId, uuid_text
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import TOPIC, ConfigRecord, shown_value
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.rows import reader_of
from metadata_log.records.snapshots import RequestResultRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord

Record: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | ControllerClaimRecord
    | RequestResultRecord
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | QuorumVersionRecord
    | VotersRecord
)

TYPE_IDS: Final[Mapping[type[Record], int]] = {
    RegisterBrokerRecord: 0,
    UnregisterBrokerRecord: 1,
    TopicRecord: 2,
    PartitionRecord: 3,
    ConfigRecord: 4,
    PartitionChangeRecord: 5,
    RemoveTopicRecord: 9,
    FeatureLevelRecord: 12,
    ProducerIdsRecord: 15,
    BrokerRegistrationChangeRecord: 17,
    NoOpRecord: 20,
    ControllerClaimRecord: 1000,
    RequestResultRecord: 1001,
    SnapshotHeaderRecord: 1002,
    SnapshotFooterRecord: 1003,
    QuorumVersionRecord: 1004,
    VotersRecord: 1005,
}
"""Kafka's type numbers, and ours from 1000; never reused. Every type stands at version 0."""

TYPES: Final[Mapping[int, type[Record]]] = {type_id: record_type for record_type, type_id in TYPE_IDS.items()}
VERSION: Final = 0

_HEADS: Final = {record_type: (type_id, VERSION) for record_type, type_id in TYPE_IDS.items()}
_READERS: Final[Mapping[tuple[int, int], Callable[[tuple[Any, ...]], Record]]] = {
    head: reader_of(record_type, led_by=2) for record_type, head in _HEADS.items()
}
assert set(TYPE_IDS) == set(get_args(Record))


def to_row(record: Record) -> tuple[Any, ...]:
    """Return [type, version, fields...] of plain values, as it is packed."""
    return _HEADS[type(record)] + record


def from_row(row: tuple[Any, ...]) -> Record:
    """Return the record of an unpacked row; inner lists come as tuples.

    Raises:
        UnsupportedVersion: the type or version is none of ours.
        ValueError: the row has another number of fields than its type, or one of another kind.
    """
    if type(row) is tuple:
        read = _READERS.get(row[:2])
        if read is not None:
            return read(row)
        if len(row) >= 2 and type(row[0]) is type(row[1]) is int:
            raise UnsupportedVersion(f"record type {row[0]} version {row[1]} is unknown to this release")
    raise ValueError("a record does not begin with its type and version")


_UUIDS: Final = frozenset({"topic_id", "incarnation_id", "directory_id", "request_id"})
_UUID_LISTS: Final = frozenset({"log_dirs", "cordoned_log_dirs", "directories"})


def to_json(record: Record) -> dict[str, Any]:
    """Return a record's fields by name as JSON shows them: uuids as text, inner rows as objects, secrets hidden."""
    fields = _json_fields(record)
    if isinstance(record, ConfigRecord) and record.value is not None:
        fields["value"] = shown_value(record.name, record.value)
    return fields


def _json_fields(row: Any) -> dict[str, Any]:
    return {
        _JSON_NAMES.get(type(row), {}).get(name, name): _json_value(name, getattr(row, name))
        for name in row._fields
    }


_JSON_NAMES: Final[Mapping[type, Mapping[str, str]]] = {
    Voter: {"node_id": "id", "min_version": "min", "max_version": "max"},
    FeatureRange: {"min_version": "min", "max_version": "max"},
}


def _json_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _UUIDS:
        return uuid_text(value)
    if name in _UUID_LISTS:
        return [uuid_text(uuid) for uuid in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_json_fields(item) if hasattr(item, "_fields") else item for item in value]
    return value


def json_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return inner rows (endpoints, features, voters) as JSON objects."""
    return [_json_fields(row) for row in rows]


def type_name(record: Record) -> str:
    """Return "PartitionChange" for a PartitionChangeRecord."""
    return type(record).__name__.removesuffix("Record")


def entity_key(record: Record, *, topic_ids: Mapping[str, TopicId]) -> tuple[object, ...]:
    """Return the one entity a record is about: folding per entity equals folding in order.

    A topic is one entity with its partitions and settings; `topic_ids` holds, by name, the topics living at the
    record's offset. What concerns all is the entity ("cluster",).
    """
    match record:
        case RegisterBrokerRecord() | UnregisterBrokerRecord() | BrokerRegistrationChangeRecord():
            return ("broker", record.broker_id)
        case TopicRecord() | PartitionRecord() | PartitionChangeRecord() | RemoveTopicRecord():
            return ("topic", record.topic_id)
        case ConfigRecord() if record.resource_type == TOPIC:
            return ("topic", topic_ids[record.resource_name])
        case ConfigRecord():
            return ("config", record.resource_type, record.resource_name)
        case _:
            return ("cluster",)
