"""Edge: which test file each production module has: `python -m tests.house.mirrors` writes down those that name none.

A module's tests are in tests/unit under its own path, or its docstring names their file or folder: `Tests: tests/property.`
The list in `unmirrored.txt` has those that do neither yet. It only becomes shorter.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.rules import ROOMS

ROOT: Final = Path(__file__).resolve().parents[2]
LIST: Final = Path(__file__).with_name("unmirrored.txt")
_NAMED: Final = re.compile(r"\bTests: (tests/[\w/.]*\w)")


def modules() -> Iterator[str]:
    """Yield the modules that need tests: what is run or imported by another name is tried with what it calls."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if path.name not in ("__init__.py", "__main__.py"):
                yield path.relative_to(ROOT).as_posix()


def home_of(module: str) -> str | None:
    """Return the tests that a module has by its path or its docstring, None where it has neither; they may not exist."""
    folder, _, name = module.rpartition("/")
    mirrored = f"tests/unit/{folder}/test_{name}"
    if (ROOT / mirrored).exists():
        return mirrored
    docstring = ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8"))) or ""
    named = _NAMED.search(docstring)
    return None if named is None else named[1]


def unmirrored() -> list[str]:
    return [module for module in modules() if home_of(module) is None]


if __name__ == "__main__":
    known = set(LIST.read_text(encoding="utf-8").splitlines()) if LIST.exists() else None
    LIST.write_text("".join(f"{module}\n" for module in unmirrored() if known is None or module in known))
