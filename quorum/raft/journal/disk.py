"""Pure: what the journal asks of a disk: the operating system's, or the simulator's."""

from typing import Protocol


class File(Protocol):
    """An open file of the journal's disk; positions are absolute bytes."""

    def read(self, position: int, size: int) -> bytes: ...
    def write(self, position: int, data: bytes) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """Where the journal's files live: the operating system's, or the simulator's.

    Every method raises DiskFailed where the disk fails. `create`, `remove`, `replace` are durable on return.
    """

    def names(self) -> list[str]: ...
    def open(self, name: str) -> File: ...
    def create(self, name: str) -> File:
        """Create an empty file; writes behind its end make it grow."""

    def remove(self, name: str) -> None: ...
    def replace(self, name: str, data: bytes) -> None:
        """Write a whole small file: temporary, synced, renamed, directory synced."""

    def read(self, name: str) -> bytes | None: ...
