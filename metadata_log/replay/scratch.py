"""Edge: folders that live as long as the log that reads them. Tests: tests/unit/metadata_log/replay/test_habits.py."""

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """A folder that is removed with the last log that reads it."""

    def __init__(self, *, within: Path | None = None) -> None:
        self.missing: tuple[str, ...] = ()
        """What the log lacks, and which part of it is told; empty where it is whole."""
        self.path = Path(tempfile.mkdtemp(prefix="metaquorum-export-", dir=within))
        self._held: list[int] = []
        self.remove = weakref.finalize(self, _remove, self.path, self._held)
        """Removes it now; at most once."""

    def hold(self, name: str) -> None:
        """Lock a file in it for as long as it lives, which tells other processes that the folder is in use."""
        self._held.append(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(self._held[-1], fcntl.LOCK_SH)


def _remove(path: Path, held: list[int]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    while held:
        os.close(held.pop())
