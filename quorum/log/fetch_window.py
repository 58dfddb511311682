"""Pure: the newest committed frames, held in memory so that followers are served without touching the disk."""

from bisect import bisect_right
from typing import Protocol

from metadata_log.limits import FETCH_WINDOW_BYTES
from metadata_log.log.position import AT_ZERO, Position


class Header(Protocol):
    """What the window keeps of a frame; of those of Kafka's batches, too."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def frame_bytes(self) -> int: ...


class FetchWindow:
    """Frames end to end, from `start_offset` to `end_offset` (exclusive); the oldest go when `bytes_max` is reached."""

    def __init__(self, *, bytes_max: int = FETCH_WINDOW_BYTES) -> None:
        self._bytes_max = bytes_max
        self.reset(end_offset=0, epoch=0, crc=0)

    def reset(self, end_offset: int, epoch: int, crc: int) -> None:
        """Hold nothing, and go on from `end_offset`; the frame that ends there has this epoch and crc."""
        self._frames: list[bytes] = []
        self._headers: list[Header] = []
        self._ends: list[int] = []
        self._first = 0
        self._bytes = 0
        self._before = AT_ZERO if end_offset == 0 else Position(epoch, crc)
        self._start_offset = self._end_offset = end_offset

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self._end_offset

    def append(self, header: Header, frame: bytes) -> None:
        assert header.base_offset == self._end_offset, "frames follow each other without a gap"
        self._headers.append(header)
        self._frames.append(frame)
        self._ends.append(header.end_offset)
        self._end_offset = header.end_offset
        self._bytes += len(frame)
        while self._bytes > self._bytes_max:
            self._drop_oldest()
        # Dropping from the front of a list moves all of it; so the dropped places are freed in bulk.
        if self._first > 1024 and self._first * 2 > len(self._frames):
            del self._frames[: self._first], self._headers[: self._first], self._ends[: self._first]
            self._first = 0

    def read(self, from_offset: int, max_bytes: int) -> bytes | None:
        """Return whole frames, beginning with the one that contains `from_offset`; None if it is not held.

        At least one frame if any exists, further ones while the sum stays within `max_bytes`; b"" at the end.
        """
        if not self._start_offset <= from_offset <= self._end_offset:
            return None
        first = bisect_right(self._ends, from_offset, lo=self._first)
        last, size = first, 0
        while last < len(self._frames):
            size += len(self._frames[last])
            if size > max_bytes and last > first:
                break
            last += 1
        return b"".join(self._frames[first:last])

    def position_before(self, fetch_offset: int) -> Position | None:
        """Return what a reader at `fetch_offset` must know; None if no frame held ends there."""
        if fetch_offset == self._start_offset:
            return self._before
        place = bisect_right(self._ends, fetch_offset, lo=self._first) - 1
        if place < self._first or self._ends[place] != fetch_offset:
            return None
        return Position(self._headers[place].controller_epoch, self._headers[place].crc)

    def _drop_oldest(self) -> None:
        header = self._headers[self._first]
        self._bytes -= header.frame_bytes
        self._before = Position(header.controller_epoch, header.crc)
        self._start_offset = header.end_offset
        self._frames[self._first] = b""
        self._first += 1
