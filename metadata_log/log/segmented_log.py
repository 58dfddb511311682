"""Edge: the committed metadata log on disk, in files of whole frames.

Files of a log directory
------------------------
    <base_offset, 20 digits>.log     frames end to end, as they were committed; a frame never spans files
    <base_offset, 20 digits>.index   derivable: what a reader would find by scanning the closed file beside it
    start.json                       where the log begins, once that is not offset 0 any more

Appending writes without syncing. Committed frames can be had again, from the Raft journal or from a controller, until
`sync` has returned and a snapshot covers them. Every frame is checked by its crc whenever it is read. A closed file that
rotted is replaced, frame for frame, by what another controller has (`replace_segment`).

After a write or a sync that failed, every later append and sync raises the same error, and no index is written. The kernel
counts pages that it could not write as clean, so another sync would succeed without writing them. Only `open` writes them
again.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from metadata_log.codec import (
    FrameHeader,
)
from metadata_log.errors import (
    DiskFailed,
    InvariantBroken,
    OffsetCompacted,
)
from metadata_log.limits import SEGMENT_BYTES
from metadata_log.log.index import write_index
from metadata_log.log.position import Position
from metadata_log.log.readable_log import ReadableLog
from metadata_log.log.recovery import Recovered, Start, recover, write_start
from metadata_log.log.replacement import Replacement, prepare_replacement
from metadata_log.log.segment_file import (
    LogFile,
    Segment,
    set_aside,
)
from metadata_log.node.disk.durable_files import (
    DIRECTORY_MODE,
    FILE_MODE,
    renamed_os_errors,
    sync_directory,
)


class Retention(NamedTuple):
    """Files that go, and where the log begins without them."""

    start: Start
    segments: tuple[Segment, ...]


class SegmentedLog(ReadableLog):
    """The committed log. The event loop writes; `sync` and what reads may run in other threads meanwhile."""

    def __init__(self, directory: Path, *, segment_bytes: int, recovered: Recovered) -> None:
        """Use `open`."""
        super().__init__(recovered.start, recovered.segments)
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._fd: int | None = None
        self._rolled: deque[tuple[int, Segment | None]] = deque()
        self._directory_is_new = False
        self._syncing = threading.Lock()
        """Two worker threads may want to sync at once; the event loop never waits for it."""
        self._beginning = threading.Lock()
        """Held while start.json is replaced: a retention does so in a worker thread, a restart on the loop."""
        self._failure: DiskFailed | None = None
        """Why a write or a sync failed; raised again by each later one."""
        self.torn_bytes = recovered.torn_bytes
        """What `open` cut off."""
        self.damage = recovered.damage
        """Why, where it was more than a crash leaves; the damaged file's copy is in quarantine."""
        self.discarded = recovered.discarded
        """Files that `open` moved to quarantine: what lay behind a tear, or before the log's start."""
        self.synced_end_offset = self.end_offset

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        made_again_from: int | None = None,
        scanned_from: int | None = None,
    ) -> "SegmentedLog":
        """Open the log in `directory`, which is made if missing; cut off what a crash left torn, and sync.

        The owner can have all frames from offset `made_again_from` on once more (None: none of them): what is damaged
        there is cut off. Files that hold anything from offset `scanned_from` on are read whole, with an index or without.

        Raises:
            DamagedFile: bytes are not what was written, where no crash can have harmed them, or a file is missing.
            DiskFailed: the disk refuses.
        """
        with renamed_os_errors(directory):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            opened = cls(
                directory,
                segment_bytes=segment_bytes,
                recovered=recover(directory, made_again_from, scanned_from),
            )
            if opened._segments:
                last = opened._segments[-1]
                last.index_path.unlink(missing_ok=True)  # it is written again when the file is closed
                opened._fd = os.open(last.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            sync_directory(directory)
            return opened

    # --- writing

    def append(self, frame: bytes, header: FrameHeader) -> None:
        """Write a committed frame after the last one; it is durable once a later `sync` returned.

        Raises:
            InvariantBroken: it does not follow the last frame.
            DiskFailed: it could not be written; the process must end, and `open` cuts off what was written.
        """
        self.append_all([(frame, header)])

    def append_all(self, frames: Sequence[tuple[bytes, FrameHeader]]) -> None:
        """Write committed frames as `append` does, with one write for all that go to the same file."""
        end = self.end_offset, self.last_crc
        for _, header in frames:
            if (header.base_offset, header.previous_crc) != end:
                raise InvariantBroken(
                    f"a frame at offset {header.base_offset} does not continue the log, which ends at {end[0]}"
                )
            end = header.end_offset, header.crc
        size = self._segments[-1].size if self._fd is not None else self._segment_bytes
        together: list[tuple[bytes, FrameHeader]] = []
        for frame, header in frames:
            if self._fd is None or 0 < size > self._segment_bytes - len(frame):
                self._write(together)
                together = []
                size = self.begin_file().size
            together.append((frame, header))
            size += len(frame)
        self._write(together)

    def _write(self, frames: Sequence[tuple[bytes, FrameHeader]]) -> None:
        """Write frames to the last file."""
        if not frames:
            return
        assert self._fd is not None
        last, data = self._segments[-1], b"".join([frame for frame, _ in frames])
        with self._failing_once(), renamed_os_errors(last.path, wanted_bytes=len(data)):
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        for _, header in frames:
            last.add(header)

    def begin_file(self) -> Segment:
        """Go on in a new file: the last one, which is not empty, is closed with the next `sync`.

        Raises:
            DiskFailed: it could not be made.
        """
        path = self._directory / f"{self.end_offset:020d}.log"
        time_max_ms = self._segments[-1].time_max_ms if self._segments else self._start.time_max_ms
        segment = Segment(path, self.end_offset, self._last, time_max_ms)
        with renamed_os_errors(path):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        if self._fd is not None:
            self._rolled.append((self._fd, self._segments[-1]))
        self._fd = fd
        self._segments.append(segment)
        self._directory_is_new = True
        return segment

    def sync(self) -> None:
        """Make durable all that was appended before this call; runs in a worker thread, beside appends on the loop.

        Raises:
            DiskFailed: it may not be durable, or an earlier write or sync failed; the process must end.
        """
        # The end is read first, and files are only ever added: what is appended meanwhile is never claimed.
        with self._syncing, self._failing_once(), renamed_os_errors(self._directory):
            end_offset = self.end_offset
            active, rolled = self._fd, tuple(self._rolled)
            for fd, segment in rolled:
                os.fdatasync(fd)
                self._rolled.popleft()
                os.close(fd)
                if segment is not None:
                    write_index(segment)
            if active is not None and all(fd != active for fd, _ in rolled):
                os.fdatasync(active)
            if self._directory_is_new:
                self._directory_is_new = False
                sync_directory(self._directory)
            self.synced_end_offset = max(self.synced_end_offset, end_offset)

    def close(self) -> None:
        """Sync and close; it waits for a `sync` under way.

        Raises:
            DiskFailed: as `sync`; the files are closed all the same.
        """
        try:
            self.sync()
        finally:
            with renamed_os_errors(self._directory):
                while self._rolled:
                    os.close(self._rolled.popleft()[0])
                if self._fd is not None:
                    active, self._fd = self._fd, None
                    os.close(active)

    @contextmanager
    def _failing_once(self) -> Iterator[None]:
        """Remember the first failure of the disk, and raise it again instead of whatever comes later."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except DiskFailed as failure:
            self._failure = failure
            raise

    def to_remove(self, *, bytes_max: int | None, older_than_ms: int | None, below: int) -> Retention | None:
        """Return the oldest files while the log is larger than `bytes_max` or they hold nothing as new as `older_than_ms`.

        None: there are none. `older_than_ms` is a time, not an age. Only whole files that end at or below `below`, the end
        of a kept snapshot, go; the last file stays. On the event loop, as `forget`.
        """
        count, size = 0, self.size
        while count < len(self._segments) - 1:
            oldest = self._segments[count]
            too_large = bytes_max is not None and size > bytes_max
            too_old = older_than_ms is not None and oldest.time_max_ms < older_than_ms
            if not (too_large or too_old) or oldest.end_offset > below:
                break
            size -= oldest.size
            count += 1
        if not count:
            return None
        newest = self._segments[count - 1]
        return Retention(
            Start(newest.end_offset, newest.last, newest.time_max_ms), tuple(self._segments[:count])
        )

    def begin_later(self, retention: Retention) -> None:
        """Write down that the log begins after what goes: the log of a crash in between begins there too; in any thread."""
        with self._beginning:
            if retention.start.offset > self._start.offset:  # else it has restarted beyond that
                write_start(self._directory, retention.start)

    def forget(self, retention: Retention) -> None:
        """Read what is removed no more; on the event loop, once `begin_later` has returned."""
        if retention.start.offset > self._start.offset:
            self._next_read = None
            self._start = retention.start
            # A reader in another thread still has the old list.
            self._segments = [one for one in self._segments if one.base_offset >= self._start.offset]

    def unlink(self, retention: Retention) -> list[Path]:
        """Remove the files, and return their paths; in any thread. A restart or a repair may have moved some meanwhile."""
        removed = []
        for segment in retention.segments:
            with renamed_os_errors(segment.path):
                segment.path.unlink(missing_ok=True)
                segment.path.with_suffix(".index").unlink(missing_ok=True)
            removed.append(segment.path)
        return removed

    # --- what rots

    def files(self) -> list[LogFile]:
        """Return all files; the last one is still written."""
        return [
            LogFile(segment.path, segment.base_offset, segment.end_offset, segment.size)
            for segment in self._segments
        ]

    def prepare_replacement(self, base_offset: int, frames: bytes) -> Replacement:
        """Write sound frames beside the closed file that is to have them, and keep a copy of what it is; in any thread.

        Raises:
            DamagedFile: the frames are not what the file held.
            DiskFailed: they could not be written.
            OffsetCompacted: a retention has removed the file meanwhile.
        """
        found = [pair for pair in pairwise(self._segments) if pair[0].base_offset == base_offset]
        if not found:
            raise OffsetCompacted(f"no closed file of the log begins at offset {base_offset}")
        old, following = found[0]
        return prepare_replacement(old, following.before, frames)

    def replace_segment(self, replacement: Replacement) -> None:
        """Put a prepared file in the place of the damaged one; on the event loop, as all that removes files is.

        The name is durable once a later `sync` returned. The index stays: it is made of the same frames.

        Raises:
            DiskFailed: it could not be moved.
            OffsetCompacted: a retention has removed the file meanwhile.
        """
        partial, old, new, _ = replacement
        with renamed_os_errors(old.path):
            if old not in self._segments:
                partial.unlink()
                raise OffsetCompacted(f"no file of the log begins at offset {old.base_offset} any more")
            partial.replace(old.path)
        self._segments[self._segments.index(old)] = new
        self._directory_is_new = True

    def restart_at(self, end_offset: int, epoch: int, crc: int) -> list[Path]:
        """Go on from an installed snapshot's end, beyond the log's own: offsets between the two are not here.

        The files so far go to quarantine, from where an operator may still read them. Returns where they went.
        """
        assert end_offset > self.end_offset, "a log restarts only at an offset it does not reach"
        time_max_ms = self._segments[-1].time_max_ms if self._segments else self._start.time_max_ms
        self._begin_at(Start(end_offset, Position(epoch, crc), time_max_ms))
        older, self._segments = self._segments, []
        if self._fd is not None:
            self._rolled.append((self._fd, None))  # a sync may be under way: the next one closes it
            self._fd = None
        with renamed_os_errors(self._directory):
            moved = [path for segment in older for path in set_aside(segment.path)]
            sync_directory(self._directory)
        self.synced_end_offset = end_offset
        return moved

    def _begin_at(self, start: Start) -> None:
        """Write down where the log begins, before the files below go: the log of a crash in between begins there too."""
        with self._beginning:
            self._next_read = None
            write_start(self._directory, start)
            self._start = start
