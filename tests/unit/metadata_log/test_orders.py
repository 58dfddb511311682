"""Pure: orders made in parts, and that no place where there may be 100,000 of something asks for one sort of them."""

import builtins
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from metadata_log import orders
from metadata_log.image import configs, topics, views
from metadata_log.image.configs import ConfigsBuilder
from metadata_log.image.topics import list_deleted, list_topics
from metadata_log.image.views import state_json
from metadata_log.orders import in_parts
from quorum.views import partition_health
from tests.support.histories import history_of

FEW = 3


@pytest.mark.parametrize("seed", range(20))
def test_parts_make_the_order_of_one_sort(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "SORTED_AT_ONCE", FEW)
    rng = random.Random(seed)
    items = [(rng.randrange(10), place) for place in range(rng.randrange(60))]
    assert [*in_parts(items)] == sorted(items)
    assert [*in_parts(iter(items), key=lambda item: item[0])] == sorted(items, key=lambda item: item[0])


def test_no_call_sorts_more_than_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a sort looks at the keys of all its items first, so a part's keys are looked at before the next is taken."""
    monkeypatch.setattr(orders, "SORTED_AT_ONCE", FEW)
    waiting = 0

    def items() -> Iterator[int]:
        nonlocal waiting
        for number in (7, 3, 9, 1, 8, 2, 6, 4, 5, 0):
            waiting += 1
            assert waiting <= FEW
            yield number

    def key(item: int) -> int:
        nonlocal waiting
        waiting = max(waiting - 1, 0)  # those that are merged are looked at once more
        return item

    assert [*in_parts(items(), key=key)] == [*range(10)]


def test_what_there_may_be_many_of_is_sorted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_few(items: Iterable[Any], **how: Any) -> list[Any]:
        given = [*items]
        assert len(given) <= FEW, "one sort of all"
        return builtins.sorted(given, **how)

    image = max(
        (step.image for seed in range(5) for step in history_of(seed, 60)),
        key=lambda image: len(image.topics.ids),
    )
    assert len(image.topics.ids) > FEW
    assert len(image.configs) > FEW
    by_name = builtins.sorted(image.topics.ids)
    monkeypatch.setattr(orders, "SORTED_AT_ONCE", FEW)
    for module in (configs, topics, views, partition_health):
        monkeypatch.setattr(module, "sorted", of_few, raising=False)
    assert [row["name"] for row in list_topics(image.topics)] == by_name
    assert [row["name"] for row in state_json(image)["topics"]] == by_name
    assert [record[:3] for record in ConfigsBuilder.records(image.configs)] == builtins.sorted(
        (*resource, name) for resource, settings in image.configs.items() for name in settings
    )
    assert len([*state_json(image)["configs"]]) == len(state_json(image)["configs"])
    deleted = [(row["name"], row["deleted_at_ms"]) for row in list_deleted(image.topics, elapsed_ms=0)]
    assert deleted == builtins.sorted(deleted)
    found = [topic.name for topic, _, _ in partition_health.selected(image, None, 1)]
    assert [*dict.fromkeys(found)] == [name for name in by_name if name in found]
