"""Edge: the log of running controllers as slices: ranges of offsets, each asked for over HTTP.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from metadata_log.codec import DamagedFrame, damaged_answer
from metadata_log.errors import BrokerNotAvailable, OffsetCompacted
from metadata_log.limits import MIB, RECORDS_PER_BATCH_MAX
from metadata_log.replay.controller_client import ControllerClient
from metadata_log.replay.slices.frames import Sound, read_sound
from metadata_log.replay.slices.rows import Rows
from metadata_log.replay.slices.wanted import Wanted

SLICE_RECORDS: Final = 200_000
"""About as much as a slice of files holds."""
PAGE_BYTES: Final = 8 * MIB
"""The most that one answer of /v1/log holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSlice:
    """The batches that begin at `first` or later and before `until`, of a log that reaches at least to `ends_at`."""

    client: ControllerClient
    first: int
    until: int
    ends_at: int

    def read(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        rows, offset = Rows(wanted), self.first
        while offset < self.until:
            data = self._page(offset)
            try:
                frames, end_offset = self._frames(data, offset, wanted)
                yield from rows.of(frames, self.client.urls[0])
            except DamagedFrame as error:
                raise damaged_answer(self.client.urls[0], error) from error
            if end_offset <= offset:
                raise BrokerNotAvailable(
                    f"{self.client.urls[0]} has nothing at offset {offset}, below the high watermark {self.ends_at}"
                )
            offset = end_offset

    def _page(self, offset: int) -> bytes:
        # A batch that begins before `until` may end after it, and whole batches alone are sent.
        until = min(self.until + RECORDS_PER_BATCH_MAX, self.ends_at)
        query = {"from": offset, "until": until, "max_bytes": PAGE_BYTES, "consistency": "stale"}
        return self.client.body(f"/v1/log?{urllib.parse.urlencode(query)}", accept="application/octet-stream")

    def _frames(self, data: bytes, offset: int, wanted: Wanted) -> tuple[list[Sound], int]:
        """Return the frames of a page that belong to this slice, and where the last of them ends.

        Raises:
            DamagedFrame: a frame is not sound.
            OffsetCompacted: the page begins later than was asked for.
        """
        found: list[Sound] = []
        position, end_offset = 0, offset
        while position < len(data) and end_offset < self.until:
            # The first frame may be one that begins before this slice: it belongs to the one before.
            frame = read_sound(
                data, position, lambda header: self.first <= header.base_offset and wanted.may_hold(header)
            )
            header = frame.header
            if header.base_offset > end_offset:
                raise OffsetCompacted(
                    f"{self.client.urls[0]} has nothing from offset {end_offset} to {header.base_offset} any more"
                )
            found.append(frame)
            position += header.frame_bytes
            end_offset = header.end_offset
        return found, end_offset


class ControllerLog:
    """The log up to the high watermark of the controller that is asked, by default a follower."""

    def __init__(
        self, client: ControllerClient, *, asks_followers: bool = True, slice_records: int = SLICE_RECORDS
    ) -> None:
        self.name = client.urls[0]
        self.cluster_id: str | None = None
        self._given, self._client = client, client
        self._asks_followers = asks_followers
        self._slice_records = slice_records
        self._is_chosen = False
        self.begins_at = 0
        self.ends_at = 0

    def refresh(self) -> None:
        if self._asks_followers and not self._is_chosen:
            self._client = self._given.followers_first()
            self._is_chosen = True
        status = self._client.status()
        self.cluster_id = status.cluster_id
        self.begins_at = status.log_start_offset
        # Another controller that answers instead may be behind the one that answered last.
        self.ends_at = max(self.ends_at, status.high_watermark)

    def slices(self, first: int, until: int, wanted: Wanted) -> Sequence[ControllerSlice]:
        bounds = wanted.offsets
        # The batch that holds the first wanted offset begins at most so far before it.
        begin = first if bounds.first is None else max(first, bounds.first - RECORDS_PER_BATCH_MAX)
        end = until if bounds.until is None else min(until, bounds.until)
        return [
            ControllerSlice(
                client=self._client,
                first=offset,
                until=min(offset + self._slice_records, end),
                ends_at=self.ends_at,
            )
            for offset in range(begin, end, self._slice_records)
        ]
