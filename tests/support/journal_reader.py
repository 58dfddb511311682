"""An independent reader of journal files, written from the format alone: it imports nothing of ours."""

import struct
from pathlib import Path
from typing import Any

import google_crc32c
import msgpack


def read_journal(directory: Path) -> list[tuple[int, list[Any]]]:
    """Return (batch number, records) of every batch, in order; an idle mark has no records."""
    batches = []
    paths = sorted(directory.glob("*.journal"))
    for path in paths:
        data = path.read_bytes()
        if path == paths[-1] and not any(data):
            break  # still in the making
        magic, number, identity, crc = struct.unpack_from(">8sQ16sI", data)
        assert (magic, f"{number:020d}.journal") == (b"MQJRNL\0\1", path.name)
        assert crc == google_crc32c.value(data[:32])
        at = 36
        while data[at : at + 4] == b"MQJB":
            length, number, crc = struct.unpack_from(">IQI", data, at + 4)
            records = data[at + 20 : at + 20 + length]
            if crc != google_crc32c.value(identity + data[at + 4 : at + 16] + records):
                break
            batches.append((number, msgpack.unpackb(records) if records else []))
            at += 20 + length
    return batches


def fold(batches: list[tuple[int, list[Any]]]) -> tuple[list[tuple[bytes, int, int]], int, int | str | None]:
    """Return what the records add up to: entries (command, index, term), current term, vote."""
    entries, term, vote = {}, 0, None
    for record in (record for _, records in batches for record in records):
        match record:
            case [0, _, term, vote, _, _] | [1, term, vote]:
                pass
            case [2, index, entry_term, command]:
                entries[index] = (command, index, entry_term)
            case [3, index]:
                entries = {held: entry for held, entry in entries.items() if held < index}
            case [4, index]:
                entries = {held: entry for held, entry in entries.items() if held >= index}
            case _:
                raise AssertionError(record)
    return list(entries.values()), term, vote
