"""What all runs are held to: each rule by its name, what it sees, and what must hold.

The docstring of a module that has rules lists them, a name and a sentence each; its first sentence says what they see.
A violation begins with the name of the rule that was broken.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parents[1]
_LISTED: Final = re.compile(r"^ {0,4}([a-z]+(?:_[a-z]+)+) +(\S.*)$")
_GOES_ON: Final = re.compile(r"^ {8,}(\S.*)$")
_VIOLATION: Final = re.compile(r'"([a-z]+(?:_[a-z]+)+): ')


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    sees: str
    """What it looks at."""
    holds: str
    """It is broken where this does not hold."""
    module: str


def modules() -> Iterator[tuple[Path, str]]:
    """Yield the files of the simulator that are no tests, with their text."""
    for path in sorted(HERE.rglob("*.py")):
        if not path.name.startswith("test_") and path != Path(__file__):
            yield path, path.read_text(encoding="utf-8")


def rules() -> dict[str, Rule]:
    """Return all rules by name."""
    found: dict[str, Rule] = {}
    for path, source in modules():
        text = ast.get_docstring(ast.parse(source), clean=False) or ""
        sees, name = " ".join(text.partition("\n\n")[0].split()), None
        for line in text.splitlines():
            listed, goes_on = _LISTED.match(line), _GOES_ON.match(line)
            if listed is not None:
                name = listed[1]
                if name in found:  # `world/cluster.py` names some of others, too
                    name = None
                    continue
                found[name] = Rule(name, sees, listed[2], path.relative_to(HERE).as_posix())
            elif goes_on is not None and name is not None:
                rule = found[name]
                found[name] = Rule(name, sees, f"{rule.holds} {goes_on[1]}", rule.module)
            else:
                name = None
    return found


def named_by_violations() -> dict[str, str]:
    """Return the names with which violations begin, each with a module that raises it."""
    return {
        name: path.relative_to(HERE).as_posix()
        for path, source in modules()
        for name in _VIOLATION.findall(source)
    }
