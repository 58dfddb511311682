"""Edge: a node's data directory: which node owns it, and which process runs in it.

meta.json       {"version":1,"role","id","cluster_id","directory_id","crc32c"}; written once, by `format_directory`
fresh           empty; a controller's, from its format until its journal has its first file
joins           empty; a controller's that was formatted to join a quorum: with an empty log it founds none
bootstrap.json  a controller's, if `storage format` was told what to found a cluster with; it has secrets of users
lock            held (flock) by the process that runs here
process.json    where that process listens; it outlives a kill, the lock does not
reserve         24 MiB for the day the disk is full
log/ snapshots/ quarantine/, and a controller's journal/
"""

import errno
import fcntl
import json
import logging
import os
import random
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final, Literal, Never, Required, Self, TypeAlias, TypedDict

from msgspec import Meta as Bounds
from msgspec import structs

from metadata_log.errors import (
    DirectoryInUse,
    DiskFailed,
    ForeignDirectory,
    UnknownFormat,
    another_version,
)
from metadata_log.ids import NodeId, Uuid, random_uuid, uuid_from_text, uuid_text
from metadata_log.limits import DIRECTORY_CHECK_S
from metadata_log.node.disk.durable_files import (
    DIRECTORY_MODE,
    FILE_MODE,
    checked_json,
    disk_failed,
    from_checked_json,
    renamed_os_errors,
    replace_file,
    sync_directory,
)
from metadata_log.wire.shapes import INT32_MAX, Shape, convert

Role: TypeAlias = Literal["controller", "broker"]

FOLDERS: Final[Mapping[Role, tuple[str, ...]]] = {
    "controller": ("journal", "log", "snapshots", "quarantine"),
    "broker": ("log", "snapshots", "quarantine"),
}

log = logging.getLogger(__name__)
_FRESH: Final = "fresh"
_JOINS: Final = "joins"
BOOTSTRAP: Final = "bootstrap.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The owner of a directory. `directory_id` is new with each format: a voter that lost its disk is not the same voter."""

    role: Role
    node_id: NodeId
    cluster_id: str
    directory_id: Uuid


class _MetaFile(Shape, frozen=True):
    """The fields of meta.json."""

    role: Role
    id: Annotated[NodeId, Bounds(ge=0, le=INT32_MAX)]
    cluster_id: str
    directory_id: str


class Process(TypedDict, total=False):
    """The fields of process.json."""

    version: int
    role: Role
    id: int
    pid: Required[int]
    incarnation_id: str
    http: str | None
    raft: str | None
    kafka: str | None
    started_at_ms: int
    log: str


def format_directory(
    path: Path,
    *,
    role: Role,
    node_id: NodeId,
    cluster_id: str,
    rng: random.Random,
    directory_id: Uuid | None = None,
    may_hold: AbstractSet[str] = frozenset(),
    only_joins: bool = False,
    bootstrap: bytes | None = None,
) -> Meta:
    """Make a data directory for a node; a random `directory_id` is drawn unless one is given.

    `only_joins`: the controller never founds a quorum from this directory. `bootstrap` is the content of the file that says
    with what it founds a cluster; None: its settings say it.
    The directory must be empty, except for hidden files and those named in `may_hold`.

    Raises:
        ForeignDirectory: it is formatted already, or holds other data.
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
        for directory in (path, *(path / folder for folder in FOLDERS[role])):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            directory.chmod(DIRECTORY_MODE)
        if role == "controller":
            (path / _FRESH).touch(mode=FILE_MODE)
            (path / _JOINS).unlink(missing_ok=True)  # of a format that was interrupted
            if only_joins:
                (path / _JOINS).touch(mode=FILE_MODE)
            (path / BOOTSTRAP).unlink(missing_ok=True)
            if bootstrap is not None:
                replace_file(path / BOOTSTRAP, bootstrap)
        sync_directory(path)
        sync_directory(path.parent)
    meta = Meta(
        role=role,
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id=random_uuid(rng) if directory_id is None else directory_id,
    )
    fields = _MetaFile(
        role=role, id=node_id, cluster_id=cluster_id, directory_id=uuid_text(meta.directory_id)
    )
    # Last: a directory is formatted once its meta.json is there, and then nothing is formatted, or synced, once more.
    replace_file(path / "meta.json", checked_json(structs.asdict(fields)))
    return meta


def _check_nothing_lies_there(path: Path, role: Role, may_hold: AbstractSet[str]) -> None:
    """Check that a directory holds only what an interrupted format leaves, the file system puts there, or the caller allows.

    Raises:
        ForeignDirectory: names what it holds.
    """
    own = {
        *FOLDERS[role],
        _FRESH,
        _JOINS,
        BOOTSTRAP,
        f"{BOOTSTRAP}.part",
        "meta.json.part",
        "lost+found",
        *may_hold,
    }
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
    """Answer whether no journal was ever begun here; in any other directory, an empty journal has lost its content."""
    with renamed_os_errors(path):
        return (path / _FRESH).exists()


def only_joins(path: Path) -> bool:
    """Answer whether this directory was formatted to join a quorum that was founded by others."""
    with renamed_os_errors(path):
        return (path / _JOINS).exists()


def let_only_join(path: Path) -> None:
    """Record durably that the controller of this directory never founds a quorum, as a format with `only_joins` does."""
    with renamed_os_errors(path):
        (path / _JOINS).touch(mode=FILE_MODE)
        sync_directory(path)


def not_fresh_any_more(path: Path) -> None:
    """Record durably that the journal of this directory has its first file; call it before anything is written there."""
    with renamed_os_errors(path):
        if (path / _FRESH).exists():
            (path / _FRESH).unlink()
            sync_directory(path)


def read_meta(path: Path, role: Role, node_id: int, cluster_id: str) -> Meta:
    """Return the owner of a directory, which must be the node asked for.

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
    """Return the owner of a directory, whichever node that is.

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
        fields = from_checked_json(content, _MetaFile)
        return Meta(
            role=fields.role,
            node_id=fields.id,
            cluster_id=fields.cluster_id,
            directory_id=uuid_from_text(fields.directory_id),
        )
    except UnknownFormat as error:
        raise another_version(file, error) from error
    except ValueError as error:
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
            fd = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise disk_failed(self._path / "lock", error) from error
            process = read_process_json(self._path)
            holder = "another process"
            # The holder writes process.json only once it listens. Before that, the file may name a process that was killed.
            if process is not None and is_alive(process["pid"]):
                holder = f"process {process['pid']}"
            raise DirectoryInUse(
                f"{self._path}: is in use by {holder}: stop it first", path=str(self._path)
            ) from error
        self._fd = fd

    def check(self) -> None:
        """Check that the directory still is the one that was locked, and that its lock is there; for a worker thread.

        A process whose directory was removed or replaced writes without an error into files that no later process finds.

        Raises:
            DiskFailed: it is gone, or another one is in its place.
        """
        assert self._fd is not None
        path = self._path / "lock"
        with renamed_os_errors(path):
            ours, found = os.fstat(self._fd), path.stat()
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            raise DiskFailed(
                f"{self._path}: was replaced while this process runs in it; what it writes goes to files that no path "
                "names. Restore the directory, or start the process anew in the one that stands there",
                path=str(self._path),
            )

    def outlive_exec(self) -> None:
        """Let the program that this process becomes by exec hold the lock."""
        assert self._fd is not None
        os.set_inheritable(self._fd, True)

    async def keep_checking(self, run_in_thread: Callable[[Callable[[], None]], Awaitable[None]]) -> Never:
        """Check the directory every DIRECTORY_CHECK_S, until cancelled.

        Raises:
            DiskFailed: as `check`.
        """
        import asyncio  # it takes a command that looks into a directory a tenth of its start

        while True:
            await asyncio.sleep(DIRECTORY_CHECK_S)
            await run_in_thread(self.check)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        self.acquire()
        narrow(self._path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def narrow(path: Path) -> None:
    """Take from others what earlier releases, or a careless copy, let them read: a data directory holds secrets.

    Where that is refused, since the directory is another user's, the log says so and the node goes on.
    """
    narrowed = 0
    try:
        for folder, _, names in os.walk(path):
            narrowed += _narrowed(Path(folder), DIRECTORY_MODE)
            narrowed += sum(_narrowed(Path(folder, name), FILE_MODE) for name in names)
    except OSError as error:
        facts = {"path": error.filename or str(path), "reason": error.strerror}
        log.warning("permissions_not_narrowed", extra=facts)
    if narrowed:
        log.warning("permissions_narrowed", extra={"path": str(path), "names": narrowed})


def _narrowed(name: Path, mode: int) -> bool:
    """Return whether a file or directory could be read or changed by others, and no longer can."""
    found = name.lstat().st_mode
    if stat.S_ISLNK(found) or not found & 0o077:
        return False
    name.chmod(stat.S_IMODE(found) & mode)
    return True


def write_process_json(
    path: Path,
    *,
    role: Role,
    node_id: int,
    pid: int,
    incarnation_id: Uuid,
    http: str | None,
    raft: str | None,
    kafka: str | None = None,
    started_at_ms: int,
    log: str,
) -> None:
    """Write where this process listens; it must hold the lock of `path` and listen already."""
    fields: Process = {
        "version": 1,
        "role": role,
        "id": node_id,
        "pid": pid,
        "incarnation_id": uuid_text(incarnation_id),
        "http": http,
        "raft": raft,
        "kafka": kafka,
        "started_at_ms": started_at_ms,
        "log": log,
    }
    replace_file(path / "process.json", json.dumps(fields).encode() + b"\n")


def read_process_json(path: Path) -> Process | None:
    """Return what the last process here wrote about itself; None if it ended cleanly. It lives if the lock is held."""
    try:
        fields = json.loads((path / "process.json").read_bytes())
        process: Process = convert(fields, Process)
    except (OSError, ValueError):
        return None
    return process


def is_alive(pid: int) -> bool:
    """Answer whether there is such a process, of any user."""
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
        with suppress(
            DiskFailed
        ):  # without the lock the file means nothing, and the error that ended the block matters more
            remove_process_json(path)
