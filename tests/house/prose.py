"""Edge: words that a stranger has to decode: `python -m tests.house.prose` lists them in documents, docstrings and comments.

Each pattern is a turn with a plain counterpart: the subject by its name, "again" for a second time, "at most this many".
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.house.rules import ROOMS, Module

ROOT: Final = Path(__file__).resolve().parents[2]
_VERBS: Final = (
    "is|has|was|comes|holds|follows|asks|leads|votes|stops|starts|writes|wrote|reads|repeats|sends|only|calls"
)
WORDS: Final = re.compile(
    r"""
      \b(?:[Ww]hoever|[Nn]obody|anew)\b                       # not NOBODY, which is a principal
    | \bbefalls?\b | \bbefell\b
    | (?:^|[.:]\ |"\"\"|[#]\ )Who(?:se)?\ (?:VERBS)\b(?!.*[?])   # a clause as a subject, and no question
    | \b(?:is|are|was|were|be|been)\ (?:told|heard)\ of\b
    | \b(?:[Gg]o|goes|going|gone|went)\ on\ with\b
    | \b(?:for|after|After)\ so\ (?:long|many)\b | \b[Ss]o\ (?:long|many)\ (?:ago|times|as|that\ it)\b
    | \b[Ss]tands?\ (?:there|here|in|beside|behind|under|alone|at)\b | \b[Ss]tands?\ for\b(?!\ election)
    | \b(?:frames?|batch|batches|entry|entries|part|parts|log|on|begins?|ends?|comes?)\ behind\b   # "after": it is no place
    """.replace("VERBS", _VERBS),
    re.VERBOSE,
)
_OF_A_TABLE: Final = "| nobody |"
"""What a room of docs/design.md imports, as the rule of imports reads it."""


class Found(NamedTuple):
    path: str
    line: int
    text: str


def in_document(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document with such words."""
    for number, line in enumerate(text.splitlines(), start=1):
        if WORDS.search(line.replace(_OF_A_TABLE, "")):
            yield number, line.strip()


def in_source(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the comments, and the lines of docstrings, with such words. Other strings are messages."""
    # Few lines have such words behind a `#`, and only tokens tell whether that is a comment's.
    if any("#" in line and WORDS.search(line[line.index("#") :]) for line in module.source.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
            if token.type == tokenize.COMMENT and WORDS.search(token.string):
                yield token.start[0], token.string
    for node in module.nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for number, line in enumerate(node.value.value.splitlines(), start=node.lineno):
                if WORDS.search(line if number > node.lineno else f'"""{line}'):
                    yield number, line.strip()


def found() -> Iterator[Found]:
    """Yield all of them, in the documents, the runbooks and the production code."""
    for path in sorted((ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "ops").rglob("*.md"))):
        yield from (
            Found(str(path.relative_to(ROOT)), *each) for each in in_document(path.read_text("utf-8"))
        )
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield from (
                Found(str(path.relative_to(ROOT)), *each) for each in in_source(Module.read(ROOT, path))
            )


if __name__ == "__main__":
    for one in found():
        sys.stdout.write(f"{one.path}:{one.line}: {one.text}\n")
