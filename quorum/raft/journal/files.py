"""Edge: the files of a journal: the one that is written, and the next one, which is made ahead of need.

All of it runs in the worker thread, but for an idle mark while no batch is under way.
Tests: tests/unit/quorum/raft/journal/test_journal.py.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from metadata_log.errors import DiskFailed, InvariantBroken
from quorum.raft.journal.disk import Disk
from quorum.raft.journal.format import IDENTITY_BYTES, PARTS, JournalFile, Placement, file_name


class JournalFiles:
    """The file being written (None before the first batch), and the spare one, which follows it."""

    def __init__(
        self,
        disk: Disk,
        *,
        current: JournalFile | None,
        spare: JournalFile | None,
        lowest: int,
        random_bytes: Callable[[int], bytes],
        file_bytes: int,
    ) -> None:
        """`spare` and `lowest`: as found on the disk; a spare file that is missing is begun and made.

        Raises:
            DiskFailed: the disk has no room for it.
        """
        self._disk = disk
        self._random_bytes = random_bytes
        self._file_bytes = file_bytes
        self.current = current
        self.spare = spare or self._begin(current.number + 1 if current else 1)
        self.lowest = lowest
        """The lowest number of all files."""
        self.make_spare()

    def write(self, placement: Placement, records: bytes) -> None:
        """Write and sync a batch; before the first of a file that file is made and the next one begun."""
        enters_spare = placement.file_number == self.spare.number
        if enters_spare:
            self.make_spare()  # it is unfinished only if files fill up faster than they are made
            # The old file needs no sync: at most an idle mark in it is not synced, and nothing depends on that.
            if self.current is not None:
                self.current.file.close()
            self.current = self.spare
        if self.current is None or self.current.number != placement.file_number:
            raise InvariantBroken(
                f"batch {placement.number} of the journal is not for the file being written"
            )
        self.current.put(placement.position, placement.number, records)
        self.current.file.sync()
        if enters_spare:
            # Before the batch is acknowledged: the next file's existence proves that this file's first batch was synced.
            self.spare = self._begin(placement.file_number + 1)

    def write_all(self, placements: Iterable[Placement], data: bytes) -> None:
        start = 0
        for placement in placements:
            self.write(placement, data[start : start + placement.size])
            start += placement.size

    def remove_below(self, number: int) -> None:
        """Remove files, the lowest first, each removal durable before the next, so that a crash leaves no gap."""
        while self.lowest < number:
            self._disk.remove(file_name(self.lowest))
            self.lowest += 1

    def make_spare(self, *, parts: int = PARTS) -> None:
        """Make some parts of the spare file, unless it is finished."""
        if self.spare.is_whole:
            return
        try:
            self.spare.make(parts=parts)
        except DiskFailed:
            with suppress(DiskFailed):  # if the disk is full, let it not stay so for this
                self._disk.remove(file_name(self.spare.number))
            raise

    def close(self) -> None:
        self.spare.file.close()
        if self.current not in (None, self.spare):
            self.current.file.close()

    def _begin(self, number: int) -> JournalFile:
        file = self._disk.create(file_name(number))
        return JournalFile(file, number, self._random_bytes(IDENTITY_BYTES), to_make=self._file_bytes)
