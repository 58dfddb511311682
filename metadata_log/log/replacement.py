"""Edge: sound frames from elsewhere in the place of a closed file that rotted.
Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

import os
from pathlib import Path
from typing import NamedTuple

from metadata_log.codec import DamagedFrame, check_frame, damaged_file
from metadata_log.errors import DamagedFile
from metadata_log.limits import RESERVE_BYTES
from metadata_log.log.position import Position
from metadata_log.log.segment_file import Segment
from metadata_log.node.disk.disk_space import check_space
from metadata_log.node.disk.durable_files import (
    open_private,
    quarantine_copy,
    removed_if_it_fails,
    renamed_os_errors,
)


class Replacement(NamedTuple):
    """Sound frames in a file beside the one they are to replace, and where a copy of the damaged one is kept."""

    partial: Path
    old: Segment
    new: Segment
    kept: Path


def prepare_replacement(old: Segment, before_following: Position, frames: bytes) -> Replacement:
    """Write sound frames beside a closed file, and keep a copy of that file in quarantine.

    `before_following` is the position before the next file: there the frames must end.

    Raises:
        DamagedFile: the frames are not what the file held.
        DiskFailed: they could not be written.
    """
    new = Segment(old.path, old.base_offset, old.before, old.time_max_before_ms)
    while new.size < len(frames):
        try:
            header = check_frame(frames, new.size)
        except DamagedFrame as error:
            raise damaged_file(old.path, error) from error
        if (header.base_offset, header.previous_crc) != (new.end_offset, new.last.crc):
            raise DamagedFile(f"{old.path}: what was sent instead does not continue the log")
        new.add(header)
    if (new.end_offset, new.last.crc) != (old.end_offset, before_following.crc):
        raise DamagedFile(f"{old.path}: what was sent instead ends otherwise")
    # Two files of this size, for a while: a repair must not be what fills the disk.
    check_space(old.path.parent, 2 * len(frames) + RESERVE_BYTES)
    partial = old.path.with_suffix(".log.part")
    with renamed_os_errors(old.path), removed_if_it_fails(partial):
        with open_private(partial, "wb") as file:
            file.write(frames)
            file.flush()
            os.fsync(file.fileno())
        return Replacement(partial, old, new, quarantine_copy(old.path))
