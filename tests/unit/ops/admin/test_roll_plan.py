"""Edge: the order of a roll, what makes a step of it unsafe, and when a node is back."""

from typing import Any, Final

import pytest

from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord
from ops.admin.roll_plan import (
    Node,
    Role,
    View,
    in_order,
    in_sync_on,
    left,
    node_now,
    suffering,
    told,
    why_no_majority,
    why_not_back,
)
from quorum.decide.features import REGISTERED
from quorum.whatif.cluster import Options
from tests.support.decisions import World, ids, word_uuid
from tests.support.placements import a_cluster
from tests.unit.ops.admin.test_health import voter

ONE, TWO = BrokerId(1), BrokerId(2)
CONTROLLERS: Final[tuple[Role, ...]] = ("controller",)
BROKERS: Final[tuple[Role, ...]] = ("broker",)
EVERY: Final = (*CONTROLLERS, *BROKERS)


def with_controllers(world: World, *controller_ids: int, process: str = "first") -> None:
    for controller_id in controller_ids:
        endpoints = (BrokerEndpoint("RAFT", f"c{controller_id}", 9093, 0),)
        incarnation_id = word_uuid(f"c{controller_id}-{process}")
        world.write(
            [
                RegisterControllerRecord(
                    NodeId(controller_id),
                    incarnation_id,
                    world.image.end_offset,
                    False,
                    endpoints,
                    REGISTERED,
                )
            ]
        )


@pytest.fixture
def world() -> World:
    world = a_cluster([None] * 3, "t on=1,2,3/2,3,1 min.insync.replicas=2")
    with_controllers(world, 4, 5, 6)
    return world


def view(world: World, *, leader_id: int = 4, voters: tuple[dict[str, Any], ...] = ()) -> View:
    return View(world.image, leader_id, voters or tuple(voter(each) for each in (4, 5, 6)))


def node(world: World, role: str, node_id: int) -> Node:
    return next(one for one in in_order(view(world), EVERY) if one[:2] == (role, node_id))


def names(nodes: list[Node]) -> list[str]:
    return [one.name for one in nodes]


def test_the_leader_is_the_last_controller_and_what_is_down_comes_first(world: World) -> None:
    brokers = ["broker 1", "broker 2", "broker 3"]
    assert names(in_order(view(world), EVERY)) == ["controller 5", "controller 6", "controller 4", *brokers]
    world.run("expire 3")
    silent = tuple(voter(each, reachable=each != 6) for each in (4, 5, 6))
    assert names(in_order(view(world, voters=silent), EVERY)) == [
        *("controller 6", "controller 5", "controller 4"),
        *("broker 3", "broker 1", "broker 2"),
    ]
    assert names(in_order(view(world), BROKERS)) == ["broker 3", "broker 1", "broker 2"]
    assert in_order(view(world), CONTROLLERS)[0].host == "c5"


def test_what_registered_since_the_beginning_is_rolled(world: World) -> None:
    """Goal: resumable. Method: one controller and one broker register again behind the offset at which the roll began."""
    since = world.image.end_offset
    with_controllers(world, 5, process="second")
    world.run("expire 2")
    world.run("register 2 incarnation=b2-2")
    nodes = in_order(view(world), EVERY)
    assert names(left(nodes, since)) == ["controller 6", "controller 4", "broker 1", "broker 3"]
    assert left(nodes, 0) == []


@pytest.mark.parametrize(
    ("others", "is_unsafe"),
    [
        ({}, False),
        ({5: {"reachable": False}}, True),
        ({5: {"last_caught_up_ms_ago": None}}, True),
        ({5: {"last_caught_up_ms_ago": 60_000}}, True),
        ({6: {"reachable": False}}, False),
    ],
)
def test_a_controller_stays_where_no_majority_would_be_left(
    world: World, others: dict[int, dict[str, Any]], is_unsafe: bool
) -> None:
    voters = tuple(voter(each, **others.get(each, {})) for each in (4, 5, 6))
    why = why_no_majority(view(world, voters=voters), 6)
    assert (why is not None) == is_unsafe
    if why is not None:
        assert "of 3 voters only [4] would be left" in why
    assert why_no_majority(view(world, voters=(voter(6),)), 6) is not None, "the only voter"
    assert why_no_majority(view(world), 7) is None, "an observer"


def test_a_partition_that_would_suffer_is_named() -> None:
    world = a_cluster([None] * 3, "safe on=1,2,3", "strict on=1,2/2,1 min.insync.replicas=2", "alone on=3")
    assert suffering(world.image, Options(), TWO) != ()
    assert told(suffering(world.image, Options(), TWO)) == (
        "strict:0 would have 1 in-sync replicas of the 2 of min.insync.replicas, and 1 partitions more suffer"
    )
    assert told(suffering(world.image, Options(), BrokerId(3))) == "alone:0 would have no leader"
    world.run("delete strict")
    assert suffering(world.image, Options(), TWO) == ()
    world.run("isr safe-0 1")
    assert told(suffering(world.image, Options(), ONE)) == "safe:0 would have no leader", "the last in sync"


def test_a_broker_is_back_once_it_is_in_every_isr_again(world: World) -> None:
    before = node(world, "broker", 2)
    places = in_sync_on(world.image, TWO)
    assert len(places) == 2
    assert why_not_back(view(world), before, places) == "no new process has registered"
    world.run("expire 2")
    assert why_not_back(view(world), before, places) == "no new process has registered"
    world.run("register 2 incarnation=b2-2")
    assert why_not_back(view(world), before, places) == "it is registered, and not in service yet"
    world.run("heartbeat 2")
    assert why_not_back(view(world), before, places) == "2 ISRs lack it"
    topic_id = world.image.topics.ids["t"]
    world.write([PartitionChangeRecord(topic_id, 0, isr=ids("1,2,3"))])
    assert why_not_back(view(world), before, places) == "1 ISRs lack it"
    world.run("delete t")
    assert why_not_back(view(world), before, places) is None, "what is gone does not count"


def test_a_controller_is_back_once_it_holds_the_whole_log(world: World) -> None:
    before = node(world, "controller", 5)
    assert why_not_back(view(world), before, ()) == "no new process has registered"
    with_controllers(world, 5, process="second")
    now = node_now(world.image, before)
    assert now is not None and now.incarnation_id == Uuid(word_uuid("c5-second"))
    behind = (voter(4), voter(5, last_caught_up_ms_ago=None), voter(6))
    assert why_not_back(view(world, voters=behind), before, ()) == "it does not hold the whole log yet"
    away = (voter(4), voter(5, reachable=False), voter(6))
    assert why_not_back(view(world, voters=away), before, ()) == "it is registered, and not in service yet"
    assert why_not_back(view(world), before, ()) is None
