"""Edge: placement of replicas: Kafka's striped one (B57), and the plain one (A5 to A7)."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from metadata_log.errors import InvalidReplicationFactor
from metadata_log.ids import BrokerId
from quorum.decide import placement
from quorum.decide.placement import Layout, Placement, UsableBroker, place, place_plainly, usable_brokers
from quorum.decide.topics import CreatePartitions, CreateTopics, MorePartitions, NewTopic
from tests.support.decisions import World, creation


def brokers(*rows: tuple[int, str | None, bool]) -> list[UsableBroker]:
    return [UsableBroker(BrokerId(broker_id), rack, fenced) for broker_id, rack, fenced in rows]


def placed(
    on: list[UsableBroker], count: int, factor: int, seed: int = 1
) -> tuple[tuple[BrokerId, ...], ...]:
    rng = random.Random(seed)
    return tuple(place(Layout(on), partition_count=count, replication_factor=factor, rng=rng))


@pytest.mark.parametrize("seed", range(30))
def test_every_partition_is_spread_over_racks_and_led_by_a_broker_that_is_up(seed: int) -> None:
    """B57."""
    rng = random.Random(seed)
    on = brokers(
        *(
            (n, rng.choice((None, "a", "b", "c")), n > 0 and rng.random() < 0.3)
            for n in range(rng.randint(1, 12))
        )
    )
    rack_of = {broker.broker_id: broker.rack for broker in on}
    up = {broker.broker_id for broker in on if not broker.fenced}
    factor = rng.randint(1, len(on))
    for replicas in placed(on, 40, factor, seed):
        assert len(set(replicas)) == factor == len(replicas)
        assert replicas[0] in up
        racks_used = {rack_of[broker_id] for broker_id in replicas}
        assert len(racks_used) == min(factor, len(set(rack_of.values())))


def test_leaders_and_replicas_are_even() -> None:
    on = brokers(*((n, "abc"[n % 3], False) for n in range(6)))
    assignments = placed(on, 60, 3)
    assert set(Counter(replicas[0] for replicas in assignments).values()) == {10}
    assert set(Counter(b for replicas in assignments for b in replicas).values()) == {30}


def test_a_fenced_broker_is_used_only_where_too_few_are_up() -> None:
    on = brokers((1, None, False), (2, None, False), (3, None, True))
    assert all(BrokerId(3) not in replicas for replicas in placed(on, 20, 2))
    assert all(replicas[2] == 3 for replicas in placed(on, 20, 3))


def test_the_same_followers_do_not_go_together_for_ever() -> None:
    on = brokers(*((n, None, False) for n in range(5)))
    assert len(set(placed(on, 50, 2))) > 5


def test_one_broker_holds_everything_alone() -> None:
    assert placed(brokers((7, "r", False)), 3, 1) == ((7,), (7,), (7,))


@pytest.mark.parametrize(
    ("on", "factor"),
    [
        (brokers((1, None, False)), 2),
        (brokers((1, None, True)), 1),
        ([], 1),
    ],
)
def test_what_cannot_be_placed(on: list[UsableBroker], factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        placed(on, 1, factor)


def test_the_seed_decides() -> None:
    on = brokers(*((n, "abc"[n % 3], False) for n in range(9)))
    assert placed(on, 20, 3, seed=5) == placed(on, 20, 3, seed=5)
    assert len({placed(on, 20, 3, seed=seed) for seed in range(20)}) > 1


def test_who_takes_new_replicas() -> None:
    world = World()
    for broker_id in range(1, 6):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=2,1")
    world.run("heartbeat 2 shutdown")
    world.run("heartbeat 3 cordoned=d3a")
    world.run("heartbeat 4 fence")
    usable = usable_brokers(world.context(ineligible=frozenset({BrokerId(5)})))
    assert [(broker.broker_id, broker.fenced) for broker in usable] == [(1, False), (4, True)]


def test_brokers_are_looked_through_once_until_one_of_them_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for line in ("register 2", "register 1", "heartbeat 1"):
        world.run(line)
    walks: list[int] = []

    def noted(brokers: Any) -> list[Any]:
        walks.append(len(brokers))
        return sorted(brokers)

    monkeypatch.setattr(placement, "sorted", noted, raising=False)
    placement._takers.cache_clear()
    first = usable_brokers(world.context())
    assert [broker.broker_id for broker in first] == [1, 2]
    world.run("create t on=1")
    assert usable_brokers(world.context()) is first
    assert usable_brokers(world.context(ineligible=frozenset({BrokerId(1)}))) == first[1:]
    assert walks == [2]
    world.run("heartbeat 2")
    assert [broker.fenced for broker in usable_brokers(world.context())] == [False, False]


# --- plain


def plain(on: list[UsableBroker], count: int, factor: int, *, first: int = 0) -> list[list[int]]:
    found = place_plainly(Layout(on), first=first, partition_count=count, replication_factor=factor)
    return [list(map(int, replicas)) for replicas in found]


@pytest.mark.parametrize(
    ("ids", "count", "factor", "expected"),
    [
        (range(4), 4, 3, [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]),  # A5
        (range(1, 6), 3, 2, [[1, 2], [2, 3], [3, 4]]),  # A6
        (range(2), 3, 1, [[0], [1], [0]]),
        ((30, 10, 20), 2, 3, [[10, 20, 30], [20, 30, 10]]),
    ],
)
def test_replica_j_of_partition_i_lies_on_broker_i_plus_j(
    ids: Iterable[int], count: int, factor: int, expected: list[list[int]]
) -> None:
    """A5, A6."""
    assert plain(brokers(*((n, None, False) for n in sorted(ids))), count, factor) == expected


def test_as_many_plain_partitions_as_brokers_are_even() -> None:
    """A5: every broker holds three replicas and is preferred once."""
    found = plain(brokers(*((n, None, False) for n in range(4))), 4, 3)
    assert sorted(replicas[0] for replicas in found) == [0, 1, 2, 3]
    assert set(Counter(n for replicas in found for n in replicas).values()) == {3}


def test_plain_placement_goes_on_where_a_topic_grows() -> None:
    on = brokers(*((n, None, False) for n in range(4)))
    assert plain(on, 2, 2) + plain(on, 3, 2, first=2) == plain(on, 5, 2)


def test_plain_placement_takes_brokers_that_are_up() -> None:
    """A6: no more replicas than brokers."""
    on = brokers((1, "a", False), (2, "a", True), (3, "b", False))
    assert plain(on, 2, 2) == [[1, 3], [3, 1]]
    for these, factor in ((on, 3), ([], 1), (brokers((1, None, True)), 1)):
        with pytest.raises(InvalidReplicationFactor):
            plain(these, 1, factor)


def test_topics_are_placed_plainly_by_name_of_the_strategy() -> None:
    world = World()
    for broker_id in (3, 1, 2):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    asked = {"partitions": 3, "replication_factor": 2, "placement": Placement.PLAIN}
    world.decide(creation("t", **asked))
    many = (NewTopic("u", 2, 2, placement=Placement.PLAIN),)
    world.decide(CreateTopics(topics=many, validate_only=False))
    more = (MorePartitions("u", 4, placement=Placement.PLAIN),)
    world.decide(CreatePartitions(topics=more, validate_only=False))
    expected = [[1, 2], [2, 3], [3, 1], [1, 2]]
    for name, count in (("t", 3), ("u", 4)):
        topic = world.image.topics.named(name)
        assert topic is not None
        assert [list(partition.replicas) for partition in topic.partitions] == expected[:count]
