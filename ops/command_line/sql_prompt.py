"""Edge: queries where none was given as an argument: typed at a prompt, or read from stdin, each ended by a semicolon.
Tests: tests/unit/metadata_log/replay/test_habits.py.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from metadata_log.errors import InvalidRequest
from ops.command_line.talk import say

HELP: Final = (
    "SHOW TABLES; DESCRIBE incidents; SELECT ...;    a query ends with a semicolon, Ctrl-D ends the prompt"
)
_ENDS: Final = frozenset({"exit", "quit", "\\q", ".quit", ".exit"})
_TABLES: Final = frozenset({".tables", "\\d", "\\dt"})


def answer_all(log: Any, answer: Callable[[str], None]) -> int:
    """Answer the queries on stdin; at a prompt, what is refused is said, and the next one is awaited."""
    if not sys.stdin.isatty():
        for query in queries(sys.stdin):
            answer(query)
        return 0
    say(f"{log!r}: {HELP}")
    _complete_names()
    for query in queries(_typed()):
        try:
            answer(query)
        except InvalidRequest as error:
            say(error.message)
    return 0


def queries(lines: Iterable[str]) -> Iterator[str]:
    """Yield the queries in lines of text; the last one needs no semicolon."""
    waiting = ""
    for line in lines:
        word = line.strip().lower()
        if not waiting and word in _ENDS:
            return
        if not waiting and word in _TABLES:
            yield "SHOW TABLES"
            continue
        waiting += line if line.endswith("\n") else f"{line}\n"
        *whole, waiting = _parts(waiting)
        yield from whole
        waiting = waiting if waiting.strip() else ""
    if waiting.strip():
        yield waiting.strip()


def _parts(text: str) -> list[str]:
    """Split text at semicolons outside of quotes and comments; the last part is not ended."""
    parts, begin, at, quote = [], 0, 0, ""
    while at < len(text):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif text.startswith("--", at):
            at = text.find("\n", at)
            if at < 0:
                break
        elif letter == ";":
            parts.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return [*(part for part in parts if part), text[begin:]]


def _typed() -> Iterator[str]:
    with suppress(EOFError):
        while True:
            yield input("sql> ")
    sys.stdout.write("\n")


def _complete_names() -> None:
    """Complete the names of tables and columns with the tabulator, and keep the lines typed, where there is readline."""
    with suppress(ImportError):
        import readline

        from metadata_log.replay.catalog import TABLES, described

        names = sorted({*TABLES, *(column.name for name in TABLES for column in described(name).columns)})

        def complete(text: str, place: int) -> str | None:
            found = [name for name in names if name.startswith(text.lower())]
            return found[place] if place < len(found) else None

        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")
