"""Edge: waits for what a node is asked for again and again, while nodes start and stop.

A node that starts does not listen yet, one that ends breaks its connections, and a busy one may not answer in time. Each of
these means that what is looked for is not there yet; the last of them is named if it does not come.
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


def until(
    what: str,
    look: Callable[[], Seen | None],
    *,
    deadline_s: float,
    poll_s: float,
    failure: Callable[[str], Exception],
    not_yet: tuple[type[Exception], ...] = NOT_YET,
) -> Seen:
    """Return the first true value of `look`, the last of which begins after the deadline; else raise `failure`."""
    last_call, error = time.monotonic() + deadline_s, None
    while True:
        is_last = time.monotonic() >= last_call
        try:
            if seen := look():
                return seen
        except not_yet as missed:
            error = missed
        if is_last:
            raise failure(_overdue(what, deadline_s, error)) from error
        time.sleep(poll_s)


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
    last_call, error = time.monotonic() + deadline_s, None
    while True:
        is_last = time.monotonic() >= last_call
        try:
            if seen := await look():
                return seen
        except not_yet as missed:
            error = missed
        if is_last:
            raise failure(_overdue(what, deadline_s, error)) from error
        await asyncio.sleep(poll_s)


def _overdue(what: str, deadline_s: float, error: Exception | None) -> str:
    text = f"not within {deadline_s:g} s: {what}"
    return text if error is None else f"{text}; the last error was {type(error).__name__}: {error}"
