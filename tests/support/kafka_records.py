"""Edge: records of every type and version, with the bytes that Kafka writes (`python -m tests.kafka_vectors`)."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from metadata_log.ids import uuid_from_text
from metadata_log.kafka.records import CONTROL_SCHEMAS, DATA_SCHEMAS, Decoded, decode, decode_control
from metadata_log.kafka.schemas import Field, Schema
from tests.kafka_vectors.__main__ import VECTORS


class Vector(NamedTuple):
    schema: Schema
    version: int
    values: tuple[Any, ...]
    """As our reader returns them."""
    raw: bytes
    """As Kafka writes them."""
    shown: dict[str, Any] | None
    """As Kafka's converter to JSON shows them; None for control records."""

    @property
    def is_control(self) -> bool:
        return CONTROL_SCHEMAS.get(self.schema.number) is self.schema

    @property
    def has_meaning(self) -> bool:
        """Kafka might write it: no empty list or text where null says the same, no number that stands for nothing."""
        values = self.values
        match self.schema.name:
            case "RegisterBroker":
                return bool(values[6] != "")
            case "Partition":
                return () not in values[10:] and values[7] in (0, 1)
            case "PartitionChange":
                return bool(values[8] != () and values[3] != -2 and values[7] != -2)
            case "BrokerRegistrationChange":
                return values[2] in (-1, 0, 1) and values[3] in (0, 1)
            case _:
                return True

    def decoded(self, raw: bytes) -> Decoded:
        return decode_control(self.schema.number, raw) if self.is_control else decode(raw)


def vectors() -> list[Vector]:
    found = []
    for line in gzip.decompress(VECTORS.read_bytes()).decode().splitlines():
        told = json.loads(line)
        schema = (CONTROL_SCHEMAS if told["is_control"] else DATA_SCHEMAS)[told["number"]]
        values = values_of(schema.fields, told["fields"])
        found.append(Vector(schema, told["version"], values, bytes.fromhex(told["bytes"]), told.get("shown")))
    return found


def values_of(fields: Sequence[Field], told: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a structure that Kafka's JSON tells."""
    return tuple(
        _value(field, told[camel(field.name)]) if camel(field.name) in told else field.default
        for field in fields
    )


def _value(field: Field, told: Any) -> Any:
    if told is None:
        return None
    if field.is_array:
        item = field._replace(is_array=False)
        return tuple(_value(item, each) for each in told)
    match field.kind:
        case "struct":
            return values_of(field.fields, told)
        case "uuid":
            return uuid_from_text(told)
        case "bytes":
            return base64.b64decode(told)
        case _:
            return told


def camel(name: str) -> str:
    """Return the name of a field as Kafka's JSON has it."""
    first, *others = name.split("_")
    return (first + "".join(map(str.title, others))).replace("kraftVersion", "kRaftVersion")
