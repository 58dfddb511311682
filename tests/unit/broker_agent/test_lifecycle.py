"""Pure: the lifecycle, as its whole table."""

import pytest

from broker_agent.lifecycle import SERVING, TRANSITIONS, Event, IllegalTransition, State, due, step

OFFLINE, FENCED, ONLINE, STOPPING = State.OFFLINE, State.FENCED, State.ONLINE, State.STOPPING
LEGAL = {
    (OFFLINE, Event.STARTED): FENCED,
    (OFFLINE, Event.STOP_REQUESTED): OFFLINE,
    (FENCED, Event.MAY_SERVE): ONLINE,
    (FENCED, Event.STOP_REQUESTED): OFFLINE,
    (ONLINE, Event.MUST_NOT_SERVE): FENCED,
    (ONLINE, Event.STOP_REQUESTED): STOPPING,
    (STOPPING, Event.STOP_REQUESTED): STOPPING,
    (STOPPING, Event.MUST_NOT_SERVE): OFFLINE,
    (STOPPING, Event.STOP_GRANTED): OFFLINE,
    (STOPPING, Event.STOP_OVERDUE): OFFLINE,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_of_state_and_event(state: State, event: Event) -> None:
    """A104: the four states, and every way between them."""
    after = LEGAL.get((state, event))
    if after is None:
        with pytest.raises(IllegalTransition, match=f"{event.name} in {state.name}"):
            step(state, event)
    else:
        assert step(state, event) is after


def test_clients_are_served_only_by_way_of_may_serve() -> None:
    """Goal: no path leads to serving but through MAY_SERVE. Method: walk every path without that event."""
    seen: set[State] = set()
    pending = [OFFLINE]
    while pending:
        state = pending.pop()
        if state not in seen:
            seen.add(state)
            pending += [after for event, after in TRANSITIONS[state].items() if event is not Event.MAY_SERVE]
    assert seen == {OFFLINE, FENCED}
    assert SERVING == (ONLINE, STOPPING)


@pytest.mark.parametrize(
    ("state", "may_serve", "is_overdue", "event"),
    [
        (OFFLINE, True, True, None),
        (OFFLINE, False, True, None),
        (FENCED, False, True, None),
        (FENCED, True, False, Event.MAY_SERVE),
        (ONLINE, True, False, None),
        (ONLINE, True, True, None),
        (ONLINE, False, False, Event.MUST_NOT_SERVE),
        (STOPPING, True, False, None),
        (STOPPING, False, True, Event.MUST_NOT_SERVE),
        (STOPPING, True, True, Event.STOP_OVERDUE),
    ],
)
def test_what_the_session_and_the_clock_lead_to(
    state: State, may_serve: bool, is_overdue: bool, event: Event | None
) -> None:
    assert due(state, may_serve=may_serve, is_overdue=is_overdue) is event
    if event is not None:
        step(state, event)
