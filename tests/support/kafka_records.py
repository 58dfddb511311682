"""Edge: records and messages of every kind, with the bytes that Kafka writes (`python -m tests.kafka_vectors`)."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metadata_log.ids import uuid_from_text
from metadata_log.kafka.messages import ANSWER_HEADER, ANSWERS, PRINCIPAL, REQUEST_HEADER, REQUESTS
from metadata_log.kafka.records import CONTROL_SCHEMAS, DATA_SCHEMAS, Decoded, decode, decode_control
from metadata_log.kafka.schemas import Field, Schema
from tests.kafka_vectors.__main__ import MESSAGES, RECORDS


class Vector(NamedTuple):
    schema: Schema
    version: int
    values: tuple[Any, ...]
    """As our reader returns them."""
    raw: bytes
    """As Kafka writes them."""
    shown: dict[str, Any] | None
    """As Kafka's converter to JSON shows them; None for what is no record of a data batch."""

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
    """Return the records."""
    found = []
    for told in _lines(RECORDS):
        schema = (DATA_SCHEMAS if told["kind"] == "data" else CONTROL_SCHEMAS)[told["number"]]
        found.append(_vector(schema, told))
    return found


def message_vectors() -> list[Vector]:
    """Return the headers, requests and answers."""
    others = {
        "RequestHeaderData": REQUEST_HEADER,
        "ResponseHeaderData": ANSWER_HEADER,
        "DefaultPrincipalData": PRINCIPAL,
    }
    found = []
    for told in _lines(MESSAGES):
        of = {"request": REQUESTS, "response": ANSWERS}.get(told["kind"])
        found.append(_vector(others[told["class"]] if of is None else of[told["number"]], told))
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def _vector(schema: Schema, told: Mapping[str, Any]) -> Vector:
    values = values_of(schema.fields, told["fields"])
    return Vector(schema, told["version"], values, bytes.fromhex(told["bytes"]), told.get("shown"))


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
        case "bytes" | "records":
            return base64.b64decode(told)
        case _:
            return told


def camel(name: str) -> str:
    """Return the name of a field as Kafka's JSON has it."""
    first, *others = name.split("_")
    return (first + "".join(map(str.title, others))).replace("kraftVersion", "kRaftVersion")
