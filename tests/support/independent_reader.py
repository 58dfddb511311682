"""Edge: reads segments, snapshots and journals from docs/formats.md alone, importing nothing of ours."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import msgpack


def frames(data: bytes) -> Iterator[tuple[tuple[int, ...], list[Any], list[Any]]]:
    """Yield ((offset, count, epoch, time_ms, crc), envelope, records) of each frame of a segment or a snapshot."""
    at = next_offset = last_crc = 0
    while at < len(data):
        magic, form, flags, size, *header, previous, crc = struct.unpack_from(">HBBIqIiqII", data, at)
        body = data[at + 40 : at + 40 + size]
        assert (magic, form, flags, header[0], previous) == (0x4D51, 1, 0, next_offset, last_crc), (
            f"byte {at}"
        )
        assert google_crc32c.value(data[at : at + 36] + body) == crc, f"byte {at}: crc"
        envelope, records = msgpack.unpackb(body)
        assert len(body) == size and len(records) == header[1], f"byte {at}: counts"
        yield (*header, crc), envelope, records
        at, next_offset, last_crc = at + 40 + size, header[0] + header[1], crc


def journal(directory: Path) -> Iterator[tuple[int, list[Any]]]:
    """Yield (batch number, records) of every batch, in order; an idle mark has no records."""
    for path in sorted(directory.glob("*.journal")):
        data = path.read_bytes()
        if not any(data):
            break  # still in the making
        magic, file_number, identity, crc = struct.unpack_from(">8sQ16sI", data)
        assert (magic, f"{file_number:020d}.journal") == (b"MQJRNL\0\1", path.name)
        assert crc == google_crc32c.value(data[:32])
        at = 36
        while data[at : at + 4] == b"MQJB":
            length, number, crc = struct.unpack_from(">IQI", data, at + 4)
            records = data[at + 20 : at + 20 + length]
            if crc != google_crc32c.value(identity + data[at + 4 : at + 16] + records):
                break
            yield number, msgpack.unpackb(records) if records else []
            at += 20 + length
