"""Pure: the sessions of brokers at the active controller: the last contact of each, and what it reported.

None of it is in the log: a new claim starts without sessions and grants every unfenced broker one full session. A broker's
first heartbeat starts its session, not its registration. The session expires strictly later than `session_timeout_ms` after
the last heartbeat. Times are monotonic and never go back, so the dict of sessions is in the order of last contact.
"""

from collections.abc import Collection, Container
from heapq import heapify, heappop, heapreplace
from typing import assert_never

from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokerImage, BrokersImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide.decision import (
    Contact,
    RegisteredAgain,
    RegistrationChanged,
    SessionChange,
    ShutdownBegan,
    ShutdownLeft,
)


class _Session:
    """The last contact of one registration.

    `applied_offset` is what the broker reported last, exclusive. `known_offset`: like `applied_offset`, but reset to 0 when
    the registration changes, until the broker reports again. `is_leaving`: parts of its shutdown are still due. `level_ms`:
    when the broker last had all that there was, as far as it reported. At its last contact the log ended at `end_then`.
    """

    __slots__ = (
        "applied_offset",
        "broker_epoch",
        "contact_ms",
        "end_then",
        "end_then_ms",
        "is_leaving",
        "known_offset",
        "level_ms",
        "shutdown_offset",
    )

    def __init__(self, broker_epoch: int, contact_ms: int) -> None:
        self.broker_epoch = broker_epoch
        self.contact_ms = contact_ms
        self.level_ms = self.end_then_ms = contact_ms
        self.end_then = INT64_MAX
        self.applied_offset = 0
        self.known_offset = 0
        self.shutdown_offset: int | None = None
        self.is_leaving = False

    def copied(self) -> "_Session":
        other = _Session(self.broker_epoch, self.contact_ms)
        other.applied_offset, other.known_offset = self.applied_offset, self.known_offset
        other.shutdown_offset, other.is_leaving = self.shutdown_offset, self.is_leaving
        other.level_ms, other.end_then, other.end_then_ms = self.level_ms, self.end_then, self.end_then_ms
        return other

    def reports(self, applied_offset: int, *, end_offset: int, now_ms: int) -> None:
        """Note how far a broker has applied the log, which ends at `end_offset` now.

        A broker that never reaches a moving end is known to have had all of an earlier moment. Source: Kafka's
        lastCaughtUpTimestamp.
        """
        if applied_offset >= end_offset:
            self.level_ms = now_ms
        elif applied_offset >= self.end_then:
            self.level_ms = self.end_then_ms
        self.end_then, self.end_then_ms = end_offset, now_ms
        self.applied_offset = self.known_offset = applied_offset


class Sessions:
    """Sessions by broker; at most one registration of a broker has one at a time."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.end_offset = 0
        """Where the log ends, at the contact that is noted next."""
        self._sessions: dict[BrokerId, _Session] = {}
        self._registered_at: dict[BrokerId, tuple[int, int]] = {}
        self._stopping: set[BrokerId] = set()
        self._may_stop: set[BrokerId] = set()
        self._slowest: list[tuple[int, BrokerId]] | None = None
        """A heap of the brokers for which those wait that shut down. Each has an offset that it is known to have applied, or
        one below that. None: a broker may have fallen back, or may be missing.
        """
        self._slowest_of: BrokersImage | None = None
        """The brokers that `_slowest` was made of."""

    # --- sessions

    def contact(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int, applied_offset: int) -> None:
        """Renew the session of a registered broker; the caller has checked its epoch."""
        session = self._sessions.pop(broker_id, None)
        if session is None or session.broker_epoch != broker_epoch:
            session = _Session(broker_epoch, now_ms)
            self._may_stop.discard(broker_id)
            self._slowest = None
        elif applied_offset < session.known_offset:
            self._slowest = None
        session.contact_ms = now_ms
        session.reports(applied_offset, end_offset=self.end_offset, now_ms=now_ms)
        self._sessions[broker_id] = session  # at the end: the order of a dict is the order of contact

    def carry_out(self, change: SessionChange, *, now_ms: int) -> None:
        """Make a change that a decision lists."""
        match change:
            case Contact(broker_id, broker_epoch, applied_offset):
                self.contact(broker_id, broker_epoch, now_ms=now_ms, applied_offset=applied_offset)
            case RegisteredAgain(broker_id, broker_epoch, offset):
                self.registered_again(broker_id, broker_epoch, offset=offset)
            case RegistrationChanged(broker_id):
                self.registration_changed(broker_id)
            case ShutdownBegan(broker_id, broker_epoch, shutdown_offset):
                self.began_shutdown(broker_id, broker_epoch, offset=shutdown_offset)
            case ShutdownLeft(broker_id):
                self.left_shutdown(broker_id)
            case _:
                assert_never(change)

    def has_session(self, broker_id: BrokerId, broker_epoch: int, *, now_ms: int) -> bool:
        session = self._session(broker_id, broker_epoch)
        return session is not None and now_ms <= session.contact_ms + self.session_timeout_ms

    def expired(self, now_ms: int, *, but: Container[BrokerId] = ()) -> tuple[BrokerId, int, int] | None:
        """Return broker id, broker epoch and silence in milliseconds of the longest silent session that is over.

        Brokers in `but` are passed over.
        """
        for broker_id, session in self._sessions.items():
            if now_ms <= session.contact_ms + self.session_timeout_ms:
                break
            if broker_id not in but:
                return broker_id, session.broker_epoch, now_ms - session.contact_ms
        return None

    def forget(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """End the session of one registration; a newer one of the same broker is left alone."""
        if self._session(broker_id, broker_epoch) is not None:
            del self._sessions[broker_id]
            self._slowest = None
            self._may_stop.discard(broker_id)

    def grant_all(self, image: MetadataImage, now_ms: int) -> None:
        """Grant every unfenced broker, and every other that has a session, a full one; what they reported is kept."""
        self._slowest = None
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            session = self._session(broker_id, broker.broker_epoch)
            if session is None:
                if broker.fenced:
                    continue
                session = _Session(broker.broker_epoch, now_ms)
            session.contact_ms = now_ms
            self._sessions.pop(broker_id, None)
            self._sessions[broker_id] = session

    def seen(self) -> "Sessions":
        """Return sessions that show what brokers reported until now, for a thread."""
        seen = Sessions(session_timeout_ms=self.session_timeout_ms)
        seen._sessions = {broker_id: session.copied() for broker_id, session in self._sessions.items()}
        seen._registered_at = dict(self._registered_at)
        return seen

    # --- what brokers reported

    def applied_offset(self, broker_id: BrokerId) -> int | None:
        """Exclusive; None if the broker has no session."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.applied_offset

    def last_contact_ms_ago(self, broker_id: BrokerId, *, now_ms: int) -> int | None:
        session = self._sessions.get(broker_id)
        return None if session is None else now_ms - session.contact_ms

    def metadata_age_ms(self, broker_id: BrokerId, *, now_ms: int) -> int | None:
        """Return the time since a broker is known to have had all that there was; None if it has no session.

        It counts from the begin of this leadership at the earliest. At rest it grows until the next heartbeat.
        """
        session = self._sessions.get(broker_id)
        return None if session is None else now_ms - session.level_ms

    def lowest_active_offset(self, image: MetadataImage) -> int:
        """Return the lowest offset (exclusive) that any unfenced broker is known to have applied, those that shut down
        left out; without any, the greatest integer.
        """
        slowest = self.slowest_active(image)
        return INT64_MAX if slowest is None else slowest[1]

    def slowest_active(self, image: MetadataImage) -> tuple[BrokerId, int] | None:
        """Return the broker with the lowest active offset, and that; None if no broker is active.

        Every heartbeat asks while a broker shuts down, so brokers are walked only where one may have fallen back, or joined.
        """
        brokers, slowest = image.brokers, self._slowest
        if slowest is None or brokers is not self._slowest_of:
            slowest = [
                (known_offset, broker_id)
                for broker_id, broker in brokers.items()
                if (known_offset := self._active_offset(broker)) is not None
            ]
            heapify(slowest)
            self._slowest, self._slowest_of = slowest, brokers
        while slowest:
            offset, broker_id = slowest[0]
            known_offset = self._active_offset(brokers[broker_id])
            if known_offset == offset:
                return broker_id, offset
            if known_offset is None:
                heappop(slowest)
            else:
                heapreplace(slowest, (known_offset, broker_id))
        return None

    def _active_offset(self, broker: BrokerImage) -> int | None:
        """Return the offset that a broker is known to have applied; None if no other broker waits for it."""
        if broker.fenced:
            return None
        session = self._session(broker.broker_id, broker.broker_epoch)
        if session is None:
            return 0
        return session.known_offset if session.shutdown_offset is None else None

    def registration_changed(self, broker_id: BrokerId) -> None:
        session = self._sessions.get(broker_id)
        if session is not None:
            session.known_offset = 0
            self._slowest = None

    def registered_again(self, broker_id: BrokerId, broker_epoch: int, *, offset: int) -> None:
        """Forget what an incarnation reported that registers once more, at `offset`; its session goes on."""
        self._registered_at[broker_id] = (broker_epoch, offset)
        session = self._session(broker_id, broker_epoch)
        if session is not None:
            session.shutdown_offset, session.is_leaving = None, False
            self._may_stop.discard(broker_id)
            session.applied_offset = session.known_offset = 0
            self._slowest = None

    def registration_offset(self, broker_id: BrokerId, broker_epoch: int) -> int:
        """Return where the newest record of a registration stands: its epoch, unless it registered once more."""
        epoch, offset = self._registered_at.get(broker_id, (-1, -1))
        return offset if epoch == broker_epoch else broker_epoch

    # --- controlled shutdown

    def shutdown_offset(self, broker_id: BrokerId, broker_epoch: int) -> int | None:
        """Return the offset (exclusive) that others must have applied before this broker may go; None: it stays."""
        session = self._session(broker_id, broker_epoch)
        return None if session is None else session.shutdown_offset

    def may_stop(self) -> Collection[BrokerId]:
        """Return all brokers that `shutdown_offset` or `is_leaving` may concern; of most, there are none."""
        return self._may_stop

    def is_leaving(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Answer whether parts of a shutdown that began under this leadership may still be due.

        The leaderships may all have been in the first: then nothing else tells that others must learn of it.
        """
        session = self._session(broker_id, broker_epoch)
        return session is not None and session.is_leaving

    def began_shutdown(self, broker_id: BrokerId, broker_epoch: int, *, offset: int | None) -> None:
        """Remember where the leaderships of a stopping broker had moved away; the first offset stands.

        None: not all of them yet, another part is due.
        """
        session = self._session(broker_id, broker_epoch)
        if session is None:
            return
        session.is_leaving = offset is None
        self._may_stop.add(broker_id)
        if offset is not None and session.shutdown_offset is None:
            session.shutdown_offset = offset
            self._stopping.add(broker_id)

    def left_shutdown(self, broker_id: BrokerId) -> None:
        """Forget the shutdown of a broker that was fenced."""
        session = self._sessions.get(broker_id)
        if session is not None:
            self._slowest = None
            self._may_stop.discard(broker_id)
            session.shutdown_offset, session.is_leaving = None, False

    def ready_to_go(self, image: MetadataImage) -> list[BrokerId]:
        """Return the stopping brokers that every active broker has caught up with: their next heartbeat lets them go."""
        ready: list[BrokerId] = []
        lowest = self.lowest_active_offset(image) if self._stopping else 0
        for broker_id in sorted(self._stopping):
            session = self._sessions.get(broker_id)
            if session is None or session.shutdown_offset is None:
                self._stopping.discard(broker_id)
            elif session.shutdown_offset <= lowest:
                ready.append(broker_id)
        return ready

    def _session(self, broker_id: BrokerId, broker_epoch: int) -> _Session | None:
        session = self._sessions.get(broker_id)
        return session if session is not None and session.broker_epoch == broker_epoch else None
