"""Edge: exports of large logs in the user's cache: a log that was opened before opens again at once, longer by what is new.

    $XDG_CACHE_HOME/metaquorum/exports/lock          held while entries are linked or removed: milliseconds
                                      /KEY/lock      held while the export of this log is written
                                      /KEY/identity.json
                                      /KEY/export/   as `log export` writes it
                                      /open/NAME/    links to the files of an export, for one log that is open

The key is where the log lies, where it begins, and the code that exports it. What is kept is used if the files that it was
made of are those that are there: of the same sizes and times, but the last, which may have grown and is compared by its
SHA-256. A log that is open has links of its own: no other reader's export or clean-up takes a file from it. Where the cache
cannot be used, logs are exported to a folder of their own, as small ones are.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from metadata_log.errors import DiskFailed, Fault, InvariantBroken
from metadata_log.limits import MIB
from metadata_log.replay.scratch import Scratch
from metadata_log.replay.session import cache_directory
from metadata_log.replay.tables import read_manifest

CACHED_FROM_BYTES: Final = 4 * MIB
"""Smaller logs are exported in a second or two, and not kept."""
CACHE_BYTES_MAX: Final = 2 * 1024 * MIB
"""What is kept together; those that were not opened for the longest time go first. A million records take 10 to 30 MiB."""
_READ_BYTES: Final = MIB

Export = Callable[[Path], object]
"""Exports the log to a directory, or what is new of it."""


class Identity(NamedTuple):
    """The files that an export was made of: names, sizes, times of change; and the last one's SHA-256 up to its size."""

    files: list[list[Any]]
    last_sha256: str


def kept(files: Sequence[Path], rests_on: Path | None, export: Export) -> Scratch | None:
    """Return the export of a log, kept or made now, as a folder for one reader; None where it is not to be kept.

    `files` are its segments, the first first, and `rests_on` the snapshot that they continue.

    Raises:
        Fault, Rejected: as `export`.
    """
    if sum(file.stat().st_size for file in files) < CACHED_FROM_BYTES:
        return None
    root = cache_directory() / "exports"
    entry = root / _key(files, rests_on)
    try:
        entry.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(entry / "lock"):
            _bring_up_to_date(entry, files, export)
            with _locked(root / "lock"):
                scratch = _linked(entry / "export", root / "open")
                _clean(root, but=entry)
    except (OSError, DiskFailed):
        return None  # a cache that is full or cannot be written costs time, and no answer
    return scratch


def _key(files: Sequence[Path], rests_on: Path | None) -> str:
    beginning = None if rests_on is None else (rests_on.name, *_looks(rests_on))
    told = json.dumps([str(files[0].parent.resolve()), files[0].name, beginning, _code()])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


@cache
def _code() -> str:
    """Return the SHA-256 of the code that exports: another release may export the same log otherwise."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in {".py", ".sql"}:
            found.update(path.read_bytes())
    return found.hexdigest()


def _bring_up_to_date(entry: Path, files: Sequence[Path], export: Export) -> None:
    to = entry / "export"
    before = _read(entry / "identity.json")
    now: list[list[Any]] = [[file.name, *_looks(file)] for file in files]
    if before is not None and before.files == now and read_manifest(to) is not None:
        os.utime(entry / "identity.json")
        return
    (entry / "identity.json").unlink(missing_ok=True)
    identity = Identity(now, _sha256(files[-1], int(now[-1][1])))
    if before is None or not _is_continued(before, now, files):
        shutil.rmtree(to, ignore_errors=True)
    try:
        export(to)
    except InvariantBroken:
        # Another history, although its files begin alike; else it is refused again.
        shutil.rmtree(to, ignore_errors=True)
        export(to)
    except Fault:
        shutil.rmtree(to, ignore_errors=True)
        raise
    written = entry / "identity.part"
    written.write_text(json.dumps(identity._asdict()), encoding="utf-8")
    written.replace(entry / "identity.json")


def _is_continued(before: Identity, now: list[list[Any]], files: Sequence[Path]) -> bool:
    """Answer whether the files of an export are still there, the last of them perhaps longer."""
    place = len(before.files) - 1
    if len(now) <= place or now[:place] != before.files[:place]:
        return False
    name, size, _ = before.files[place]
    if now[place][0] != name or now[place][1] < size:
        return False
    return _sha256(files[place], size) == before.last_sha256


def _looks(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _sha256(file: Path, size: int) -> str:
    found = hashlib.sha256()
    with file.open("rb") as opened:
        while size > 0 and (data := opened.read(min(size, _READ_BYTES))):
            found.update(data)
            size -= len(data)
    return found.hexdigest()


def _read(path: Path) -> Identity | None:
    try:
        return Identity(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _linked(export: Path, to: Path) -> Scratch:
    """Return a folder with links to the files of an export, which is held until its reader ends."""
    to.mkdir(mode=0o700, exist_ok=True)
    scratch = Scratch(within=to)
    scratch.hold("held")
    for file in sorted(export.rglob("*")):
        place = scratch.path / file.relative_to(export)
        if file.is_dir():
            place.mkdir()
            continue
        try:
            os.link(file, place)
        except OSError:  # a file system without links
            shutil.copy2(file, place)
    return scratch


def _clean(root: Path, *, but: Path) -> None:
    """Remove the folders of readers that were killed, and the exports that were not opened for the longest time."""
    for folder in (root / "open").iterdir():
        with suppress(OSError), (folder / "held").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    entries = sorted(
        (entry for entry in root.iterdir() if entry.is_dir() and entry.name != "open"),
        key=_last_opened,
        reverse=True,
    )
    size = 0
    for entry in entries:
        size += sum(file.stat().st_size for file in (entry / "export").rglob("*.parquet"))
        if size > CACHE_BYTES_MAX and entry != but:
            with suppress(OSError), _locked(entry / "lock", waits=False):
                shutil.rmtree(entry, ignore_errors=True)


def _last_opened(entry: Path) -> float:
    try:
        return (entry / "identity.json").stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def _locked(path: Path, *, waits: bool = True) -> Iterator[BinaryIO]:
    """Hold a lock that other processes see; with `waits` false, BlockingIOError where another one has it."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
