"""Pure: batches as frames of bytes, and back.

A frame is a header of 40 bytes and a body of msgpack. Header, big-endian:

    0 u16 0x4D51 | 2 u8 format = 1 | 3 u8 flags = 0 | 4 u32 body_bytes | 8 i64 base_offset | 16 u32 record_count
    20 i32 controller_epoch | 24 i64 appended_at_ms | 32 u32 previous_crc | 36 u32 crc

crc is the CRC-32C of bytes 0..35 and the body. Magic, format, body_bytes and crc are there in every format, so that
a frame of another format can be distinguished from a damaged frame. Equal batches have equal bytes: shortest integers,
map keys sorted.
A batch is encoded once, by the active controller; everybody else keeps and passes on the bytes.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import google_crc32c
import msgpack
import msgspec

from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.errors import (
    DamagedFile,
    PolicyViolation,
    UnsupportedVersion,
    WrittenByAnotherVersion,
    another_version,
)
from metadata_log.limits import BATCH_BYTES_MAX, FRAME_BYTES_MAX, RECORDS_PER_BATCH_MAX
from metadata_log.records.registry import Record, from_rows, to_row
from metadata_log.records.rows import is_plain_map, reader_of
from metadata_log.sliced import Sliced, at_once, chunks

T = TypeVar("T")

MAGIC: Final = 0x4D51
FORMAT: Final = 1
HEADER_BYTES: Final = 40
_HEADER: Final = struct.Struct(">HBBIqIiqII")
_CRC: Final = struct.Struct(">I")
_PAIR: Final = b"\x92"
"""How msgpack begins an array of two."""
_read_envelope: Final = reader_of(Envelope)
_pack_rows: Final = msgspec.msgpack.Encoder().encode
"""Packs many rows in a quarter of the time that msgpack takes, into the same bytes."""


class FrameHeader(NamedTuple):
    body_bytes: int
    base_offset: int
    record_count: int
    controller_epoch: int
    appended_at_ms: int
    previous_crc: int
    crc: int

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.body_bytes

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + self.record_count


class DamagedFrame(ValueError):
    """Bytes are no whole, sound frame. `torn`: they end before the frame does. `at`: where in them.

    `another_version`: the crc is right, so they are what was written, and this release does not know what they say.
    `base_offset`: the frame's, where its crc is right or it is known otherwise; else None.
    """

    def __init__(
        self,
        reason: str,
        *,
        at: int,
        torn: bool,
        another_version: bool = False,
        base_offset: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.torn = torn
        self.another_version = another_version
        self.base_offset = base_offset


def packed_records(records: Sequence[Record]) -> bytes:
    """Return the records of one batch as its frame has them.

    Raises:
        PolicyViolation: they have more than BATCH_BYTES_MAX bytes.
    """
    return at_once(_packing(records, is_checked=False))


def _packing(records: Sequence[Record], *, is_checked: bool) -> Sliced[bytes]:
    """Pack what `packed_records` returns, and check that `decode` takes it; raises as both."""
    rows: bytes | bytearray = b""
    for some in chunks(records):
        packed = _pack_rows([*map(to_row, some)])
        if is_checked:
            from_rows(msgpack.unpackb(packed, use_list=False))
        if len(some) == len(records):  # most batches are small: nothing is put together
            rows = packed
        else:
            rows = rows or bytearray(_packed_head(len(records)))
            rows += packed[len(_packed_head(len(some))) :]
        yield
    if len(rows) > BATCH_BYTES_MAX:
        raise PolicyViolation(
            f"{len(records)} records of {len(rows)} bytes in one batch; at most {BATCH_BYTES_MAX} bytes are allowed: "
            "ask for less at once"
        )
    return bytes(rows)


def encode(
    *,
    base_offset: int,
    controller_epoch: int,
    appended_at_ms: int,
    previous_crc: int,
    envelope: Envelope,
    records: Sequence[Record],
) -> tuple[RecordBatch, bytes]:
    """Return a batch and its frame; raises as `encoding`."""
    body = at_once(encoding(envelope, records))
    return batch_of(
        body,
        base_offset=base_offset,
        controller_epoch=controller_epoch,
        appended_at_ms=appended_at_ms,
        previous_crc=previous_crc,
        envelope=envelope,
        records=records,
    )


def encoding(envelope: Envelope, records: Sequence[Record]) -> Sliced[bytes]:
    """Pack the body of a batch, and check that `decode` takes it.

    Raises:
        PolicyViolation: more than RECORDS_PER_BATCH_MAX records, BATCH_BYTES_MAX bytes of them, or FRAME_BYTES_MAX in all.
        ValueError: a field is of another kind than `decode` takes. Once committed it would stop every node, at each start.
    """
    assert records, "a batch holds at least one record"
    if len(records) > RECORDS_PER_BATCH_MAX:
        raise PolicyViolation(
            f"{len(records)} records in one batch; at most {RECORDS_PER_BATCH_MAX} are allowed: ask for less at once"
        )
    rows = yield from _packing(records, is_checked=True)
    head: bytes = msgpack.packb(_envelope_row(envelope))
    _read_head(msgpack.unpackb(head, use_list=False))
    body = b"".join((_PAIR, head, rows))
    if HEADER_BYTES + len(body) > FRAME_BYTES_MAX:
        raise PolicyViolation(
            f"{len(records)} records and an answer of {len(head)} bytes to keep for repetitions; "
            f"at most {FRAME_BYTES_MAX} bytes are allowed: ask for less at once"
        )
    return body


def batch_of(
    body: bytes,
    *,
    base_offset: int,
    controller_epoch: int,
    appended_at_ms: int,
    previous_crc: int,
    envelope: Envelope,
    records: Sequence[Record],
) -> tuple[RecordBatch, bytes]:
    """Return the batch whose body `encoding` packed, and its frame."""
    frame, crc = frame_of(
        body,
        base_offset=base_offset,
        record_count=len(records),
        controller_epoch=controller_epoch,
        appended_at_ms=appended_at_ms,
        previous_crc=previous_crc,
    )
    batch = RecordBatch(
        base_offset=base_offset,
        controller_epoch=controller_epoch,
        appended_at_ms=appended_at_ms,
        previous_crc=previous_crc,
        crc=crc,
        envelope=envelope,
        records=tuple(records),
    )
    return batch, frame


def frame_of(
    body: bytes,
    *,
    base_offset: int,
    record_count: int,
    controller_epoch: int,
    appended_at_ms: int,
    previous_crc: int,
) -> tuple[bytes, int]:
    """Return the frame around a packed body, and its crc."""
    head = _HEADER.pack(
        MAGIC,
        FORMAT,
        0,
        len(body),
        base_offset,
        record_count,
        controller_epoch,
        appended_at_ms,
        previous_crc,
        0,
    )[:36]
    crc: int = google_crc32c.extend(google_crc32c.value(head), body)
    return b"".join((head, _CRC.pack(crc), body)), crc


def read_header(data: bytes | memoryview, at: int = 0) -> FrameHeader:
    """Read the header at position `at`; the crc is not checked, every bound is.

    Raises:
        DamagedFrame: it is cut short or no header of ours.
    """
    if len(data) - at < HEADER_BYTES:
        raise DamagedFrame("a frame's header is cut short", at=at, torn=True)
    magic, form, flags, *rest = _HEADER.unpack_from(data, at)
    header = FrameHeader(*rest)
    if magic != MAGIC:
        raise DamagedFrame("no frame begins here", at=at, torn=False)
    if form != FORMAT or flags != 0:
        raise DamagedFrame(
            f"frame format {form} with flags {flags} is unknown to this release",
            at=at,
            torn=False,
            another_version=_is_sound(data, at, header),
        )
    if (
        header.frame_bytes > FRAME_BYTES_MAX
        or not 1 <= header.record_count <= header.body_bytes
        or header.base_offset < 0
    ):
        raise DamagedFrame("a frame's header has impossible values", at=at, torn=False)
    return header


def body_bytes_claimed(head: bytes) -> int:
    """Return how many bytes a header says follow it, in whatever format; 0 if it is cut short or says too many."""
    claimed: int = _HEADER.unpack_from(head)[3] if len(head) == HEADER_BYTES else 0
    return claimed if HEADER_BYTES + claimed <= FRAME_BYTES_MAX else 0


def _is_sound(data: bytes | memoryview, at: int, header: FrameHeader) -> bool:
    end = at + header.frame_bytes
    if header.frame_bytes > FRAME_BYTES_MAX or len(data) < end:
        return False
    return _crc_of(data, at, end) == header.crc


def _crc_of(data: bytes | memoryview, at: int, end: int) -> int:
    # Of bytes, `bytes` makes no second copy.
    crc: int = google_crc32c.extend(
        google_crc32c.value(bytes(data[at : at + 36])), bytes(data[at + HEADER_BYTES : end])
    )
    return crc


def check_frame(data: bytes | memoryview, at: int = 0, *, header: FrameHeader | None = None) -> FrameHeader:
    """Return the header of the sound frame at position `at`; `header` where it is read already.

    Raises:
        DamagedFrame: it is cut short, or its crc is wrong.
    """
    if header is None:
        header = read_header(data, at)
    end = at + header.frame_bytes
    if len(data) < end:
        raise DamagedFrame("a frame is cut short", at=at, torn=True)
    crc = _crc_of(data, at, end)
    if crc != header.crc:
        raise DamagedFrame(f"a frame's crc is {header.crc:08x}, its bytes say {crc:08x}", at=at, torn=False)
    return header


def check_frames(data: bytes) -> None:
    """Check that bytes are whole, sound frames, one after the other; after one of another version nothing is checked.

    Raises:
        DamagedFrame: they are not.
    """
    at = 0
    while at < len(data):
        try:
            at += check_frame(data, at).frame_bytes
        except DamagedFrame as error:
            if not error.another_version:
                raise
            return


def decode(
    data: bytes | memoryview,
    at: int = 0,
    *,
    header: FrameHeader | None = None,
    read_records: Callable[[tuple[Any, ...]], tuple[Any, ...]] = from_rows,
) -> tuple[RecordBatch, int]:
    """Return the batch of the frame at position `at`, and where the frame ends; `header` where it is read already.

    `read_records` makes the records of their rows. A caller that applies no record may give another reader than `from_rows`.

    Raises:
        DamagedFrame: as `reading_frame`.
    """

    def read_body(body: memoryview, record_count: int) -> tuple[Envelope, tuple[Any, ...]]:
        head, rows = _unpacked(body, record_count)
        return _read_head(head), read_records(rows)

    header, (envelope, records) = read_frame(data, at, read_body=read_body, header=header)
    return _batch_of_frame(header, envelope, records), at + header.frame_bytes


def decoding(
    data: bytes | memoryview, at: int = 0, *, header: FrameHeader | None = None
) -> Sliced[tuple[RecordBatch, int]]:
    """Read the batch of the frame at position `at` in slices, and say where the frame ends; as `decode`."""
    header, (envelope, records) = yield from reading_frame(data, at, read_body=_reading_batch, header=header)
    return _batch_of_frame(header, envelope, records), at + header.frame_bytes


def _batch_of_frame(header: FrameHeader, envelope: Envelope, records: tuple[Record, ...]) -> RecordBatch:
    return RecordBatch(
        base_offset=header.base_offset,
        controller_epoch=header.controller_epoch,
        appended_at_ms=header.appended_at_ms,
        previous_crc=header.previous_crc,
        crc=header.crc,
        envelope=envelope,
        records=records,
    )


def read_frame(
    data: bytes | memoryview,
    at: int = 0,
    *,
    read_body: Callable[[memoryview, int], T],
    header: FrameHeader | None = None,
) -> tuple[FrameHeader, T]:
    """Return the header of the frame at position `at`, and its body as `read_body(body, record_count)` returns it.

    Raises as `reading_frame`.
    """
    header = check_frame(data, at, header=header)
    try:
        return header, read_body(_body_of(data, at, header), header.record_count)
    except _NOT_OURS as error:
        raise _refused_body(error, at, header) from error


def reading_frame(
    data: bytes | memoryview,
    at: int = 0,
    *,
    read_body: Callable[[memoryview, int], Sliced[T]],
    header: FrameHeader | None = None,
) -> Sliced[tuple[FrameHeader, T]]:
    """Read the header of the frame at position `at`, and its body in slices.

    Raises:
        DamagedFrame: the bytes are not sound, or hold an unknown record, or a known one with a field of another kind.
    """
    header = check_frame(data, at, header=header)
    try:
        return header, (yield from read_body(_body_of(data, at, header), header.record_count))
    except _NOT_OURS as error:
        raise _refused_body(error, at, header) from error


def _body_of(data: bytes | memoryview, at: int, header: FrameHeader) -> memoryview:
    return memoryview(data)[at + HEADER_BYTES : at + header.frame_bytes]


_NOT_OURS: Final = (UnsupportedVersion, ValueError, TypeError, RecursionError, msgpack.UnpackException)
"""What a body raises that this release cannot read."""


def _refused_body(error: Exception, at: int, header: FrameHeader) -> DamagedFrame:
    if isinstance(error, UnsupportedVersion):
        return DamagedFrame(
            error.message, at=at, torn=False, another_version=True, base_offset=header.base_offset
        )
    return DamagedFrame(
        f"a frame's body is not ours: {error}", at=at, torn=False, base_offset=header.base_offset
    )


def _packed_head(count: int) -> bytes:
    """Return how msgpack begins an array of so many."""
    head: bytes = msgpack.Packer().pack_array_header(count)
    return head


def _unpacked(body: memoryview, record_count: int) -> tuple[Any, tuple[Any, ...]]:
    """Return the envelope's row and those of the records."""
    head, rows = msgpack.unpackb(body, use_list=False)
    if type(rows) is not tuple:
        raise ValueError("its records are no list")
    if len(rows) != record_count:
        raise ValueError(f"a frame of {record_count} records holds {len(rows)}")
    return head, rows


def _reading_batch(body: memoryview, record_count: int) -> Sliced[tuple[Envelope, tuple[Record, ...]]]:
    head, rows = _unpacked(body, record_count)
    envelope = _read_head(head)
    records: list[Record] = []
    for some in chunks(rows):
        records += from_rows(tuple(some))
        yield
    return envelope, tuple(records)


def _read_head(row: Any) -> Envelope:
    envelope = _read_envelope(row)
    if envelope.cause is not None:
        _check_cause(row[3])
    return envelope


def _check_cause(row: tuple[Any, ...]) -> None:
    """Check of a cause what its annotations do not say: every field is there, and JSON can show its detail."""
    if len(row) != len(Cause._fields):
        raise ValueError(f"a Cause of {len(row)} fields, not {len(Cause._fields)}")
    if not is_plain_map(row[2]):
        raise ValueError("detail of a Cause: expected a map of plain values")


def decode_all(data: bytes | memoryview) -> Iterator[tuple[RecordBatch, bytes]]:
    """Yield every batch of whole frames end to end, with its frame.

    Raises:
        DamagedFrame: the bytes end inside a frame, or one is not sound.
    """
    at = 0
    while at < len(data):
        batch, end = decode(data, at)
        yield batch, bytes(data[at:end])
        at = end


def damaged_file(
    path: object, error: DamagedFrame, *, base: int = 0
) -> DamagedFile | WrittenByAnotherVersion:
    """Return the fault that names file and byte; `base` is where the examined bytes begin in the file."""
    if error.another_version:
        return another_version(path, f"byte {base + error.at}: {error.reason}")
    return DamagedFile(
        f"{path}: byte {base + error.at}: {error.reason}", path=str(path), position=base + error.at
    )


def damaged_answer(source: object, error: DamagedFrame) -> DamagedFile | WrittenByAnotherVersion:
    """Return the fault that names where frames came from that lie in no file here, and which of them it is."""
    which = f"byte {error.at}" if error.base_offset is None else f"offset {error.base_offset}"
    if error.another_version:
        return another_version(source, f"{which}: {error.reason}")
    return DamagedFile(f"{source}: {which}: {error.reason}")


def _envelope_row(envelope: Envelope) -> tuple[Any, ...]:
    cause = envelope.cause
    if cause is None:
        return tuple(envelope)
    return tuple(envelope._replace(cause=Cause(cause.code, cause.ref_offset, _sorted_map(cause.detail))))


def _sorted_map(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _sorted_map(v) if isinstance(v, Mapping) else v for k, v in sorted(detail.items())}
