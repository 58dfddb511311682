"""Edge: brokers are drained of replicas or leaderships, on a controller's own decisions."""

import pytest

from metadata_log.errors import InvalidReplicaAssignment
from metadata_log.ids import BrokerId
from ops.admin.placement_plan import drain, hand_over, held, led_by, loads_after, placed, takers
from tests.support.decisions import ids, word_uuid
from tests.support.placements import a_cluster, a_random_cluster, begin, carry_out, finish, spread

RACKS = (0, 2, 3)


def broker(*broker_ids: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, broker_ids))


@pytest.mark.parametrize("racks", RACKS)
@pytest.mark.parametrize("seed", range(12))
def test_a_drained_broker_holds_nothing_and_nothing_else_moves(seed: int, racks: int) -> None:
    """Goal: only what lies on drained brokers moves, each replica to its own place, and into as many racks as before."""
    world = a_random_cluster(seed, racks=racks, brokers=7, factors=(1, 2, 3))
    drained = broker(1 + seed % 7, 1 + (seed + 3) % 7)
    before = {one[:2]: one for one in placed(world.image)}
    plan = drain(world.image, drained)
    left = set(takers(world.image.brokers)) - drained
    for one in plan.wanted:
        was = before[one[:2]].replicas
        assert one.replicas is not None
        assert len(set(one.replicas) - drained) == len(was)
        kept = [(place, each) for place, each in enumerate(was) if each not in drained]
        assert all(one.replicas[place] == each for place, each in kept), "the others keep their places"
        most = len({world.image.brokers[each].rack for each in left})
        assert spread(world.image, one.replicas) >= min(spread(world.image, was), most)
    fewer = [
        one
        for one in plan.wanted
        if spread(world.image, one.replicas or ()) < spread(world.image, before[one[:2]].replicas)
    ]
    assert plan.in_fewer_racks == len(fewer)
    image = carry_out(world, plan.wanted)
    assert [held(image, one, deleted=False) for one in drained] == [0, 0]
    assert {one[:2] for one in plan.wanted} == {
        key for key, one in before.items() if drained & set(one.replicas)
    }
    assert drain(image, drained).wanted == [], "run again it finds everything done"


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_made_again_is_the_rest_of_the_one_before(seed: int) -> None:
    """Goal: resumable. Method: half of a plan is begun; the next one waits for that and has the rest."""
    world = a_random_cluster(seed, racks=3, brokers=6, factors=(2, 3))
    drained = broker(2)
    whole = drain(world.image, drained).wanted
    begin(world, whole[: len(whole) // 2])
    again = drain(world.image, drained).wanted
    assert again[: len(whole) // 2] == whole[: len(whole) // 2], "those under way keep their goals"
    assert [one[:2] for one in again] == [one[:2] for one in whole]
    finish(world)
    rest = drain(world.image, drained).wanted
    assert [one[:2] for one in rest] == [one[:2] for one in whole[len(whole) // 2 :]]
    carry_out(world, rest)
    assert held(world.image, BrokerId(2), deleted=False) == 0


def test_replicas_go_to_the_broker_that_has_the_least() -> None:
    world = a_cluster([None] * 4, "full on=3,4/3,4/3,4", "t on=1/1/1")
    plan = drain(world.image, broker(1))
    assert [one.replicas for one in plan.wanted] == [ids("2"), ids("2"), ids("2")]
    load = loads_after(world.image, plan.wanted)
    assert (load[BrokerId(2)].replicas, load[BrokerId(2)].preferred) == (3, 3)
    assert BrokerId(1) not in load


def test_a_rack_that_is_left_without_a_broker_is_told() -> None:
    world = a_cluster(["a", "b", "b", "b"], "t on=1,2/2,3")
    plan = drain(world.image, broker(1))
    assert [one.replicas for one in plan.wanted] == [ids("4,2")]
    assert plan.in_fewer_racks == 1


def test_where_too_few_brokers_are_left_the_partition_is_named() -> None:
    world = a_cluster([None] * 3, "wide on=1,2,3/2,3,1", "t on=1")
    with pytest.raises(
        InvalidReplicaAssignment, match=r"wide:0: its 3 replicas need more .*\(1 partitions more\)"
    ):
        drain(world.image, broker(1))


def test_only_brokers_that_take_replicas_get_some() -> None:
    """Goal: not those that are fenced, shut down or cordoned, nor others than were named."""
    world = a_cluster([None] * 6, "t on=1/1")
    world.run("expire 2")
    world.heartbeat(3, cordoned_log_dirs=(word_uuid("d3a"),))
    world.run("create led on=4,5")
    world.run("heartbeat 4 shutdown")
    assert sorted(takers(world.image.brokers)) == [1, 5, 6]
    assert [one.replicas for one in drain(world.image, broker(1)).wanted] == [ids("6"), ids("5")]
    assert [one.replicas for one in drain(world.image, broker(1), to=broker(5)).wanted] == [ids("5")] * 2
    for taken in (1, 2, 3, 4, 99):
        with pytest.raises(InvalidReplicaAssignment, match=f"broker {taken} takes no replicas"):
            drain(world.image, broker(1), to=broker(taken))


@pytest.mark.parametrize("seed", range(8))
def test_leaderships_are_handed_over_where_no_replica_moves(seed: int) -> None:
    world = a_random_cluster(seed, racks=0, brokers=5, factors=(2, 3))
    drained = broker(1, 2) if seed % 2 else broker(3)
    before = {one[:2]: one.replicas for one in placed(world.image)}
    try:
        plan = hand_over(world.image, drained)
    except InvalidReplicaAssignment:
        assert any(set(replicas) <= drained for replicas in before.values())
        return
    for one in plan.wanted:
        assert one.replicas is not None and sorted(one.replicas) == sorted(before[one[:2]])
        assert one.replicas[0] not in drained
    image = carry_out(world, plan.wanted)
    assert all(one.replicas[0] not in drained for one in placed(image))
    assert {one[:2] for one in led_by(image, drained)} == {
        key for key, replicas in before.items() if replicas[0] in drained
    }, "elections of the preferred leaders do the rest"
    assert hand_over(image, drained).wanted == []


def test_a_leadership_without_an_heir_in_sync_is_named() -> None:
    world = a_cluster([None] * 3, "t on=1,2", "alone on=1")
    with pytest.raises(
        InvalidReplicaAssignment, match=r"alone:0: of its replicas \[1\], no other one can lead"
    ):
        hand_over(world.image, broker(1))
    world.run("delete alone")
    assert hand_over(world.image, broker(1)).wanted != []
    with pytest.raises(InvalidReplicaAssignment, match="t:0"):
        hand_over(world.image, broker(1), to=broker(3))
    world.run("isr t-0 1")
    with pytest.raises(InvalidReplicaAssignment, match="t:0"):
        hand_over(world.image, broker(1))
