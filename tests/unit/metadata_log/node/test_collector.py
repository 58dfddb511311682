"""The cycle collector's short walks, in the process of the tests."""

import gc
from collections.abc import Iterator

import pytest

from metadata_log.node import collector


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


def test_too_many_objects_for_a_short_walk_are_frozen_before_it() -> None:
    with collector.short_collections():
        before = gc.get_freeze_count()
        kept = [[number] for number in range(2 * collector.WALKED_MAX)]
        gc.collect(1)
        assert gc.get_freeze_count() >= before + collector.WALKED_MAX
        assert not any(kept[0] is each for each in gc.get_objects())


def test_few_objects_are_not_frozen_so_later_garbage_is_found() -> None:
    with collector.short_collections():
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
    with collector.no_collections():
        assert not gc.isenabled()
        with collector.no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
