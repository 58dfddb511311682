"""Edge: the terminal that answers are shown on: its width and colours, and a pager for what is longer than it.
Tests: tests/unit/ops/command_line/test_terminal.py.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from metadata_log.errors import OutcomeUnknown, Unavailable
from ops.command_line.render import Look
from ops.command_line.talk import put, say

_CLEAR: Final = "\x1b[H\x1b[2J"
"""Moves to the first cell of the screen, and clears it."""


def look(*, is_wide: bool = False) -> Look:
    """Return how tables are drawn on stdout: coloured and cut to fit on a terminal alone.

    NO_COLOR, set to anything, and TERM=dumb leave colours out.
    """
    if not sys.stdout.isatty():
        return Look(width=None, is_wide=True) if is_wide else Look()
    colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if is_wide:
        return Look(width=None, is_wide=True, colours=colours)
    return Look(width=shutil.get_terminal_size().columns, shortens=True, colours=colours)


def show_text(text: str) -> None:
    """Print text for people; where a terminal has fewer lines, through PAGER, else `less`. An empty PAGER or `cat`: none."""
    pager = _pager() if _is_long(text) else None
    if pager is None:
        put(text)
        return
    # -F: less ends at once where the text fits after all; -R: it passes colours on; -X: it leaves the text on the screen.
    environment = {"LESS": "FRX"} | os.environ
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment) as running:  # noqa: S603 the user's own
        assert running.stdin is not None
        with suppress(BrokenPipeError), running.stdin as pipe:  # the reader has seen enough
            pipe.write(f"{text}\n".encode(errors="backslashreplace"))
        while running.poll() is None:
            with suppress(KeyboardInterrupt):  # it is the pager's: less stops searching, and does not end
                running.wait()


def watch(run: Callable[[], int], *, every_s: float) -> NoReturn:
    """Show what `run` shows again and again, until Ctrl-C; an error that may pass is a line, and not the end."""
    os.environ["PAGER"] = "cat"  # a pager would wait for the reader, and nothing would be live
    while True:
        if sys.stdout.isatty():
            print(_CLEAR, end="")
        try:
            run()
        except (Unavailable, OutcomeUnknown) as error:
            say(f"{error.error}: {error.message}; again in {every_s:g} s")
        sys.stdout.flush()
        time.sleep(every_s)


def _is_long(text: str) -> bool:
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        return False
    return text.count("\n") + 1 >= shutil.get_terminal_size().lines


def _pager() -> list[str] | None:
    named = os.environ.get("PAGER")
    try:
        words = ["less"] if named is None else shlex.split(named)
    except ValueError:
        return None
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return None
    return words
