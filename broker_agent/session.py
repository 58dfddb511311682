"""Pure: a broker's contact with the quorum, sans-IO: whom to ask what and when, and until when it may serve.

Whoever drives it asks `next_step`, does what it says, and tells the outcome; times are given, none is read.

Session deadline: it runs from when the last answered fetch was *sent*; the controller's runs from when that
fetch arrived, later. Ours is shorter by the bound on clock drift. So this broker refuses clients before
the controller can fence it for silence, however long the answer took. Clocks are compared on each question; a
timer that slept through a suspend decides nothing.

Whom to ask: the controller that answered last; where it is gone or not the active one, the one it names, then
each other once, without pause. After such a round nobody may be leading: a short, growing, random pause.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import structs

from broker_agent.config import BrokerSettings
from broker_agent.follower import Position
from metadata_log.errors import (
    DuplicateBrokerRegistration,
    MetadataError,
    NotController,
    Rejected,
    StaleBrokerEpoch,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import CLOCK_DRIFT_PERCENT, FETCH_BYTES_DEFAULT
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MIN,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
)
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import FetchAnswer, FetchKind, FetchRequest

ROUND_PAUSE_MIN_MS: Final = 20
"""After a round without an active controller; an election takes tens of milliseconds, so look again soon."""
ROUND_PAUSE_FIRST_MAX_MS: Final = 50
ROUND_PAUSE_MAX_MS: Final = 500
REGISTER_SILENCE_MAX_MS: Final = 3_000
"""A registration waits for a commit; a controller silent for so long is cut off, and the next is asked."""
LEAVING_WAIT_MAX_MS: Final = 100
"""Leave to go is given as an answer to a fetch that arrives when nothing is led any more: ask often."""
FETCH_SILENCE_SHARE: Final = 6
"""A parked fetch may be late by a sixth of the session: a silent controller leaves half to find another."""

SUPPORTED_FEATURES: Final = (
    FeatureRange(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LEVEL),
    FeatureRange(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL, METAQUORUM_VERSION_LEVEL),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to one controller. `silence_max_ms`: without a byte for so long, give it up."""

    url: str
    request: RegisterBroker | FetchRequest
    sent_ms: int
    silence_max_ms: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    answer: FetchAnswer
    frames: bytes
    session_timeout_ms: int | None = None
    """As the controller has it now; None: it did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A controller answered with an error; `controller_url` is the active one, where it knows it."""

    error: MetadataError
    controller_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No answer, or none that can be understood."""

    reason: str


Outcome: TypeAlias = Registered | Fetched | Refused | Unreachable


class Session:
    """One per process of a broker. It registers, fetches, and registers again where its epoch is gone."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        incarnation_id: Uuid,
        log_dirs: tuple[Uuid, ...],
        endpoints: tuple[BrokerEndpoint, ...],
        previous_broker_epoch: int,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._rng = rng
        self.incarnation_id = incarnation_id
        self._registration = RegisterBroker(
            cluster_id=settings.cluster_id,
            broker_id=settings.broker_id,
            incarnation_id=incarnation_id,
            endpoints=endpoints,
            features=SUPPORTED_FEATURES,
            rack=settings.rack,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_broker_epoch,
        )
        self.broker_epoch: int | None = None
        """None until registered, and again once the controller does not know it any more."""
        self.want_fence = False
        self.want_shut_down = False
        self._session_timeout_ms = 0
        self._granted_wait_ms = 0
        self._max_wait_ms = 0
        self._answered_sent_ms: int | None = None
        self._serves_from = 0
        """The end offset that the image must reach: below it our fencing may stand, unread yet."""
        self._duplicate_since_ms: int | None = None
        self._urls = _Round(settings.controllers)
        self._not_before_ms = 0
        self._pauses = 0

    # --- what to do next

    def next_step(self, now_ms: int, position: Position) -> Call | WaitUntil:
        """Return the request to send now, or until when to wait; `position` is of the local image."""
        if now_ms < self._not_before_ms:
            return WaitUntil(self._not_before_ms)
        if self.broker_epoch is None:
            return Call(
                url=self._urls.current,
                request=self._registration,
                sent_ms=now_ms,
                silence_max_ms=REGISTER_SILENCE_MAX_MS,
            )
        # Out of contact, an answer is worth more than news: a parked fetch renews nothing until it is answered.
        return self._fetch(now_ms, position, max_wait_ms=self._max_wait_ms if self.is_alive(now_ms) else 0)

    def farewell(self, now_ms: int, position: Position) -> Call | None:
        """Return a last fetch that waits for nothing: it lets a fenced broker's session end with its process.

        None where there is no session that could end.
        """
        if self.broker_epoch is None:
            return None
        self.want_shut_down = True
        return self._fetch(now_ms, position, max_wait_ms=0)

    def _fetch(self, now_ms: int, position: Position, *, max_wait_ms: int) -> Call:
        assert self.broker_epoch is not None
        return Call(
            url=self._urls.current,
            request=FetchRequest(
                cluster_id=self._settings.cluster_id,
                broker_id=self._settings.broker_id,
                broker_epoch=self.broker_epoch,
                incarnation_id=self.incarnation_id,
                fetch_offset=position.fetch_offset,
                last_epoch=position.last_epoch,
                last_crc=position.last_crc,
                applied_offset=position.fetch_offset,
                want_fence=self.want_fence,
                want_shut_down=self.want_shut_down,
                offline_log_dirs=(),
                cordoned_log_dirs=None,
                max_bytes=FETCH_BYTES_DEFAULT,
                max_wait_ms=max_wait_ms,
            ),
            sent_ms=now_ms,
            silence_max_ms=max_wait_ms + max(self._session_timeout_ms // FETCH_SILENCE_SHARE, 1),
        )

    # --- what came of it

    def on_registered(self, registered: Registered) -> None:
        self.broker_epoch = registered.broker_epoch
        self._granted_wait_ms = registered.max_wait_ms
        self._set_timeout(registered.session_timeout_ms)
        self._answered_sent_ms = None
        self._duplicate_since_ms = None
        self._succeeded()

    def on_fetched(self, now_ms: int, call: Call, fetched: Fetched) -> None:
        """Renew the session: `call` was answered. One that had ended has its fencing somewhere below the high watermark, and
        so has, perhaps, one that was not answered with what follows its own history.
        """
        if not self.is_alive(now_ms) or fetched.answer.kind is not FetchKind.DELTA:
            self._serves_from = fetched.answer.high_watermark
        if fetched.session_timeout_ms is not None:
            self._set_timeout(fetched.session_timeout_ms)
        self._answered_sent_ms = call.sent_ms
        self._succeeded()

    def _set_timeout(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._max_wait_ms = min(self._granted_wait_ms, session_timeout_ms // 3)

    def on_unreachable(self, now_ms: int) -> None:
        self._try_next(now_ms, None)

    def on_refused(self, now_ms: int, refused: Refused) -> None:
        """Take a controller's refusal.

        Raises:
            Rejected: for good; the leaf says why, and a human must act.
        """
        error = refused.error
        match error:
            case NotController():
                self._try_next(now_ms, refused.controller_url)
            case StaleBrokerEpoch() if self.broker_epoch is not None:
                # Another incarnation took the id, an operator removed us, or history was lost.
                if self._answered_sent_ms is None:
                    self._pause(now_ms)  # the epoch was never good: do not register in a tight circle
                # This process lives on, so nothing was lost since that epoch.
                self._registration = structs.replace(
                    self._registration, previous_broker_epoch=self.broker_epoch
                )
                self.broker_epoch = None
                self._answered_sent_ms = None
            case DuplicateBrokerRegistration():
                self._await_the_other(now_ms, error)
            case ThrottlingQuotaExceeded():
                self._pause(now_ms)
            case Rejected():
                raise error
            case _:
                # The controller's own trouble (a commit that timed out, a fault): both requests are
                # repeatable, and the next controller may do better.
                self._try_next(now_ms, None)

    def _await_the_other(self, now_ms: int, error: MetadataError) -> None:
        if self._duplicate_since_ms is None:
            self._duplicate_since_ms = now_ms
        waited_ms = now_ms - self._duplicate_since_ms
        if waited_ms >= self._settings.registration_timeout_ms:
            raise DuplicateBrokerRegistration(
                f"broker {self._settings.broker_id} is still registered elsewhere after {waited_ms} ms: "
                f"{error.message}; stop that process, or give this one another broker_id",
                **error.context,
            )
        self._pause(now_ms)

    def _succeeded(self) -> None:
        self._urls.begin_with_current()
        self._pauses = 0
        self._not_before_ms = 0

    def _try_next(self, now_ms: int, hint: str | None) -> None:
        if not self._urls.advance(hint):
            self._pause(now_ms)

    def _pause(self, now_ms: int) -> None:
        """Wait a while that grows, random so that many brokers do not ask in step."""
        growth = 1.5 ** min(self._pauses, 10)
        low = min(ROUND_PAUSE_MIN_MS * growth, ROUND_PAUSE_MAX_MS / 2)
        high = min(ROUND_PAUSE_FIRST_MAX_MS * growth, ROUND_PAUSE_MAX_MS)
        self._pauses += 1
        self._not_before_ms = now_ms + self._rng.randint(round(low), round(high))

    # --- what it means

    @property
    def deadline_ms(self) -> int | None:
        """When the session ends unless a later fetch is answered; None before the first answer."""
        if self._answered_sent_ms is None:
            return None
        return self._answered_sent_ms + self._session_timeout_ms * (100 - CLOCK_DRIFT_PERCENT) // 100

    def is_alive(self, now_ms: int) -> bool:
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and now_ms < deadline_ms

    def left_ms(self, now_ms: int) -> int:
        """Return what is left of the session; 0 without one."""
        deadline_ms = self.deadline_ms
        return 0 if deadline_ms is None else max(deadline_ms - now_ms, 0)

    def may_serve(self, now_ms: int, image: MetadataImage) -> bool:
        """Answer whether clients may be served: session alive, and an image that is new enough shows our epoch unfenced."""
        broker = image.brokers.get(self._settings.broker_id)
        return (
            broker is not None
            and broker.broker_epoch == self.broker_epoch
            and broker.incarnation_id == self.incarnation_id
            and not broker.fenced
            and image.end_offset >= self._serves_from
            and self.is_alive(now_ms)
        )


class _Round:
    """Which controllers were asked in vain since one last answered; every round asks each at most once."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._tried: set[str] = set()
        self.current = self._urls[0]

    def begin_with_current(self) -> None:
        self._tried.clear()

    def advance(self, hint: str | None) -> bool:
        """Give up the current one; answer whether another of this round is left to ask at once.

        A hint is believed even where it is none of the configured: voters may have changed since.
        """
        self._tried.add(self.current)
        if hint is not None and hint not in self._tried and len(self._tried) < 2 * len(self._urls):
            self.current = hint
            return True
        at = self._urls.index(self.current) + 1 if self.current in self._urls else 0
        after = self._urls[at:] + self._urls[:at]
        left = [url for url in after if url not in self._tried]
        self.current = left[0] if left else after[0]
        if not left:
            self._tried.clear()
        return bool(left)
