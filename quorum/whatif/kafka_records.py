"""Pure: records as Kafka's own JSON converter writes them, with names in snake case and uuids by name.

The versions are those of metadata.version 30. Tagged fields that have their default are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS, TOPIC, ConfigRecord, is_masked
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.registry import Record, type_name
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord

REDACTED: Final = "(redacted)"
"""Stands for a secret, as in the records that Kafka logs."""
Word = Callable[[bytes], str]
"""Returns the name of a uuid."""


def as_kafka_json(record: Record, word: Word) -> dict[str, Any]:
    """Return a record as Kafka shows it; one that Kafka does not know, as our name and its fields."""
    shown = _SHOWN.get(type(record))
    if shown is None:
        return {"type": type_name(record), "version": 0, **_plain(record, word)}
    fields: dict[str, Any] = shown(record, word)
    return fields


def batch_as_kafka_json(records: Sequence[Record], word: Word, *, has_eligible: bool) -> list[dict[str, Any]]:
    """Return the records of a batch as Kafka writes them.

    Where eligible leader replicas are on (`has_eligible`), a change of min.insync.replicas is followed by a record that
    takes all of them away from a topic or from all topics; this project's log says of each partition what that changes.
    """
    settings = _taking_eligible_away(records) if has_eligible else []
    shown: list[dict[str, Any]] = []
    waiting: list[ConfigRecord] = []
    for record in records:
        if not isinstance(record, ConfigRecord):
            shown += [_clear_elr(setting) for setting in waiting]
            waiting = []
        if isinstance(record, PartitionChangeRecord) and settings:
            continue
        shown.append(as_kafka_json(record, word))
        waiting += [record] if isinstance(record, ConfigRecord) and record in settings else []
    return shown + [_clear_elr(setting) for setting in waiting]


def count_in_kafka(records: Sequence[Record], *, has_eligible: bool) -> int:
    """Return how many records Kafka writes for a batch; `has_eligible` as above."""
    settings = _taking_eligible_away(records) if has_eligible else []
    if not settings:
        return len(records)
    return len(records) + len(settings) - sum(isinstance(each, PartitionChangeRecord) for each in records)


def _taking_eligible_away(records: Sequence[Record]) -> list[ConfigRecord]:
    return [
        record
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_IN_SYNC_REPLICAS
    ]


def _clear_elr(setting: ConfigRecord) -> dict[str, Any]:
    topic_name = setting.resource_name if setting.resource_type == TOPIC else ""
    return {"type": "CLEAR_ELR_RECORD", "version": 0, "topic_name": topic_name}


def _register(record: RegisterBrokerRecord, word: Word) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "REGISTER_BROKER_RECORD",
        "version": 4,
        "broker_id": record.broker_id,
        "is_migrating_zk_broker": False,
        "incarnation_id": word(record.incarnation_id),
        "broker_epoch": record.broker_epoch,
        "end_points": [endpoint._asdict() for endpoint in record.endpoints],
        "features": _features(record.features),
        "rack": record.rack,
        "fenced": record.fenced,
        "in_controlled_shutdown": record.in_controlled_shutdown,
        "log_dirs": [word(log_dir) for log_dir in record.log_dirs],
    }
    if record.cordoned_log_dirs:
        shown["cordoned_log_dirs"] = [word(log_dir) for log_dir in record.cordoned_log_dirs]
    return shown


def _register_controller(record: RegisterControllerRecord, word: Word) -> dict[str, Any]:
    return {
        "type": "REGISTER_CONTROLLER_RECORD",
        "version": 0,
        "controller_id": record.controller_id,
        "incarnation_id": word(record.incarnation_id),
        "zk_migration_ready": record.zk_migration_ready,
        "end_points": [endpoint._asdict() for endpoint in record.endpoints],
        "features": _features(record.features),
    }


def _features(features: Sequence[FeatureRange]) -> list[dict[str, Any]]:
    return [
        {
            "name": feature.name,
            "min_supported_version": feature.min_version,
            "max_supported_version": feature.max_version,
        }
        for feature in features
    ]


def _registration_change(record: BrokerRegistrationChangeRecord, word: Word) -> dict[str, Any]:
    shown: dict[str, Any] = {"broker_id": record.broker_id, "broker_epoch": record.broker_epoch}
    version = 0
    if record.fenced is not None:
        shown["fenced"] = 1 if record.fenced else -1
    if record.in_controlled_shutdown:
        version, shown["in_controlled_shutdown"] = 1, 1
    if record.log_dirs is not None:
        version, shown["log_dirs"] = 2, [word(log_dir) for log_dir in record.log_dirs]
    if record.cordoned_log_dirs is not None:
        version, shown["cordoned_log_dirs"] = 3, [word(log_dir) for log_dir in record.cordoned_log_dirs]
    if not any(value is not None for value in record[2:]):
        version = 2  # of a last directory that failed, which Kafka writes as an empty list
    return {"type": "BROKER_REGISTRATION_CHANGE_RECORD", "version": version, **shown}


def _partition(record: PartitionRecord, word: Word) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "PARTITION_RECORD",
        "version": 2,
        "partition_id": record.partition_id,
        "topic_id": word(record.topic_id),
        "replicas": [*record.replicas],
        "isr": [*record.isr],
        "removing_replicas": [*record.removing_replicas],
        "adding_replicas": [*record.adding_replicas],
        "leader": record.leader,
        "leader_epoch": record.leader_epoch,
        "partition_epoch": record.partition_epoch,
        "directories": [word(directory) for directory in record.directories],
    }
    for name in ("leader_recovery_state", "eligible_leader_replicas", "last_known_elr"):
        if value := getattr(record, name):
            shown[name] = value if isinstance(value, int) else [*value]
    return shown


def _partition_change(record: PartitionChangeRecord, word: Word) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "PARTITION_CHANGE_RECORD",
        "version": 2,
        "partition_id": record.partition_id,
        "topic_id": word(record.topic_id),
    }
    value: Any
    for name, value in zip(record._fields[2:], record[2:], strict=True):
        if value is None:
            continue
        if name == "directories":
            shown[name] = [word(directory) for directory in value]
        else:
            shown[name] = [*value] if isinstance(value, tuple) else value
    return shown


def _simple(name: str, fields: Mapping[str, str] | None = None) -> Callable[[Any, Word], dict[str, Any]]:
    """Return what shows a record of version 0 whose fields are plain; `fields` are those of another name in Kafka."""
    renamed = fields or {}

    def shown(record: Any, word: Word) -> dict[str, Any]:
        plain = _plain(record, word)
        return {"type": name, "version": 0} | {renamed.get(key, key): value for key, value in plain.items()}

    return shown


def _config(record: ConfigRecord, word: Word) -> dict[str, Any]:
    fields = _simple("CONFIG_RECORD")(record, word)
    del fields["mask_key"]  # ours
    if record.value is not None and is_masked(record):
        # Not a mask: the same script gets the same keys, so whoever sees a mask could try secrets against it.
        fields["value"] = REDACTED
    return fields


def _plain(record: Any, word: Word) -> dict[str, Any]:
    return {name: _value(value, word) for name, value in record._asdict().items()}


def _value(value: Any, word: Word) -> Any:
    if isinstance(value, bytes):
        return word(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(item, word) for item in value]
    return value


_SHOWN: Final[Mapping[type, Callable[[Any, Word], dict[str, Any]]]] = {
    RegisterBrokerRecord: _register,
    RegisterControllerRecord: _register_controller,
    UnregisterBrokerRecord: _simple("UNREGISTER_BROKER_RECORD"),
    BrokerRegistrationChangeRecord: _registration_change,
    TopicRecord: _simple("TOPIC_RECORD"),
    RemoveTopicRecord: _simple("REMOVE_TOPIC_RECORD"),
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
    ConfigRecord: _config,
    FeatureLevelRecord: _simple("FEATURE_LEVEL_RECORD", {"level": "feature_level"}),
    ProducerIdsRecord: _simple("PRODUCER_IDS_RECORD"),
}
