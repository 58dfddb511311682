"""Edge: which tests each production module has, and whether they use it.

A module's tests are in tests/unit under its own path, or its docstring names their file or folder: `Tests: tests/property.`
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.house.rules import ROOMS, Module

ROOT: Final = Path(__file__).resolve().parents[2]
_NAMED: Final = re.compile(r"\bTests: (tests/[\w/.]*\w)")


@cache
def sources() -> Mapping[str, Module]:
    """Return all source files, those of tests too, by dotted names."""
    files = (Module.read(ROOT, file) for room in (*ROOMS, "tests") for file in (ROOT / room).rglob("*.py"))
    return {module.dotted: module for module in files}


def modules() -> Iterator[Module]:
    """Yield the modules that need tests: what is run or imported by another name is tried with what it calls."""
    for module in sources().values():
        if not module.path.startswith("tests/") and not module.path.endswith(
            ("/__init__.py", "/__main__.py")
        ):
            yield module


def home_of(module: Module) -> str | None:
    """Return the tests that a module has by its path or its docstring, None where it has neither; they may not exist."""
    folder, _, name = module.path.rpartition("/")
    mirrored = f"tests/unit/{folder}/test_{name}"
    if (ROOT / mirrored).exists():
        return mirrored
    named = _NAMED.search(ast.get_docstring(module.tree) or "")
    return None if named is None else named[1]


def use(tests: str, module: Module) -> bool:
    """Answer whether a file or folder of tests imports or runs a module: itself, through the packages around the module, or
    as a part of what it imports so.
    """
    of = module.dotted.rpartition(".")[0]
    found = {
        dotted for dotted, one in sources().items() if one.path == tests or one.path.startswith(f"{tests}/")
    }
    waiting = [*found]
    while waiting:
        at = waiting.pop()
        around = at if sources()[at].path.endswith("/__init__.py") else at.rpartition(".")[0]
        if at.startswith("tests.") or f"{of}.".startswith(f"{around}."):
            waiting += named_by(at) - found
            found |= named_by(at)
    return module.dotted in found or any(module.dotted in named_by(at) for at in found)


@cache
def named_by(dotted: str) -> frozenset[str]:
    """Return the modules that a source file imports, or names as text: to run them, or to import them by their names."""
    known, module = sources(), sources()[dotted]
    names = {name for _, name in module.imports}
    for node in module.nodes:
        match node:
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), _, *rest]) if start.endswith("."):
                end = ast.unparse(rest[0])[1:-1] if rest else ""
                names |= {name for name in known if name.startswith(start) and name.endswith(end)}
            case ast.Constant(value=str(text)):
                names.add(text)
    packages = {name.rpartition(".")[0] for name in names}
    return frozenset({*names, *packages} & known.keys())
