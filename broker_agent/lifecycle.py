"""Pure: the four states of a broker and their transitions, as one table.

Offline: not running, or at local start-up work. Fenced: registering, catching up, or without a session; it
refuses clients. Online: it serves. Stopping: it was asked to stop, and serves until its leaderships have moved.

`Session.may_serve` is the one predicate behind MAY_SERVE and MUST_NOT_SERVE. Source: KIP-500, Broker States.
"""

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

from metadata_log.errors import Fault
from metadata_log.wire.fetch import BrokerState

State: TypeAlias = BrokerState


class Event(enum.Enum):
    STARTED = enum.auto()
    """Local start-up work is done."""
    MAY_SERVE = enum.auto()
    MUST_NOT_SERVE = enum.auto()
    STOP_REQUESTED = enum.auto()
    STOP_GRANTED = enum.auto()
    """The controller answered that this broker leads no partition any more."""
    STOP_OVERDUE = enum.auto()
    """Leaderships did not move within shutdown_timeout_ms."""


class IllegalTransition(Fault):
    """An event arrived in a state whose row does not list it: a bug."""


TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.OFFLINE: {
        Event.STARTED: State.FENCED,
        Event.STOP_REQUESTED: State.OFFLINE,  # main then ends the process
    },
    State.FENCED: {
        Event.MAY_SERVE: State.ONLINE,
        Event.STOP_REQUESTED: State.OFFLINE,  # it serves no client, so it has nothing to hand over
    },
    State.ONLINE: {
        Event.MUST_NOT_SERVE: State.FENCED,
        Event.STOP_REQUESTED: State.STOPPING,
    },
    State.STOPPING: {
        Event.STOP_REQUESTED: State.STOPPING,
        Event.MUST_NOT_SERVE: State.OFFLINE,  # other brokers lead by now, or clients may no longer ask this one
        Event.STOP_GRANTED: State.OFFLINE,
        Event.STOP_OVERDUE: State.OFFLINE,
    },
}
SERVING: Final = (State.ONLINE, State.STOPPING)
"""Clients are served here and nowhere else; the listener itself is open from start to exit."""


def step(state: State, event: Event) -> State:
    """Return the state after `event`. A broker that enters OFFLINE ends its process.

    Raises:
        IllegalTransition: the table has no such row.
    """
    entered = TRANSITIONS[state].get(event)
    if entered is None:
        raise IllegalTransition(f"{event.name} in {state.name}")
    return entered


def due(state: State, *, may_serve: bool, is_overdue: bool) -> Event | None:
    """Return what the session and the clock lead to now; `is_overdue`: the time for an orderly stop is over."""
    if state is State.FENCED:
        return Event.MAY_SERVE if may_serve else None
    if state not in SERVING:
        return None
    if not may_serve:
        return Event.MUST_NOT_SERVE
    return Event.STOP_OVERDUE if is_overdue and state is State.STOPPING else None
