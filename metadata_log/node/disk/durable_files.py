"""Edge: what every durable file has in common: replaced whole, checksummed, quarantined, and a failing disk named.

An OSError becomes a DiskFailed that names the path and the cure. A small file is replaced by rename, after its content
and before its directory are synced, so that a crash leaves the old content or the new.
Tests: tests/powercut/test_failed_syncs.py.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeVar

import google_crc32c

from metadata_log.errors import DamagedFile, DiskFailed, UnknownFormat
from metadata_log.wire.shapes import Shape, convert

T = TypeVar("T", bound=Shape)

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""A log has the secrets of settings in plain text: only its owner may read what a node writes."""
_PAGE_BYTES: Final = 4096
_UNREADABLE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""Errors of a disk that has lost these bytes, and may still give all others."""


@contextmanager
def renamed_os_errors(path: Path, *, wanted_bytes: int | None = None) -> Iterator[None]:
    """Turn an OSError into DiskFailed, which names the path and the cure."""
    try:
        yield
    except OSError as error:
        raise disk_failed(path, error, wanted_bytes=wanted_bytes) from error


def disk_failed(path: Path, error: OSError, *, wanted_bytes: int | None = None) -> DiskFailed:
    """Return the fault that names what failed and what an operator can do."""
    where = error.filename if isinstance(error.filename, str) else str(path)
    wanted = "" if wanted_bytes is None else f" {wanted_bytes} bytes"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            cure = f"free at least{wanted or ' some space'} there"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            cure = "make it readable and writable for this user"
        case errno.EMFILE | errno.ENFILE:
            cure = "allow more open files"
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR | errno.EEXIST:
            cure = "see who moved or made it"
        case _:
            cure = "check the disk, replace it if need be"
    return DiskFailed(
        f"{where}: {error.strerror or error}: {cure}, then start again",
        path=where,
        errno=error.errno,
    )


@contextmanager
def unreadable_is_damaged(path: Path) -> Iterator[None]:
    """Treat bytes that the disk cannot read as damaged, as if they had rotted.

    Raises:
        DamagedFile: instead of DiskFailed.
    """
    try:
        yield
    except DiskFailed as error:
        number = error.context.get("errno")
        if not isinstance(number, int) or number not in _UNREADABLE:
            raise
        raise DamagedFile(f"{path}: cannot be read: {os.strerror(number)}", path=str(path)) from error


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    """Open a file to be written; one that is made here is its owner's alone."""
    return open(path, mode, opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _as_umask_says(path: str, flags: int) -> int:
    return os.open(path, flags, 0o666)


def sync_directory(path: Path) -> None:
    """Make all new, changed and removed names of a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes, *, is_private: bool = True) -> None:
    """Replace a small file durably: a crash leaves the old content or the new. One that is not private follows the umask.

    Raises:
        DiskFailed: it could not be written or synced.
    """
    partial = path.with_name(path.name + ".part")
    with renamed_os_errors(path, wanted_bytes=len(content)):
        # One that an earlier run left would keep its mode, and one that links elsewhere would be written there.
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=_private if is_private else _as_umask_says) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)


def checked_json(fields: Mapping[str, object]) -> bytes:
    """Return a small file's content: `fields`, version 1 and a checksum, which also detects a changed digit."""
    versioned = {"version": 1, **fields}
    return json.dumps(versioned | {"crc32c": crc_of_json(versioned)}).encode() + b"\n"


def from_checked_json(content: bytes, kind: type[T]) -> T:
    """Read what `checked_json` made as `kind`; a file without a checksum is accepted.

    Raises:
        UnknownFormat: another version wrote it.
        ValueError: it is something else, or damaged.
    """
    fields: Any = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - the data is wrong, not the caller
    crc = fields.pop("crc32c", None)
    if crc not in (None, crc_of_json(fields)):
        raise ValueError("its checksum is wrong")
    version = fields.pop("version", None)
    if type(version) is int and version != 1:
        raise UnknownFormat(f"version {version} is unknown to this release")
    if version != 1:
        raise ValueError("it has no version")
    return convert(fields, kind)  # type: ignore[no-any-return]


def crc_of_json(fields: Mapping[str, object]) -> str:
    """Return the CRC-32C, in hex, of the compact JSON with sorted keys."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"


def quarantine(path: Path, *, into: Path | None = None) -> Path:
    """Move DATA/FOLDER/FILE to DATA/quarantine (or `into`), under a name that is free there; return its new path.

    Raises:
        DiskFailed: it could not be moved.
    """
    with renamed_os_errors(path):
        target = _place_in_quarantine(path, into)
        path.rename(target)
        sync_directory(target.parent)
        sync_directory(path.parent)
    return target


def quarantine_copy(path: Path) -> Path:
    """Copy DATA/FOLDER/FILE durably to DATA/quarantine, before its damaged part is cut off; return the copy's path.

    Pages that the disk cannot read are zeros in the copy.

    Raises:
        DiskFailed: it could not be copied.
    """
    with renamed_os_errors(path):
        target = _place_in_quarantine(path, None)
        with removed_if_it_fails(target):
            with open_private(target, "wb") as file:
                for page in _readable_pages(path):
                    file.write(page)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(target.parent)
    return target


@contextmanager
def removed_if_it_fails(path: Path) -> Iterator[None]:
    """Remove a file if writing it fails: repeated attempts would fill the disk with parts."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _readable_pages(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for at in range(0, size, _PAGE_BYTES):
            try:
                yield os.pread(file.fileno(), _PAGE_BYTES, at)
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                yield bytes(min(_PAGE_BYTES, size - at))


def _place_in_quarantine(path: Path, into: Path | None) -> Path:
    folder = path.parent.parent / "quarantine" if into is None else into
    if not folder.exists():
        folder.mkdir(mode=DIRECTORY_MODE)
        sync_directory(folder.parent)
    target, number = folder / path.name, 1
    while target.exists():
        target = folder / f"{path.name}.{number}"
        number += 1
    return target


def settle_names(path: Path, folders: Iterable[str]) -> None:
    """Sync a data directory and these folders of it: a killed process may have left a name that is visible but not durable.

    Raises:
        DiskFailed: the disk refuses.
    """
    for directory in (path, *(path / folder for folder in folders)):
        if directory.is_dir():
            with renamed_os_errors(directory):
                sync_directory(directory)
