"""Edge: sessions: who has one, whose is over, what a new claim grants."""

from dataclasses import replace

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.wire.shapes import INT64_MAX
from quorum.sessions import Liveness
from tests.support.decisions import World

ONE, TWO = BrokerId(1), BrokerId(2)


def heard(*contacts: tuple[BrokerId, int, int]) -> Liveness:
    liveness = Liveness(session_timeout_ms=100)
    for broker_id, broker_epoch, now_ms in contacts:
        liveness.contact(broker_id, broker_epoch, now_ms=now_ms, applied_offset=now_ms)
    return liveness


def test_a_session_is_over_strictly_later_than_its_timeout() -> None:
    liveness = heard((ONE, 5, 1000))
    assert liveness.has_session(ONE, 5, now_ms=1100)
    assert liveness.expired(1100) is None
    assert not liveness.has_session(ONE, 5, now_ms=1101)
    assert liveness.expired(1101) == (ONE, 5, 101)


def test_a_session_is_of_one_epoch() -> None:
    liveness = heard((ONE, 5, 1000))
    assert not liveness.has_session(ONE, 6, now_ms=1000)
    liveness.contact(ONE, 6, now_ms=1001, applied_offset=9)
    assert not liveness.has_session(ONE, 5, now_ms=1001)
    assert liveness.applied_offset(ONE) == 9


def test_the_longest_silent_comes_first_and_one_at_a_time() -> None:
    liveness = heard((ONE, 5, 1000), (TWO, 6, 1010), (ONE, 5, 1020))
    assert liveness.expired(5000) == (TWO, 6, 3990)
    liveness.forget(TWO, 6)
    assert liveness.expired(5000) == (ONE, 5, 3980)
    liveness.forget(ONE, 4)
    assert liveness.expired(5000) is not None, "another epoch's end is not this one's"
    liveness.forget(ONE, 5)
    assert liveness.expired(5000) is None
    assert liveness.last_contact_ms_ago(ONE, now_ms=5000) is None


def test_a_claim_grants_every_unfenced_broker_a_full_session() -> None:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "heartbeat 2 fence"):
        world.run(line)
    world.liveness.clear()
    assert world.liveness.applied_offset(ONE) is None
    world.liveness.grant_all(world.image, 5000)
    epoch = world.image.brokers[ONE].broker_epoch
    assert world.liveness.has_session(ONE, epoch, now_ms=5100)
    assert world.liveness.applied_offset(TWO) is None
    assert world.liveness.expired(5101) == (ONE, epoch, 101)


def test_a_claim_looks_for_leaders_only_where_there_is_none() -> None:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "register 3", "heartbeat 3"):
        world.run(line)
    world.run("create t on=1,2")
    world.liveness.begin(world.image, 5000)
    assert not any(world.liveness.is_electing(BrokerId(broker_id)) for broker_id in (1, 2, 3))
    topic = world.image.topics.by_id[world.image.topics.ids["t"]]
    (partition,) = topic.partitions
    leaderless = topic._replace(partitions=(partition._replace(leader=NO_LEADER),))
    image = replace(
        world.image,
        topics=replace(world.image.topics, by_id=world.image.topics.by_id.set(topic.topic_id, leaderless)),
    )
    world.liveness.begin(image, 5000)
    assert [world.liveness.is_electing(BrokerId(broker_id)) for broker_id in (1, 2, 3)] == [True, True, False]


def test_granting_again_keeps_what_was_reported() -> None:
    world = World(session_timeout_ms=100)
    for line in ("register 1", "heartbeat 1"):
        world.run(line)
    reported = world.liveness.applied_offset(ONE)
    world.liveness.grant_all(world.image, 5000)
    assert world.liveness.applied_offset(ONE) == reported is not None


def test_the_lowest_active_offset() -> None:
    world = World()
    assert world.liveness.lowest_active_offset(world.image) == INT64_MAX
    for line in ("register 1", "register 2", "heartbeat 1", "heartbeat 2"):
        world.run(line)
    assert world.liveness.lowest_active_offset(world.image) == 0, "just unfenced: nothing is known of it yet"
    world.run("heartbeat 1")
    end = world.image.end_offset
    world.run("heartbeat 2 applied=end-1")
    assert world.liveness.lowest_active_offset(world.image) == end - 1
    world.liveness.began_shutdown(TWO, world.image.brokers[TWO].broker_epoch, offset=end)
    assert world.liveness.lowest_active_offset(world.image) == end, "a broker that stops is not waited for"


def test_the_first_shutdown_offset_stands_until_the_broker_is_fenced() -> None:
    liveness = heard((ONE, 5, 1000))
    liveness.began_shutdown(ONE, 5, offset=98)
    liveness.began_shutdown(ONE, 5, offset=99)
    assert liveness.shutdown_offset(ONE, 5) == 98
    assert liveness.shutdown_offset(ONE, 6) is None
    liveness.left_shutdown(ONE)
    assert liveness.shutdown_offset(ONE, 5) is None


def test_the_registration_offset_is_the_epoch_until_it_registers_again() -> None:
    liveness = heard((ONE, 5, 1000))
    assert liveness.registration_offset(ONE, 5) == 5
    liveness.registered_again(ONE, 5, offset=12)
    assert liveness.registration_offset(ONE, 5) == 12
    assert liveness.applied_offset(ONE) == 0
    assert liveness.registration_offset(ONE, 20) == 20


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
    assert world.liveness.ready_to_go(world.image) == []
    world.run("heartbeat 2")
    assert world.liveness.ready_to_go(world.image) == [ONE]
    world.run("heartbeat 1 shutdown")
    assert world.image.brokers[ONE].fenced
    assert world.liveness.ready_to_go(world.image) == []
