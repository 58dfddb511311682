"""Since when something is wrong: the batch with which it began, for brokers and for counts of partitions."""

from collections.abc import Iterator

import pytest

from metadata_log.apply import applying
from metadata_log.image.metadata_image import EMPTY
from metadata_log.sliced import at_once
from quorum.views.partition_health import partition_health
from quorum.views.since import WATCHED, Since
from tests.support.histories import Step, history_of


def _told(since: Since, seed: int, batch_count: int) -> Iterator[tuple[int, Step]]:
    """Let `since` listen to a history; yield each step once it was told, with its place."""
    image = EMPTY
    for place, step in enumerate(history_of(seed, batch_count)):
        image, delta = at_once(applying(image, step.batch))
        since.on_applied(step.batch, b"", image, delta)
        yield place, step


@pytest.mark.slow
def test_what_is_wrong_began_with_the_batch_behind_the_last_state_without_it() -> None:
    """Goal: the batch that is named is the one that an operator looks for. Method: the whole history is judged once more
    by the states alone, before and after each batch.
    """
    named = 0
    for seed in range(12):
        since, history = Since(lambda: 2), history_of(seed, 120)
        states = [EMPTY, *(step.image for step in history)]
        for place, step in _told(since, seed, 120):
            for name in WATCHED:
                began = since.of_count(name)
                now = getattr(partition_health(step.image, 2), name)
                assert (began is not None) == (now > 0), (seed, place, name)
                if began is None:
                    continue
                first = next(at for at, one in enumerate(history) if one.batch.base_offset == began.offset)
                assert getattr(partition_health(states[first], 2), name) == 0
                counts = [getattr(partition_health(one, 2), name) for one in states[first + 1 : place + 2]]
                assert all(counts), (seed, place, name)
                named += 1
            for broker_id, broker in step.image.brokers.items():
                is_away = broker.fenced or broker.in_controlled_shutdown
                assert (since.of_broker(broker_id) is not None) == is_away
    assert named > 100


def test_what_a_snapshot_held_already_has_no_beginning() -> None:
    history = history_of(1, 80)
    since = Since(lambda: 2)
    for _ in _told(since, 1, 80):
        pass
    claims = [since.claim]
    since.on_restored(history[-1].image)
    claims.append(since.claim)
    assert claims[0] is not None and claims[1] is None
    assert [since.of_count(name) for name in WATCHED] == [None] * len(WATCHED)
    assert all(since.of_broker(broker_id) is None for broker_id in history[-1].image.brokers)
