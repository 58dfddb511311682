"""The cycle collector's short walks, in the process of the tests."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest

from metadata_log.node import collector
from metadata_log.node.uncollected import no_collections

pytestmark = pytest.mark.slow


class Loop:
    """A cycle of one."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("is_long", [False, True])
def test_what_has_outlived_a_long_walk_is_frozen(generation: int, *, is_long: bool) -> None:
    clock = count(step=1 if is_long else 0)
    with collector.short_collections(spent_s=lambda: next(clock)):
        kept = [0]
        gc.collect(generation)
        assert any(kept is each for each in gc.get_objects()) is not is_long


def test_new_objects_are_walked_by_time_while_old_ones_go() -> None:
    """Goal: Python's own count stays near zero, and no walk of all that is new comes late. Method: look at generation 0."""

    async def story(_: collector.ShortCollections) -> None:
        held = old.copy()
        old.clear()
        probe = [0]
        for place in range(len(held)):
            held[place] = [place]
        assert gc.get_count()[0] < collector.YOUNG_MAX
        await until(lambda: not any(probe is each for each in gc.get_objects(0)))

    old = [[number] for number in range(2 * collector.YOUNG_MAX)]
    while_walking(story)


def test_by_time_what_has_outlived_is_frozen_and_old_garbage_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "WALK_EVERY_S", 0.001)

    async def story(_: collector.ShortCollections) -> None:
        before = gc.get_freeze_count()
        loop = Loop()
        gone = weakref.ref(loop)
        del loop
        await until(lambda: gone() is None)
        kept = [[number] for number in range(2 * collector.WALKED_MAX)]
        await until(lambda: gc.get_freeze_count() >= before + collector.WALKED_MAX)
        assert kept

    while_walking(story)


def while_walking(story: Callable[[collector.ShortCollections], Awaitable[None]]) -> None:
    async def run() -> None:
        with collector.short_collections(spent_s=lambda: 0.0) as collections:
            walking = asyncio.create_task(collections.keep_walking())
            await asyncio.sleep(0)
            await story(collections)
            walking.cancel()

    asyncio.run(run())


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not predicate():
            await asyncio.sleep(0.001)


def test_few_objects_are_not_frozen_so_later_garbage_is_found() -> None:
    with collector.short_collections(spent_s=lambda: 0.0):
        loop = Loop()
        before = gc.get_freeze_count()
        gc.collect(1)
        assert gc.get_freeze_count() <= before
        del loop
        assert gc.collect() >= 1


def test_reference_counts_still_free_what_is_frozen() -> None:
    kept = [[number] for number in range(10_000)]
    with collector.short_collections():
        before = gc.get_freeze_count()
        del kept
        assert gc.get_freeze_count() <= before - 10_000


def test_nothing_is_walked_meanwhile_and_what_was_off_stays_off() -> None:
    with no_collections():
        assert not gc.isenabled()
        with no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
