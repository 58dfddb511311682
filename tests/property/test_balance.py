"""Edge: what a plan of balancing reaches, on clusters of any shape."""

from itertools import product

import pytest

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from ops.admin.balance_plan import balance
from ops.admin.placement_plan import Load, loads, loads_after, moved_replicas, placed, takers
from tests.support.placements import a_cluster, a_random_cluster, begin, carry_out, finish, spread

SEEDS = range(15)


def counts(image: MetadataImage) -> tuple[list[int], list[int]]:
    """Return the replicas and the first replicas of each broker that takes some."""
    load = loads(one.replicas for one in placed(image))
    each = [load.get(one, Load()) for one in takers(image.brokers)]
    return [one.replicas for one in each], [one.preferred for one in each]


def within(values: list[int], most: int) -> bool:
    return max(values) - min(values) <= most


@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_and_leaders_are_within_1_where_there_are_no_racks(seed: int, factor: int) -> None:
    world = a_random_cluster(seed, racks=0, brokers=3 + seed % 5, factors=(factor,))
    before, _ = counts(world.image)
    plan = balance(world.image).wanted
    least = sum(before) // len(before)
    must = sum(max(0, count - least - 1) for count in before), sum(max(0, least - count) for count in before)
    assert moved_replicas(world.image, plan) == max(must), "no replica moves that need not"
    replicas, leaders = counts(carry_out(world, plan))
    assert within(replicas, 1)
    assert within(leaders, 1)
    assert balance(world.image).wanted == []


@pytest.mark.parametrize("racks", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_loses_a_rack_and_no_move_that_racks_allow_is_left(seed: int, racks: int) -> None:
    world = a_random_cluster(seed, racks=racks, brokers=4 + seed % 5, factors=(1, 2, 3))
    was = {one[:2]: one.replicas for one in placed(world.image)}
    image = carry_out(world, balance(world.image).wanted)
    able = takers(image.brokers)
    load = loads(one.replicas for one in placed(image))
    for one in placed(image):
        assert len({*one.replicas}) == len(was[one[:2]])
        assert spread(image, one.replicas) == min(len(one.replicas), racks) >= spread(image, was[one[:2]])
        for place, taker in product(range(len(one.replicas)), able):
            giver = one.replicas[place]
            moved = [*one.replicas]
            moved[place] = taker
            if taker not in one.replicas and spread(image, moved) >= spread(image, one.replicas):
                assert load[giver].replicas - load.get(taker, Load()).replicas <= 1
    for rack in set(able.values()):
        assert within([load.get(each, Load()).replicas for each in able if able[each] == rack], 1)
    assert is_even(image), "no other choice of first replicas is more even"
    assert balance(image).wanted == []


def is_even(image: MetadataImage) -> bool:
    """Answer whether no chain of partitions leads from a broker to one that is first at least two times less."""
    first = {each: load.preferred for each, load in loads(one.replicas for one in placed(image)).items()}
    heirs: dict[BrokerId, set[BrokerId]] = {}
    for one in placed(image):
        heirs.setdefault(one.replicas[0], set()).update(one.replicas[1:])
    for giver, times in first.items():
        reached, waiting = {giver}, [giver]
        while waiting:
            further = heirs.get(waiting.pop(), set()) - reached
            reached |= further
            waiting += further
        if any(first[each] <= times - 2 for each in reached):
            return False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_what_is_being_reassigned_counts_and_stays(seed: int) -> None:
    world = a_random_cluster(seed, racks=3, brokers=6, factors=(2, 3))
    plan = balance(world.image).wanted
    begin(world, plan[: len(plan) // 2])
    rest = {one[:2] for one in balance(world.image).wanted}
    assert not rest & {one[:2] for one in plan[: len(plan) // 2] if moved_replicas(world.image, [one])}
    finish(world)
    carry_out(world, balance(world.image).wanted)
    assert balance(world.image).wanted == []


def test_a_new_broker_gets_its_share_and_one_that_is_away_keeps_its_replicas() -> None:
    world = a_cluster([None] * 4, "t on=" + "/".join(["1,2", "2,3", "3,1"] * 4))
    world.run("expire 3")
    plan = balance(world.image)
    load = loads_after(world.image, plan.wanted)
    assert load[BrokerId(3)].replicas == 8
    assert within([load[BrokerId(each)].replicas for each in (1, 2, 4)], 1)
    assert moved_replicas(world.image, plan.wanted) == 5


def test_no_broker_and_no_topic_is_balanced() -> None:
    assert balance(a_cluster([]).image).wanted == []
    assert balance(a_cluster([None]).image).wanted == []
