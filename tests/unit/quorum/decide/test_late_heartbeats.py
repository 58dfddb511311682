"""Edge: a heartbeat that stood in the controller's queue past its deadline (B25)."""

from dataclasses import replace

import pytest

from metadata_log.ids import BrokerId
from metadata_log.wire.fetch import BrokerState
from quorum.decide.decision import Contact
from quorum.decide.heartbeat import HeartbeatAnswered, unchanged
from tests.support.decisions import World, word_uuid

ONLINE = ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "create t on=1,2", "heartbeat 1")


def world(*lines: str) -> World:
    made = World()
    for line in lines:
        made.run(line)
    return made


@pytest.mark.parametrize(
    ("lines", "wishes", "state"),
    [
        (ONLINE, {}, BrokerState.ONLINE),
        (ONLINE, {"want_fence": True}, BrokerState.ONLINE),
        (ONLINE, {"want_shut_down": True}, BrokerState.ONLINE),
        (ONLINE, {"offline_log_dirs": (word_uuid("d1a"),)}, BrokerState.ONLINE),
        (ONLINE, {"cordoned_log_dirs": (word_uuid("d1a"),)}, BrokerState.ONLINE),
        ((*ONLINE, "heartbeat 1 shutdown"), {"want_shut_down": True}, BrokerState.STOPPING),
        (("register 1",), {}, BrokerState.FENCED),
        (("register 1", "heartbeat 1 applied=registration-1"), {}, BrokerState.FENCED),
    ],
)
def test_it_renews_the_session_and_changes_nothing(
    lines: tuple[str, ...], wishes: dict[str, object], state: BrokerState
) -> None:
    """B25: only last contact and offset are taken over; Kafka's own case: offset 123, contact 100 ms."""
    made = world(*lines)
    made.now_ms += 100
    broker_id = BrokerId(1)
    epoch = made.image.brokers[broker_id].broker_epoch
    command = replace(made.request(1, **wishes).heartbeat(), applied_offset=124, is_late=True)
    decision = made.decided(command)
    assert not decision.records and not decision.more
    assert decision.outcome == HeartbeatAnswered(state, should_shut_down=False, is_caught_up=True)
    assert decision.session_changes == (Contact(broker_id, epoch, 124),)
    made.carry_out(decision)
    assert made.sessions.applied_offset(broker_id) == 124
    assert made.sessions.last_contact_ms_ago(broker_id, now_ms=made.now_ms) == 0
    assert made.sessions.has_session(broker_id, epoch, now_ms=made.now_ms + 9_000)


@pytest.mark.parametrize(
    ("lines", "changes", "is_short"),
    [
        (ONLINE, {}, True),
        (ONLINE, {"applied_offset": 0}, True),
        ((*ONLINE, "heartbeat 1 shutdown"), {}, False),
        (ONLINE, {"want_fence": True}, False),
        (ONLINE, {"want_shut_down": True}, False),
        (ONLINE, {"broker_epoch": 1_000}, False),
        (ONLINE, {"incarnation_id": word_uuid("another")}, False),
        (ONLINE, {"offline_log_dirs": (word_uuid("d1a"),)}, False),
        (ONLINE, {"cordoned_log_dirs": (word_uuid("d1a"),)}, False),
        (("register 1",), {}, False),
    ],
)
def test_the_short_way_is_for_brokers_that_serve_and_want_nothing(
    lines: tuple[str, ...], changes: dict[str, object], *, is_short: bool
) -> None:
    """Goal: what nearly all brokers say costs little, and is decided as ever. Method: `World` compares both ways."""
    made = world(*lines)
    command = made.request(1, **changes).heartbeat()
    assert (unchanged(made.image, made.sessions, command) is not None) is is_short
    made.decided(command)


@pytest.mark.parametrize("changes", [{"broker_epoch": 1_000}, {"incarnation_id": word_uuid("another")}])
def test_that_of_another_registration_is_refused(changes: dict[str, object]) -> None:
    """B25, B18: Kafka checks the broker's epoch here as well."""
    made = world(*ONLINE)
    decision = made.decided(replace(made.request(1, **changes).heartbeat(), is_late=True))
    assert decision.refusal is not None and decision.refusal.error == "STALE_BROKER_EPOCH"
    assert decision.session_changes == ()
