"""Edge: a copy of the production code with an addition to it: new files, and single lines in files that are there."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("metadata_log", "snapshots", "quorum", "broker_agent", "ops")


class Edit(NamedTuple):
    """Put `line` after the first line that reads `behind`, indentation aside; below `after`, if that is given."""

    path: str
    behind: str
    line: str
    after: str | None = None


class Addition(NamedTuple):
    """`new` is a folder with the new files, named as in the rooms, each with `.txt` behind its name."""

    new: Path
    edits: Sequence[Edit]

    def edited_files(self) -> list[str]:
        return sorted({edit.path for edit in self.edits})

    def new_files(self) -> list[str]:
        return sorted(
            path.relative_to(self.new).as_posix().removesuffix(".txt") for path in self.new.rglob("*.txt")
        )

    def make_scratch(self, directory: Path) -> Path:
        """Copy the production code, add this, and return the copy's root.

        Raises:
            LookupError: a file does not look as the edits take it to.
        """
        for room in ROOMS:
            shutil.copytree(ROOT / room, directory / room, ignore=shutil.ignore_patterns("__pycache__"))
        for name in self.new_files():
            target = directory / name
            assert not target.exists(), f"{name} is there already"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(self.new / f"{name}.txt", target)
        for edit in self.edits:
            path = directory / edit.path
            path.write_text("\n".join(_edited(path.read_text().split("\n"), edit)))
        return directory


def _edited(lines: Sequence[str], edit: Edit) -> list[str]:
    start = 0 if edit.after is None else _find(lines, edit.after, 0, edit.path) + 1
    place = _find(lines, edit.behind, start, edit.path)
    return [*lines[: place + 1], edit.line, *lines[place + 1 :]]


def _find(lines: Sequence[str], wanted: str, start: int, path: str) -> int:
    for place in range(start, len(lines)):
        if lines[place].strip() == wanted:
            return place
    raise LookupError(f"{path} has no line {wanted!r}")
