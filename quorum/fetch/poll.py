"""Pure: one poll under way: what it asks, and in which state it is until it is answered (drawn in docs/states.md)."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from metadata_log.errors import MetadataError
from metadata_log.wire.fetch import OBSERVER, FetchAnswer, FetchRequest
from quorum.controller.callers import Caller


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a poll is answered: `frames`, exactly as stored, are for a DELTA. Each door encodes it in its own way.

    Polls that get the same share one Reply, so a door may keep what it encodes by the Reply itself.
    """

    answer: FetchAnswer
    frames: bytes


Outcome: TypeAlias = Reply | MetadataError
"""What ends a poll: its reply, or why it is refused."""


class _ByIdentity(enum.Enum):
    """There is one object of each member. An Enum's own hash is that of its name: a call each time, ten of them a poll."""

    __hash__ = object.__hash__


class PollState(_ByIdentity):
    ARRIVED = "ARRIVED"
    """Its broker's heartbeat is decided, and what that leads to is waited for."""
    WAITING = "WAITING"
    """There is nothing for it yet."""
    UNPROVED = "UNPROVED"
    """The next round of probes is for it."""
    PROVING = "PROVING"
    """The round of probes under way is for it."""
    DUE = "DUE"
    """One of the next slices answers it."""
    REFUSED = "REFUSED"
    """One of the next slices refuses it: this controller stopped being active."""
    COLD = "COLD"
    """A thread reads its frames from segments."""
    OVER = "OVER"
    """It was answered, refused, or given up by its client."""


class PollEvent(_ByIdentity):
    PARKED = "nothing for it yet"
    WANTS_PROOF = "news or deadline, leadership not proved since its arrival"
    ROUND_BEGAN = "a round of probes began"
    READY = "news or deadline, leadership proved"
    RESIGNED = "the controller resigned"
    FRAMES_ARE_COLD = "its frames are in segments only"
    ENDED = "answered, refused or given up"


_UNTIL_DUE: Final = {PollEvent.RESIGNED: PollState.REFUSED, PollEvent.ENDED: PollState.OVER}
MOVES: Final[Mapping[PollState, Mapping[PollEvent, PollState]]] = {
    PollState.ARRIVED: {
        PollEvent.PARKED: PollState.WAITING,
        PollEvent.WANTS_PROOF: PollState.UNPROVED,
        PollEvent.READY: PollState.DUE,
        PollEvent.ENDED: PollState.OVER,
    },
    PollState.WAITING: {
        PollEvent.WANTS_PROOF: PollState.UNPROVED,
        PollEvent.READY: PollState.DUE,
        **_UNTIL_DUE,
    },
    PollState.UNPROVED: {PollEvent.ROUND_BEGAN: PollState.PROVING, **_UNTIL_DUE},
    PollState.PROVING: {PollEvent.READY: PollState.DUE, **_UNTIL_DUE},
    PollState.DUE: {PollEvent.FRAMES_ARE_COLD: PollState.COLD, PollEvent.ENDED: PollState.OVER},
    PollState.REFUSED: {PollEvent.ENDED: PollState.OVER},
    # A retention may remove what it reads: then a snapshot is due.
    PollState.COLD: {PollEvent.READY: PollState.DUE, PollEvent.ENDED: PollState.OVER},
    PollState.OVER: {},
}


class Poll:
    """One poll under way; `done` gets its outcome exactly once."""

    __slots__ = (
        "_done",
        "arrived_end",
        "arrived_ms",
        "caller",
        "is_late",
        "is_proved",
        "request",
        "should_shut_down",
        "state",
        "takes_stale",
        "waits_at",
    )

    def __init__(
        self,
        request: FetchRequest,
        caller: Caller,
        *,
        arrived_ms: int,
        arrived_end: int,
        done: Callable[[Outcome], None],
        takes_stale: bool = False,
    ) -> None:
        self.request = request
        self.caller = caller
        self.takes_stale = takes_stale
        """An observer that a follower may answer."""
        self.arrived_ms = arrived_ms
        self.arrived_end = arrived_end
        """The end of the tip when it arrived: a commit beyond it proves leadership newer than its arrival."""
        self.state = PollState.ARRIVED
        self.is_proved = False
        """A round of probes that began after its arrival proved leadership."""
        self.should_shut_down = False
        self.is_late = False
        """The poll was evaluated too late: it is answered early, so that its broker polls again."""
        self.waits_at = 0
        """The end of the log at which there was nothing for it."""
        self._done = done

    @property
    def is_observer(self) -> bool:
        return self.request.broker_id == OBSERVER

    @property
    def is_over(self) -> bool:
        return self.state is PollState.OVER

    def on(self, event: PollEvent) -> None:
        """Enter the state that MOVES has for an event in the present one."""
        to = MOVES[self.state].get(event)
        assert to is not None, f"{event.name} of a poll that is {self.state.name}"
        self.state = to

    def finish(self, outcome: Outcome) -> None:
        if self.state is not PollState.OVER:
            self.on(PollEvent.ENDED)
            self._done(outcome)
