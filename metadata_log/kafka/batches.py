"""Pure: Kafka's record batches, version 2, as segments, checkpoints and answers to fetches hold them.

    0 i64 base_offset | 8 i32 length (of what follows) | 12 i32 leader_epoch | 16 i8 magic = 2 | 17 u32 crc
    21 i16 attributes | 23 i32 last_offset_delta | 27 i64 base_timestamp | 35 i64 max_timestamp
    43 producer: i64, i16, i32 | 57 i32 record_count

crc is the CRC-32C of everything from the attributes on. A metadata log is not compacted and not compressed: a batch has
a record for each of its offsets. It has no producer, and all its records have one time.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import google_crc32c

from metadata_log.codec import DamagedFrame
from metadata_log.kafka.reading import varint
from metadata_log.kafka.writing import VARINTS

MAGIC: Final = 2
_MAGIC_AT: Final = 16
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Kafka's controllers write at most 8 MiB at once. A larger size is a damaged one: no rest of a segment is read for it."""
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH: Final = 12
_CRC_FROM: Final = 21
_COMPRESSION: Final = 0x07
_CONTROL: Final = 0x20
_UP_TO_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_NO_PRODUCER: Final = (-1, -1, -1)
_TWO_BYTES: Final = 0x80
"""From this byte on a varint has more bytes than one."""
_NULL: Final = 1
"""The length -1 as a varint."""
_CONTROL_KEY: Final = struct.Struct(">hh")


class Batch(NamedTuple):
    """A batch whose CRC is right; `records` are key and value of each offset from `base_offset` on."""

    base_offset: int
    leader_epoch: int
    crc: int
    is_control: bool
    max_timestamp: int
    records: tuple[tuple[bytes | None, bytes | None], ...]
    """Empty where they were not read."""
    record_count: int
    at: int
    """Where it begins in its file."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


def batches(data: bytes, *, reads_data: bool = True) -> Iterator[Batch]:
    """Yield the batches of a file's bytes; without `reads_data` only the records of control batches are read.

    Raises:
        DamagedFrame: the bytes are no whole batch; `torn` where the bytes end before it does.
    """
    at = 0
    while at < len(data):
        batch, at = _batch(data, at, reads_data)
        yield batch


def _batch(data: bytes, at: int, reads_data: bool) -> tuple[Batch, int]:
    if len(data) - at < _HEADER.size:
        # A file that grows ahead of its content ends in zeros.
        raise DamagedFrame(f"the file ends {len(data) - at} bytes into a batch", at=at, torn=True)
    header = _HEADER.unpack_from(data, at)
    base_offset, length, leader_epoch, magic, crc, attributes, last_delta = header[:7]
    max_timestamp, count = header[8], header[12]
    end = at + _BEFORE_LENGTH + length
    where = f"the batch at offset {base_offset}"
    if magic != MAGIC:
        raise DamagedFrame(f"no record batch of version {MAGIC} begins here", at=at, torn=not any(data[at:]))
    if length < _HEADER.size - _BEFORE_LENGTH:
        raise DamagedFrame(f"{where} has a length of {length}", at=at, torn=False)
    if end - at > BATCH_BYTES_MAX:
        raise DamagedFrame(
            f"{where} has {end - at} bytes, and no controller writes more than {BATCH_BYTES_MAX}",
            at=at,
            torn=False,
        )
    if end > len(data):
        raise DamagedFrame(
            f"{where} has {end - at} bytes, of which {len(data) - at} are here",
            at=at,
            torn=True,
            base_offset=base_offset,
        )
    if (found := google_crc32c.value(data[at + _CRC_FROM : end])) != crc:
        raise DamagedFrame(f"{where}: its CRC-32C is {found:08x}, not {crc:08x}", at=at, torn=False)
    if attributes & _COMPRESSION:
        raise DamagedFrame(
            f"{where} is compressed, as no metadata log is", at=at, torn=False, another_version=True
        )
    is_control = bool(attributes & _CONTROL)
    try:
        records = tuple(_records(data[at + _HEADER.size : end], count)) if reads_data or is_control else ()
    except (ValueError, IndexError) as error:
        raise DamagedFrame(f"{where}: {error}", at=at, torn=False, base_offset=base_offset) from error
    if last_delta + 1 != count:
        raise DamagedFrame(
            f"{where} has {count} records for {last_delta + 1} offsets",
            at=at,
            torn=False,
            base_offset=base_offset,
        )
    return Batch(base_offset, leader_epoch, crc, is_control, max_timestamp, records, count, at), end


def next_batch(data: bytes, at: int) -> int | None:
    """Return where the next sound batch begins, at a place or after it; None: there is none."""
    place = data.find(MAGIC, at + _MAGIC_AT)
    while place >= 0:
        begin = place - _MAGIC_AT
        # Offsets of a metadata log are small: few places are looked at.
        if not any(data[begin : begin + 2]):
            try:
                _batch(data, begin, reads_data=False)
            except DamagedFrame:
                pass
            else:
                return begin
        place = data.find(MAGIC, place + 1)
    return None


def _records(data: bytes, count: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    # Nearly all numbers have one byte: to call for each would take most of the time in which a log is read.
    at = 0
    for place in range(count):
        size, at = varint(data, at)
        end = at + size
        if not at < end <= len(data):
            raise ValueError(f"record {place} ends at byte {end} of {len(data)}")
        at += 1  # attributes, which have no meaning
        at = at + 1 if data[at] < _TWO_BYTES else varint(data, at)[1]  # nor has its time
        wanted = VARINTS[place]
        if data.startswith(wanted, at):
            at += len(wanted)
        else:
            delta, at = varint(data, at)
            if delta != place:
                raise ValueError(f"record {place} says that it is record {delta}")
        key: bytes | None = None
        if data[at] == _NULL:
            at += 1
        else:
            key, at = _sized(data, at, end)
        value, _ = _sized(data, at, end)
        yield key, value
        at = end
    if at != len(data):
        raise ValueError(f"its records end at byte {at} of {len(data)}")


def _sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at)
    if size < 0:
        return None, at
    if at + size > end:
        raise ValueError(f"{size} bytes are announced at byte {at} of {end}")
    return data[at : at + size], at + size


# --- writing


def framed(values: Sequence[bytes], *, first: int = 0) -> bytes:
    """Return the records of a data batch, or some of them: the values, from the one at place `first` in the batch on."""
    parts: list[bytes] = []
    for delta, value in enumerate(values, first):
        place, size = VARINTS[delta], VARINTS[len(value)]
        parts += (
            VARINTS[len(value) + len(place) + len(size) + 4],
            b"\0\0",  # no attributes, no time of its own
            place,
            b"\1",  # no key
            size,
            value,
            b"\0",  # no headers
        )
    return b"".join(parts)


def framed_control(values: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the records of a control batch: the type of each, and its value."""
    parts: list[bytes] = []
    for delta, (type_id, value) in enumerate(values):
        key = _CONTROL_KEY.pack(0, type_id)
        record = b"".join(
            (b"\0\0", VARINTS[delta], VARINTS[len(key)], key, VARINTS[len(value)], value, b"\0")
        )
        parts += (VARINTS[len(record)], record)
    return b"".join(parts)


def batch_bytes(
    records: bytes, *, count: int, base_offset: int, leader_epoch: int, time_ms: int, is_control: bool = False
) -> bytes:
    """Return a batch of `count` framed records; the same arguments make the same bytes."""
    attributes = _CONTROL if is_control else 0
    body = _AFTER_CRC.pack(attributes, count - 1, time_ms, time_ms, *_NO_PRODUCER, count) + records
    length = _CRC_FROM - _BEFORE_LENGTH + len(body)
    crc = google_crc32c.value(body)
    return _UP_TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + body
