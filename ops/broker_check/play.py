"""Edge: what the points of the check share: the broker under test, its requests in order, and the answers of a controller.
Tests: tests/cluster/test_broker_check.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from metadata_log.errors import InvalidRequest
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import BrokerState, Diverging, FetchAnswer, FetchKind, FetchRequest
from ops.broker_check.stage import Asked, Stage
from ops.broker_check.story import CONTROLLER, START, Position, Story

T = TypeVar("T")
TURN_S: Final = 0.1
"""How often a wait for the broker looks whether its process has ended."""
NO_NEWS_S: Final = 0.05
"""How long a poll is parked that is not what a point waits for."""
A_LATER_FIELD: Final = {"a_field_of_a_later_release": {"nested": [1, "two", None]}}


class Wrong(Exception):
    """The broker did something else than the point wants; `ends`: the play cannot go further from here."""

    def __init__(self, seen: str, *, ends: bool = True) -> None:
        super().__init__(seen)
        self.seen = seen
        self.ends = ends


class Broker(Protocol):
    """The broker under test, as the play can start and stop it."""

    async def start(self, urls: Sequence[str], cluster_id: str) -> None: ...

    async def ask_to_stop(self) -> None: ...

    async def end(self) -> None:
        """Let its process end by all means; it may have ended."""

    @property
    def ended(self) -> int | None:
        """The exit code of its process; None: it runs, or the play does not see."""

    @property
    def is_watched(self) -> bool:
        """Whether `ended` tells of its end."""


class Patience(NamedTuple):
    """How long the play waits, in seconds: for a start or a stop of the broker, and for any other request."""

    start_s: float
    request_s: float


class Turn(NamedTuple):
    """A poll that waits for its answer."""

    asked: Asked
    poll: FetchRequest

    @property
    def position(self) -> Position:
        return Position.of(self.poll)


class Play:
    """One run of the check. A point takes `turn`, answers it with `deliver`, and may leave one poll to the next point."""

    def __init__(
        self, stage: Stage, broker: Broker, story: Story, *, session_timeout_ms: int, patience: Patience
    ) -> None:
        self.stage = stage
        self.broker = broker
        self.story = story
        self.session_timeout_ms = session_timeout_ms
        self.max_wait_ms = session_timeout_ms // 3
        self.patience = patience
        self.command: RegisterBroker | None = None
        self.broker_epoch = -1
        self.serves: Callable[[], Awaitable[bool]] | None = None
        """Asks the broker whether it serves clients; None: the check was not told how."""
        self._left: Asked | None = None
        stage.story = story

    @property
    def known(self) -> RegisterBroker:
        assert self.command is not None, "points come after the registration"
        return self.command

    # --- what the broker asks

    async def ask(self, wanted: str, patience_s: float | None = None) -> Asked:
        """Return the request that a point left, or the next one.

        Raises:
            Wrong: there was none in time, or the broker's process ended.
        """
        if self._left is not None:
            asked, self._left = self._left, None
            return asked
        within_s = self.patience.request_s if patience_s is None else patience_s
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + within_s
        while now_s() < deadline_s:
            if (asked_now := await self.stage.next(TURN_S)) is not None:
                return asked_now
            if self.broker.ended is not None:
                raise Wrong(f"its process ended with exit code {self.broker.ended}, wanted {wanted}")
        raise Wrong(f"no request within {within_s:g} s, wanted {wanted}")

    async def registration(self, wanted: str, patience_s: float | None = None) -> Asked:
        """Return the next request, which must be a registration."""
        asked = await self.ask(wanted, patience_s)
        if not asked.is_registration:
            raise Wrong(f"it polled, wanted {wanted}")
        return asked

    async def turn(self, wanted: str = "a poll", patience_s: float | None = None) -> Turn:
        """Return the next request, which must be a poll of the registered broker.

        Raises:
            Wrong: it is another request, or names another broker, epoch, incarnation or cluster.
        """
        asked = await self.ask(wanted, patience_s)
        if asked.is_registration:
            self.leave(asked)
            raise Wrong(f"it registered again, wanted {wanted}")
        poll = read(asked.poll)
        for name in ("cluster_id", "broker_id", "incarnation_id"):
            if getattr(poll, name) != getattr(self.known, name):
                raise Wrong(f"the poll's {name} is not the one that it registered with")
        if poll.broker_epoch != self.broker_epoch:
            raise Wrong(f"the poll's broker_epoch is {poll.broker_epoch}, wanted {self.broker_epoch}")
        return Turn(asked, poll)

    def leave(self, asked: Asked) -> None:
        """Leave a request unanswered, for the next point."""
        self._left = asked

    def forget(self) -> None:
        """Forget what the process before left."""
        self._left = None

    # --- what it is answered

    def registered(self, asked: Asked, *, more: dict[str, Any] | None = None) -> None:
        answer = Registered(
            broker_epoch=self.broker_epoch,
            controller_id=CONTROLLER,
            controller_epoch=self.story.image.controller_epoch,
            high_watermark=self.story.image.end_offset,
            session_timeout_ms=self.session_timeout_ms,
            max_wait_ms=self.max_wait_ms,
        )
        asked.answer(answer.to_map() | (more or {}))

    def deliver(
        self,
        asked: Asked,
        frames: bytes = b"",
        *,
        kind: FetchKind = FetchKind.DELTA,
        diverging: Diverging | None = None,
        should_shut_down: bool = False,
        more: dict[str, Any] | None = None,
    ) -> None:
        """Answer a poll: the head as a controller makes it, and whole frames after it."""
        story = self.story
        head = FetchAnswer(
            kind=kind,
            high_watermark=story.end.offset,
            log_start_offset=story.snapshot_end.offset,
            controller_id=CONTROLLER,
            controller_epoch=story.image.controller_epoch,
            broker_state=self._state(),
            should_shut_down=should_shut_down,
            snapshot=story.offer if kind is FetchKind.IMAGE else None,
            diverging=diverging,
        )
        asked.answer_poll(head, frames, session_timeout_ms=self.session_timeout_ms, more=more or {})

    def _state(self) -> BrokerState | None:
        broker = self.story.image.brokers.get(self.known.broker_id)
        if broker is None:
            return None
        if broker.fenced:
            return BrokerState.FENCED
        return BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE

    def bring_further(self, turn: Turn) -> bool:
        """Answer a poll with what its position asks for; False, and no answer: it has all.

        Raises:
            Wrong: no frame of this history ends at its position.
        """
        if turn.position == START:
            self.deliver(turn.asked, kind=FetchKind.IMAGE)
            return True
        frames = self.story.after(turn.position)
        if frames is None:
            raise Wrong(f"no frame ends at its position {told(turn.position)}")
        if frames:
            self.deliver(turn.asked, b"".join(frames))
        return bool(frames)

    async def catch_up(
        self,
        wanted: str = "a poll that has applied all",
        *,
        until: Callable[[FetchRequest], bool] = lambda _: True,
    ) -> Turn:
        """Answer polls until one has applied all that there is, and `until` holds of it; return it, unanswered."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self.patience.request_s
        while now_s() < deadline_s:
            turn = await self.turn(wanted)
            if self.bring_further(turn):
                continue
            if turn.poll.applied_offset >= self.story.end.offset and until(turn.poll):
                return turn
            await asyncio.sleep(NO_NEWS_S)
            self.deliver(turn.asked)
        raise Wrong(f"within {self.patience.request_s:g} s there was none: wanted {wanted}")

    async def unfence(self) -> None:
        """Wait until the broker has applied its registration and asks for no fence; then take it into service."""
        turn = await self.catch_up("a poll with want_fence false", until=lambda poll: not poll.want_fence)
        self.story.change(self.known.broker_id, fenced=False)
        self.bring_further(turn)
        self.leave((await self.catch_up()).asked)


def read(reading: Callable[[], T]) -> T:
    """Return what a request holds; where it is malformed, that is what the broker does wrong."""
    try:
        return reading()
    except InvalidRequest as error:
        raise Wrong(error.message) from error


def told(position: Position) -> str:
    return f"(fetch_offset {position.offset}, last_epoch {position.epoch}, last_crc {position.crc})"
