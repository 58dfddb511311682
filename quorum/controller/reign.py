"""Pure: a reign: all that there is from a controller's claim to the end of its leadership, and that is gone with it."""

from collections import deque
from typing import Final

import msgspec

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.image.begun import SESSION_EXPIRED
from metadata_log.image.metadata_image import Delta, MetadataImage
from quorum.controller.broker_link import BrokerLink
from quorum.controller.changes import Changes, carry_out
from quorum.controller.mutation_buckets import MutationBuckets
from quorum.controller.sessions import Sessions
from quorum.decide.decision import Decision

CLOCK_JUMP_MS: Final = 1_000
"""Between two checks Unix time and the monotonic clock drift apart by less, unless the clock was set."""


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """One of a reign's batches on its way: its frame, and the image it leads to."""

    batch: RecordBatch
    frame: bytes
    image: MetadataImage
    delta: Delta


class Reign:
    """One leadership of this controller. It begins with a claim, and decides once that claim is applied.

    `tip` is the state with its batches in flight, which it alone knows. It ends by being dropped.
    """

    def __init__(self, claimed_on: MetadataImage, *, session_timeout_ms: int) -> None:
        self.epoch: Final = claimed_on.controller_epoch + 1
        self.tip = claimed_on
        self.is_active = False
        """Whether its claim is applied."""
        self.sessions = Sessions(session_timeout_ms=session_timeout_ms)
        self.links: dict[BrokerId, BrokerLink] = {}
        """The connection over which each broker was heard last, where its door keeps it."""
        self.changes = Changes()
        self.mutations = MutationBuckets()
        self._in_flight: deque[InFlight] = deque()
        self._ends_by_broker: dict[BrokerId, int] = {}
        self._checked_at_ms = 0
        self._time_of_day_ahead_ms = 0
        """How far Unix time was ahead of the monotonic clock at the last check."""

    def begin(self, committed: MetadataImage, *, now_ms: int, unix_ms: int) -> None:
        """Begin to decide: the claim is applied.

        Every unfenced broker gets a full session, but where the reign before had begun to fence it for silence. What that
        one had begun is finished.
        """
        self.is_active = True
        self._checked_at_ms = now_ms
        self._time_of_day_ahead_ms = unix_ms - now_ms
        self.sessions.grant_all(committed, now_ms)
        self.changes.take_over(committed)
        for broker_id, begun in committed.begun.items():
            if begun.cause == SESSION_EXPIRED and self.changes.takes_out(broker_id):
                self.sessions.forget(broker_id, committed.brokers[broker_id].broker_epoch)

    def heard(self, broker_id: BrokerId, link: BrokerLink | None) -> None:
        """Note over which connection a registered broker was heard; None: its door keeps none."""
        if self.links.get(broker_id) is link:
            return
        if link is None:
            del self.links[broker_id]
            return
        self.links[broker_id] = link
        link.watch(self.sessions.session_timeout_ms)
        if len(self.links) > len(self.tip.brokers):  # some were removed
            self.links = {each: kept for each, kept in self.links.items() if each in self.tip.brokers}

    def carry_out(self, decision: Decision, *, now_ms: int) -> None:
        """Make what a decision changes beside the log, once its records are appended."""
        self.sessions.end_offset = self.tip.end_offset
        carry_out(decision, self.sessions, self.changes, now_ms=now_ms)

    # --- batches in flight

    def extend(self, own: InFlight) -> None:
        """Let a batch that was appended lead to the tip."""
        self.tip = own.image
        self._in_flight.append(own)
        for broker_id in own.delta.brokers:
            self._ends_by_broker[broker_id] = own.batch.end_offset

    def take_committed(self, frames: bytes, at: int) -> InFlight | None:
        """Return the oldest batch in flight, which is in flight no more, if its frame is what was committed at `at`."""
        if not self._in_flight or not frames.startswith(self._in_flight[0].frame, at):
            return None
        return self._in_flight.popleft()

    def end_about(self, broker_id: BrokerId) -> int:
        """Return the end offset (exclusive) of the newest batch that concerns a broker; 0 if there is none."""
        return self._ends_by_broker.get(broker_id, 0)

    # --- clocks

    def slept_ms(self, now_ms: int) -> int:
        """Return the time since the last call: for longer than a check takes, this process did not run."""
        slept_ms, self._checked_at_ms = now_ms - self._checked_at_ms, now_ms
        return slept_ms

    def clock_jump_ms(self, now_ms: int, *, unix_ms: int) -> int:
        """Return by how much the machine's clock was set since the last call; 0 if it was not."""
        ahead_ms = unix_ms - now_ms
        jumped_ms, self._time_of_day_ahead_ms = ahead_ms - self._time_of_day_ahead_ms, ahead_ms
        return jumped_ms if abs(jumped_ms) > CLOCK_JUMP_MS else 0
