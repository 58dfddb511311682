"""What the documents name in backticks is there: members of classes, names of the code, files and folders."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.house.rules import Module

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENTS: Final = ("docs/design.md", "docs/limits.md", "docs/adding-a-subject.md", "docs/adding-a-door.md")
ROOMS: Final = ("metadata_log", "snapshots", "quorum", "broker_agent", "ops", "tests", "docs")
_LINK: Final = re.compile(r"\]\(([^)#\s]+)")
_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_MEMBER: Final = re.compile(r"([A-Z]\w*)\.([a-z_]\w*)(?:\(\))?")
_NAME: Final = re.compile(r"[a-z]+(?:_[a-z0-9]+)+(?:\(\))?")
_PATH: Final = re.compile(r"(?:[\w-]+/)+(?:[\w-]+\.(?:py|md|sql))?|[\w-]+\.(?:py|md|sql)")


@cache
def files() -> tuple[str, ...]:
    return tuple(
        path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()
    )  # fmt: skip


@cache
def members() -> dict[str, set[str]]:
    """Return what each class of the code has, by the class's name, inherited members among it."""
    found: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in files():
        if path.endswith(".py") and not path.startswith("tests/"):
            for node in Module.read(ROOT, ROOT / path).nodes:
                if isinstance(node, ast.ClassDef):
                    found[node.name] |= set(_members(node))
                    bases[node.name] |= {base.id for base in node.bases if isinstance(base, ast.Name)}
    for name, its_bases in bases.items():
        found[name] |= {member for base in its_bases for member in found.get(base, ())}
    return found


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Attribute(value=ast.Name(id="self"), attr=name)
            ):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


@cache
def words() -> frozenset[str]:
    """Return every word of the code, those in its texts among them: fields of JSON and settings."""
    code = (ROOT / path for path in files() if path.endswith(".py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in code if path != Path(__file__))
    return frozenset(re.findall(r"\w+", text))


def lost(document: str) -> list[str]:
    """Return what a document names and nothing has."""
    found = []
    for quoted in _QUOTED.findall(document):
        if member := _MEMBER.fullmatch(quoted):
            is_there = member[2] in members().get(member[1], ())
        elif _NAME.fullmatch(quoted):
            is_there = quoted.removesuffix("()") in words()
        elif _PATH.fullmatch(quoted) and "SUBJECT" not in quoted:
            # A path may begin in the room that the sentence is about.
            is_there = any(
                f"/{path}".endswith(f"/{quoted}") or f"/{quoted}" in f"/{path}" for path in files()
            )
        else:
            continue
        if not is_there:
            found.append(quoted)
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_names_what_is_there(name: str) -> None:
    assert lost((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "page", sorted((*ROOT.glob("docs/*.md"), *ROOT.glob("ops/runbooks/*.md"), ROOT / "README.md"))
)
def test_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_a18_each_test_that_the_history_names_is_there() -> None:
    """Goal: of three generations, each fault has a place where it cannot happen here, and a test that shows it."""
    page = (ROOT / "docs/history.md").read_text(encoding="utf-8")
    named = _TEST.findall(page)
    generations = [part.partition("\n")[0] for part in page.split("\n## ")[1:]]
    assert generations == ["1. Listeners", "2. The state queue", "3. Direct requests"]
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) == 5 + 3 + 6 and len(named) >= len(rows)
    assert [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists()
        or (f"def {test}(" not in (ROOT / path).read_text(encoding="utf-8") and test)
    ] == []


@pytest.mark.parametrize(
    "gone",
    [
        "Controller.turn",
        "Nobody.turns",
        "Controller.no_such()",
        "wait_for_no_turn",
        "quorum/no_turns.py",
        "no-such.md",
    ],
)
def test_what_is_not_there_is_found(gone: str) -> None:
    assert lost(f"A sentence about `{gone}` and `Controller.turns`.") == [gone]
