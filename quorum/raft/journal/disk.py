"""Pure: what the journal asks of a disk, which is the operating system's or the simulator's.
Tests: tests/unit/quorum/raft/journal/test_journal.py.
"""

from typing import Protocol


class File(Protocol):
    """An open file of the journal's disk; positions are absolute bytes."""

    def read(self, position: int, size: int) -> bytes: ...
    def write(self, position: int, data: bytes) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """The directory of the journal's files.

    Every method raises DiskFailed if the disk fails. `create`, `remove` and `replace` are durable on return.
    """

    def names(self) -> list[str]: ...
    def open(self, name: str) -> File: ...
    def create(self, name: str) -> File:
        """Create an empty file; writes after its end make it grow."""

    def remove(self, name: str) -> None: ...
    def replace(self, name: str, data: bytes) -> None:
        """Write a whole small file: temporary, synced, renamed, directory synced."""

    def read(self, name: str) -> bytes | None: ...
