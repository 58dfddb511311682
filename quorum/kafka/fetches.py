"""Edge: fetches of Kafka's metadata log: those that wait for news, and what each broker has read.

A fetch that gets nothing yet is parked, without a task and a timer of its own, for as long as it says. A commit, a claim and
a snapshot end its wait. So does its deadline, with an answer without records. Where no leader may be named, every fetch is
parked: an answer at once would be asked again at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import MetadataError
from metadata_log.ids import NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.kafka.messages import answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.node.addresses import HostPort
from metadata_log.node.pace import Pieces
from metadata_log.records.quorum import KAFKA_ENDPOINT
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.controller import Controller
from quorum.fetch.observers import Observer, Observers
from quorum.kafka.replies import (
    AT_ZERO,
    NO_LEADER,
    UNKNOWN_LEADER_EPOCH,
    AwaitSnapshot,
    Leadership,
    Position,
    SendDiverging,
    Sending,
    SendRecords,
    SendSnapshot,
    SnapshotName,
    is_at_end,
    leadership,
    refusal,
    reply_to,
)
from quorum.kafka.translated_log import TranslatedLog
from quorum.node.config import ControllerSettings
from quorum.pace.fair_queue import FairQueue
from quorum.pace.ticks import Ticks

log = logging.getLogger(__name__)

FETCH: Final = 1
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = TopicId(Uuid(bytes(15) + b"\x01"))
ENDPOINTS_FROM: Final = 16
"""From this version on an answer has the leader's address. A broker that learns of a leader without an address ends."""
FETCHES_OF_PIECE: Final = 8
"""Of those that end together, how many are looked at before the clock is: some 0.1 ms."""
NO_EPOCH_END: Final = (-1, -1)
NO_SNAPSHOT: Final = (-1, -1)


class Fetch(NamedTuple):
    """A fetch of the metadata log, as a broker sends it. `epoch` is that of the leader whom it asks.

    `high_watermark` is the one that it knows; a version that does not say it has the largest. `client` is the sender as
    far as it is known: its principal or, where identity is off, its address.
    """

    version: int
    position: Position
    epoch: int
    max_wait_ms: int
    max_bytes: int
    high_watermark: int
    replica_id: int
    directory_id: Uuid
    client: str


Done = Callable[[bytes], None]
"""Gets the answer, all that comes after its correlation id."""


class Parked:
    """A fetch that is not answered yet."""

    __slots__ = ("done", "fetch", "is_unreadable", "until_ms")

    def __init__(self, fetch: Fetch, done: Done, until_ms: int) -> None:
        self.fetch = fetch
        self.done: Done | None = done
        """None: its client is gone."""
        self.until_ms = until_ms
        self.is_unreadable = False
        """A read of its records failed: it waits for its deadline."""


class Snapshots(Protocol):
    """Where the snapshots for Kafka's brokers are made."""

    def newest(self) -> SnapshotName | None:
        """Return the newest that is whole."""

    def is_shorter(self, log_bytes: int) -> bool:
        """Answer whether there is one, or can be, of fewer bytes than this."""

    def want(self, start: int) -> None:
        """Have one made that ends at `start` or later, if there is none."""


class KafkaFetches(AppliedListener):
    """All fetches of one controller; it follows `translated`, which gets each batch first."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        translated: TranslatedLog,
        snapshots: Snapshots,
        log_bytes: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`log_bytes` returns those of the whole committed log."""
        self._settings = settings
        self._max_wait_ms = settings.timing.max_wait_ms
        self._controller = controller
        self._log = translated
        self._snapshots = snapshots
        self._log_bytes = log_bytes
        self._now_ms = now_ms
        self._parked = Ticks[Parked](now_ms=now_ms, on_deadline=self._have_news)
        self._ready: dict[Parked, None] = {}
        """Those whose turn is next."""
        self._slices = Pieces(self._next_piece, now_ms=now_ms)
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at_ms = 0
        self._rested_at = 0
        """The end of the log at which fetches were woken last."""
        self._cold = FairQueue[tuple[int, int]](each_max=limits.KAFKA_COLD_READS_OF_CLIENT_MAX)
        """Offset and size of reads of segments. One that several clients want waits for each, and is done once."""
        self._waits_for_cold: dict[tuple[int, int], list[Parked]] = {}
        self._heard: NodeId | None = None
        self._looked_ms = -limits.FETCH_TICK_MS
        self._led_by: tuple[MetadataImage | None, bool, NodeId | None] = (None, False, None)
        self._led = Leadership(0, NodeId(NO_LEADER), is_ours=False)
        """What answers say about the leader, and what that rests on."""
        self._kept: dict[tuple[object, ...], bytes] = {}
        self._kept_bytes = 0
        self._hold_at: tuple[object, ...] = ()
        """What the kept answers rest on."""
        self._observers = Observers()
        translated.on_translated = self.wake

    # --- arrival

    def take(self, fetch: Fetch, done: Done) -> Callable[[], None] | None:
        """Answer a fetch by `done`, at once or later; then return what is called when its client goes before that."""
        wait_ms = min(fetch.max_wait_ms, self._max_wait_ms)
        now_ms = self._now_ms()
        parked = Parked(fetch, done, now_ms + wait_ms)
        self._observe(fetch, now_ms)
        self._evaluate(parked, now_ms)
        return None if parked.done is None else lambda: self._give_up(parked)

    def _give_up(self, parked: Parked) -> None:
        parked.done = None
        self._parked.take(parked)
        self._ready.pop(parked, None)

    def _observe(self, fetch: Fetch, now_ms: int) -> None:
        if fetch.replica_id < 0 or not self._controller.is_active:
            return
        self._observers.fetched(
            (fetch.replica_id, fetch.directory_id),
            fetch.client,
            offset=fetch.position.offset,
            end_offset=self._log.end_offset,
            now_ms=now_ms,
        )

    def observers(self) -> Iterator[Observer]:
        """Yield the brokers that have asked this leader within OBSERVER_MS."""
        self._observers.forget_silent(self._now_ms())
        yield from self._observers

    # --- what ends the wait

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if delta.claim:
            self._observers.clear()
            self._looked_ms = self._now_ms() - limits.FETCH_TICK_MS
            self.wake()

    def on_rest(self) -> None:
        if self._log.end_offset == self._rested_at:
            return
        self._rested_at = self._log.end_offset
        if self._waking is None and len(self._parked):
            rest_ms = self._woken_at_ms + limits.FETCH_COALESCE_MS - self._now_ms()
            if rest_ms <= 0:
                self.wake()
            else:
                self._waking = asyncio.get_running_loop().call_later(rest_ms / 1000, self.wake)

    def on_restored(self, image: MetadataImage) -> None:  # noqa: ARG002 (the listener's signature)
        self.wake()

    def wake(self) -> None:
        """Look at all fetches that wait: there may be news."""
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None
        if len(self._parked):
            self._woken_at_ms = self._now_ms()
            self._have_news(self._parked.take_all())

    def _have_news(self, parked: list[Parked]) -> None:
        self._ready.update(dict.fromkeys(parked))
        self._slices.wake()

    def _next_piece(self) -> bool:
        ready = self._ready
        if not ready:
            return False
        now_ms = self._now_ms()
        for parked in list(islice(ready, FETCHES_OF_PIECE)):
            ready.pop(parked, None)
            self._evaluate(parked, now_ms)
        return True

    # --- evaluation

    def leadership(self) -> Leadership:
        """Return whom answers name as the leader. One whose address is not known is not named: its broker would end."""
        controller = self._controller
        image, is_active = controller.committed, controller.is_active
        # The active controller is the claimant, and names itself.
        heard = None if is_active else self._heard_leader()
        seen_image, was_active, had_heard = self._led_by
        if image is not seen_image or is_active is not was_active or heard != had_heard:
            self._led_by, self._led = (image, is_active, heard), self._leadership(image, is_active, heard)
        return self._led

    def _leadership(self, image: MetadataImage, is_active: bool, heard: NodeId | None) -> Leadership:
        claimant = image.claimant
        now = leadership(
            epoch=image.controller_epoch,
            claimant=None if claimant is None else claimant.controller_id,
            node_id=self._settings.node_id,
            is_active=is_active,
            heard=heard,
        )
        if now.leader != NO_LEADER and kafka_address(image, now.leader) is None:
            return Leadership(now.epoch, NO_LEADER, is_ours=False)
        return now

    def _heard_leader(self) -> NodeId | None:
        """Return the leader of whom a message arrived within the shortest election timeout; looked up once a tick."""
        now_ms = self._now_ms()
        if now_ms - self._looked_ms >= limits.FETCH_TICK_MS:
            status = self._controller.raft.status()
            heard_ms_ago = status.leader_heard_ms_ago
            is_heard = (
                heard_ms_ago is not None and heard_ms_ago < self._settings.timing.election_timeout_min_ms
            )
            self._heard, self._looked_ms = status.leader_id if is_heard else None, now_ms
        return self._heard

    def _evaluate(self, parked: Parked, now_ms: int) -> None:
        """Answer a fetch, or have it wait."""
        if parked.done is None:
            return
        fetch, now = parked.fetch, self.leadership()
        is_due = now_ms >= parked.until_ms
        end_offset = self._log.end_offset
        if (
            now.is_ours
            and fetch.epoch == now.epoch
            and is_at_end(fetch.position, last_epoch=now.epoch, high_watermark=end_offset)
        ):  # as of nearly all
            self._have_wait(parked, now, is_due=is_due)
            return
        error = refusal(fetch.epoch, now)
        if error is not None:
            # A later epoch is one whose claim has not arrived here yet.
            if is_due or (now.leader != NO_LEADER and error != UNKNOWN_LEADER_EPOCH):
                self._finish(parked, self._answer(fetch, now, error=error))
            else:
                self._park(parked)
            return
        sending = self._sending(fetch.position)
        if sending is None:
            self._have_wait(parked, now, is_due=is_due)
        elif isinstance(sending, SendRecords):
            self._send_records(parked, now, is_due=is_due)
        elif isinstance(sending, SendSnapshot | SendDiverging):
            self._finish(parked, self._answer(fetch, now, sending))
        elif is_due:
            self._finish(parked, self._answer(fetch, now))
        else:
            self._park(parked)

    def _have_wait(self, parked: Parked, now: Leadership, *, is_due: bool) -> None:
        """Have a fetch wait that gets no records, unless its time is over, or its broker lacks the high watermark."""
        if is_due or parked.fetch.high_watermark < self._log.end_offset:
            self._finish(parked, self._answer(parked.fetch, now))
        else:
            self._park(parked)

    def _sending(self, position: Position) -> Sending | None:
        epochs, snapshots = self._log.epochs, self._snapshots
        is_long = position == AT_ZERO and epochs.start == 0 and snapshots.is_shorter(self._log_bytes())
        sending = reply_to(
            position,
            epochs=epochs,
            high_watermark=self._log.end_offset,
            newest=snapshots.newest(),
            is_long=is_long,
        )
        if isinstance(sending, AwaitSnapshot):
            snapshots.want(epochs.start)
        return sending

    def _send_records(self, parked: Parked, now: Leadership, *, is_due: bool) -> None:
        fetch, log = parked.fetch, self._log
        offset = fetch.position.offset
        is_ready = log.is_ready()
        if log.has(offset):
            self._finish(parked, self._answer(fetch, now, SendRecords(offset)))
        elif log.is_cold(offset) and not parked.is_unreadable:
            read = (offset, fetch.max_bytes)
            if self._cold.put(fetch.client, read):
                self._waits_for_cold.setdefault(read, []).append(parked)
            elif is_due:
                self._finish(parked, self._answer(fetch, now))
            else:
                self._park(parked)
        elif is_due:
            self._finish(parked, self._answer(fetch, now))
        else:
            assert not is_ready or parked.is_unreadable, "a window that is ready has all that is not cold"
            self._park(parked)

    def _park(self, parked: Parked) -> None:
        self._parked.add(parked, until_ms=parked.until_ms)

    def _finish(self, parked: Parked, tail: bytes) -> None:
        done, parked.done = parked.done, None
        if done is not None:
            done(tail)

    # --- what is read of segments

    async def run(self) -> None:
        """Read for brokers that are behind, one read after the other, until cancelled."""
        while True:
            read = await self._cold.get()
            if all(parked.done is None for parked in self._waits_for_cold.get(read, ())):
                self._waits_for_cold.pop(read, None)  # it was done in another's turn, or the clients are gone
                continue
            try:
                data = await self._log.read_cold(read[0], max_bytes=read[1])
            except MetadataError as error:
                log.warning("kafka_fetch_failed", extra={"offset": read[0], "reason": error.message})
                for parked in self._waits_for_cold.pop(read):
                    parked.is_unreadable = True
                    parked.until_ms = max(parked.until_ms, self._now_ms() + limits.FETCH_TICK_MS)
                    self._park(parked)
                continue
            waiting, now = self._waits_for_cold.pop(read), self.leadership()
            for parked in waiting:
                if not data or refusal(parked.fetch.epoch, now) is not None:
                    self._have_news([parked])
                else:
                    self._finish(parked, self._answer(parked.fetch, now, records=data))

    # --- answers

    def _answer(
        self,
        fetch: Fetch,
        now: Leadership,
        sending: Sending | None = None,
        *,
        records: bytes | None = None,
        error: int = 0,
    ) -> bytes:
        """Return an answer's bytes; brokers at one position get the same ones."""
        if records is not None:
            return answer_tail(FETCH, fetch.version, self._values(fetch, now, None, records, error))
        log, image = self._log, self._controller.committed
        holds_at = (log.end_offset, log.epochs.start, now, image.quorum.voters, image.controllers)
        if holds_at != self._hold_at or self._kept_bytes > limits.KAFKA_ANSWERS_KEPT_BYTES:
            self._kept.clear()
            self._hold_at, self._kept_bytes = holds_at, 0
        key = (fetch.version, fetch.max_bytes, sending, error)
        tail = self._kept.get(key)
        if tail is None:
            records = b""
            if isinstance(sending, SendRecords):
                records = log.read(sending.from_offset, max_bytes=fetch.max_bytes)
            values = self._values(fetch, now, sending, records, error)
            tail = self._kept[key] = answer_tail(FETCH, fetch.version, values)
            self._kept_bytes += len(tail)
        return tail

    def _values(
        self, fetch: Fetch, now: Leadership, sending: Sending | None, records: bytes, error: int
    ) -> Values:
        log = self._log
        diverging, snapshot = NO_EPOCH_END, NO_SNAPSHOT
        if isinstance(sending, SendDiverging):
            diverging = (sending.epoch, sending.end_offset)
        elif isinstance(sending, SendSnapshot):
            snapshot = (sending.name.end_offset, sending.name.epoch)
        partition = (
            0,
            error,
            -1 if error else log.end_offset,
            -1,  # no transactions
            log.epochs.start,
            diverging,
            (now.leader, now.epoch),
            snapshot,
            (),
            -1,  # no other replica to read from
            records,
        )
        topic = (METADATA_TOPIC, METADATA_TOPIC_ID, (partition,))
        return (0, 0, 0, (topic,), self.endpoints(now) if fetch.version >= ENDPOINTS_FROM else ())

    def endpoints(self, now: Leadership) -> tuple[tuple[NodeId, str, int, None], ...]:
        """Return where the leader is: id, host, port and rack; nothing where no leader is named."""
        address = kafka_address(self._controller.committed, now.leader)
        return () if address is None else ((now.leader, *address, None),)


def kafka_address(image: MetadataImage, node_id: NodeId) -> HostPort | None:
    """Return where Kafka's brokers reach a controller, as the log says; None where it does not."""
    for voter in image.quorum.voters or ():
        if voter.node_id == node_id and (address := voter.address(KAFKA_ENDPOINT)) is not None:
            return address
    registered = image.controllers.get(node_id)
    for endpoint in () if registered is None else registered.endpoints:
        if endpoint.name == KAFKA_ENDPOINT:
            return endpoint.host, endpoint.port
    return None
