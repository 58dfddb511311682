"""Edge: the committed log as Kafka's record batches: the newest in memory, older ones made of segments in a thread.

A batch is translated once, when the first broker wants it, in slices of the loop. Nothing of it is stored. What makes the
bytes, beside the batch, is in the image that it leads to (`_Circumstances`), and that is known from the start of this
process on. So the log is offered from the snapshot on at which this process began, or from the newest record on that
Kafka's log cannot have; brokers that are further behind get a snapshot.
"""

import logging
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.codec import decode_all, decoding
from metadata_log.errors import LogDamaged, OffsetCompacted
from metadata_log.ids import TopicId
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.kafka.translation import translating
from metadata_log.node.pace import Pieces
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, Voter
from metadata_log.records.topics import TopicRestoreRecord
from metadata_log.sliced import Sliced, at_once
from quorum.controller.applied_listener import AppliedListener
from quorum.kafka.replies import EpochTable
from quorum.log.committed_log import CommittedLog
from quorum.log.fetch_window import FetchWindow

log = logging.getLogger(__name__)

_BATCH: Final = struct.Struct(">qiibI")
"""Base offset, length of what follows these two, epoch, magic, crc."""
_BEFORE_LENGTH: Final = 12
_RECORD_COUNT: Final = struct.Struct(">i")
_RECORD_COUNT_AT: Final = 57


class _Circumstances(NamedTuple):
    """What the bytes of batches rest on beside the batches: of all from an offset on, until the next one of these."""

    from_offset: int
    level: int
    """Of metadata.version after the batch."""
    voters: tuple[Voter, ...]
    """Those in force after the batch."""
    deleted: frozenset[TopicId]
    """Topics that could be restored before the batch."""
    kraft_version: int
    """After the batch."""


class BatchHeader(NamedTuple):
    """One of Kafka's batches, as the window keeps it."""

    base_offset: int
    end_offset: int
    controller_epoch: int
    crc: int
    frame_bytes: int


def split(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield each of Kafka's batches that stand end to end."""
    at = 0
    while at < len(data):
        base_offset, length, epoch, _, crc = _BATCH.unpack_from(data, at)
        (count,) = _RECORD_COUNT.unpack_from(data, at + _RECORD_COUNT_AT)
        size = _BEFORE_LENGTH + length
        batch = data if size == len(data) else data[at : at + size]
        yield BatchHeader(base_offset, base_offset + count, epoch, crc, size), batch
        at += size


class TranslatedLog(AppliedListener):
    """The committed log of one controller as Kafka's; it follows `committed_log`, which gets each batch first."""

    def __init__(
        self,
        committed_log: CommittedLog,
        *,
        listener: str | None,
        now_ms: Callable[[], int],
        bytes_max: int = limits.KAFKA_WINDOW_BYTES,
    ) -> None:
        """`listener` is the name that brokers give to the controllers' listener; None: endpoints stay as they are."""
        self._log = committed_log
        self._listener = listener
        self._window = FetchWindow(bytes_max=bytes_max)
        self._begun = False
        """Whether the window goes on from where it ends; else it begins at the end of the log when a broker asks."""
        self._epochs = EpochTable()
        self._circumstances: list[_Circumstances] = []
        self._deleted = frozenset[TopicId]()
        self._is_active = False
        self._kept: dict[int, tuple[RecordBatch, int]] = {}
        """Batches that are not translated yet, by their offset, with the bytes of their frames: others are decoded again."""
        self._kept_bytes = 0
        self._behind_bytes = 0
        """Of frames that are applied, and not in the window."""
        self._work: Sliced[None] | None = None
        self._pieces = Pieces(self._step, now_ms=now_ms)
        self.translated = 0
        """How many batches of ours were translated on the loop."""
        self.on_translated: Callable[[], None] = lambda: None
        """Called when the window has reached the end of the log."""

    # --- what is applied

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        if delta.claim:
            self._epochs.add(batch.controller_epoch, batch.base_offset)
        self._note(batch.base_offset, image)
        if delta.topics:
            self._deleted = frozenset(image.topics.deleted.keys())
            if TopicRestoreRecord in map(type, batch.records):
                self._begin_behind(batch.end_offset)
        self._behind_bytes += len(frame)
        if self._work is None and self._behind_bytes > limits.KAFKA_BEHIND_BYTES_MAX:
            self._stop()
        if self._is_active and self._begun:
            self._keep(batch, len(frame))

    def _note(self, base_offset: int, image: MetadataImage) -> None:
        level = metadata_level(image.features)
        quorum = image.quorum
        now = _Circumstances(
            base_offset,
            level,
            quorum.voters or (),
            self._deleted,
            KRAFT_VERSION_LEVEL if quorum.kraft_version is None else quorum.kraft_version,
        )
        if not self._circumstances or self._circumstances[-1][1:] != now[1:]:
            self._circumstances.append(now)

    def _keep(self, batch: RecordBatch, frame_bytes: int) -> None:
        if self._kept_bytes + frame_bytes > limits.KAFKA_UNTRANSLATED_BYTES:
            self._drop_kept()
            return
        self._kept[batch.base_offset] = (batch, frame_bytes)
        self._kept_bytes += frame_bytes

    def _drop_kept(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def on_restored(self, image: MetadataImage) -> None:
        self._epochs = EpochTable(image.end_offset, image.controller_epoch)
        self._circumstances.clear()
        self._deleted = frozenset(image.topics.deleted.keys())
        self._stop()

    def on_activity(self, *, active: bool) -> None:
        self._is_active = active
        if not active:
            self._drop_kept()

    def _begin_behind(self, offset: int) -> None:
        """Offer nothing below an offset any more."""
        self._epochs.begin_at(offset)
        circumstances = self._circumstances
        gone = bisect_right(circumstances, self._epochs.start, key=lambda each: each.from_offset) - 1
        del circumstances[: max(gone, 0)]

    def _stop(self) -> None:
        """Translate nothing until somebody wants it."""
        self._begun, self._work = False, None
        self._drop_kept()

    # --- where it begins and ends

    @property
    def epochs(self) -> EpochTable:
        """The epochs of the log that is offered."""
        start = self._log.log_start_offset
        if start > self._epochs.start:  # a retention went on
            self._begin_behind(start)
        return self._epochs

    @property
    def end_offset(self) -> int:
        """Exclusive; the high watermark."""
        return self._log.end_offset

    # --- what is read

    def is_ready(self) -> bool:
        """Answer whether the window reaches the end of the log, after a slice of work for that.

        Where it does not, `on_translated` is called when it does.
        """
        self._want()
        if self._window.end_offset < self._log.end_offset:
            self._pieces.wake(now=True)
        return self._window.end_offset == self._log.end_offset

    def _want(self) -> None:
        end_offset = self._window.end_offset
        if self._begun and not self._log.is_cold(end_offset) and end_offset >= self._epochs.start:
            return
        self._begun, self._work, self._behind_bytes = True, None, 0
        self._window.reset(self._log.end_offset, 0, 0)

    def is_cold(self, offset: int) -> bool:
        """Answer whether the batches at an offset are to be made of segments."""
        return offset < self._window.start_offset

    def has(self, offset: int) -> bool:
        """Answer whether the window has a batch at an offset."""
        return self._window.start_offset <= offset < self._window.end_offset

    def read(self, from_offset: int, *, max_bytes: int) -> bytes:
        """Return batches of the window, the first containing `from_offset`; at least one if any is there."""
        found = self._window.read(from_offset, max_bytes)
        assert found is not None, "`has` is asked before"
        return found

    async def read_cold(self, from_offset: int, *, max_bytes: int) -> bytes:
        """Return batches of the log, made in a thread: as `read`; b"" where a snapshot is to be sent by now.

        Raises:
            LogDamaged: a file is damaged.
            ThrottlingQuotaExceeded: too many reads wait.
        """
        if from_offset < self.epochs.start:
            return b""
        known = tuple(self._circumstances)
        try:
            frames, _ = await self._log.read_in_thread(from_offset, max_bytes=max_bytes)
            made, refused = await self._log.in_thread(self._made_of, frames, from_offset, known)
        except OffsetCompacted:
            return b""
        if refused is not None:
            self._cannot_be_offered(*refused)
        return made

    def _made_of(
        self, frames: bytes, from_offset: int, known: Sequence[_Circumstances]
    ) -> tuple[bytes, tuple[int, ValueError] | None]:
        """Translate frames, up to the first that cannot be: then also return where it ends, and why; in a thread."""
        parts: list[bytes] = []
        for batch, _ in decode_all(frames):
            try:
                data = at_once(self._translating(batch, known))
            except ValueError as error:
                return b"".join(parts), (batch.end_offset, error)
            parts += [one for header, one in split(data) if header.end_offset > from_offset]
        return b"".join(parts), None

    # --- translating

    def _translating(self, batch: RecordBatch, known: Sequence[_Circumstances]) -> Sliced[bytes]:
        place = bisect_right(known, batch.base_offset, key=lambda each: each.from_offset) - 1
        _, level, voters, deleted, kraft_version = known[place]
        return translating(
            batch,
            level=level,
            voters=voters,
            deleted=deleted,
            listener=self._listener,
            kraft_version=kraft_version,
        )

    def _step(self) -> bool:
        """Do a little of the work; answer False when there is nothing more to do."""
        if not self._begun:
            return False
        work = self._work = self._work or self._extending()
        try:
            next(work)
        except StopIteration:
            if self._work is work:
                self._work = None
                self.on_translated()
            return False
        return True

    def _extending(self) -> Sliced[None]:
        """Translate what the log has beyond the window."""
        window = self._window
        while window.end_offset < self._log.end_offset:
            try:
                batch = yield from self._next_batch(window.end_offset)
            except (LogDamaged, OffsetCompacted):
                self._begun = False  # the window begins again at the end of the log
                return
            try:
                data = yield from self._translating(batch, self._circumstances)
            except ValueError as error:
                self._cannot_be_offered(batch.end_offset, error)
                return
            for header, one in split(data):
                window.append(header, one)
            self.translated += 1
            yield
        self._behind_bytes = 0

    def _next_batch(self, base_offset: int) -> Sliced[RecordBatch]:
        batch, frame_bytes = self._kept.pop(base_offset, (None, 0))
        if batch is None:
            batch, _ = yield from decoding(self._log.read(base_offset, max_bytes=1))
        self._kept_bytes -= frame_bytes
        return batch

    def _cannot_be_offered(self, end_offset: int, error: ValueError) -> None:
        """Kafka's log has nothing for a batch that ends at an offset: brokers go on after it, with a snapshot."""
        self._begin_behind(end_offset)
        self._begun = False
        log.warning("kafka_log_begins_later", extra={"log_start_offset": end_offset, "reason": str(error)})
