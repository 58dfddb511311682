"""Edge: verbs whose effect cannot be undone: they say what they would do, and ask on a terminal, or take --yes.
Tests: tests/unit/ops/verbs/test_topics.py.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from ops.command_line.options import R, flag
from ops.command_line.talk import fail_usage, one_line, say


def guarded(run: R) -> R:
    """Declare a verb that asks first: it gets `yes`, and calls `ask_first`."""
    return flag("--yes", help="do not ask; needed where there is no terminal to ask on")(run)


def ask_first(what: str, effects: Callable[[], Iterable[str]], *, yes: bool) -> bool:
    """Answer whether a verb may go on; `what` it does, and `effects` are the lines that say what comes of it.

    With `yes` nothing is asked, and the effects are not looked at.

    Raises:
        Misuse: there is no terminal to ask on.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail_usage(
            f"{what}, and there is no terminal to ask on: give --yes; --dry-run shows what would be written"
        )
    say(what)
    with suppress(OSError):
        for line in effects():
            print(f"  {one_line(line)}", file=sys.stderr)
        print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    say("nothing was written")
    return False
