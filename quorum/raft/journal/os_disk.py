"""Edge: the journal's disk as the operating system has it; a failure names the file and the cure."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metadata_log.errors import DiskFailed

_FULL: Final = "Free space on this file system, then start again: nothing acknowledged is lost."
_CURES: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: "Check who owns it and its permissions.",
    errno.EROFS: "The file system is mounted read-only; the system's log says why.",
    errno.EIO: "The device is failing: replace the disk, and the voter with it.",
}


class OsFile:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        parts = []
        with _naming("read", self._path):
            while size > 0 and (part := os.pread(self._descriptor, size, position)):
                parts.append(part)
                position += len(part)
                size -= len(part)
        return b"".join(parts)

    def write(self, position: int, data: bytes) -> None:
        left = memoryview(data)
        with _naming("write", self._path):
            while left:
                written = os.pwrite(self._descriptor, left, position)
                position += written
                left = left[written:]

    def size(self) -> int:
        with _naming("examine", self._path):
            return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        with _naming("sync", self._path):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        with _naming("close", self._path):
            os.close(self._descriptor)


class OsDisk:
    """A directory of the file system; it must exist."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory = directory
        self._access = os.O_RDONLY if read_only else os.O_RDWR

    def names(self) -> list[str]:
        with _naming("list", self._directory):
            return sorted(path.name for path in self._directory.iterdir())

    def open(self, name: str) -> OsFile:
        path = self._directory / name
        with _naming("open", path):
            return OsFile(path, os.open(path, self._access | os.O_CLOEXEC))

    def create(self, name: str) -> OsFile:
        path = self._directory / name
        with _naming("create", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = OsFile(path, descriptor)
        try:
            self._sync_directory()
        except DiskFailed:
            file.close()
            raise
        return file

    def remove(self, name: str) -> None:
        path = self._directory / name
        with _naming("remove", path):
            path.unlink()
        self._sync_directory()

    def replace(self, name: str, data: bytes) -> None:
        path = self._directory / name
        temporary = path.with_name(name + ".part")
        with _naming("write", temporary), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with _naming("replace", path):
            temporary.replace(path)
        self._sync_directory()

    def read(self, name: str) -> bytes | None:
        path = self._directory / name
        with _naming("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def _sync_directory(self) -> None:
        with _naming("sync", self._directory):
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _naming(action: str, path: Path) -> Iterator[None]:
    """Rename an OSError into DiskFailed, which says what failed, where, and what to do."""
    try:
        yield
    except OSError as error:
        cure = _CURES.get(error.errno or 0, "Check the disk and the system's log, then start again.")
        raise DiskFailed(f"cannot {action} {path}: {error.strerror}. {cure}", path=str(path)) from error
