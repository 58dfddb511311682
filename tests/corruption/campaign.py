"""Edge: damages files at rest, one place at a time, and opens the result.

The files are those that the workloads of the power cuts leave when they end in order, and those of an export; what the
shipped code makes of the damage falls into five kinds:

    detected   it is refused, or set aside, by a named error; or a named warning says which history is missing
    repaired   it was noticed, and all that was promised is there all the same
    cut        it looks like the tear of a crash, and was cut off: a controller has those frames again from its Raft
               journal, or, below its snapshot, a named warning; a broker fetches them again
    harmless   all that was promised is there: bytes that are never read, or are made again
    EXCLUDED   the newest batch of a journal before its idle mark: there a bit that rotted cannot be told from a tear
    WRONG      something promised is missing without a word, or what no word excuses: entries or votes of a journal,
               acknowledged writes; or a restart dies of an unnamed error
"""

import logging
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import MetadataError
from quorum.raft.journal.format import BATCH_MAGIC
from tests.corruption.exports import ExportWorkload
from tests.powercut.campaign import SHARED_MEMORY
from tests.powercut.disk_model import Mark, Tree
from tests.powercut.recorder import Recorder, put_tree, tree_of
from tests.powercut.workloads import (
    WORKLOADS,
    CutShort,
    DamagedSegmentsWorkload,
    LostForGood,
    NotKept,
    Workload,
)

SECTOR_BYTES: Final = 512
KINDS: Final = (
    ("journal", re.compile(r"\.journal$")),
    ("journal pointer", re.compile(r"snapshot\.pointer$")),
    ("log segment", re.compile(r"\.log$")),
    ("log index", re.compile(r"\.index$")),
    ("log start.json", re.compile(r"start\.json$")),
    ("snapshot", re.compile(r"\.snapshot$")),
    ("meta.json", re.compile(r"meta\.json$")),
    ("clean-stop.json", re.compile(r"clean-stop\.json$")),
    ("state-digest.json", re.compile(r"state-digest\.json$")),
    ("export state", re.compile(r"state\.parquet$")),
    ("export file", re.compile(r"\.parquet$")),
    ("export manifest", re.compile(r"manifest\.json$")),
)
AT_REST: Final[dict[str, Callable[[], Workload]]] = {
    name: make for name, make in WORKLOADS.items() if name != DamagedSegmentsWorkload.name
} | {
    "export": lambda: ExportWorkload("export", goes_on=False),
    "export gone on with": lambda: ExportWorkload("export gone on with", goes_on=True),
}
READERS: Final = {"journal pointer": {"node"}, "meta.json": {"format"}, "export file": {"export"}}
"""Workloads whose restart reads a kind of file; the others only happen to have one."""
EXCUSING: Final = frozenset({"clean_stop_unreadable", "log_restarts_at_snapshot"})
"""Warnings of harmless losses: how a broker's last run ended, and frames below a snapshot."""
OUTCOMES: Final = ("detected", "repaired", "cut", "harmless", "EXCLUDED", "WRONG")


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done to one file; reproducible from its fields."""

    workload: str
    path: str
    kind: str
    position: int
    detail: int

    def to(self, content: bytes) -> bytes:
        at = self.position
        match self.kind:
            case "bit flip":
                return content[:at] + bytes([content[at] ^ (1 << self.detail)]) + content[at + 1 :]
            case "truncation":
                return content[:at]
            case "zeroed sector":
                return (
                    content[:at] + bytes(len(content[at : at + SECTOR_BYTES])) + content[at + SECTOR_BYTES :]
                )
            case "misplaced sector":
                moved = content[self.detail : self.detail + SECTOR_BYTES]
                return content[:at] + moved + content[at + len(moved) :]
        raise ValueError(self.kind)


@dataclass(slots=True)
class Report:
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By kind of file, kind of damage, and outcome."""
    wrong: list[tuple[Damage, BaseException]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.counts.total()


class _Noticed(logging.Handler):
    """Remembers which warnings the code under test gave."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.add(record.msg)


def campaign(*, seed: int, flips: int) -> Report:
    """Damage files `flips` times in all, evenly over the kinds of files, and count what becomes of it."""
    report, rng = Report(), random.Random(seed)
    rested = [_rested(name, make, seed) for name, make in AT_REST.items()]
    places: dict[str, list[tuple[Workload, Tree, list[Any], str, bytes]]] = {}
    for workload, tree, facts in rested:
        for path, content in _files(tree):
            kind = _kind_of(path)
            if kind is not None and content and workload.name in READERS.get(kind, AT_REST):
                places.setdefault(kind, []).append((workload, tree, facts, path, content))
    home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=home, prefix="corruption-") as directory:
        for kind, found in places.items():
            for _ in range(flips // len(places)):
                workload, tree, facts, path, content = rng.choice(found)
                damage = _any_damage(workload.name, path, content, rng)
                damaged = damage.to(content)
                if damaged == content:
                    continue
                outcome, error = _outcome(workload, _with(tree, path, damaged), facts, Path(directory) / "d")
                if outcome == "WRONG" and _is_excluded(damage, dict(_files(tree)), error):
                    outcome = "EXCLUDED"
                report.counts[kind, damage.kind, outcome] += 1
                if outcome == "WRONG" and error is not None:
                    report.wrong.append((damage, error))
    return report


def _rested(name: str, make: Callable[[], Workload], seed: int) -> tuple[Workload, Tree, list[Any]]:
    """Run a workload to its end and return what it leaves, and what it promised."""
    workload = make()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "disk"
        root.mkdir()
        recorder = Recorder(root)
        with recorder:
            workload.run(recorder, random.Random(f"{seed} {name}"))
        facts = [one.fact for one in recorder.operations if isinstance(one, Mark)]
        return workload, tree_of(root), facts


def _files(tree: Tree, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for name, content in tree.items():
        if isinstance(content, bytes):
            yield prefix + name, content
        elif name != "quarantine":
            yield from _files(content, f"{prefix}{name}/")


def _kind_of(path: str) -> str | None:
    return next((kind for kind, pattern in KINDS if pattern.search(path)), None)


def _with(tree: Tree, path: str, content: bytes) -> Tree:
    head, _, rest = path.partition("/")
    if not rest:
        return {**tree, head: content}
    below = tree[head]
    assert not isinstance(below, bytes)
    return {**tree, head: _with(below, rest, content)}


def _any_damage(workload: str, path: str, content: bytes, rng: random.Random) -> Damage:
    """Draw a damage; preallocated zeros at a file's end are hit as rarely as they matter."""
    used = len(content.rstrip(b"\0")) or 1
    at = rng.randrange(len(content) if rng.random() < 0.1 else used)
    kind = rng.choices(
        ("bit flip", "truncation", "zeroed sector", "misplaced sector"), weights=(70, 15, 10, 5)
    )[0]
    match kind:
        case "bit flip":
            return Damage(workload, path, kind, at, rng.randrange(8))
        case "truncation":
            return Damage(workload, path, kind, at, 0)
    sector = at - at % SECTOR_BYTES
    other = rng.randrange(used)
    return Damage(workload, path, kind, sector, other - other % SECTOR_BYTES)


def _outcome(
    workload: Workload, tree: Tree, facts: list[Any], directory: Path
) -> tuple[str, BaseException | None]:
    noticed = _Noticed()
    logging.getLogger().addHandler(noticed)
    directory.mkdir()
    try:
        put_tree(tree, directory)
        workload.check(directory, facts)
    except MetadataError:
        return "detected", None
    except CutShort:
        return "cut", None
    except Exception as error:  # NotKept, or what nobody foresaw
        if isinstance(error, NotKept) and not isinstance(error, LostForGood) and noticed.said & EXCUSING:
            return "detected", None
        return "WRONG", error
    finally:
        logging.getLogger().removeHandler(noticed)
        shutil.rmtree(directory)
    return ("repaired" if noticed.said else "harmless"), None


def _is_excluded(damage: Damage, files: dict[str, bytes], error: BaseException | None) -> bool:
    """Answer whether a journal lost just its newest batch, with the idle mark behind it if there was one already."""
    begun = sorted(
        path for path, content in files.items() if path.endswith(".journal") and BATCH_MAGIC in content
    )
    if damage.path not in begun[-1:] or damage.kind == "truncation" or not isinstance(error, NotKept):
        return False
    newest = files[damage.path].rfind(BATCH_MAGIC)
    end = damage.position + (1 if damage.kind == "bit flip" else SECTOR_BYTES)
    is_mark = files[damage.path][newest + len(BATCH_MAGIC) :].startswith(bytes(4))
    return end > newest and (damage.position < newest or not is_mark)
