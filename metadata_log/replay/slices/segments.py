"""Edge: segment files as slices, cut where the sparse index beside each closed file has an entry.

A node may be writing the last file: it is read up to its last whole frame. What a file holds is committed.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from metadata_log.codec import DamagedFrame, FrameHeader, check_frame, damaged_file
from metadata_log.errors import DamagedFile, InvalidRequest
from metadata_log.limits import MIB
from metadata_log.log.index import read_index
from metadata_log.log.recovery import read_start, start_of
from metadata_log.log.segment_file import (
    Entry,
    Segment,
    check_no_gap,
    read_frame,
    reading,
    scan,
    segment_paths,
)
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.opaque import decode_known
from metadata_log.replay.slices.frames import (
    Missing,
    Sound,
    add_offset,
    damaged_segment,
    frames_of,
    missing_file,
    next_sound_frame,
    no_file_holds_them,
)
from metadata_log.replay.slices.rows import Rows
from metadata_log.replay.slices.wanted import NOTHING, Wanted

SLICE_BYTES: Final = 8 * MIB
"""About 200,000 records: enough to outweigh the start of a task, and a fraction of an executor's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSlice:
    """The bytes from `position` to `end_position` of a file: its frames from `begins_at` up to `ends_at`.

    Of these, the batches that begin at `first` or later and before `until`. `behind` is the file before where these offsets
    are in no file: a file between the two is gone.
    """

    path: Path
    position: int
    end_position: int
    begins_at: int
    ends_at: int
    first: int
    until: int
    skips_damaged: bool
    behind: Path | None = None

    def read(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        data = self._bytes()
        try:
            yield from Rows(wanted).of(self._frames(data, wanted), str(self.path))
        except DamagedFrame as error:
            offset = self.begins_at if error.base_offset is None else error.base_offset
            raise damaged_segment(self.path, error, base=self.position, offset=offset) from error

    def missing(self) -> Iterator[Missing]:
        """Yield what cannot be read here, by its byte in the file."""
        return (frame for frame in self._frames(self._bytes(), NOTHING) if isinstance(frame, Missing))

    def frames(self) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the sound frames that end in this slice, those before `first` included."""
        if self.behind is not None:
            return
        data = self._bytes()
        for frame in frames_of(
            data,
            first_offset=self.begins_at,
            end_offset=self.ends_at,
            is_wanted=NOTHING.may_hold,
            skips_damaged=self.skips_damaged,
        ):
            if isinstance(frame, Sound):
                yield frame.header, data[frame.position : frame.position + frame.header.frame_bytes]

    def _bytes(self) -> bytes:
        with renamed_os_errors(self.path), self.path.open("rb") as file:
            file.seek(self.position)
            return file.read(self.end_position - self.position)

    def _frames(self, data: bytes, wanted: Wanted) -> Iterator[Sound | Missing]:
        """Yield the frames of this slice; what is missing by its byte in the file."""
        if self.behind is not None:
            first, end = max(self.begins_at, self.first), min(self.ends_at, self.until)
            if first < end:
                yield Missing(first, end, 0, no_file_holds_them(self.behind, self.path))
            return
        for frame in frames_of(
            data,
            first_offset=self.begins_at,
            end_offset=self.ends_at,
            is_wanted=lambda header: (
                self.first <= header.base_offset < self.until and wanted.may_hold(header)
            ),
            skips_damaged=self.skips_damaged,
        ):
            if isinstance(frame, Sound):
                yield frame
                continue
            first, end = max(frame.first_offset, self.first), min(frame.end_offset, self.until)
            if first < end:
                yield Missing(first, end, frame.position + self.position, frame.reason)


class _Stretch(NamedTuple):
    """What lies between two entries of a file's index."""

    position: int
    end_position: int
    begins_at: int
    ends_at: int


class SegmentLog:
    """The segment files of a data directory, or of a folder."""

    def __init__(self, path: Path, *, skips_damaged: bool = False, slice_bytes: int = SLICE_BYTES) -> None:
        self.name = str(path)
        self.cluster_id: str | None = None
        self._directory = path / "log" if (path / "log").is_dir() else path
        self._skips_damaged = skips_damaged
        self._slice_bytes = slice_bytes
        self._segments: list[Segment] = []
        self._closed: set[Path] = set()

    @property
    def begins_at(self) -> int:
        return self._segments[0].base_offset

    @property
    def ends_at(self) -> int:
        return self._segments[-1].end_offset

    def refresh(self) -> None:
        with renamed_os_errors(self._directory):
            paths = segment_paths(self._directory) if self._directory.is_dir() else []
            if not paths:
                raise InvalidRequest(f"{self.name} holds no log: no file is named NNNNNNNNNNNNNNNNNNNN.log")
            start = read_start(self._directory) or start_of(paths)
            while len(paths) > 1 and paths[0][0] < start.offset:
                paths.pop(0)  # a retention was interrupted
            known = {segment.path: segment for segment in self._segments}
            segments: list[Segment] = []
            before, time_max_ms, end_offset = start.before, start.time_max_ms, paths[0][0]
            for place, (base_offset, path) in enumerate(paths):
                is_last = place + 1 == len(paths)
                segment = known.get(path) or Segment(path, base_offset, before, time_max_ms)
                if not self._skips_damaged:
                    if base_offset > end_offset:
                        raise missing_file(
                            paths[place - 1][1], path, first_offset=end_offset, end_offset=base_offset
                        )
                    check_no_gap(path, base_offset, end_offset)
                if path not in self._closed:
                    self._learn(segment, until=None if is_last else paths[place + 1][0])
                segments.append(segment)
                before, time_max_ms, end_offset = segment.last, segment.time_max_ms, segment.end_offset
            self._segments = segments
            if self.cluster_id is None:
                self.cluster_id = self._owner()

    def _learn(self, segment: Segment, *, until: int | None) -> None:
        """Learn what a file holds; of the last one (`until` is None), what was added to it."""
        if until is not None and segment.size == 0 and read_index(segment):
            self._closed.add(segment.path)
            return
        is_last = until is None
        try:
            scan(segment, may_be_torn=is_last, is_last=is_last)
        except DamagedFile as error:
            if not self._skips_damaged:
                add_offset(error, segment.end_offset)
                raise
            _scan_past_damage(segment)
            if until is not None:
                # Damage at the end of the file: its reader reports the offsets up to the next file as missing.
                segment.size, segment.end_offset = segment.path.stat().st_size, until
        if not is_last:
            self._closed.add(segment.path)

    def _owner(self) -> str | None:
        """Return the cluster that the first claim names, or the data directory."""
        first = self._segments[0]
        if first.base_offset == 0 and first.entries:
            try:
                with reading(first.path) as file:
                    _, frame = read_frame(first.path, file, 0)
            except DamagedFile:
                if not self._skips_damaged:
                    raise
            else:
                claim = decode_known(frame)[0].claim
                return None if claim is None else claim.cluster_id
        try:
            named = json.loads((self._directory.parent / "meta.json").read_bytes())
            return str(named["cluster_id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def slices(self, first: int, until: int, wanted: Wanted) -> Sequence[SegmentSlice]:
        found: list[SegmentSlice] = []
        end_offset, behind = self.begins_at, self._segments[0].path
        for segment in self._segments:
            waiting: list[_Stretch] = []
            if end_offset < segment.base_offset and first < segment.base_offset and end_offset < until:
                gap = _Stretch(0, 0, end_offset, segment.base_offset)  # a file is missing
                found.append(replace(self._slice(segment, [gap], first, until), behind=behind))
            end_offset, behind = segment.end_offset, segment.path
            for stretch in _stretches(segment, first, until, wanted):
                if waiting and (
                    waiting[-1].end_position != stretch.position
                    or stretch.end_position - waiting[0].position > self._slice_bytes
                ):
                    found.append(self._slice(segment, waiting, first, until))
                    waiting = []
                waiting.append(stretch)
            if waiting:
                found.append(self._slice(segment, waiting, first, until))
        return found

    def _slice(self, segment: Segment, stretches: Sequence[_Stretch], first: int, until: int) -> SegmentSlice:
        return SegmentSlice(
            path=segment.path,
            position=stretches[0].position,
            end_position=stretches[-1].end_position,
            begins_at=stretches[0].begins_at,
            ends_at=stretches[-1].ends_at,
            first=first,
            until=until,
            skips_damaged=self._skips_damaged,
        )


def _stretches(segment: Segment, first: int, until: int, wanted: Wanted) -> Iterator[_Stretch]:
    """Yield the stretches of a file that may have wanted rows."""
    entries = segment.entries
    begin = max(0, bisect_right(entries, first, key=lambda entry: entry.offset) - 1)
    end = bisect_left(entries, until, key=lambda entry: entry.offset)
    for place in range(begin, end):
        entry = entries[place]
        if place + 1 < len(entries):
            ends_at, end_position, time_max_ms = entries[place + 1]
        else:
            ends_at, end_position, time_max_ms = segment.end_offset, segment.size, segment.time_max_ms
        epochs = [epoch for epoch, offset in segment.epochs if offset <= entry.offset][-1:] + [
            epoch for epoch, offset in segment.epochs if entry.offset < offset < ends_at
        ]
        if (
            first < ends_at
            and wanted.offsets.meets(entry.offset, ends_at - 1)
            # Clocks step back, so the greatest time of all before tells only that nothing later is there.
            and (wanted.times_ms.first is None or time_max_ms >= wanted.times_ms.first)
            and (not epochs or wanted.epochs.meets(epochs[0], epochs[-1]))
        ):
            yield _Stretch(entry.position, end_position, entry.offset, ends_at)


def _scan_past_damage(segment: Segment) -> None:
    """Learn the sound frames of a damaged file that follow those known; others are between two entries of its index."""
    data = segment.path.read_bytes()
    position = segment.size
    if not segment.entries:
        segment.entries.append(Entry(segment.base_offset, 0, segment.time_max_ms))
    while position < len(data):
        try:
            header: FrameHeader = check_frame(data, position)
        except DamagedFrame as error:
            if error.another_version:
                raise damaged_file(segment.path, error) from error
            following = next_sound_frame(data, position + 1, segment.end_offset)
            if following is None:
                return
            header, position, _ = following
        segment.size = position
        segment.add(header)
        position = segment.size
