"""Property: kio, another codec of Kafka's protocol, reads each of our requests and answers, and writes the same bytes again.

What both codecs took in the same wrong way would show in the vectors of Kafka's own classes. kio is no part of what is
shipped: some bytes end its process.
"""

import io
import re
from functools import cache
from importlib import import_module
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from metadata_log.kafka.messages import ANSWERS, REQUESTS, message_writer, read_whole
from metadata_log.kafka.schemas import Field, Schema

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
MS_MAX: Final = 10**12
"""kio makes times of Python's of these, which end in the year 9999."""
ITEMS_MAX: Final = 2
DIFFERS: Final = {("IncrementalAlterConfigs", 0)}
"""Answers that Kafka's own classes write as ours, and kio 0.6.5 does not read."""
MESSAGES: Final = [
    pytest.param(
        schema,
        version,
        kind,
        id=f"{schema.name}-{kind}-{version}",
        marks=[pytest.mark.slow] * (version < schema.versions.last),
    )
    for kind, table in (("request", REQUESTS), ("response", ANSWERS))
    for schema in table.values()
    for version in range(schema.versions.first, schema.versions.last + 1)
    if kind == "request" or (schema.name.removesuffix("Response"), version) not in DIFFERS
]


@cache
def values_of(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return what draws the values of all fields; a field that a version lacks has its default."""
    return st.tuples(
        *(
            value_of(field, version) if version in field.versions else st.just(field.default)
            for field in fields
        )
    )


def value_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = items_of(field, version)
    drawn = st.lists(one, max_size=ITEMS_MAX).map(tuple) if field.is_array else one
    return st.none() | drawn if version in field.nullable else drawn


def items_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    match field.kind:
        case "struct":
            return values_of(field.fields, version)
        case "int16" if field.name.endswith("error_code"):
            return st.sampled_from([code.value for code in ErrorCode])
        case "int64" if field.name.endswith(("_ms", "timestamp")):
            return st.integers(0, MS_MAX)
        case "int8" | "int16" | "int32" | "int64":
            half = 1 << BITS[field.kind] - 1
            return st.integers(-half, half - 1)
        case "uint16":
            return st.integers(0, 0xFFFF)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "bool":
            return st.booleans()
        case "string":
            return st.text(st.characters(codec="utf-8"), max_size=9)
        case "bytes" | "records":
            return st.binary(max_size=9)
        case _:
            return st.floats(allow_nan=False)


def entity_of(schema: Schema, version: int, kind: str) -> Any:
    name = schema.name.removesuffix("Request").removesuffix("Response")
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    module = import_module(f"kio.schema.{folder}.v{version}.{kind}")
    return getattr(module, f"{name}{kind.title()}")


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version", "kind"), MESSAGES)
def test_another_codec_writes_what_it_has_read_as_we_do(schema: Schema, version: int, kind: str) -> None:
    entity = entity_of(schema, version, kind)
    read, write, ours = entity_reader(entity), entity_writer(entity), message_writer(schema, version)

    @settings(max_examples=10, deadline=None)
    @given(values_of(schema.fields, version))
    def check(values: tuple[Any, ...]) -> None:
        data = ours(values)
        again = io.BytesIO()
        message, size = read(data, 0)
        write(again, message)
        assert (again.getvalue(), size) == (data, len(data))
        assert read_whole(schema, version, data) == values

    check()
