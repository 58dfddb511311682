"""Edge: how far a long log is read, told now and then. Tests: tests/unit/ops/takeover/test_progress.py."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

OnProgress: TypeAlias = Callable[[Path, str, int, int], None]
"""Takes a directory, what happens to its log, and how much of how much is done."""
EVERY_S: Final = 5.0
"""A log of 2,000,000 records takes about a minute."""


def unheard(_of: Path, _what: str, _done: int, _whole: int) -> None:
    """Report nothing."""


class Progress:
    """An `OnProgress` that says one line every EVERY_S; `now_s` is a clock that never goes back."""

    def __init__(self, say: Callable[[str], None], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._say, self._now_s = say, now_s
        self._due_s = now_s() + EVERY_S

    def __call__(self, of: Path, what: str, done: int, whole: int) -> None:
        now_s = self._now_s()
        if now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            self._say(f"{of}: {100 * done // max(1, whole)} % of the log is {what} ...")
