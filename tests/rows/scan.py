"""Edge: which rows the tests carry: by an id in a test's name (`test_b41_...`) or docstring, or in that of its module.

A script of Kafka's under tests/golden/kafka is a test of its own, and its name begins with its row; a transcript is one too,
and names its rows in the first line. B41-B43 means all three.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]
_IDS: Final = re.compile(r"\b([ABC])(\d{1,3})(?:-\1?(\d{1,3}))?\b")
_IN_NAME: Final = re.compile(r"(?<![a-z0-9])([abc]\d{1,3})(?![a-z0-9])")


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids in a text, those of a range one by one."""
    for letter, first, last in _IDS.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letter}{number}"


def ids_in_name(name: str) -> Iterator[str]:
    """Yield the ids in the name of a test: `test_b41_the_order` has B41."""
    yield from (found.upper() for found in _IN_NAME.findall(name))


def _tests_in(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def ids_in_source(source: str) -> Iterator[tuple[str, str]]:
    """Yield the ids that a module's tests carry, each with the test; the module's own docstring counts for all it has."""
    if "def test_" not in source:
        return
    tree = ast.parse(source)
    tests = [*_tests_in(tree.body)]
    if tests:
        yield from ((found, "") for found in ids_in(ast.get_docstring(tree) or ""))
    for test in tests:
        for found in (*ids_in_name(test.name), *ids_in(ast.get_docstring(test) or "")):
            yield found, test.name


@cache
def carried(tests: Path = TESTS) -> Mapping[str, list[str]]:
    """Return the tests that carry each row, as paths below `tests`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("*.py")):
        for row, test in ids_in_source(path.read_text(encoding="utf-8")):
            found[row].append(f"{path.relative_to(tests)}{'::' if test else ''}{test}")
    for path in sorted((tests / "golden" / "kafka").glob("*.expected.jsonl")):
        for row in ids_in(path.name.split("-")[0]):
            found[row].append(str(path.relative_to(tests)))
    for path in sorted((tests / "transcripts").glob("*.txt")):
        for row in ids_in(path.read_text(encoding="utf-8").partition("\n")[0]):
            found[row].append(str(path.relative_to(tests)))
    return found
