"""Edge: waits for what a node is asked for again and again, while nodes start and stop.

A node that starts does not listen yet, one that ends breaks its connections, and a busy one may not answer in time. Each of
these means that what is looked for is not there yet; the last of them is named if it does not come.

The longer a wait has taken, the longer is the pause before the next look: looks at busy nodes keep them busy.
Tests: tests/unit/ops/test_waits.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from metadata_log.errors import Unavailable

Seen = TypeVar("Seen")
NOT_YET: Final[tuple[type[Exception], ...]] = (OSError, Unavailable)
"""What a look may end with that is repeated: refused, broken and timed out connections are among the first."""
WAITED_SHARE: Final = 0.05
"""How much later than it came what is looked for may be seen: so much of the wait."""
PAUSE_MAX_S: Final = 0.25


def pause_s(waited_s: float, least_s: float) -> float:
    """Return how long to wait for the next look after so much time: WAITED_SHARE of it, from `least_s` to PAUSE_MAX_S."""
    return max(least_s, min(WAITED_SHARE * waited_s, PAUSE_MAX_S))


def until(
    what: str,
    look: Callable[[], Seen | None],
    *,
    deadline_s: float,
    poll_s: float,
    failure: Callable[[str], Exception],
    not_yet: tuple[type[Exception], ...] = NOT_YET,
) -> Seen:
    """Return the first true value of `look`, the last of which begins after the deadline; else raise `failure`.

    The first looks are `poll_s` apart, later ones `pause_s`.
    """
    began, error = time.monotonic(), None
    while True:
        waited_s = time.monotonic() - began
        is_last = waited_s >= deadline_s
        try:
            if seen := look():
                return seen
        except not_yet as missed:
            error = missed
        if is_last:
            raise failure(_overdue(what, deadline_s, error)) from error
        time.sleep(pause_s(waited_s, poll_s))


async def until_async(
    what: str,
    look: Callable[[], Awaitable[Seen | None]],
    *,
    deadline_s: float,
    poll_s: float,
    failure: Callable[[str], Exception],
    not_yet: tuple[type[Exception], ...] = NOT_YET,
) -> Seen:
    """Return the first true value of `look`, as `until` does."""
    began, error = time.monotonic(), None
    while True:
        waited_s = time.monotonic() - began
        is_last = waited_s >= deadline_s
        try:
            if seen := await look():
                return seen
        except not_yet as missed:
            error = missed
        if is_last:
            raise failure(_overdue(what, deadline_s, error)) from error
        await asyncio.sleep(pause_s(waited_s, poll_s))


def _overdue(what: str, deadline_s: float, error: Exception | None) -> str:
    text = f"not within {deadline_s:g} s: {what}"
    return text if error is None else f"{text}; the last error was {type(error).__name__}: {error}"
