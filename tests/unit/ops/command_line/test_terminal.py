"""Edge: what a terminal gets that a pipe does not: its width, colours, a pager. Method: a real pseudo-terminal."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ops import cli
from ops.command_line import terminal
from ops.command_line.render import WIDTH, Look

ROOT = Path(cli.__file__).parents[1]
SHOW = "from ops.command_line.options import Output; from ops.command_line.render import Column; import sys; "
TABLE = "Output().show_items({items}, [Column('name', tone=lambda _: 'bad'), Column('n')], empty='')"


def on_a_terminal(code: str, **environment: str) -> str:
    """Return what a process of ours writes to a terminal of 80 columns and 24 lines."""
    ours, theirs = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "PAGER", "LESS"}}
    variables = (
        plain | {"COLUMNS": "80", "LINES": "24", "TERM": "xterm", "PYTHONPATH": str(ROOT)} | environment
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=variables
    ) as running:
        os.close(theirs)
        found = b""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            found += piece
        assert running.wait() == 0, found
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def test_a_pipe_has_no_colours_and_a_fixed_width() -> None:
    assert terminal.look() == Look(width=WIDTH, is_wide=False, shortens=False, colours=False)
    assert terminal.look(is_wide=True) == Look(width=None, is_wide=True)


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_a_terminal_that_wants_them(environment: dict[str, str], coloured: bool) -> None:
    shown = on_a_terminal(SHOW + TABLE.format(items=[{"name": "x" * 90, "n": 1}]), **environment)
    assert ("\x1b[31m" in shown) == coloured
    bare = re.sub(r"\x1b\[\d+m", "", shown)
    assert max(map(len, bare.splitlines())) <= 80 and ".." in bare


@pytest.mark.slow
def test_what_is_longer_than_the_terminal_goes_through_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\nwc -l | sed "s/^/paged /"\n', encoding="utf-8")
    pager.chmod(0o755)
    long = SHOW + TABLE.format(items=[{"name": "x", "n": number} for number in range(30)])
    assert "paged 31" in on_a_terminal(long, PAGER=str(pager))
    assert "paged" not in on_a_terminal(SHOW + TABLE.format(items=[{"name": "x", "n": 1}]), PAGER=str(pager))
    for off in ("cat", "", "no-such-pager"):
        assert len(on_a_terminal(long, PAGER=off).splitlines()) == 31
    ends_early = SHOW + TABLE.format(items="[{'name': 'x', 'n': 1}] * 30_000")
    on_a_terminal(ends_early, PAGER="true")
