"""Edge: a node's data directory: whose it is, who runs in it, and what every file in it has in common.

meta.json       {"version":1,"role","id","cluster_id","directory_id","crc32c"}; written once, by `format_directory`
fresh           empty; a controller's, from its format until its journal has its first file
lock            held (flock) by the process that runs here
process.json    where that process listens; it outlives a kill, the lock does not
reserve         24 MiB for the day the disk is full
log/ snapshots/ quarantine/, and a controller's journal/
"""

import errno
import fcntl
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

import google_crc32c

from metadata_log.errors import (
    DamagedFile,
    DirectoryInUse,
    DiskFailed,
    ForeignDirectory,
    UnknownFormat,
    another_version,
)
from metadata_log.ids import NodeId, Uuid, random_uuid, uuid_from_text, uuid_text
from metadata_log.limits import RESERVE_BYTES

Role: TypeAlias = Literal["controller", "broker"]

FOLDERS: Final[Mapping[Role, tuple[str, ...]]] = {
    "controller": ("journal", "log", "snapshots", "quarantine"),
    "broker": ("log", "snapshots", "quarantine"),
}

_FRESH: Final = "fresh"
_PAGE_BYTES: Final = 4096
_UNREADABLE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""What a disk says that has lost these bytes, and may give all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Whose directory it is. `directory_id` is new with each format: a voter that lost its disk is not the same voter."""

    role: Role
    node_id: NodeId
    cluster_id: str
    directory_id: Uuid


# --- what every file here needs


@contextmanager
def renamed_os_errors(path: Path, *, wanted_bytes: int | None = None) -> Iterator[None]:
    """Turn an OSError into DiskFailed, which names the path and what helps."""
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
    """Let bytes at rest that the disk does not give count as what they are: lost, as if they had rotted.

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


def sync_directory(path: Path) -> None:
    """Make names made, changed or removed in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a small file so that a crash leaves the old content or the new.

    Raises:
        DiskFailed: it could not be written or synced.
    """
    partial = path.with_name(path.name + ".part")
    with renamed_os_errors(path, wanted_bytes=len(content)):
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_directory(path.parent)


def checked_json(fields: Mapping[str, object]) -> bytes:
    """Return a small file's content: `fields`, version 1, with a checksum: a bit that turns in a number makes another."""
    versioned = {"version": 1, **fields}
    return json.dumps(versioned | {"crc32c": crc_of_json(versioned)}).encode() + b"\n"


def from_checked_json(content: bytes, names: AbstractSet[str]) -> dict[str, Any]:
    """Read what `checked_json` made, with fields of these names; a file without a checksum is believed.

    Raises:
        UnknownFormat: another version wrote it.
        ValueError: it is something else, or damaged.
    """
    fields: Any = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - it is data that is wrong, not a caller
    crc = fields.pop("crc32c", None)
    if crc not in (None, crc_of_json(fields)):
        raise ValueError("its checksum is wrong")
    if type(fields.get("version")) is int and fields["version"] != 1:
        raise UnknownFormat(f"version {fields['version']} is unknown to this release")
    if fields.get("version") != 1 or set(fields) != names | {"version"}:
        raise ValueError(f"its fields are {', '.join(sorted(fields))}")
    return fields


def crc_of_json(fields: Mapping[str, object]) -> str:
    """Return the CRC-32C, in hex, of the compact JSON with sorted keys."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f"{google_crc32c.value(text.encode()):08x}"


def quarantine(path: Path, *, into: Path | None = None) -> Path:
    """Move DATA/FOLDER/FILE to DATA/quarantine (or `into`), under a name nothing there has; return where it went.

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
    """Copy DATA/FOLDER/FILE durably to DATA/quarantine, for a file that goes on without its damaged part; return where to.

    Pages that the disk does not give are zeros in the copy.

    Raises:
        DiskFailed: it could not be copied.
    """
    with renamed_os_errors(path):
        target = _place_in_quarantine(path, None)
        with removed_if_it_fails(target):
            with target.open("wb") as file:
                for page in _readable_pages(path):
                    file.write(page)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(target.parent)
    return target


@contextmanager
def removed_if_it_fails(path: Path) -> Iterator[None]:
    """Leave no part of a file whose making fails: what is tried again would fill the disk with them."""
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
        folder.mkdir()
        sync_directory(folder.parent)
    target, number = folder / path.name, 1
    while target.exists():
        target = folder / f"{path.name}.{number}"
        number += 1
    return target


def settle_names(path: Path, folders: Iterable[str]) -> None:
    """Sync a data directory and these folders of it: a name that a killed process left may be seen and not be durable.

    Raises:
        DiskFailed: the disk refuses.
    """
    for directory in (path, *(path / folder for folder in folders)):
        if directory.is_dir():
            with renamed_os_errors(directory):
                sync_directory(directory)


# --- whose it is


def format_directory(
    path: Path,
    *,
    role: Role,
    node_id: NodeId,
    cluster_id: str,
    rng: random.Random,
    directory_id: Uuid | None = None,
    may_hold: AbstractSet[str] = frozenset(),
) -> Meta:
    """Make a data directory for a node; `directory_id` is drawn unless it is given.

    It is empty, or holds hidden files and those named in `may_hold` alone.

    Raises:
        ForeignDirectory: it is formatted, or holds data of somebody's.
        DiskFailed: it could not be written.
    """
    if (path / "meta.json").exists():
        found = load_meta(path)
        raise ForeignDirectory(
            f"{path}: is already formatted for {found.role} {found.node_id} of cluster {found.cluster_id}; "
            "nothing is formatted twice: move it away to begin anew"
        )
    with renamed_os_errors(path):
        _check_nothing_lies_there(path, role, may_hold)
        for folder in FOLDERS[role]:
            (path / folder).mkdir(parents=True, exist_ok=True)
        if role == "controller":
            (path / _FRESH).touch()
        sync_directory(path)
    meta = Meta(
        role=role,
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id=random_uuid(rng) if directory_id is None else directory_id,
    )
    fields = {
        "role": role,
        "id": node_id,
        "cluster_id": cluster_id,
        "directory_id": uuid_text(meta.directory_id),
    }
    # Last: a directory is formatted once its meta.json is there.
    replace_file(path / "meta.json", checked_json(fields))
    with renamed_os_errors(path):
        sync_directory(path.parent)
    return meta


def _check_nothing_lies_there(path: Path, role: Role, may_hold: AbstractSet[str]) -> None:
    """Check that a directory holds nothing but what a format cut short leaves, the file system, or the caller allows.

    Raises:
        ForeignDirectory: names what it holds.
    """
    own = {*FOLDERS[role], _FRESH, "meta.json.part", "lost+found", *may_hold}
    for item in sorted(path.iterdir()) if path.exists() else ():
        if item.name not in own and not item.name.startswith("."):
            raise ForeignDirectory(
                f"{path}: holds {item.name}, which a directory to be formatted does not: "
                "move it away, or name another data_dir",
                path=str(item),
            )
        if item.name in FOLDERS[role] and any(item.iterdir()):
            raise ForeignDirectory(
                f"{item}: holds files, but {path / 'meta.json'} is gone: move them away", path=str(item)
            )


def is_fresh(path: Path) -> bool:
    """Answer whether no controller's journal was ever begun here; an empty one in any other directory has lost all."""
    with renamed_os_errors(path):
        return (path / _FRESH).exists()


def not_fresh_any_more(path: Path) -> None:
    """Remember durably that the journal of this directory has its first file; to be called before anything is in it."""
    with renamed_os_errors(path):
        if (path / _FRESH).exists():
            (path / _FRESH).unlink()
            sync_directory(path)


def read_meta(path: Path, role: Role, node_id: int, cluster_id: str) -> Meta:
    """Return whose directory it is, which must be the node asked for.

    Raises:
        ForeignDirectory: it is not formatted, or is another node's, role's or cluster's.
    """
    meta = load_meta(path)
    for word, found, wanted in (
        ("cluster", meta.cluster_id, cluster_id),
        ("role", meta.role, role),
        ("node", meta.node_id, node_id),
    ):
        if found != wanted:
            raise ForeignDirectory(
                f"{path}: belongs to {word} {found}, but the settings say {wanted}: correct cluster_id, the node's id or "
                "data_dir in the settings, or format another directory",
                path=str(path),
            )
    return meta


def load_meta(path: Path) -> Meta:
    """Return whose directory it is, whoever that be.

    Raises:
        ForeignDirectory: it is not formatted, or its meta.json is not what was written.
        WrittenByAnotherVersion: its format is unknown to this release.
        DiskFailed: it cannot be read.
    """
    file = path / "meta.json"
    with renamed_os_errors(file):
        if not file.exists():
            raise ForeignDirectory(
                f"{path}: is not formatted: run `metaquorum storage format --config FILE` first"
            )
        content = file.read_bytes()
    try:
        fields = from_checked_json(content, {"role", "id", "cluster_id", "directory_id"})
        if fields["role"] not in FOLDERS:
            raise ValueError(f"{fields['role']!r} is no role")
        return Meta(
            role=fields["role"],
            node_id=NodeId(int(fields["id"])),
            cluster_id=str(fields["cluster_id"]),
            directory_id=uuid_from_text(fields["directory_id"]),
        )
    except UnknownFormat as error:
        raise another_version(file, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ForeignDirectory(
            f"{file}: does not say whose directory it is ({error}): restore it, or move the directory away",
            path=str(file),
        ) from error


# --- who runs in it


class DirectoryLock:
    """The right to run in a data directory, until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            DirectoryInUse: another process has it.
            DiskFailed: the lock file cannot be opened.
        """
        with renamed_os_errors(self._path):
            # A full disk still has room for an empty file that exists, so nothing is written here.
            fd = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise disk_failed(self._path / "lock", error) from error
            process = read_process_json(self._path)
            holder = "another process"
            # The holder tells of itself only once it listens; before, a process that was killed is named there.
            if process is not None and is_alive(process["pid"]):
                holder = f"process {process['pid']}"
            raise DirectoryInUse(
                f"{self._path}: is in use by {holder}: stop it first", path=str(self._path)
            ) from error
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def write_process_json(
    path: Path,
    *,
    role: Role,
    node_id: int,
    pid: int,
    incarnation_id: Uuid,
    http: str,
    raft: str | None,
    started_at_ms: int,
    log: str,
) -> None:
    """Tell where this process listens; it holds the lock of `path` and listens already."""
    fields = {
        "version": 1,
        "role": role,
        "id": node_id,
        "pid": pid,
        "incarnation_id": uuid_text(incarnation_id),
        "http": http,
        "raft": raft,
        "started_at_ms": started_at_ms,
        "log": log,
    }
    replace_file(path / "process.json", json.dumps(fields).encode() + b"\n")


def read_process_json(path: Path) -> dict[str, Any] | None:
    """Return what the last process here told of itself; None if it ended cleanly. It lives if the lock is held."""
    try:
        fields = json.loads((path / "process.json").read_bytes())
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) and isinstance(fields.get("pid"), int) else None


def is_alive(pid: int) -> bool:
    """Answer whether there is such a process, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove_process_json(path: Path) -> None:
    with renamed_os_errors(path):
        (path / "process.json").unlink(missing_ok=True)


@contextmanager
def leaving_no_process_json(path: Path) -> Iterator[None]:
    """Remove process.json when the block ends, however it ends; it holds the lock of `path`, so no other process's goes."""
    try:
        yield
    finally:
        with suppress(DiskFailed):  # without the lock the file says nothing; what ended the block does
            remove_process_json(path)


# --- room on the disk


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
    """24 MiB set aside, so that a node on a full disk can start, say what it needs, and be helped.

    Only a start gives them back: a running node would spend them and be full again.
    """

    def __init__(self, path: Path, *, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._file = path / "reserve"
        self._size = size

    def at_start(self) -> Literal["kept", "made", "released", "no room"]:
        """Give the reserve back to a disk that is full, set it aside on one that has room, and say which.

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
            fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(fd, 0, self._size)
            finally:
                os.close(fd)
            return "made"
