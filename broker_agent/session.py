"""Pure: a broker's session with the quorum, sans-IO: which request comes next, and until when the broker may serve.

The caller asks `next_step`, carries it out, and reports the outcome. Times are arguments.

Session deadline: the broker's runs from when it *sent* the last answered fetch, the controller's from when that fetch
arrived, which is later. The broker's is also shorter by the bound on clock drift. So this broker refuses clients before the
controller can fence it for silence, however long the answer took. The deadline is compared with the clock at each question:
no timer decides, because a timer may sleep through a suspend.

Which controller: the one that answered last. If it cannot be reached or is not active, the broker asks the one it names, and
then each other one once, without a pause. If none of them is active, the broker pauses: shortly at first, then longer, for a
random time.
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
from metadata_log.metadata_versions import OUR_BROKERS_FROM
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.features import (
    BROKERS_FEATURES,
    ELIGIBLE_LEADER_REPLICAS_LEVEL,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    METAQUORUM_VERSION_MIN,
)
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import FetchAnswer, FetchKind, FetchRequest

ROUND_PAUSE_MIN_MS: Final = 20
"""After a round without an active controller; an election takes tens of milliseconds, so look again soon."""
ROUND_PAUSE_FIRST_MAX_MS: Final = 50
ROUND_PAUSE_MAX_MS: Final = 500
REGISTER_SILENCE_MAX_MS: Final = 3_000
"""A registration waits for a commit. If a controller sends nothing for this time, the broker asks the next one."""
FETCH_SILENCE_SHARE: Final = 6
"""A parked fetch may be late by a sixth of the session. Half of the session is left to find another
controller."""

SUPPORTED_FEATURES: Final = (
    FeatureRange(METADATA_VERSION, OUR_BROKERS_FROM, METADATA_VERSION_LEVEL),
    FeatureRange(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, ELIGIBLE_LEADER_REPLICAS_LEVEL),
    FeatureRange(METAQUORUM_VERSION, METAQUORUM_VERSION_MIN, METAQUORUM_VERSION_LEVEL),
    *(FeatureRange(name, 0, level) for name, level in BROKERS_FEATURES.items()),
)
"""What a broker of this library registers. BROKERS_FEATURES are about data of transactions and groups; the library keeps
none, so each level that Kafka 4.3.1 knows is right for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to one controller. The call fails if no byte arrives for `silence_max_ms`."""

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
    """The controller's current setting; None if its answer has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A controller answered with an error; `controller_url` is the active controller, if the answer names it."""

    error: MetadataError
    controller_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """There was no answer, or none that this broker can read."""

    reason: str


Outcome: TypeAlias = Registered | Fetched | Refused | Unreachable


class Session:
    """The session of one broker process: it registers, fetches, and registers again if its epoch is no longer known."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        incarnation_id: Uuid,
        log_dirs: tuple[Uuid, ...],
        endpoints: tuple[BrokerEndpoint, ...],
        features: tuple[FeatureRange, ...] = (),
        previous_broker_epoch: int,
        rng: random.Random,
    ) -> None:
        """`features` are the host's own; one that the library has as well replaces the library's."""
        self._settings = settings
        self._rng = rng
        self.incarnation_id = incarnation_id
        self._registration = RegisterBroker(
            cluster_id=settings.cluster_id,
            broker_id=settings.broker_id,
            incarnation_id=incarnation_id,
            endpoints=endpoints,
            features=tuple({each.name: each for each in (*SUPPORTED_FEATURES, *features)}.values()),
            rack=settings.rack,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_broker_epoch,
        )
        self.broker_epoch: int | None = None
        """None until registered, and again once the controller no longer knows it."""
        self.want_fence = False
        self.want_shut_down = False
        self.offline_log_dirs: tuple[Uuid, ...] = ()
        """All that failed since the process started: each poll names them, as Kafka's heartbeats do."""
        self.cordoned_log_dirs: tuple[Uuid, ...] | None = None
        """None: the host says nothing about them."""
        self._session_timeout_ms = 0
        self._granted_wait_ms = 0
        self._max_wait_ms = 0
        self._answered_sent_ms: int | None = None
        self._serves_from = 0
        """The end offset that the image must reach before the broker serves: its fencing may lie below."""
        self._duplicate_since_ms: int | None = None
        self._urls = Round(settings.controllers)
        self._not_before_ms = 0
        self._pauses = 0

    # --- what to do next

    @property
    def controller_url(self) -> str:
        """The controller that is asked now: the active one, as far as this broker knows."""
        return self._urls.current

    def next_step(self, now_ms: int, position: Position) -> Call | WaitUntil:
        """Return the request to send now, or until when to wait; `position` is that of the local image."""
        if now_ms < self._not_before_ms:
            return WaitUntil(self._not_before_ms)
        if self.broker_epoch is None:
            return Call(
                url=self._urls.current,
                request=self._registration,
                sent_ms=now_ms,
                silence_max_ms=REGISTER_SILENCE_MAX_MS,
            )
        # A parked fetch renews the session only when it is answered. Without a session, ask for an answer at once.
        return self._fetch(now_ms, position, max_wait_ms=self._max_wait_ms if self.is_alive(now_ms) else 0)

    def farewell(self, now_ms: int, position: Position) -> Call | None:
        """Return a last fetch, which waits for nothing, so that a fenced broker's session ends with its process.

        None if the broker has no session.
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
                offline_log_dirs=self.offline_log_dirs,
                cordoned_log_dirs=self.cordoned_log_dirs,
                max_bytes=FETCH_BYTES_DEFAULT,
                max_wait_ms=max_wait_ms,
            ),
            sent_ms=now_ms,
            silence_max_ms=max_wait_ms + max(self._session_timeout_ms // FETCH_SILENCE_SHARE, 1),
        )

    # --- outcomes

    def on_registered(self, registered: Registered) -> None:
        self.broker_epoch = registered.broker_epoch
        self._granted_wait_ms = registered.max_wait_ms
        self._set_timeout(registered.session_timeout_ms)
        self._answered_sent_ms = None
        self._duplicate_since_ms = None
        self._succeeded()

    def on_fetched(self, now_ms: int, call: Call, fetched: Fetched) -> None:
        """Renew the session: `call` was answered.

        If the session had ended, or the answer is not a DELTA, the broker's fencing may lie below the high watermark. So it
        serves only after it has applied the log up to there.
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
        """Register again, ask another controller, or wait, as the error demands.

        Raises:
            Rejected: a retry cannot succeed; the message says what an operator has to do.
        """
        error = refused.error
        match error:
            case NotController():
                self._try_next(now_ms, refused.controller_url)
            case StaleBrokerEpoch() if self.broker_epoch is not None:
                # Another incarnation registered this id, an operator removed it, or the log lost the registration.
                if self._answered_sent_ms is None:
                    self._pause(now_ms)  # the epoch was never valid: do not register in a tight loop
                # This process still runs, so its replicas lost nothing since that epoch.
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
                # The controller failed (a commit timed out, a fault). Both requests may be repeated at the next one.
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
        """Wait for a random time, longer after each pause: many brokers must not ask at the same moment."""
        growth = 1.5 ** min(self._pauses, 10)
        low = min(ROUND_PAUSE_MIN_MS * growth, ROUND_PAUSE_MAX_MS / 2)
        high = min(ROUND_PAUSE_FIRST_MAX_MS * growth, ROUND_PAUSE_MAX_MS)
        self._pauses += 1
        self._not_before_ms = now_ms + self._rng.randint(round(low), round(high))

    # --- the session

    @property
    def deadline_ms(self) -> int | None:
        """When the session ends unless another fetch is answered; None before the first answer."""
        if self._answered_sent_ms is None:
            return None
        return self._answered_sent_ms + self._session_timeout_ms * (100 - CLOCK_DRIFT_PERCENT) // 100

    def is_alive(self, now_ms: int) -> bool:
        deadline_ms = self.deadline_ms
        return deadline_ms is not None and now_ms < deadline_ms

    def left_ms(self, now_ms: int) -> int:
        """Return how long the session lasts; 0 without one."""
        deadline_ms = self.deadline_ms
        return 0 if deadline_ms is None else max(deadline_ms - now_ms, 0)

    def may_serve(self, now_ms: int, image: MetadataImage) -> bool:
        """Answer whether the broker may serve: its session lasts, and an image that is new enough has its epoch unfenced."""
        broker = image.brokers.get(self._settings.broker_id)
        return (
            broker is not None
            and broker.broker_epoch == self.broker_epoch
            and broker.incarnation_id == self.incarnation_id
            and not broker.fenced
            and image.end_offset >= self._serves_from
            and self.is_alive(now_ms)
        )


class Round:
    """The controllers that failed since one last answered. A round asks each of them at most once."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._tried: set[str] = set()
        self.current = self._urls[0]

    def begin_with_current(self) -> None:
        self._tried.clear()

    def advance(self, hint: str | None) -> bool:
        """Go to the next controller; answer False if all of this round were asked.

        The one that `hint` names comes first, even if the settings do not list it: the voters may have changed. A hint that
        leads out of TLS counts as none: tokens would leave unencrypted.
        """
        self._tried.add(self.current)
        if hint is not None and self.current.startswith("https://") and not hint.startswith("https://"):
            hint = None
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
