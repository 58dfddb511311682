"""Pure: the codec refuses every value of a wrong kind, and names its field."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import google_crc32c
import msgpack
import pytest

from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.codec import DamagedFrame, check_frames, decode, encode
from metadata_log.ids import TopicId
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.registry import TYPE_IDS
from metadata_log.records.topics import TopicRecord
from tests.support.histories import (
    A_NEWER_VERSION,
    A_TOPIC_ID_OF_INT,
    A_TYPE_UNKNOWN_HERE,
    NO_ENVELOPE_ROW,
    frame_behind,
    history_of,
)

LAST = history_of(1, 3)[-1].frame


class Maybe(NamedTuple):
    """A field that may be nil."""

    kind: Any


INT, TEXT, BIN, BOOL, FLOAT, INTS, BINS = int, str, bytes, bool, float, [int], [bytes]
ENDPOINT = (TEXT, TEXT, INT)
FIELDS: dict[int, tuple[Any, ...]] = {
    0: (
        *(INT, BIN, INT, [(*ENDPOINT, INT)], [(TEXT, INT, INT)], Maybe(TEXT), BOOL, BOOL, BINS),
        Maybe(BINS),
    ),
    1: (INT, INT),
    2: (BIN, TEXT),
    3: (BIN, INT, INTS, INTS, INT, INT, INT, INT, INTS, INTS, INTS, INTS, BINS),
    4: (INT, TEXT, TEXT, Maybe(TEXT)),
    5: (
        *(BIN, INT, Maybe(INT), Maybe(INTS), Maybe(INTS), Maybe(INTS), Maybe(INTS), Maybe(INT)),
        *(Maybe(INTS), Maybe(INTS), Maybe(BINS)),
    ),
    9: (BIN,),
    10: (TEXT, TEXT, TEXT, [TEXT], INT, INT, INT),
    11: (TEXT, INT, BIN, BIN, BIN, INT, Maybe(BIN)),
    12: (TEXT, INT),
    14: ([(TEXT, Maybe(TEXT))], TEXT, FLOAT, BOOL),
    15: (INT, INT, INT),
    17: (INT, INT, Maybe(BOOL), Maybe(BOOL), Maybe(BINS), Maybe(BINS)),
    18: (BIN, INT, TEXT, INT, TEXT, TEXT, INT, INT),
    19: (BIN,),
    20: (),
    22: (TEXT, INT),
    26: (TEXT,),
    27: (INT, BIN, INT, BOOL, [(*ENDPOINT, INT)], [(TEXT, INT, INT)]),
    1000: (INT, INT, TEXT),
    1001: (BIN, TEXT, BIN, INT, INT, BIN, INT),
    1002: (TEXT, INT, INT, INT, INT),
    1003: (INT, TEXT),
    1004: (INT,),
    1005: ([(INT, BIN, [ENDPOINT], INT, INT)],),
    1006: (BIN, TEXT, INT, INT, [(TEXT, TEXT)], INT),
    1007: (BIN,),
    1010: (INT, INT),
    1011: (INT, TEXT, INT, INT, BINS, BOOL, Maybe(BIN), Maybe(BIN)),
}
"""The record types, in version 0, as docs/formats.md, section 1, has them."""
ROWS: dict[tuple[int, int], tuple[Any, ...]] = {(type_id, 0): kinds for type_id, kinds in FIELDS.items()} | {
    (4, 1): (*FIELDS[4], Maybe(BIN)),
    (1002, 1): (*FIELDS[1002], Maybe(INT)),
}
"""Each type and version."""
ENVELOPE = (Maybe(TEXT), Maybe(BIN), Maybe(BIN), Maybe((TEXT, Maybe(INT), dict)), Maybe(TEXT), Maybe(BIN))
VALUES: tuple[Any, ...] = (
    *(None, False, True, 0, 1, -1, 2**40, 0.0, 1.0, "", "x", b"", bytes(16), {}, {"a": 1}),
    *((), (1,), (None,), (True,), (1.0,), ("x",), (bytes(16),), ((),), ({},), (1, "x"), (bytes(16), 1)),
)


def fits(kind: Any, value: Any) -> bool:
    match kind:
        case Maybe(inner):
            return value is None or fits(inner, value)
        case list():
            return type(value) is tuple and all(fits(kind[0], one) for one in value)
        case tuple():
            return (
                type(value) is tuple
                and len(value) == len(kind)
                and all(fits(k, one) for k, one in zip(kind, value, strict=True))
            )
        case _:
            return type(value) is kind or (kind is FLOAT and type(value) is INT)


def sample(kind: Any) -> Any:
    match kind:
        case Maybe(inner):
            return sample(inner)
        case list():
            return (sample(kind[0]), sample(kind[0]))
        case tuple():
            return tuple(map(sample, kind))
        case _:
            return {
                int: 3,
                float: 2.5,
                str: "x",
                bytes: bytes(16),
                bool: True,
                dict: {"b": {"c": (1, "x", None)}},
            }[kind]


def changed(value: Any) -> Iterator[Any]:
    """Yield a value with each thing within it, and itself, replaced by each of VALUES, and lists one shorter or longer."""
    yield from VALUES
    if type(value) is tuple:
        yield value[:-1]
        yield (*value, 1)
        for place, one in enumerate(value):
            for other in changed(one):
                yield (*value[:place], other, *value[place + 1 :])


def test_every_type_is_here() -> None:
    assert set(FIELDS) == set(TYPE_IDS.values())


def decoded(envelope: Any, row: Any) -> tuple[Any, Any]:
    """Return envelope and record as plain tuples again."""
    batch, _ = decode(frame_behind(LAST, msgpack.packb([envelope, [row]])))
    return batch.envelope, batch.records[0]


def as_read(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the fields of a row: those that came with a later version have their defaults."""
    return (*row[2:], None) if row[:2] in ((4, 0), (1002, 0)) else row[2:]


@pytest.mark.parametrize("head", ROWS)
def test_a_record_of_another_kind_never_gets_by(head: tuple[int, int]) -> None:
    """Goal: behind the codec every field is what its annotation says. Method: a good row with anything in any place."""
    row: tuple[Any, ...] = (*head, *sample(ROWS[head]))
    assert decoded(NO_ENVELOPE_ROW, row) == (NO_ENVELOPE, as_read(row))
    tried = 0
    for other in changed(row):
        # With another type's number in front, a row may be a good one of that type.
        is_row = type(other) is tuple and len(other) > 1 and type(other[0]) is type(other[1]) is int
        if is_row and other[:2] in ROWS and fits((INT, INT, *ROWS[other[:2]]), other):
            assert decoded(NO_ENVELOPE_ROW, other) == (NO_ENVELOPE, as_read(other))
        else:
            with pytest.raises(DamagedFrame):
                decoded(NO_ENVELOPE_ROW, other)
        tried += 1
    assert tried > 2 * len(VALUES)


def test_an_envelope_of_another_kind_never_gets_by() -> None:
    envelope = sample(ENVELOPE)
    assert decoded(envelope, (20, 0)) == (envelope, ())
    for other in changed(envelope):
        if fits(ENVELOPE, other):
            read, _ = decoded(other, (20, 0))
            assert read == other
            assert read.cause is None or isinstance(read.cause, Cause)
        else:
            with pytest.raises(DamagedFrame):
                decoded(other, (20, 0))


@pytest.mark.parametrize("value", [b"x", {"a": {"b": (b"x",)}}, (b"x",)])
def test_what_a_dump_could_not_show_is_no_cause(value: object) -> None:
    envelope = (None, None, None, ("CODE", None, {"a": value}), None, None)
    with pytest.raises(DamagedFrame, match="detail of a Cause: expected a map of plain values"):
        decoded(envelope, (20, 0))


NO_ROWS: tuple[Any, ...] = (
    *(None, 7, "ab", {}, {"a": 1}, (), (2,), (({},), 0), ({}, 0), ("x", 0), (2, "x")),
    *(b"\x14\x00", b"\x01\x00\x05\x06"),  # the bytes of a NoOp's and of an UnregisterBroker's numbers
)


def deep(levels: int) -> object:
    return {"a": deep(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    "body",
    [
        *(None, 1, b"", "ab", {}, (), (1,), (1, 2), (NO_ENVELOPE_ROW, None), (NO_ENVELOPE_ROW, ())),
        *((NO_ENVELOPE_ROW, (row,)) for row in NO_ROWS),
        ((None, None, None, ("CODE", None, deep(450)), None, None), ((20, 0),)),
        (msgpack.ExtType(5, b"x"), ((20, 0),)),
        (NO_ENVELOPE_ROW, msgpack.ExtType(5, b"x")),
    ],
)
def test_a_body_of_any_shape_is_refused_by_name(body: object) -> None:
    with pytest.raises(DamagedFrame) as refused:
        decode(b"-" * 7 + frame_behind(LAST, msgpack.packb(body)), 7)
    assert (refused.value.at, refused.value.torn, refused.value.another_version) == (7, False, False)


def test_what_is_refused_is_named() -> None:
    with pytest.raises(DamagedFrame, match="topic_id of a TopicRecord: expected bytes, got int") as damaged:
        decode(frame_behind(LAST, A_TOPIC_ID_OF_INT))
    assert not damaged.value.another_version
    for body, said in (
        ([[5, 0, bytes(16), 0, *[None] * 9][:-1]], "a PartitionChangeRecord of 10 fields, not 11"),
        ([[9, 0, [1, "a", 2]]], "topic_id of a RemoveTopicRecord: expected bytes, got array"),
        (
            [[17, 0, 1, 2, None, None, [b"", 5], None]],
            "log_dirs.1. of a BrokerRegistrationChangeRecord: expected bytes, got int",
        ),
        (
            [[1005, 0, [[1, b"", [["C", "h", "9"]], 0, 1]]]],
            "voters.0..2..0..2. of a VotersRecord: expected int, got str",
        ),
        ([[4, 0, 2, "t", "password", b"secret"]], "value of a ConfigRecord: expected str | null, got bytes"),
    ):
        with pytest.raises(DamagedFrame, match=said) as damaged:
            decode(frame_behind(LAST, msgpack.packb([NO_ENVELOPE_ROW, body])))
        assert "secret" not in damaged.value.reason


@pytest.mark.parametrize(
    ("body", "said"),
    [(A_TYPE_UNKNOWN_HERE, "type 7777 version 0 is"), (A_NEWER_VERSION, "type 12 version 9 is unknown")],
)
def test_what_a_newer_release_wrote_is_told_apart(body: bytes, said: str) -> None:
    """B79"""
    with pytest.raises(DamagedFrame, match=said) as refused:
        decode(frame_behind(LAST, body))
    assert refused.value.another_version


def test_what_nobody_could_read_is_never_written() -> None:
    wrong: list[Any] = [
        FeatureLevelRecord("f", True),
        TopicRecord(TopicId(b""), None),  # type: ignore[arg-type] # what mypy refuses is the subject
        ConfigRecord(2, "", "", 1),  # type: ignore[arg-type] # likewise
    ]
    for records, envelope in (
        *(([record], NO_ENVELOPE) for record in wrong),
        ([FeatureLevelRecord("f", 1)], Envelope(cause=Cause("CODE", None, {"id": b"x"}))),
    ):
        with pytest.raises(ValueError, match=r" of a \w+: "):
            encode(
                base_offset=0,
                controller_epoch=1,
                appended_at_ms=1,
                previous_crc=0,
                envelope=envelope,
                records=records,
            )


def a_frame() -> bytes:
    _, frame = encode(
        base_offset=7,
        controller_epoch=1,
        appended_at_ms=3,
        previous_crc=5,
        envelope=NO_ENVELOPE,
        records=[FeatureLevelRecord(name="metadata.version", level=30)],
    )
    return frame


def test_frames_of_a_payload_are_checked_each_bit_of_them() -> None:
    """What a peer sends is checked by this alone before it is journalled."""
    frame = a_frame()
    check_frames(b"")
    check_frames(frame + frame)
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame + frame)
        damaged[len(frame) + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFrame):
            check_frames(bytes(damaged))
    for cut in range(1, len(frame)):
        with pytest.raises(DamagedFrame):
            check_frames(frame + frame[:cut])
    with pytest.raises(DamagedFrame):
        check_frames(frame + b"?")


def test_a_sound_frame_of_another_version_is_let_through() -> None:
    """The node that applies it names that version, and stops; a leader of that version must not lose its links for it."""
    frame = a_frame()
    head = bytearray(frame[:36])
    head[2] = 2
    crc = google_crc32c.extend(google_crc32c.value(bytes(head)), frame[40:])
    check_frames(bytes(head) + crc.to_bytes(4, "big") + frame[40:] + b"whatever follows")
