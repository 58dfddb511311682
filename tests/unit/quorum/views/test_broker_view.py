"""Edge: how the controllers see a broker, and why it waits (B20, B22, B23; KIP-1131)."""

import pytest

from metadata_log.ids import BrokerId
from quorum.controller.sessions import Sessions
from quorum.http.brokers import describe_broker
from quorum.views.broker_view import (
    ASKS_AGAIN,
    MORE_PARTS,
    NO_HEARTBEAT,
    WANTS_FENCE,
    BrokerView,
    ControlState,
    RegistrationState,
    registration_state,
)
from tests.support.decisions import World


def world(*lines: str) -> World:
    made = World()
    for line in lines:
        made.run(line)
    return made


def seen(made: World, broker_id: int) -> tuple[ControlState, RegistrationState, str | None]:
    broker = made.image.brokers[BrokerId(broker_id)]
    view = BrokerView(made.image, made.sessions, now_ms=made.now_ms)
    return view.control_state(broker), registration_state(broker), view.waits_for(broker)


ONLINE = ("register 1", "heartbeat 1", "register 2", "heartbeat 2", "heartbeat 1", "heartbeat 2")
LEADING = (*ONLINE, "create t on=1,2/1,2/2,1", "heartbeat 1", "heartbeat 2")


def test_the_numbers_are_kafka_s() -> None:
    """B20, KIP-1131."""
    assert {each.name: each.value for each in RegistrationState} == {
        "UNREGISTERED": -1,
        "FENCED": 10,
        "CONTROLLED_SHUTDOWN": 20,
        "ACTIVE": 30,
    }
    assert registration_state(None) is RegistrationState.UNREGISTERED
    assert {each.value for each in ControlState} == {
        "FENCED",
        "UNFENCED",
        "CONTROLLED_SHUTDOWN",
        "SHUTDOWN_NOW",
    }


def test_a_registered_broker_waits_for_its_heartbeat_and_its_registration() -> None:
    """B20, B22: fenced until it reports the offset of its registration."""
    made = world("register 1")
    assert seen(made, 1) == (ControlState.FENCED, RegistrationState.FENCED, NO_HEARTBEAT)
    made.run("heartbeat 1 applied=registration-1")
    wanted = made.image.brokers[BrokerId(1)].broker_epoch + 1
    fenced = (ControlState.FENCED, RegistrationState.FENCED)
    assert seen(made, 1) == (*fenced, f"has to reach offset {wanted}, its registration")
    made.run("heartbeat 1 fence")
    assert seen(made, 1) == (*fenced, WANTS_FENCE)
    made.run("heartbeat 1")
    assert seen(made, 1) == (ControlState.UNFENCED, RegistrationState.ACTIVE, None)


def test_a_stopping_broker_waits_for_the_others_and_then_may_go() -> None:
    """B20, B23: CONTROLLED_SHUTDOWN until every active broker has reached the target, then SHUTDOWN_NOW."""
    made = world(*LEADING, "heartbeat 1 shutdown")
    stopping = RegistrationState.CONTROLLED_SHUTDOWN
    target = made.image.end_offset
    assert seen(made, 1) == (
        ControlState.CONTROLLED_SHUTDOWN,
        stopping,
        f"waits for broker 2 to reach offset {target}",
    )
    row = describe_broker(BrokerView(made.image, made.sessions, now_ms=made.now_ms), BrokerId(1))
    assert (row["state"], row["control_state"], row["registration_state"]) == (
        "STOPPING",
        "CONTROLLED_SHUTDOWN",
        "CONTROLLED_SHUTDOWN",
    )
    assert (row["in_controlled_shutdown"], row["shutdown_offset"]) == (True, target)
    assert row["waits_for"] == f"waits for broker 2 to reach offset {target}"
    made.run("heartbeat 2")
    assert seen(made, 1) == (ControlState.SHUTDOWN_NOW, stopping, None)
    made.run("heartbeat 1 shutdown")
    assert seen(made, 1)[:2] == (ControlState.FENCED, RegistrationState.FENCED)


def test_a_stopping_broker_that_leads_waits_for_its_leaderships() -> None:
    """B21: while it leads anything it stays; a shutdown in parts is seen between them."""
    made = World(records_max=2)
    for line in (*ONLINE, "create t on=1,2/1,2/1,2/2,1"):
        made.run(line)
    made.heartbeat(1, want_shut_down=True)
    state, registered, why = seen(made, 1)
    assert (state, registered) == (ControlState.CONTROLLED_SHUTDOWN, RegistrationState.CONTROLLED_SHUTDOWN)
    left = made.image.topics.index.leaderships[BrokerId(1)]
    assert why == f"leads {left} partitions" and 1 < left < 4
    told: list[str] = []
    while not told or not told[-1].startswith("waits for"):
        made.heartbeat(1, want_shut_down=True)
        told.append(seen(made, 1)[2] or "nothing")
    assert told[:-1] == ["leads 2 partitions", "leads 1 partition", MORE_PARTS]
    # A new active controller knows nothing of the shutdown but what the log says, until the broker asks again.
    made.sessions = Sessions(session_timeout_ms=made.sessions.session_timeout_ms)
    made.sessions.grant_all(made.image, made.now_ms)
    assert seen(made, 1)[2] == ASKS_AGAIN


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (("register 1",), ControlState.FENCED),
        (LEADING, ControlState.UNFENCED),
        ((*LEADING, "heartbeat 1 shutdown"), ControlState.CONTROLLED_SHUTDOWN),
    ],
)
def test_another_controller_sees_what_the_log_says(lines: tuple[str, ...], wanted: ControlState) -> None:
    """B20: sessions are the active controller's alone; without them nothing is said of what a broker waits for."""
    made = world(*lines)
    row = describe_broker(BrokerView(made.image, None, now_ms=made.now_ms), BrokerId(1))
    assert row["control_state"] == wanted.value
    assert row["waits_for"] is row["shutdown_offset"] is row["applied_offset"] is None
