"""A quiet quorum marks that it is alive, and no more often than that."""

import pytest

from metadata_log.limits import QUIET_CHECK_MS, QUIET_MARK_MS
from metadata_log.records.quorum import NoOpRecord
from quorum.decide.deleted_topics import Expiry
from quorum.decide.quiet import QuietMark
from tests.support.decisions import World

HOUR_MS = 3_600_000


def _marks(world: World, ms: int) -> list[int]:
    """Let time pass as the active controller does while nobody asks for anything; return when it marked that."""
    mark, made = QuietMark(), []
    for _ in range(ms // QUIET_CHECK_MS):
        world.now_ms += QUIET_CHECK_MS
        decision = mark.part(world.context())
        assert not decision.more
        world.carry_out(decision)
        if decision.records:
            assert [*decision.records] == [NoOpRecord()]
            made.append(world.now_ms)
    return made


def test_a_log_is_never_quiet_for_longer_than_a_mark_may_be_late() -> None:
    """B78: every 30 s here, not every 500 ms as in Kafka."""
    world = World()
    world.run("register 1")
    began_ms = world.now_ms
    marks = _marks(world, HOUR_MS)
    assert len(marks) == HOUR_MS // QUIET_MARK_MS
    gaps = [b - a for a, b in zip([began_ms, *marks], marks, strict=False)]
    assert max(gaps) < QUIET_MARK_MS + QUIET_CHECK_MS


def test_a_log_that_is_written_gets_no_mark() -> None:
    world = World()
    world.run("register 1")
    for _ in range(100):
        world.now_ms += QUIET_MARK_MS - 1
        assert not QuietMark().part(world.context()).records
        world.write([NoOpRecord()])


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_a_clock_that_is_set_leads_to_one_mark(jump_ms: int) -> None:
    """Goal: a clock set back must not keep the log quiet until it has caught up."""
    world = World()
    world.now_ms = 100_000_000
    world.run("register 1")
    world.now_ms += jump_ms
    assert len(_marks(world, QUIET_MARK_MS - QUIET_CHECK_MS)) == 1


def test_no_mark_brings_the_end_of_a_deleted_topics_window_nearer() -> None:
    """A mark is a batch like any other: the time that it counts has passed."""
    world = World()
    world.run("register 1")
    before_ms = world.image.elapsed_ms
    _marks(world, HOUR_MS)
    assert world.image.elapsed_ms - before_ms <= HOUR_MS
    assert not Expiry().part(world.context()).records
