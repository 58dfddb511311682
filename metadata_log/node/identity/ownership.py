"""Edge: the owner and the mode of a file, checked as ssh does before a key or a list of keys counts.

A secret (a private key, a token) belongs to this user, and no other user may read it. Or it belongs to root, as an
orchestrator mounts it, and then its group may read it. The files that a node trusts (an authority, principals) and its own
certificate belong to this user or to root. No other user may change them, or put another file in their place.

Source: OpenSSH, sshkey_perm_ok in authfile.c, and safe_path in misc.c (StrictModes).
"""

import os
import stat
from pathlib import Path
from typing import Final

from metadata_log.errors import InvalidSettings

ROOT: Final = 0
_READ_BY_OTHERS: Final = 0o077
_READ_BY_ALL: Final = 0o037
"""Of root's file, whose group may read it."""
_CHANGED_BY_OTHERS: Final = 0o022


def check_secret(path: Path) -> None:
    """Check that only this user, or root, can read a file.

    Raises:
        InvalidSettings: it is missing or another user's, or its mode lets others read it.
    """
    found = _owned(path)
    is_mounted = found.st_uid == ROOT != os.geteuid()
    _check_mode(
        path, found, _READ_BY_ALL if is_mounted else _READ_BY_OTHERS, "others may read or change this secret"
    )


def check_trusted(path: Path) -> None:
    """Check that only this user, or root, can change a file that names what to trust.

    Raises:
        InvalidSettings: it is missing or another user's, or others may change it.
    """
    _check_mode(path, _owned(path), _CHANGED_BY_OTHERS, "others may change whom it says to trust")
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Check that only this user, or root, can replace the files in a folder.

    Raises:
        InvalidSettings: it is missing or another user's, or others may change it and it is not sticky.
    """
    found = _owned(path)
    if not found.st_mode & stat.S_ISVTX:
        _check_mode(path, found, _CHANGED_BY_OTHERS, "others may replace the files in it")


def _owned(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidSettings(f"{path}: {error.strerror}") from error
    if found.st_uid not in (os.geteuid(), ROOT):
        raise InvalidSettings(
            f"{path}: belongs to user {found.st_uid}, who can change it at any time: give it to the user who runs this "
            f"(chown), or use another"
        )
    return found


def _check_mode(path: Path, found: os.stat_result, refused: int, why: str) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & refused:
        raise InvalidSettings(f"{path}: mode {mode:04o}: {why}: chmod {mode & ~refused & 0o777:o} {path}")
