"""Pure: the lifecycle, as its whole table."""

import pytest

from broker_agent.lifecycle import ON_ENTRY, TRANSITIONS, Action, Event, IllegalTransition, State, step

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
        assert step(state, event) == (after, () if after is state else ON_ENTRY[after])


def test_clients_are_served_online_and_stopping_and_nowhere_else() -> None:
    """Goal: no path leads to serving but through MAY_SERVE. Method: walk every path, keeping what was last said."""
    seen: set[tuple[State, bool]] = set()
    pending = [(OFFLINE, False)]
    while pending:
        state, serving = pending.pop()
        if (state, serving) in seen:
            continue
        seen.add((state, serving))
        for event in TRANSITIONS[state]:
            after, actions = step(state, event)
            now = serving
            for action in actions:
                now = {Action.SERVE_CLIENTS: True, Action.REFUSE_CLIENTS: False}.get(action, now)
            pending.append((after, now))
    assert seen == {(OFFLINE, False), (FENCED, False), (ONLINE, True), (STOPPING, True)}


def test_every_way_into_offline_ends_the_process() -> None:
    assert Action.EXIT in ON_ENTRY[OFFLINE]
    assert all(Action.EXIT not in actions for state, actions in ON_ENTRY.items() if state is not OFFLINE)
