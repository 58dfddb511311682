"""Edge: when sessions are checked."""

import asyncio
from collections.abc import Callable
from typing import cast

from quorum.controller.controller import Controller
from quorum.node.periodic import SessionChecks

HOUR_MS = 3_600_000


class _Checked:
    """Counts the checks of a controller, which says in how many ms the next one is due."""

    def __init__(self, again_ms: int = 0) -> None:
        self.count = 0
        self.again_ms = again_ms

    def check_sessions(self) -> int:
        self.count += 1
        return self.again_ms


async def _some_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _checks_after(happens: Callable[[SessionChecks], None]) -> int:
    """Return how many checks follow at once on what happens, beside the first one."""

    async def story() -> int:
        checked, checks = _Checked(), SessionChecks(session_timeout_ms=HOUR_MS)
        task = asyncio.create_task(checks.run(cast("Controller", checked)))
        await _some_turns()
        assert checked.count == 1
        happens(checks)
        await _some_turns()
        task.cancel()
        return checked.count - 1

    return asyncio.run(story())


def test_who_becomes_active_checks_at_once() -> None:
    assert _checks_after(lambda checks: checks.on_activity(active=True)) == 1


def test_who_ceases_to_be_active_does_not() -> None:
    assert _checks_after(lambda checks: checks.on_activity(active=False)) == 0


async def test_a_check_that_is_due_again_soon_does_not_wait_for_the_regular_one() -> None:
    checked = _Checked(again_ms=1)
    task = asyncio.create_task(SessionChecks(session_timeout_ms=HOUR_MS).run(cast("Controller", checked)))
    async with asyncio.timeout(60):
        while checked.count < 3:
            await asyncio.sleep(0)
    task.cancel()
