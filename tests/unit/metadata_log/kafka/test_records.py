"""Kafka's records are read and written as Kafka's own classes do it, and foreign bytes cost no more than their length."""

import random
import tracemalloc
from itertools import groupby

import pytest

from metadata_log.kafka import record_table
from metadata_log.kafka.reading import reader
from metadata_log.kafka.records import (
    CONTROL_SCHEMAS,
    DATA_SCHEMAS,
    UnknownVersion,
    decode,
    encode,
)
from metadata_log.kafka.schemas import NO_VERSION, Form, Versions, schemas
from metadata_log.kafka.writing import NUMBERS_MAX, UVARINTS, writer
from tests import kafka_schemas
from tests.support.kafka_records import Vector, vectors

VECTORS = vectors()
TYPES = {name: [*same] for name, same in groupby(VECTORS, key=lambda vector: vector.schema.name)}


@pytest.mark.parametrize("name", ["record_table", "request_table", "answer_table"])
def test_a_table_is_what_kafkas_schemas_say(name: str) -> None:
    """Write it with `python -m tests.kafka_schemas JARS`."""
    table = kafka_schemas.ROOM / f"{name}.py"
    assert table.read_text(encoding="utf-8") == kafka_schemas.tables(kafka_schemas.kept())[name]


def test_there_are_records_of_every_type_and_version() -> None:
    found = {(vector.schema.name, vector.version) for vector in VECTORS}
    later = {"UnregisterController"}
    assert found == {
        (schema.name, version)
        for schema in (*DATA_SCHEMAS.values(), *CONTROL_SCHEMAS.values())
        if schema.name not in later
        for version in range(schema.versions.first, schema.versions.last + 1)
    }
    assert len(schemas(record_table.RECORDS)) == 26


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_record_has_the_bytes_that_kafka_writes(name: str) -> None:
    """Goal: no field, default, null or tag differs, both ways. Method: Kafka's own classes wrote random records."""
    for vector in TYPES[name]:
        assert encode(name, vector.version, vector.values) == vector.raw
        found = vector.decoded(vector.raw)
        assert (found.name, found.version, found.values) == (name, vector.version, vector.values)


def test_a_field_that_a_version_lacks_is_not_lost() -> None:
    vector = next(each for each in TYPES["Partition"] if each.version == 2 and each.values[10])
    for version in (0, 1):
        with pytest.raises(ValueError, match=r"lacks the field (directories|eligible|last_known)"):
            encode("Partition", version, (*vector.values[:11], None, (3,)) if version else vector.values)


def test_an_ignorable_field_is_left_out() -> None:
    (schema,) = schemas("1 A 0-1 flexible 0+\n    a int8 0+\n    b int8 1+ ignorable yes\n").values()
    assert writer(schema.fields, Form(0))((1, 2)) == b"\1\0"
    assert writer(schema.fields, Form(1))((1, 2)) == b"\1\2\0"


def test_versions_are_read() -> None:
    (schema,) = schemas(
        "1 A 2-3 flexible none\n    a int8 0-2 default 0x7f\n    b string 3+ default x\n"
    ).values()
    assert (schema.versions, schema.flexible) == (Versions(2, 3), NO_VERSION)
    assert [field.default for field in schema.fields] == [127, "x"]
    assert [2 in field.versions for field in schema.fields] == [True, False]


# --- bytes of strangers


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_record_that_is_cut_is_refused(name: str) -> None:
    for vector in TYPES[name][:6]:
        for end in range(len(vector.raw)):
            with pytest.raises(ValueError, match=r".+"):
                vector.decoded(vector.raw[:end])
        with pytest.raises(ValueError, match="ends at byte"):
            vector.decoded(vector.raw + b"\0")


def test_any_bytes_are_a_record_or_are_refused() -> None:
    """Goal: no other error leaves the reader. Method: bytes changed, inserted and removed at random."""
    rng = random.Random(7)
    refused = 0
    for _ in range(20_000):
        vector = rng.choice(VECTORS)
        raw = bytearray(vector.raw)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(raw) + 1)
            raw[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        refused += _is_refused(vector, bytes(raw))
    assert 5_000 < refused < 20_000


def _is_refused(vector: Vector, raw: bytes) -> bool:
    try:
        vector.decoded(raw)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("kind", ["int8", "int32", "uuid", "string", "bytes", "Inner"])
def test_an_array_claims_no_more_than_is_there(kind: str) -> None:
    """Goal: five bytes cost no memory (CVE-2022-34917). Method: claims of many items; what is allocated meanwhile."""
    (schema,) = schemas(f"1 A 0 flexible 0+\n    items []{kind} 0+\n        of []string 0+\n").values()
    read = reader(schema.fields, Form(0))
    claims = [UVARINTS[count] + bytes(3) for count in (2**31, 2**40, 5, 100_000)]
    tracemalloc.start()
    try:
        for claim in claims:
            with pytest.raises(ValueError, match="announced"):
                read(claim, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_null_where_nothing_may_be_null_is_refused() -> None:
    with pytest.raises(ValueError, match="field name is null"):
        decode(b"\1\2\0" + b"\0" + bytes(16) + b"\0")


def test_an_unknown_frame_version_or_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownVersion, match="frame version 2"):
        decode(b"\2\2\0")
    with pytest.raises(UnknownVersion, match="version 9 of Topic"):
        decode(b"\1\2\x09")
    assert decode(b"\1\x7f\0").fields is None


def test_what_is_kept_of_numbers_is_bounded() -> None:
    for number in range(3 * NUMBERS_MAX):
        assert UVARINTS[number] == _uvarint(number)
    assert len(UVARINTS) <= NUMBERS_MAX


def _uvarint(value: int) -> bytes:
    head = value & 0x7F
    return bytes([head]) if value < 0x80 else bytes([head | 0x80]) + _uvarint(value >> 7)
