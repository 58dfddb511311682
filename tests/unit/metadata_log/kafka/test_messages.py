"""Requests and answers are read and written as by Kafka's own classes; foreign bytes cost no more than their length."""

import random
import tracemalloc
from collections.abc import Callable
from itertools import groupby

import pytest

from metadata_log.kafka import messages
from metadata_log.kafka.messages import (
    ANSWER_HEADER,
    ANSWERS,
    API_VERSIONS,
    PRINCIPAL,
    REQUEST_HEADER,
    REQUESTS,
    Malformed,
    RequestHeader,
    answer_head,
    message_writer,
    read_whole,
    request_header,
)
from metadata_log.kafka.reading import Values
from metadata_log.limits import KAFKA_ITEMS_MAX
from tests.support.kafka_records import Vector, message_vectors

VECTORS = message_vectors()
GROUPS = {
    f"{schema.name}-{'answer' if ANSWERS.get(schema.number) is schema else 'request'}": [*same]
    for schema, same in groupby(VECTORS, key=lambda vector: vector.schema)
}
SCHEMAS = [*REQUESTS.values(), *ANSWERS.values(), REQUEST_HEADER, ANSWER_HEADER, PRINCIPAL]


def test_there_are_messages_of_every_key_and_version() -> None:
    """Goal: a door finds each of the APIs of a controller's listener."""
    assert len(REQUESTS) == len(ANSWERS) == 41
    assert {(vector.schema, vector.version) for vector in VECTORS} == {
        (schema, version)
        for schema in SCHEMAS
        for version in range(schema.versions.first, schema.versions.last + 1)
    }


@pytest.mark.parametrize("name", GROUPS)
def test_a_message_has_the_bytes_that_kafka_writes(name: str) -> None:
    """Goal: no field, default, null or tag differs, both ways. Method: Kafka's own classes wrote random messages."""
    for vector in GROUPS[name]:
        assert message_writer(vector.schema, vector.version)(vector.values) == vector.raw
        assert read_whole(vector.schema, vector.version, vector.raw) == vector.values


def test_a_request_is_read_behind_its_header() -> None:
    for key, version, header_version in ((18, 4, 2), (18, 0, 1), (19, 4, 1), (1, 18, 2)):
        header = message_writer(REQUEST_HEADER, header_version)((key, version, 7, "größe"))
        assert request_header(header + b"rest") == RequestHeader(key, version, 7, "größe", len(header))


def test_a_newer_apiversions_is_read_as_far_as_its_header() -> None:
    """Goal: a newer client learns which versions are known. Method: version 9, which no release has."""
    header = message_writer(REQUEST_HEADER, 2)((API_VERSIONS, 9, 7, None))
    assert request_header(header) == RequestHeader(API_VERSIONS, 9, 7, None, len(header))
    assert answer_head(API_VERSIONS, 3, 7) == b"\0\0\0\7"
    assert answer_head(19, 7, 7) == b"\0\0\0\7\0"
    assert answer_head(19, 4, 7) == b"\0\0\0\7"


@pytest.mark.parametrize(("key", "version"), [(0, 9), (19, 8), (19, 1), (-1, 0), (1, 3)])
def test_an_unknown_request_is_refused(key: int, version: int) -> None:
    with pytest.raises(Malformed, match=r"^a request of key -?\d+ in version \d+ is not known here"):
        request_header(message_writer(REQUEST_HEADER, 1)((key, version, 7, None)))


# --- bytes of strangers


@pytest.mark.parametrize("name", GROUPS)
def test_a_message_that_is_cut_is_refused(name: str) -> None:
    rng = random.Random(3)
    for vector in GROUPS[name]:
        for end in {rng.randrange(len(vector.raw)) for _ in range(40)} if vector.raw else ():
            with pytest.raises(Malformed):
                read_whole(vector.schema, vector.version, vector.raw[:end])


@pytest.mark.slow
def test_any_bytes_are_a_message_or_are_refused() -> None:
    """Goal: no other error leaves the reader. Method: bytes changed, inserted and removed at random, and headers too."""
    rng = random.Random(7)
    refused = sum(_is_refused(rng.choice(VECTORS), rng) for _ in range(20_000))
    assert 10_000 < refused < 20_000
    header = message_writer(REQUEST_HEADER, 2)((19, 7, 7, "client"))
    assert sum(_is_no_header(_mutated(header, rng)) for _ in range(5_000)) > 1_000


def _is_refused(vector: Vector, rng: random.Random) -> bool:
    try:
        read_whole(vector.schema, vector.version, _mutated(vector.raw, rng))
    except Malformed:
        return True
    return False


def _is_no_header(data: bytes) -> bool:
    try:
        request_header(data)
    except Malformed:
        return True
    return False


def _mutated(data: bytes, rng: random.Random) -> bytes:
    raw = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(raw) + 1)
        raw[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    return bytes(raw)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: f"{schema.name}-{schema.number}")
def test_five_bytes_cost_no_memory(schema) -> None:
    """Goal: what claims much costs nothing (CVE-2022-34917). Method: the largest counts, where each message begins."""
    claims = [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\x7f"]
    versions = range(schema.versions.first, schema.versions.last + 1)
    for version in versions:
        _refuses(schema, version, b"")
    tracemalloc.start()
    try:
        for version in versions:
            for claim in claims:
                _refuses(schema, version, claim)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def _refuses(schema, version: int, data: bytes) -> None:
    try:
        read_whole(schema, version, data)
    except Malformed:
        return
    assert not data or len(data) <= 8, "a message without an array"


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(Malformed, match="a length of -2"):
        read_whole(REQUESTS[19], 4, b"\xff\xff\xff\xfe")
    with pytest.raises(Malformed, match="field topics is null"):
        read_whole(REQUESTS[19], 4, b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("key", "version", "values_of"),
    [
        (20, 5, lambda more: ((), [""] * (KAFKA_ITEMS_MAX + more), 1_000)),
        (56, 3, lambda more: (11, 5, [(bytes(16), [*_reported(19_999, 4), *_reported(1, 3 + more)])])),
    ],
)
def test_a_large_request_has_as_many_items_as_the_bound_and_no_more(
    key: int, version: int, values_of: Callable[[int], Values]
) -> None:
    """Goal: no request of tiny items costs seconds. Method: one array, and items of items; one too many in the last."""
    written = message_writer(REQUESTS[key], version)
    read_whole(REQUESTS[key], version, written(values_of(0)))
    with pytest.raises(Malformed, match="more than 100000 items"):
        read_whole(REQUESTS[key], version, written(values_of(1)))


def _reported(partitions: int, isr: int) -> list[Values]:
    return [(0, 1, (), [(11, 5)] * isr, 0, 1)] * partitions


def test_an_answer_and_a_small_request_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "KAFKA_ITEMS_MAX", 10)
    read_whole(REQUESTS[20], 5, message_writer(REQUESTS[20], 5)(((), ["a"] * 11, 1_000)))
    rows = [("a" * 2_000, bytes(16), 0, None)] * 11
    read_whole(ANSWERS[20], 5, message_writer(ANSWERS[20], 5)((0, rows)))
