"""Edge: sessions: which brokers have one, which have expired, and what a new claim grants."""

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from metadata_log.ids import BrokerId, TopicId
from metadata_log.wire.shapes import INT64_MAX
from quorum.controller.sessions import Sessions
from tests.support.decisions import World

ONE, TWO = BrokerId(1), BrokerId(2)
TOPIC = TopicId(bytes(16))


def heard(*contacts: tuple[BrokerId, int, int]) -> Sessions:
    sessions = Sessions(session_timeout_ms=100)
    for broker_id, broker_epoch, now_ms in contacts:
        sessions.contact(broker_id, broker_epoch, now_ms=now_ms, applied_offset=now_ms)
    return sessions


def test_a_session_is_over_strictly_later_than_its_timeout() -> None:
    sessions = heard((ONE, 5, 1000))
    assert sessions.has_session(ONE, 5, now_ms=1100)
    assert sessions.expired(1100) is None
    assert not sessions.has_session(ONE, 5, now_ms=1101)
    assert sessions.expired(1101) == (ONE, 5, 101)


def test_a_session_is_of_one_epoch() -> None:
    sessions = heard((ONE, 5, 1000))
    assert not sessions.has_session(ONE, 6, now_ms=1000)
    sessions.contact(ONE, 6, now_ms=1001, applied_offset=9)
    assert not sessions.has_session(ONE, 5, now_ms=1001)
    assert sessions.applied_offset(ONE) == 9


def test_the_longest_silent_comes_first_and_one_at_a_time() -> None:
    sessions = heard((ONE, 5, 1000), (TWO, 6, 1010), (ONE, 5, 1020))
    assert sessions.expired(5000) == (TWO, 6, 3990)
    sessions.forget(TWO, 6)
    assert sessions.expired(5000) == (ONE, 5, 3980)
    sessions.forget(ONE, 4)
    assert sessions.expired(5000) is not None, "another epoch's end is not this one's"
    sessions.forget(ONE, 5)
    assert sessions.expired(5000) is None
    assert sessions.last_contact_ms_ago(ONE, now_ms=5000) is None


def test_a_claim_grants_every_unfenced_broker_a_full_session() -> None:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "heartbeat 2 fence"):
        world.run(line)
    world.sessions = Sessions(session_timeout_ms=100)
    assert world.sessions.applied_offset(ONE) is None
    world.sessions.grant_all(world.image, 5000)
    epoch = world.image.brokers[ONE].broker_epoch
    assert world.sessions.has_session(ONE, epoch, now_ms=5100)
    assert world.sessions.applied_offset(TWO) is None
    assert world.sessions.expired(5101) == (ONE, epoch, 101)


def test_granting_again_keeps_what_was_reported() -> None:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1"):
        world.run(line)
    reported = world.sessions.applied_offset(ONE)
    world.sessions.grant_all(world.image, 5000)
    assert world.sessions.applied_offset(ONE) == reported is not None


def test_granting_again_counts_for_a_broker_that_is_not_unfenced_yet() -> None:
    """A controller that slept heard nothing of it either, and fences nobody for that."""
    world = World(session_timeout_ms=100)
    world.run("register 1")
    world.heartbeat(1, applied_offset=0)
    epoch = world.image.brokers[ONE].broker_epoch
    assert world.image.brokers[ONE].fenced
    world.sessions.grant_all(world.image, 5000)
    assert world.sessions.expired(5100) is None
    assert world.sessions.expired(5101) == (ONE, epoch, 101)


def test_the_lowest_active_offset() -> None:
    world = World()
    assert world.sessions.lowest_active_offset(world.image) == INT64_MAX
    for line in ("register 1", "register 2", "heartbeat 1", "heartbeat 2"):
        world.run(line)
    assert world.sessions.lowest_active_offset(world.image) == 0, "just unfenced: nothing is known of it yet"
    world.run("heartbeat 1")
    end = world.image.end_offset
    world.run("heartbeat 2 applied=end-1")
    assert world.sessions.lowest_active_offset(world.image) == end - 1
    world.sessions.began_shutdown(TWO, world.image.brokers[TWO].broker_epoch, offset=end)
    assert world.sessions.lowest_active_offset(world.image) == end, "a broker that stops is not waited for"


def test_of_brokers_at_one_offset_the_lowest_id_is_the_slowest() -> None:
    world = World()
    for broker_id in (3, 1, 2):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    end = world.image.end_offset
    for broker_id in (2, 3, 1):
        world.run(f"heartbeat {broker_id}")
    assert world.sessions.slowest_active(world.image) == (ONE, end)


class WalkedBrokers(dict[BrokerId, Any]):
    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def brokers_of(states: Mapping[BrokerId, tuple[int, bool]]) -> Any:
    return SimpleNamespace(
        brokers=WalkedBrokers(
            (broker_id, SimpleNamespace(broker_id=broker_id, broker_epoch=epoch, fenced=fenced))
            for broker_id, (epoch, fenced) in states.items()
        )
    )


def test_while_a_broker_stops_the_others_are_walked_once_and_not_with_each_heartbeat() -> None:
    brokers = [BrokerId(number) for number in range(50)]
    image = brokers_of(dict.fromkeys(brokers, (5, False)))
    sessions = heard(*((broker_id, 5, 1000) for broker_id in brokers))
    sessions.began_shutdown(ONE, 5, offset=1010)
    for offset in range(1001, 1011):
        for broker_id in brokers:
            assert sessions.ready_to_go(image) == []
            sessions.contact(broker_id, 5, now_ms=offset, applied_offset=offset)
    assert sessions.ready_to_go(image) == [ONE]
    assert image.brokers.walks == 1


@pytest.mark.parametrize("seed", range(30))
def test_the_slowest_is_what_a_walk_finds_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    sessions = Sessions(session_timeout_ms=100)
    states = {BrokerId(number): (5, rng.random() < 0.3) for number in range(6)}
    image = brokers_of(states)
    for now_ms in range(400):
        broker_id = rng.choice([*states])
        epoch = states[broker_id][0] if rng.random() < 0.9 else 4
        match rng.randrange(12):
            case 0:
                states[broker_id] = (rng.choice((5, 6)), rng.random() < 0.3)
                image = brokers_of(states)
            case 1:
                sessions.forget(broker_id, epoch)
            case 2:
                sessions.began_shutdown(broker_id, epoch, offset=rng.choice((None, rng.randrange(9))))
            case 3:
                sessions.left_shutdown(broker_id)
            case 4:
                sessions.registration_changed(broker_id)
            case 5:
                sessions.registered_again(broker_id, epoch, offset=3)
            case 7:
                sessions.grant_all(image, now_ms)
            case _:
                sessions.contact(broker_id, epoch, now_ms=now_ms, applied_offset=rng.randrange(9))
        found = min(
            (
                (0 if session is None else session.known_offset, each.broker_id)
                for each in image.brokers.values()
                if not each.fenced
                and (
                    (session := sessions._session(each.broker_id, each.broker_epoch)) is None
                    or session.shutdown_offset is None
                )
            ),
            default=None,
        )
        assert sessions.slowest_active(image) == (None if found is None else (found[1], found[0]))


def test_the_first_shutdown_offset_stands_until_the_broker_is_fenced() -> None:
    sessions = heard((ONE, 5, 1000))
    sessions.began_shutdown(ONE, 5, offset=98)
    sessions.began_shutdown(ONE, 5, offset=99)
    assert sessions.shutdown_offset(ONE, 5) == 98
    assert sessions.shutdown_offset(ONE, 6) is None
    sessions.left_shutdown(ONE)
    assert sessions.shutdown_offset(ONE, 5) is None


def test_the_registration_offset_is_the_epoch_until_it_registers_again() -> None:
    sessions = heard((ONE, 5, 1000))
    assert sessions.registration_offset(ONE, 5) == 5
    sessions.registered_again(ONE, 5, offset=12)
    assert sessions.registration_offset(ONE, 5) == 12
    assert sessions.applied_offset(ONE) == 0
    assert sessions.registration_offset(ONE, 20) == 20


def test_a_stopping_broker_is_ready_once_the_others_have_caught_up() -> None:
    world = World()
    for line in (
        "register 1",
        "register 2",
        "heartbeat 1",
        "heartbeat 2",
        "create t on=1,2",
        "heartbeat 1 shutdown",
    ):
        world.run(line)
    assert world.sessions.ready_to_go(world.image) == []
    world.run("heartbeat 2")
    assert world.sessions.ready_to_go(world.image) == [ONE]
    world.run("heartbeat 1 shutdown")
    assert world.image.brokers[ONE].fenced
    assert world.sessions.ready_to_go(world.image) == []


def test_the_age_of_a_brokers_metadata_counts_from_when_it_had_all_there_was() -> None:
    """C23: a broker that never reaches a moving end had all of an earlier moment, as Kafka's lastCaughtUpTimestamp."""
    sessions = Sessions(session_timeout_ms=10_000)
    assert sessions.metadata_age_ms(ONE, now_ms=5) is None

    def polls(now_ms: int, *, applied: int, end: int) -> int | None:
        sessions.end_offset = end
        sessions.contact(ONE, 5, now_ms=now_ms, applied_offset=applied)
        return sessions.metadata_age_ms(ONE, now_ms=now_ms)

    assert polls(1_000, applied=10, end=10) == 0
    assert sessions.metadata_age_ms(ONE, now_ms=1_900) == 900, "at rest it grows until the next poll"
    assert polls(2_000, applied=10, end=14) == 1_000, "it lacks what came since"
    assert polls(3_000, applied=14, end=18) == 1_000, "it had all of a second ago"
    assert polls(4_000, applied=17, end=22) == 2_000, "it lacks some of a second ago"
    assert polls(7_000, applied=17, end=22) == 5_000, "slowed down by three seconds"
    assert polls(8_000, applied=22, end=22) == 0
    copied = sessions.seen()
    assert copied.metadata_age_ms(ONE, now_ms=8_500) == 500


def test_a_session_that_is_granted_claims_no_fresh_metadata() -> None:
    sessions = heard((ONE, 5, 1_000))
    sessions.end_offset = 99
    sessions.contact(ONE, 5, now_ms=2_000, applied_offset=50)
    age_ms = sessions.metadata_age_ms(ONE, now_ms=2_000)
    assert age_ms == 1_000
    assert sessions.metadata_age_ms(TWO, now_ms=2_000) is None
