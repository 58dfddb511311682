"""Edge: the index beside a closed file of the log: what a scan of that file would find.

A file is given its index after its last sync, so that a file with an index is trusted by its size.
Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

from typing import Final

import google_crc32c
import msgpack

from metadata_log.log.position import Position
from metadata_log.log.segment_file import Entry, Segment
from metadata_log.node.disk.durable_files import open_private

_INDEX_VERSION: Final = 1


def write_index(segment: Segment) -> None:
    body = msgpack.packb(
        [
            _INDEX_VERSION,
            segment.base_offset,
            segment.size,
            segment.end_offset,
            segment.before.crc,
            segment.time_max_before_ms,
            segment.last,
            segment.time_max_ms,
            segment.epochs,
            segment.entries,
        ]
    )
    partial = segment.path.with_suffix(".index.part")
    with open_private(partial, "wb") as file:
        file.write(body + google_crc32c.value(body).to_bytes(4))
    # Neither synced nor waited for: an index that a crash took is made again.
    partial.replace(segment.index_path)


def read_index(segment: Segment) -> bool:
    """Learn a closed file from its index; False where there is none that fits the file and what stands before it."""
    try:
        data = segment.index_path.read_bytes()
    except FileNotFoundError:
        return False
    body, crc = data[:-4], data[-4:]
    if len(crc) < 4 or google_crc32c.value(body) != int.from_bytes(crc):
        return False
    version, *fields = msgpack.unpackb(body, use_list=False)
    if version != _INDEX_VERSION:
        return False
    base_offset, size, end_offset, before_crc, time_max_before_ms, last, time_max_ms, epochs, entries = fields
    if (base_offset, before_crc, time_max_before_ms, size) != (
        segment.base_offset,
        segment.before.crc,
        segment.time_max_before_ms,
        segment.path.stat().st_size,
    ):
        return False
    segment.size, segment.end_offset, segment.last = size, end_offset, Position._make(last)
    segment.time_max_ms = time_max_ms
    segment.epochs = list(epochs)
    segment.entries = [Entry._make(entry) for entry in entries]
    return True
