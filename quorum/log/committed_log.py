"""Edge: the committed log of one controller: segments on disk, the newest frames in memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Never, TypeVar

from metadata_log.batch import RecordBatch
from metadata_log.codec import FrameHeader, decoding, read_header
from metadata_log.errors import DamagedFile, LogDamaged, OffsetCompacted, two_histories
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.log.position import Position
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.sliced import Sliced
from quorum.controller.applied_listener import AppliedListener
from quorum.log.fetch_window import FetchWindow

log = logging.getLogger(__name__)

SEGMENT_SYNC_S: Final = 1.0
POSITIONS_KEPT: Final = 1_000
"""Of ends of cold reads: their readers ask next with this position."""
RunInThread = Callable[..., Awaitable[Any]]
Answer = TypeVar("Answer")


async def run_at_once(work: Callable[..., Answer], *args: object) -> Answer:
    """Return what `work` returns: where nothing blocks, no thread is needed."""
    return work(*args)


class CommittedLog(AppliedListener):
    """Stores applied frames and reads them back below the high watermark.

    After a start the segments may reach further than this node has applied. Nothing beyond `end_offset` is read out. A frame
    that is applied again must equal the stored one byte for byte.
    """

    def __init__(self, segments: SegmentedLog, *, read_in_thread: RunInThread = run_at_once) -> None:
        """`read_in_thread` runs reads of segments off the loop."""
        self.segments = segments
        self.end_at_start = segments.end_offset
        """What this node had applied when it stopped: its segments held no more."""
        self._read_in_thread = read_in_thread
        self._window = FetchWindow()
        self._applied: list[tuple[bytes, FrameHeader]] = []
        """Frames that were applied, and are not written yet."""
        self._read_positions: dict[int, Position] = {}
        """Positions where cold reads ended, by offset."""
        self.end_offset = 0
        self.unsynced_bytes = 0
        self.on_damage: Callable[[DamagedFile], None] = lambda _error: None
        """Called for each read that met a damaged file."""

    # --- what is applied

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        self._applied.append((frame, read_header(frame)))

    def on_rest(self) -> None:
        """Write what was applied since the last call, all at once, and show it to readers."""
        applied, self._applied = self._applied, []
        held = 0
        for frame, header in applied:
            if header.base_offset >= self.segments.end_offset:
                break
            held += 1
            if header.base_offset < self.segments.log_start_offset:
                continue  # a retention took it, and the journal reaches further back
            try:
                self.segments.equals(frame, header)
            except DamagedFile as error:
                self.on_damage(error)  # the file was whole at the start
        self.segments.append_all(applied[held:])
        for frame, header in applied:
            self._window.append(header, frame)
            self.end_offset = header.end_offset
        self.unsynced_bytes += sum(len(frame) for frame, _ in applied[held:])

    def on_restored(self, image: MetadataImage) -> None:
        segments = self.segments
        if segments.end_offset < image.end_offset:
            log.warning(
                "log_restarts_at_snapshot",
                extra={"not_held_from": segments.log_start_offset, "until": image.end_offset},
            )
            segments.restart_at(image.end_offset, image.controller_epoch, image.last_crc)
        elif image.end_offset > segments.log_start_offset:
            try:
                found = segments.position_before(image.end_offset)
            except DamagedFile as error:
                # The repaired file must fit the frames before and after it.
                self.on_damage(error)
                found = Position(image.controller_epoch, image.last_crc)
            if found != (image.controller_epoch, image.last_crc):
                raise two_histories(
                    f"the snapshot at offset {image.end_offset} and the segments of this node tell different histories: "
                    f"(epoch, crc) {(image.controller_epoch, image.last_crc)} and {found}"
                )
        self._read_positions.clear()
        self._applied.clear()
        self._window.reset(image.end_offset, image.controller_epoch, image.last_crc)
        self.end_offset = image.end_offset

    async def keep_syncing(self, run_in_thread: RunInThread) -> Never:
        """Sync the segments once a second, until cancelled: the journal and the peers have what a crash takes."""
        while True:
            await asyncio.sleep(SEGMENT_SYNC_S)
            if self.unsynced_bytes:
                self.unsynced_bytes = 0
                await run_in_thread(self.segments.sync)

    # --- what is read

    @property
    def log_start_offset(self) -> int:
        return self.segments.log_start_offset

    @property
    def bytes_total(self) -> int:
        return self.segments.size

    def position_before(self, offset: int) -> tuple[int, int] | None:
        """Return epoch and crc of the frame that ends at `offset`; None where none does, (-1, 0) at 0."""
        if offset > self.end_offset:
            return None
        found = self._window.position_before(offset) or self._read_positions.get(offset)
        if found is not None:
            return found
        with self.reading():
            return self.segments.position_before(offset)

    def common_end(self, *, epoch: int, offset: int) -> tuple[int, int]:
        """Return the largest end of a frame at most `offset` whose epoch is at most `epoch`, and its epoch."""
        with self.reading():
            return self.segments.largest_common_end(epoch, min(offset, self.end_offset) + 1)

    def read(self, from_offset: int, *, max_bytes: int, until: int | None = None) -> bytes:
        """Return whole frames, the first containing `from_offset`, at least one if any exists below the end."""
        until = self.end_offset if until is None else min(until, self.end_offset)
        if from_offset >= until:
            return b""
        if until == self.end_offset:
            frames = self._window.read(from_offset, max_bytes)
            if frames is not None:
                return frames
        with self.reading():
            return self.segments.read(from_offset, max_bytes=max_bytes, until=until)

    def is_cold(self, from_offset: int) -> bool:
        """Answer whether the frames at an offset are to be read from segments."""
        return from_offset < self._window.start_offset

    async def read_in_thread(
        self, from_offset: int, *, max_bytes: int, until: int | None = None
    ) -> tuple[bytes, int]:
        """Return what `read` returns, and the offset after it, without holding the loop.

        Raises:
            LogDamaged, OffsetCompacted: as `read`.
            ThrottlingQuotaExceeded: too many reads wait.
        """
        until = self.end_offset if until is None else min(until, self.end_offset)
        if from_offset >= until:
            return b"", from_offset
        if until == self.end_offset and not self.is_cold(from_offset):
            held = self._window.read(from_offset, max_bytes)
            assert held is not None
            return held, (await self._read_in_thread(_last_header, held)).end_offset
        with self.reading():
            frames: bytes
            frames, end, position = await self._read_in_thread(self._read_cold, from_offset, max_bytes, until)
        if position is not None:
            if len(self._read_positions) >= POSITIONS_KEPT:
                self._read_positions.clear()
            self._read_positions[end] = position
        return frames, end

    def _read_cold(self, from_offset: int, max_bytes: int, until: int) -> tuple[bytes, int, Position | None]:
        """Return frames, the offset after them, and the position there; in a thread."""
        frames = self.segments.read(from_offset, max_bytes=max_bytes, until=until)
        if not frames:
            return frames, from_offset, None
        header = _last_header(frames)
        return frames, header.end_offset, Position(header.controller_epoch, header.crc)

    async def appended_at_ms(self, base_offset: int) -> int | None:
        """Return when the batch that begins at an offset was appended; None as `reading_batch_at`. It is read in a thread.

        Raises:
            ThrottlingQuotaExceeded: too many reads wait.
        """
        if not self.log_start_offset <= base_offset < self.end_offset:
            return None
        try:
            frames, _ = await self.read_in_thread(base_offset, max_bytes=1)
        except (LogDamaged, OffsetCompacted):
            return None
        header = read_header(frames)
        return header.appended_at_ms if header.base_offset == base_offset else None

    def reading_batch_at(self, base_offset: int) -> Sliced[RecordBatch | None]:
        """Read the batch that begins at an offset; a large one takes 20 ms to decode.

        None where this log does not hold it, or cannot read it.
        """
        if not self.log_start_offset <= base_offset < self.end_offset:
            return None
        try:
            batch, _ = yield from decoding(self.read(base_offset, max_bytes=1))
        except LogDamaged:
            return None
        return batch if batch.base_offset == base_offset else None

    async def end_offset_at(self, unix_ms: int) -> int:
        """Return the end of the last frame not later than a time."""
        return await self.in_thread(self.segments.end_offset_at, unix_ms)

    async def base_offset_from(self, unix_ms: int) -> int:
        """Return the base of the first frame not earlier than a time."""
        return await self.in_thread(self.segments.base_offset_from, unix_ms)

    async def in_thread(self, work: Callable[..., Answer], *args: object) -> Answer:
        """Return what work that reads segments returns, done off the loop.

        Raises:
            LogDamaged: instead of DamagedFile.
            ThrottlingQuotaExceeded: too many reads wait.
        """
        with self.reading():
            answer: Answer = await self._read_in_thread(work, *args)
            return answer

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report damage of old history as damage of this node's file, not as a Fault of the quorum.

        Raises:
            LogDamaged: instead of DamagedFile.
        """
        try:
            yield
        except DamagedFile as error:
            self.on_damage(error)
            raise LogDamaged(
                f"{error.message}; the other controllers have these frames: ask them, or ask again shortly"
            ) from error


def _last_header(frames: bytes) -> FrameHeader:
    at = 0
    while at < len(frames):
        header = read_header(frames, at)
        at += header.frame_bytes
    return header
