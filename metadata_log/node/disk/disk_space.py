"""Edge: room on a node's disk: how much is free, and the reserve that a full disk gives back.
Tests: tests/unit/metadata_log/node/disk/test_data_directory.py.
"""

import os
from pathlib import Path
from typing import Literal

from metadata_log.errors import DiskFailed
from metadata_log.limits import RESERVE_BYTES
from metadata_log.node.disk.durable_files import FILE_MODE, renamed_os_errors


def free_bytes(path: Path) -> int:
    """Return how much this user may still write to the file system of `path`."""
    with renamed_os_errors(path):
        status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def check_space(path: Path, wanted: int) -> None:
    """Check that `wanted` bytes can be written below `path`.

    Raises:
        DiskFailed: they cannot.
    """
    free = free_bytes(path)
    if free < wanted:
        raise DiskFailed(
            f"{path}: only {free} bytes are free and {wanted} are needed: free at least {wanted - free} bytes there, "
            "then start the node again",
            path=str(path),
            wanted=wanted,
            free=free,
        )


class Reserve:
    """24 MiB set aside, so that a node on a full disk can start and report what it needs.

    Only a start releases them: a running node would use them up and be full again.
    """

    def __init__(self, path: Path, *, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._file = path / "reserve"
        self._size = size

    def at_start(self) -> Literal["kept", "made", "released", "no room"]:
        """Release the reserve if the disk is full, make it if the disk has room, and return which was done.

        Raises:
            DiskFailed: the disk refuses for another reason than being full.
        """
        free = free_bytes(self._path)
        with renamed_os_errors(self._file):
            held = self._file.exists() and self._file.stat().st_size == self._size
            if free < self._size:
                if not self._file.exists():
                    return "no room"
                self._file.unlink()
                return "released"
            if held:
                return "kept"
            if free < 3 * self._size:
                return "no room"
            fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)
            return "made"
