"""Edge: the whole of a made-up subject, added to a copy of the production code: new files, and edits of files there are.

The subject is users' quotas: a record, its image, a decision, HTTP, a noun of the command line and a Parquet table. `new/`
holds its files, named as in the rooms. `EDITS` are the lines that the registries need.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
NEW: Final = Path(__file__).resolve().parent / "new"
ROOMS: Final = ("metadata_log", "snapshots", "quorum", "broker_agent", "ops")
REGISTRIES_MAX: Final = 3
"""A new subject may edit this many files, whatever number of files of its own it has."""


class Edit(NamedTuple):
    """Put `line` behind the first line that reads `behind`, indentation aside; below `after`, if that is given."""

    path: str
    behind: str
    line: str
    after: str | None = None


EDITS: Final = (
    Edit("metadata_log/records/registry.py", "producer_ids,", "    quotas,"),
    Edit(
        "metadata_log/records/registry.py",
        "producer_ids,",
        "    quotas,",
        after="SUBJECTS: Final[tuple[ModuleType, ...]] = (",
    ),
    Edit("metadata_log/records/registry.py", "| producer_ids.Record", "    | quotas.Record"),
    Edit(
        "metadata_log/image/metadata_image.py",
        "from metadata_log.image.quorum import QuorumBuilder, QuorumImage",
        "from metadata_log.image.quotas import QuotasBuilder, QuotasImage",
    ),
    Edit(
        "metadata_log/image/metadata_image.py",
        "next_producer_id: ProducerIdsImage = None",
        "    quotas: QuotasImage = field(default_factory=immutables.Map)",
    ),
    Edit(
        "metadata_log/image/metadata_image.py",
        "features: frozenset[str] = frozenset()",
        "    quotas: frozenset[str] = frozenset()",
    ),
    Edit("metadata_log/image/metadata_image.py", "ProducerIdsBuilder,", "    QuotasBuilder,"),
    Edit(
        "metadata_log/image/metadata_image.py",
        "(ProducerIdsBuilder.FIELD, ProducerIdsBuilder.records),",
        "    (QuotasBuilder.FIELD, QuotasBuilder.records),",
    ),
    Edit(
        "ops/cli.py",
        '"configs": ("configs", "Settings of topics, brokers and the cluster."),',
        '    "quotas": ("quotas", "What users may produce."),',
    ),
)


def edited_files() -> list[str]:
    return sorted({edit.path for edit in EDITS})


def new_files() -> list[str]:
    return sorted(path.relative_to(NEW).as_posix().removesuffix(".txt") for path in NEW.rglob("*.txt"))


def make_scratch(directory: Path) -> Path:
    """Copy the production code, add the subject, and return the copy's root.

    Raises:
        LookupError: a registry does not look as `EDITS` takes it to.
    """
    for room in ROOMS:
        shutil.copytree(ROOT / room, directory / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in new_files():
        target = directory / name
        assert not target.exists(), f"{name} is there already"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(NEW / f"{name}.txt", target)
    for edit in EDITS:
        path = directory / edit.path
        path.write_text("\n".join(edited(path.read_text().split("\n"), edit)))
    return directory


def edited(lines: Sequence[str], edit: Edit) -> list[str]:
    start = 0 if edit.after is None else _find(lines, edit.after, 0, edit.path) + 1
    place = _find(lines, edit.behind, start, edit.path)
    return [*lines[: place + 1], edit.line, *lines[place + 1 :]]


def _find(lines: Sequence[str], wanted: str, start: int, path: str) -> int:
    for place in range(start, len(lines)):
        if lines[place].strip() == wanted:
            return place
    raise LookupError(f"{path} has no line {wanted!r}")
