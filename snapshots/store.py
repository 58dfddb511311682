"""Edge: the directory of a node's snapshots: the newest, one by id, which to keep, and where damaged ones go."""

import errno
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from metadata_log.digest import Buckets
from metadata_log.errors import DamagedFile, DiskFailed, SnapshotNotFound
from metadata_log.ids import SnapshotId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.durable_files import (
    DIRECTORY_MODE,
    quarantine,
    renamed_os_errors,
    sync_directory,
    unreadable_is_damaged,
)
from metadata_log.records.snapshots import SnapshotHeaderRecord
from snapshots.kept_digest import KeptDigest
from snapshots.policy import to_retire
from snapshots.snapshot_file import (
    DERIVED_SUFFIX,
    SUFFIX,
    check_snapshot,
    position_of,
    read_header,
    read_snapshot,
)


class Quarantined(NamedTuple):
    """A damaged snapshot, where it went, and what is wrong with it."""

    snapshot_id: SnapshotId
    moved_to: Path
    error: DamagedFile


class Loaded(NamedTuple):
    """The newest sound snapshot asked for, None if there is none, and the damaged ones met on the way to it."""

    snapshot_id: SnapshotId | None
    image: MetadataImage | None
    quarantined: tuple[Quarantined, ...]


class SnapshotStore:
    """The snapshots of one node. Methods that read or write whole snapshots block: call them in a worker thread."""

    def __init__(
        self, directory: Path, quarantine: Path | None = None, *, kept_digest: KeptDigest | None = None
    ) -> None:
        """Make `directory` if it is missing, and remove what an interrupted write left, and what was made of snapshots.

        A killed process may have left a file under a name that is not durable yet. The directory is synced, so that every
        name seen here is durable from now on.

        Damaged files go to `quarantine`, by default the folder of that name beside `directory`. With `kept_digest`, the
        records of the snapshot that it belongs to are not counted again.

        Raises:
            DiskFailed: the disk refuses.
        """
        self.directory = directory
        self._quarantine = quarantine
        self._kept_digest = kept_digest
        self._sha256: dict[SnapshotId, str] = {}
        self._setting_aside = threading.Lock()
        self.on_damage: Callable[[SnapshotId, DamagedFile], None] = lambda _id, _error: None
        """Called with each snapshot that goes to quarantine, in the thread that found it damaged."""
        with renamed_os_errors(directory):
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            for pattern in ("*.part", f"*{DERIVED_SUFFIX}"):
                for left in directory.glob(pattern):
                    left.unlink()
            self._sync()

    def ids(self) -> list[SnapshotId]:
        """Return the ids of all snapshots here, oldest first."""
        with renamed_os_errors(self.directory):
            names = sorted(path.name.removesuffix(SUFFIX) for path in self.directory.glob(f"*{SUFFIX}"))
        return [SnapshotId(name) for name in names if _is_id(name)]

    def latest(self) -> SnapshotId | None:
        ids = self.ids()
        return ids[-1] if ids else None

    def path(self, snapshot_id: str) -> Path:
        """Return the path of a snapshot.

        Raises:
            SnapshotNotFound: it is not here.
        """
        path = self.directory / f"{snapshot_id}{SUFFIX}"
        # The id may come from a request, so only a well-formed one becomes a path.
        if not _is_id(snapshot_id) or not path.exists():
            raise SnapshotNotFound(f"no snapshot {snapshot_id} here", snapshot_id=snapshot_id)
        return path

    def load(
        self, snapshot_id: str, *, refuse: Callable[[MetadataImage], str | None] = lambda _image: None
    ) -> MetadataImage:
        """Return the image of a snapshot; a damaged one, or one that `refuse` returns a reason for, goes to quarantine.

        Raises:
            SnapshotNotFound: it is not here.
            DamagedFile: it is not what was written; `moved_to` in the context is where it is now.
            DiskFailed: it cannot be read.
        """
        with self._reading(snapshot_id) as path:
            image = self._read(path, None if self._kept_digest is None else self._kept_digest.buckets())
            reason = refuse(image)
            if reason is not None:
                raise DamagedFile(f"{path}: {reason}", path=str(path))
            return image

    def keep_digest(self, image: MetadataImage) -> None:
        """Keep what the digest of the newest snapshot, which is that of `image`, is made of."""
        if self._kept_digest is not None:
            self._kept_digest.keep(image.digest_buckets)

    def check(
        self,
        snapshot_id: str,
        *,
        refuse: Callable[[SnapshotHeaderRecord], str | None] | None = None,
    ) -> None:
        """Check a snapshot's bytes without making its image; a damaged one, or one that `refuse` returns a reason for, goes
        to quarantine.

        Raises:
            SnapshotNotFound, DamagedFile, DiskFailed: as `load`.
        """
        with self._reading(snapshot_id) as path:
            self._check(path)
            reason = None if refuse is None else refuse(read_header(path))
            if reason is not None:
                raise DamagedFile(f"{path}: {reason}", path=str(path))

    def header(self, snapshot_id: str) -> SnapshotHeaderRecord:
        """Return a snapshot's header alone.

        Raises:
            SnapshotNotFound, DamagedFile, DiskFailed: as `load`.
        """
        with self._reading(snapshot_id) as path:
            return read_header(path)

    def load_newest_at_or_below(self, offset: int | None = None) -> Loaded:
        """Return the newest sound snapshot whose end offset is at most `offset`; damaged ones go to quarantine.

        Raises:
            DiskFailed: one cannot be read.
        """
        quarantined: list[Quarantined] = []
        for snapshot_id in reversed(self.ids()):
            if offset is not None and position_of(snapshot_id)[0] > offset:
                continue
            try:
                image = self.load(snapshot_id)
                return Loaded(snapshot_id, image, tuple(quarantined))
            except DamagedFile as error:
                moved_to = error.context["moved_to"]
                assert isinstance(moved_to, Path)
                quarantined.append(Quarantined(snapshot_id, moved_to, error))
            except SnapshotNotFound:
                continue  # retired meanwhile
        return Loaded(None, None, tuple(quarantined))

    def retire(self, keep: int, pinned: Iterable[str] = ()) -> list[SnapshotId]:
        """Remove all but the newest `keep` and the `pinned`; return the ids removed.

        Raises:
            DiskFailed: the disk refuses.
        """
        with ExitStack() as files:
            return self.unlink(keep, pinned, files)

    def unlink(self, keep: int, pinned: Iterable[str], files: ExitStack) -> list[SnapshotId]:
        """Do what `retire` does, but leave what is removed open in `files`: to close it frees the space, in 50 ms and more.

        Raises:
            DiskFailed: the disk refuses.
        """
        retired = to_retire(self.ids(), keep=keep, pinned=frozenset(pinned))
        with renamed_os_errors(self.directory):
            for snapshot_id in retired:
                path = self.directory / f"{snapshot_id}{SUFFIX}"
                # Another thread may have moved it to quarantine meanwhile.
                with suppress(FileNotFoundError):
                    files.enter_context(path.open("rb"))
                    path.unlink()
                self._drop_derived(path)
                self._sha256.pop(snapshot_id, None)
        return retired

    def sha256(self, snapshot_id: str) -> str:
        """Return the SHA-256 of a snapshot's bytes, as hex; computed once.

        Raises:
            SnapshotNotFound: it is not here, or could not be read and is in quarantine now.
            DiskFailed: the disk refuses.
        """
        self.path(snapshot_id)
        known = self._sha256.get(SnapshotId(snapshot_id))
        if known is None:
            try:
                with self._reading(snapshot_id) as path:
                    number = path.stat().st_ino
                    known = sha256_of(path)
                    with self._setting_aside:
                        if path.stat().st_ino == number:
                            self._sha256[SnapshotId(snapshot_id)] = known
            except DamagedFile as error:
                raise SnapshotNotFound(error.message, snapshot_id=snapshot_id) from error
        return known

    def size(self, snapshot_id: str) -> int:
        """Return a snapshot's bytes.

        Raises:
            SnapshotNotFound: it is not here.
        """
        path = self.path(snapshot_id)
        try:
            with renamed_os_errors(path):
                return path.stat().st_size
        except DiskFailed as error:
            raise SnapshotNotFound(error.message, snapshot_id=snapshot_id) from error

    @contextmanager
    def _reading(self, snapshot_id: str) -> Iterator[Path]:
        """Open a file for a reader while other threads may retire it, or find it damaged too: the first one quarantines it.

        Raises:
            SnapshotNotFound: it is not here, or was removed meanwhile.
            DamagedFile: it was not what was written, and is in quarantine.
        """
        path, number = self.path(snapshot_id), None
        try:
            try:
                with unreadable_is_damaged(path), renamed_os_errors(path):
                    number = path.stat().st_ino
                    yield path
            except DamagedFile as error:
                with self._setting_aside, renamed_os_errors(path):
                    if path.stat().st_ino != number:
                        raise _gone(snapshot_id) from error
                    error.context["moved_to"] = self._set_aside(path)
                    self._sha256.pop(SnapshotId(snapshot_id), None)
                self.on_damage(SnapshotId(snapshot_id), error)
                raise
        except DiskFailed as error:
            if error.context.get("errno") == errno.ENOENT:
                raise _gone(snapshot_id) from error
            raise

    def _read(self, path: Path, known_buckets: Buckets | None) -> MetadataImage:
        return read_snapshot(path, known_buckets=known_buckets)

    def _check(self, path: Path) -> None:
        check_snapshot(path)

    def _set_aside(self, path: Path) -> Path:
        self._drop_derived(path)
        return quarantine(path, into=self._quarantine)

    def _drop_derived(self, path: Path) -> None:
        """Remove what was made of a snapshot that goes."""
        path.with_suffix(DERIVED_SUFFIX).unlink(missing_ok=True)

    def _sync(self) -> None:
        sync_directory(self.directory)


def _gone(snapshot_id: str) -> SnapshotNotFound:
    return SnapshotNotFound(f"snapshot {snapshot_id} is not here any more", snapshot_id=snapshot_id)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hex.

    Raises:
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_id(text: str) -> bool:
    try:
        position_of(text)
    except ValueError:
        return False
    return True
