"""Pure: records as Kafka's own JSON converter writes them, with names in snake case and uuids by name.

The level of metadata.version says which versions are written. Tagged fields that have their default are left out.
"""

import base64
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from metadata_log.kafka.counterparts import READ, WRITTEN
from metadata_log.kafka.schemas import Field
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS, TOPIC, ConfigRecord, is_masked
from metadata_log.records.features import METADATA_VERSION_LEVEL
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record, type_name

REDACTED: Final = "(redacted)"
"""Replaces a secret, as in the records that Kafka logs."""
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
Word = Callable[[bytes], str]
"""Returns the name of a uuid."""


def as_kafka_json(record: Record, word: Word, *, level: int = METADATA_VERSION_LEVEL) -> dict[str, Any]:
    """Return a record as Kafka shows it at a level of metadata.version; one that Kafka does not know, as our name and its
    fields.
    """
    row = WRITTEN.get(type(record))
    if row is None or READ.get(row.kafka) is not row:
        fields = {name: _plain(value, word) for name, value in record._asdict().items()}
        return {"type": type_name(record), "version": 0, **fields}
    version = row.version_of(record, level)
    shown = _named(row.schema.fields, row.values(record, version), version, word)
    if isinstance(record, ConfigRecord) and record.value is not None and is_masked(record):
        # Not a mask: the same script gets the same keys, so a reader of a mask could try secrets against it.
        shown["value"] = REDACTED
    return {"type": f"{_WORD.sub('_', row.kafka)}_RECORD".upper(), "version": version, **shown}


def batch_as_kafka_json(
    records: Sequence[Record], word: Word, *, has_eligible: bool, level: int = METADATA_VERSION_LEVEL
) -> list[dict[str, Any]]:
    """Return the records of a batch as Kafka writes them at a level of metadata.version.

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
        shown.append(as_kafka_json(record, word, level=level))
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


def _named(fields: Sequence[Field], values: Sequence[Any], version: int, word: Word) -> dict[str, Any]:
    """Return the values of a structure by name, as far as its version has them and they are not left out."""
    return {
        field.name: _value(field, value, version, word)
        for field, value in zip(fields, values, strict=True)
        if version in field.versions and not (version in field.tagged and value == field.default)
    }


def _value(field: Field, value: Any, version: int, word: Word) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_item(field, each, version, word) for each in value]
    return _item(field, value, version, word)


def _item(field: Field, value: Any, version: int, word: Word) -> Any:
    if field.fields:
        return _named(field.fields, value, version, word)
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    return word(value) if field.kind == "uuid" else value


def _plain(value: Any, word: Word) -> Any:
    """Return a value of a record that Kafka does not know."""
    if isinstance(value, bytes):
        return word(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item, word) for item in value]
    return value
