"""Long changes of a reign: whose turn it is, how far each is, and what another reign had begun."""

import dataclasses

from metadata_log.batch import Cause
from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image.begun import Begun
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.controller.changes import ELECTIONS, Changes, LongChange, of_walk
from quorum.decide.decision import Decision, Elected, ElectionDue, Walk, Walked, WalkKind
from tests.support.decisions import World

ONE, TWO = BrokerId(1), BrokerId(2)
TOPIC = TopicId(Uuid(bytes(16)))


def nothing(_context: object) -> Decision:
    return Decision()


def test_each_change_makes_a_part_in_turn() -> None:
    changes = Changes()
    for key in (ONE, TWO, "sweep"):
        changes.begin(LongChange(key, nothing, "any"))
    made = []
    for _ in range(6):
        change = changes.next()
        assert change is not None
        made.append(change.key)
    assert made == [ONE, TWO, "sweep"] * 2


def test_a_change_that_is_over_leaves_nothing() -> None:
    changes = Changes()
    walk = Walk(WalkKind.LEAVES, ONE, 7)
    changes.carry_out(Walked(walk, (TOPIC, 0)))
    change = of_walk(walk, Cause("SESSION_EXPIRED", 7, {"broker_id": ONE}))
    changes.begin(change)
    told: list[object] = []
    change.waiting += [told.append, told.append]
    assert (changes.leaving(), changes.takes_out(ONE)) == (frozenset({ONE}), True)
    changes.over(change)
    change.end(None)
    assert told == [None, None]
    assert (len(changes), changes.leaving(), changes.visited(walk)) == (0, frozenset(), None)
    assert changes.next() is None


def test_a_walk_goes_on_where_an_equal_one_stopped() -> None:
    changes = Changes()
    walk = Walk(WalkKind.LEAVES, ONE, 7)
    assert changes.visited(walk) is None
    changes.carry_out(Walked(walk, (TOPIC, 3)))
    assert changes.visited(Walk(WalkKind.LEAVES, ONE, 7)) == (TOPIC, 3)
    assert changes.visited(Walk(WalkKind.LEAVES, ONE, 8)) is None
    assert changes.visited(Walk(WalkKind.REMOVED, ONE, 7)) is None
    changes.carry_out(Walked(walk, None))
    assert changes.visited(walk) is None


def test_elections_run_once_more_for_whoever_may_lead_since_they_began() -> None:
    changes = Changes()
    changes.carry_out(Elected((TOPIC, 0), more=True))
    changes.carry_out(ElectionDue(TWO))
    changes.carry_out(Elected((TOPIC, 1), more=False))
    assert (changes.is_electing, changes.elected_to) == (True, None)
    change = changes.next()
    assert change is not None and change.key == ELECTIONS
    changes.over(change)
    assert changes.next() is change, "they began before it could lead"
    changes.carry_out(Elected(None, more=False))
    assert (changes.is_electing, len(changes)) == (False, 0)


def in_service(*lines: str) -> World:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2", *lines):
        world.run(line)
    return world


def test_a_new_reign_looks_for_leaders_only_where_there_is_none() -> None:
    """A41: a new controller gives leaders to leaderless partitions, and looks at no others."""
    world = in_service("create t on=1,2")
    world.changes.take_over(world.image)
    assert not world.changes.is_electing
    world.write([PartitionChangeRecord(world.image.topics.ids["t"], 0, leader=NO_LEADER)])
    world.changes.take_over(world.image)
    assert [len(part.records) for part in world.elect()] == [1]
    assert not world.changes.is_electing


def test_a_new_reign_takes_over_what_the_state_shows_begun() -> None:
    """A fencing, a removal, failed directories and a stop go on as they were; what is not of this registration is over."""
    world = in_service("create t on=1,2/2,1", "heartbeat 2 shutdown")
    epoch = world.image.brokers[ONE].broker_epoch
    for code, operation, takes_out in (
        ("SESSION_EXPIRED", "maybeFenceStaleBroker", True),
        ("BROKER_UNREGISTERED", "UnregisterBroker", True),
        ("BROKER_REGISTERED", "RegisterBroker", True),
        ("FENCE_REQUESTED", "BrokerHeartbeat", True),
        ("LOG_DIR_OFFLINE", "BrokerHeartbeat", False),
    ):
        for of_epoch in (epoch, epoch + 1):
            begun = Begun(code, of_epoch, 1)
            image = with_begun(world, begun)
            changes = Changes()
            changes.take_over(image)
            change = changes.under_way(ONE)
            if of_epoch != epoch:
                assert change is None
                continue
            assert change is not None
            assert (change.operation, changes.takes_out(ONE)) == (operation, takes_out)


def with_begun(world: World, begun: Begun) -> MetadataImage:
    return dataclasses.replace(world.image, begun=world.image.begun.set(ONE, begun))


def test_elections_of_which_a_batch_had_room_for_none_are_held_all_the_same() -> None:
    """The unfencing that they are for fills it: where a part holds two records, as in simulated runs."""
    changes = Changes()
    changes.carry_out(Elected(None, more=True))
    assert (changes.is_electing, changes.elected_to, len(changes)) == (True, None, 1)
    changes.carry_out(Elected(None, more=False))
    assert (changes.is_electing, len(changes)) == (False, 0)
