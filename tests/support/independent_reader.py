"""E: reads a segment or a snapshot from the description of the format alone, importing nothing of ours."""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import google_crc32c
import msgpack


def frames(
    data: bytes, base_offset: int = 0, crc: int = 0
) -> Iterator[tuple[tuple[int, ...], list[Any], list[Any]]]:
    """Yield (header, envelope, records) of frames end to end; header is (offset, count, epoch, time_ms, crc)."""
    at = 0
    while at < len(data):
        magic, form, flags, size, offset, count, epoch, time_ms, previous, own = struct.unpack_from(
            ">HBBIqIiqII", data, at
        )
        body = data[at + 40 : at + 40 + size]
        assert (magic, form, flags, offset, previous) == (0x4D51, 1, 0, base_offset, crc), f"byte {at}"
        assert google_crc32c.value(data[at : at + 36] + body) == own, f"byte {at}: crc"
        envelope, records = msgpack.unpackb(body)
        assert len(body) == size and len(records) == count, f"byte {at}: counts"
        yield (offset, count, epoch, time_ms, own), envelope, records
        at, base_offset, crc = at + 40 + size, offset + count, own


def snapshot_digest(data: bytes) -> tuple[list[Any], str]:
    """Check a snapshot's frames, count and state digest; return (header fields, digest)."""
    header, *between, footer = [record for _, _, records in frames(data) for record in records]
    assert (header[0], footer[0], footer[2]) == (1002, 1003, len(between))
    digest = digest_of(line for record in between for line in _lines(record))
    assert digest == footer[3]
    return header[2:], digest


def digest_of(lines: Iterable[str]) -> str:
    buckets = [[0, 0, 0] for _ in range(256)]
    for line in lines:
        h = hashlib.sha256(line.encode()).hexdigest()
        bucket = buckets[int(h[:2], 16)]
        bucket[0], bucket[1], bucket[2] = (
            bucket[0] + 1,
            bucket[1] ^ int(h[2:17], 16),
            bucket[2] ^ int(h[17:32], 16),
        )
    text = "".join(f"{i:02x}:{n}:{x1:015x}:{x2:015x}\n" for i, (n, x1, x2) in enumerate(buckets))
    return hashlib.sha256(text.encode()).hexdigest()


def t(text: str | None) -> str:
    return (text or "").encode().hex()


def n(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def u(uuids: list[bytes]) -> str:
    return ",".join(uuid.hex() for uuid in uuids)


def _lines(record: list[Any]) -> Iterator[str]:
    """The lines of a record as it stands in a snapshot."""
    kind, _, *f = record
    if kind == 0:
        ends = ",".join(f"{t(e[0])}:{t(e[1])}:{e[2]}:{e[3]}" for e in f[3])
        features = ",".join(f"{t(x[0])}:{x[1]}:{x[2]}" for x in f[4])
        cordoned = "-" if f[9] is None else u(f[9])
        yield f"b|{f[0]}|{f[2]}|{f[1].hex()}|{f[6]:d}|{f[7]:d}|{t(f[5])}|{ends}|{features}|{u(f[8])}|{cordoned}"
    elif kind == 2:
        yield f"t|{f[0].hex()}|{t(f[1])}"
    elif kind == 3:
        lists = "|".join(n(x) for x in (f[2], f[3], f[8], f[9], f[10], f[11]))
        yield f"p|{f[0].hex()}|{f[1]}|{f[4]}|{f[5]}|{f[6]}|{f[7]}|{lists}|{u(f[12])}"
    elif kind == 4:
        secret = f[2].endswith("password")
        value = f"sha256:{hashlib.sha256(f[3].encode()).hexdigest()}" if secret else f[3]
        yield f"c|{f[0]}|{t(f[1])}|{t(f[2])}|{t(value)}"
    elif kind == 12:
        yield f"f|{t(f[0])}|{f[1]}"
    elif kind == 15:
        yield f"i|{f[2]}"
    elif kind == 1004:
        yield f"q|{f[0]}"
    elif kind == 1005:
        for voter in f[0]:
            ends = ",".join(f"{t(e[0])}:{t(e[1])}:{e[2]}" for e in voter[2])
            yield f"v|{voter[0]}|{voter[1].hex()}|{ends}|{voter[3]}|{voter[4]}"
