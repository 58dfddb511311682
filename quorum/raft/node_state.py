"""Pure: the state of a node of Raft, from its start to its end, as one table of edges.

A node that the engine elected leads once all that its log held before is applied; until then it catches up. The first entry
of a leadership that has frames repeats the voters in force (`voters.py`); until it is proposed the leadership is
unconfirmed. docs/states.md has the drawing, which `python -m tests.state_page` makes from this table.
"""

import enum
from collections.abc import Mapping
from typing import Final

from metadata_log.errors import InvariantBroken


class State(enum.Enum):
    MADE = "made"
    LOADING = "loading"
    """`run` was called, and looks for the snapshot that the log begins with. There is no engine yet."""
    FOLLOWS = "follows"
    """It follows, campaigns or observes: the engine knows which."""
    CATCHING_UP = "catching up"
    """The engine was elected, and the log of before is being applied."""
    LEADS_UNCONFIRMED = "leads, unconfirmed"
    LEADS = "leads"
    CLOSING = "closing"
    """Nothing further leaves this node: it was closed, or a fault ends it."""
    ENDED = "ended"


class Edge(enum.Enum):
    STARTED = "started"
    TAKES_PART = "takes part"
    ELECTED = "elected, with nothing to apply"
    ELECTED_BEHIND = "elected, with a log to apply"
    CAUGHT_UP = "caught up"
    CONFIRMED = "voters confirmed"
    CEASED = "ceased to lead"
    CLOSED = "closed"
    ENDED = "ended"


_TAKING_PART: Final[Mapping[Edge, State]] = {
    Edge.CEASED: State.FOLLOWS,
    Edge.CLOSED: State.CLOSING,
    Edge.ENDED: State.ENDED,  # by a fault
}
EDGES: Final[Mapping[State, Mapping[Edge, State]]] = {
    State.MADE: {Edge.STARTED: State.LOADING, Edge.CLOSED: State.CLOSING},
    State.LOADING: {
        Edge.TAKES_PART: State.FOLLOWS,
        Edge.CLOSED: State.CLOSING,
        Edge.ENDED: State.ENDED,  # the snapshot, or the journal, is damaged
    },
    State.FOLLOWS: {
        **_TAKING_PART,
        Edge.ELECTED: State.LEADS_UNCONFIRMED,
        Edge.ELECTED_BEHIND: State.CATCHING_UP,
    },
    State.CATCHING_UP: {**_TAKING_PART, Edge.CAUGHT_UP: State.LEADS_UNCONFIRMED},
    State.LEADS_UNCONFIRMED: {**_TAKING_PART, Edge.CONFIRMED: State.LEADS},
    State.LEADS: _TAKING_PART,
    State.CLOSING: {
        Edge.STARTED: State.CLOSING,  # it was closed before it ran
        Edge.CLOSED: State.CLOSING,
        Edge.ENDED: State.ENDED,
    },
    State.ENDED: {Edge.CLOSED: State.ENDED},
}
TAKING_PART: Final = (State.FOLLOWS, State.CATCHING_UP, State.LEADS_UNCONFIRMED, State.LEADS)


class NodeState:
    """Where one node is in the table; one method for each edge.

    Each raises InvariantBroken if the table has no such edge: a bug.
    """

    def __init__(self) -> None:
        self.now = State.MADE

    @property
    def leads(self) -> bool:
        """Whether the listener was told that this node leads."""
        return self.now is State.LEADS or self.now is State.LEADS_UNCONFIRMED

    @property
    def has_engine(self) -> bool:
        """Whether it takes part: before that, and once it is being closed, the engine is not asked for anything."""
        return self.now in TAKING_PART

    @property
    def is_closing(self) -> bool:
        return self.now in (State.CLOSING, State.ENDED)

    @property
    def is_running(self) -> bool:
        """Whether `run` has begun, and neither ended nor been asked to."""
        return self.now is State.LOADING or self.has_engine

    def started(self) -> None:
        self._move(Edge.STARTED)

    def takes_part(self) -> None:
        self._move(Edge.TAKES_PART)

    def elected(self) -> None:
        self._move(Edge.ELECTED)

    def elected_behind(self) -> None:
        self._move(Edge.ELECTED_BEHIND)

    def caught_up(self) -> None:
        self._move(Edge.CAUGHT_UP)

    def confirmed(self) -> None:
        self._move(Edge.CONFIRMED)

    def ceased(self) -> bool:
        """Follow, also after a candidacy that failed; answer whether it led."""
        led = self.leads
        self._move(Edge.CEASED)
        return led

    def closed(self) -> bool:
        """Let nothing further leave; answer whether it led."""
        led = self.leads
        self._move(Edge.CLOSED)
        return led

    def ended(self) -> None:
        self._move(Edge.ENDED)

    def _move(self, edge: Edge) -> None:
        to = EDGES[self.now].get(edge)
        if to is None:
            raise InvariantBroken(f"a node that is {self.now.value!r} has no edge {edge.value!r}")
        self.now = to
