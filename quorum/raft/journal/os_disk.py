"""Edge: the journal's disk, a directory of the operating system; a failure names the file and the cure.
Tests: tests/unit/quorum/raft/journal/test_journal.py.
"""

import os
from pathlib import Path

from metadata_log.node.disk.durable_files import FILE_MODE, renamed_os_errors, replace_file, sync_directory


class OsFile:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        parts = []
        with renamed_os_errors(self._path):
            while size > 0 and (part := os.pread(self._descriptor, size, position)):
                parts.append(part)
                position += len(part)
                size -= len(part)
        return b"".join(parts)

    def write(self, position: int, data: bytes) -> None:
        left = memoryview(data)
        with renamed_os_errors(self._path, wanted_bytes=len(data)):
            while left:
                written = os.pwrite(self._descriptor, left, position)
                position += written
                left = left[written:]

    def size(self) -> int:
        with renamed_os_errors(self._path):
            return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        with renamed_os_errors(self._path):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        with renamed_os_errors(self._path):
            os.close(self._descriptor)


class OsDisk:
    """A directory of the file system; it must exist."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory = directory
        self._access = os.O_RDONLY if read_only else os.O_RDWR

    def names(self) -> list[str]:
        with renamed_os_errors(self._directory):
            return sorted(path.name for path in self._directory.iterdir())

    def open(self, name: str) -> OsFile:
        path = self._directory / name
        with renamed_os_errors(path):
            return OsFile(path, os.open(path, self._access | os.O_CLOEXEC))

    def create(self, name: str) -> OsFile:
        path = self._directory / name
        with renamed_os_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                sync_directory(self._directory)
            except OSError:
                os.close(descriptor)
                raise
        return OsFile(path, descriptor)

    def remove(self, name: str) -> None:
        path = self._directory / name
        with renamed_os_errors(path):
            path.unlink()
            sync_directory(self._directory)

    def replace(self, name: str, data: bytes) -> None:
        replace_file(self._directory / name, data)

    def read(self, name: str) -> bytes | None:
        path = self._directory / name
        with renamed_os_errors(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None
