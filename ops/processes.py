"""Edge: which process runs in a data directory, found without disturbing it. Tests: tests/unit/ops/local/test_cluster.py."""

import fcntl
import os
from pathlib import Path
from typing import Final

from metadata_log.node.disk.data_directory import Process, is_alive, read_process_json

PRIVATE_UMASK: Final = 0o077


def keep_files_private() -> None:
    """Let only this user read what the process writes from now on: data and logs hold secrets."""
    os.umask(PRIVATE_UMASK)


def running_process(data: Path) -> Process | None:
    """Return process.json of the process that runs in a data directory; None if none does.

    A process that was killed left the file behind, but not the lock. The lock is tried only where the named process
    lives, so that a node about to start is not refused because somebody looked.
    """
    process = read_process_json(data)
    if process is None or not is_alive(process["pid"]) or not is_locked(data):
        return None
    return process


def is_locked(data: Path) -> bool:
    """Answer whether a process holds the lock of a data directory. The check itself holds the lock for a moment.

    Of a lock that this user may not read, the life of the process that process.json names is all there is to go by.
    """
    try:
        fd = os.open(data / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        process = read_process_json(data)
        return process is not None and is_alive(process["pid"])
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
