"""Edge: what a log proves of the time between its batches: how much is known, how much is unknown, where clocks stepped.

Each batch bears the time of day of the controller that wrote it. What lies between two batches is one of three:

- known: a controller was active all the while. In our own log, two batches of one claim prove that: a controller that led
  again would have claimed again. A claim whose controller marks that it is quiet (`limits.QUIET_MARK_MS`) proves no more
  than the marks do. Kafka's active controller writes a NoOp every 500 ms, so there a longer silence proves nothing.
- unknown: a longer silence than a session lasts, up to the next claim, or without the marks that should be there. Without a
  controller brokers serve for at most one session; the log does not say until when they did.
- a step: the time of day went back, because a clock was set, or another controller's clock is another. It counts as no
  time. Of a long silence before a claim no more counts than what leads beyond all earlier times, and stays below all later
  ones: the rest may be the way back of a clock that had stepped, and is a step, too.

Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pyarrow.parquet as pq

from metadata_log import limits
from metadata_log.errors import OffsetCompacted, OffsetInFuture
from metadata_log.records.quorum import WRITE_NO_OP
from metadata_log.records.registry import TYPE_IDS
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.tables import RECORDS, Export, moved_on

Numbers = npt.NDArray[np.int64]

SILENCE_KNOWN_MS: Final = limits.SESSION_TIMEOUT_MS
"""A silence of at most this long says nothing: brokers serve for a session longer, and most takeovers are over by then. It
is also Kafka's default of broker.session.timeout.ms, and 18 of its NoOps."""
QUIET_KNOWN_MS: Final = 2 * limits.QUIET_MARK_MS
"""The same within a claim of ours that has marks: a mark may be late, as a commit may."""
_COLUMNS: Final = ("batch_base", "batch_last_offset", "ts", "controller_epoch", "operation")
_NOTHING: Final = (*(np.zeros(0, np.int64) for _ in range(4)), np.zeros(0, np.bool_))
_POSITION: Final = TYPE_IDS[SnapshotHeaderRecord]


class Mark(NamedTuple):
    """A moment by the log's own time, from where the log begins."""

    known_ms: int
    unknown_ms: int
    steps: int
    """Steps of clocks up to there."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The batches of an export, in order; place 0 of each array is where the export begins."""

    bases: Numbers
    end_offsets: Numbers
    times_ms: Numbers
    known_ms: Numbers
    """Of all time before a batch."""
    unknown_ms: Numbers
    """The same."""
    steps: Numbers
    """Of all steps up to a batch."""
    epochs: Numbers
    awake_ms: Numbers
    """Of known time since the last silence that is unknown; -1 where there was none."""
    observed_until_ms: int
    tail_ms: int
    """Time after the last batch in which a controller saw that the log holds no more."""

    def end_at(self, unix_ms: int) -> int:
        """Return the end offset of the last batch before the first that is later than a time.

        Raises:
            OffsetCompacted: the export begins later.
            OffsetInFuture: what happened up to that time is not known.
        """
        latest = np.maximum.accumulate(self.times_ms)
        if unix_ms > self.observed_until_ms:
            raise OffsetInFuture(
                f"{_text(unix_ms)} lies beyond the time up to which this log was observed, {_text(self.observed_until_ms)}: "
                "export again",
                offset=int(self.end_offsets[-1]),
            )
        place = int(np.searchsorted(latest, unix_ms, side="right"))
        if place == 0:
            if self.end_offsets[0] == 0:
                return 0
            raise OffsetCompacted(
                f"the time lies before this export, which begins at offset {self.end_offsets[0]}"
            )
        return int(self.end_offsets[place - 1])

    def time_at(self, end_offset: int) -> int:
        """Return the time of the batch that ends at an offset, or of where the export begins."""
        return int(self.times_ms[self._place(end_offset)])

    def mark(self, end_offset: int, time_ms: int) -> Mark:
        """Return a moment after the batch that ends at an offset, and before the next."""
        place = self._place(end_offset)
        known, unknown = int(self.known_ms[place]), int(self.unknown_ms[place])
        passed = max(0, time_ms - int(self.times_ms[place]))
        if place + 1 < len(self.times_ms):
            known += min(passed, int(self.known_ms[place + 1]) - known)
            unknown += min(passed, int(self.unknown_ms[place + 1]) - unknown)
        else:
            known += min(passed, self.tail_ms)
        return Mark(known, unknown, int(self.steps[place]))

    def steps_back(self, first_offset: int, end_offset: int) -> tuple[int, int, int]:
        """Return how many batches of a part have an earlier time than the one before, the largest step, and all together."""
        begin, stop = np.searchsorted(self.bases, (first_offset, end_offset), side="left")
        back = -np.diff(self.times_ms[max(0, int(begin) - 1) : int(stop)])
        back = back[back > 0]
        return back.size, int(back.max(initial=0)), int(back.sum())

    def clock(self, first: Mark, end: Mark, *, from_offset: int, end_offset: int) -> pa.Table:
        """Return when each batch of a part was written, counted from the part's begin: `clock` of the analyses."""
        begin, stop = np.searchsorted(self.bases, (from_offset, end_offset), side="left")
        begin = max(1, int(begin))  # place 0 is no batch
        known, unknown = (
            np.clip(part[begin:stop], low, high) - low
            for part, low, high in (
                (self.known_ms, first.known_ms, end.known_ms),
                (self.unknown_ms, first.unknown_ms, end.unknown_ms),
            )
        )
        return pa.table(
            {
                "batch_base": self.bases[begin:stop],
                "controller_epoch": self.epochs[begin:stop].astype(np.int32),
                "known_ms": known,
                "unknown_ms": unknown,
                "awake_ms": self.awake_ms[begin:stop],
                "steps": self.steps[begin:stop] - first.steps,
                "gap_known_ms": np.diff(known, prepend=0),
                "gap_unknown_ms": np.diff(unknown, prepend=0),
                "gap_steps": self.steps[begin:stop] - self.steps[begin - 1 : stop - 1],
            }
        )

    def _place(self, end_offset: int) -> int:
        return int(np.searchsorted(self.end_offsets, end_offset, side="right")) - 1


def timeline_of(export: Export) -> Timeline:
    """Read what an export says of time.

    Raises:
        ExportMovedOn: one of its files is gone.
    """
    bases, lasts, times, epochs, marks = _batches(export)
    begun = _begun(export)
    first_time, first_epoch = begun or ((times[0], epochs[0]) if times.size else (0, 0))
    times = np.concatenate(([first_time], times))
    epochs = np.concatenate(([first_epoch], epochs))
    gaps = np.diff(times)
    is_claim = np.diff(epochs) != 0
    passed = np.maximum(gaps, 0)
    latest, earliest = np.maximum.accumulate(times), np.minimum.accumulate(times[::-1])[::-1]
    bounded = np.minimum(passed, np.minimum(np.diff(latest), np.diff(earliest)))
    passed = np.where(is_claim & (gaps > SILENCE_KNOWN_MS), bounded, passed)
    is_unknown = gaps > _known_for(export, is_claim, epochs[1:], marks)
    nothing = np.zeros(1, np.int64)
    known_ms = np.concatenate((nothing, np.cumsum(np.where(is_unknown, 0, passed))))
    woke_at = np.maximum.accumulate(np.concatenate(([-1], np.where(is_unknown, known_ms[1:], -1))))
    return Timeline(
        bases=np.concatenate(([-1], bases)),
        end_offsets=np.concatenate(([export.first_offset], lasts + 1)),
        times_ms=times,
        known_ms=known_ms,
        unknown_ms=np.concatenate((nothing, np.cumsum(np.where(is_unknown, passed, 0)))),
        steps=np.concatenate((nothing, np.cumsum(passed != gaps))),
        epochs=epochs,
        awake_ms=np.where(woke_at < 0, -1, known_ms - woke_at),
        observed_until_ms=max(export.observed_until_ms or 0, int(latest[-1])),
        tail_ms=max(0, (export.observed_until_ms or 0) - int(times[-1])),
    )


def _text(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.}{unix_ms % 1000:03d}Z"


def _known_for(
    export: Export, is_claim: npt.NDArray[np.bool_], epochs: Numbers, marks: npt.NDArray[np.bool_]
) -> Numbers:
    """Return up to how long the silence before each batch proves that a controller was active."""
    if export.log_format == "kafka":
        return np.full(len(epochs), SILENCE_KNOWN_MS, np.int64)
    is_marked = np.isin(epochs, np.unique(epochs[marks]))
    within = np.where(is_marked, QUIET_KNOWN_MS, np.iinfo(np.int64).max)
    return np.where(is_claim, SILENCE_KNOWN_MS, within)


def _batches(export: Export) -> tuple[Numbers, Numbers, Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Return first and last offset, time and claim of each batch, in order, and whether it marks a quiet controller."""
    found = [_distinct(rows) for rows in _row_groups(export)] or [_NOTHING]
    bases, lasts, times, epochs, marks = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # A batch may lie in several row groups, as large families have groups of their own.
    bases, places = np.unique(bases, return_index=True)
    return bases, lasts[places], times[places], epochs[places].astype(np.int64), marks[places]


def _distinct(rows: pa.Table) -> tuple[npt.NDArray[np.generic], ...]:
    bases, places = np.unique(rows.column("batch_base").to_numpy(), return_index=True)
    times = pa.compute.cast(rows.column("ts"), pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    is_mark = np.zeros(rows.num_rows, np.bool_)
    if "operation" in rows.column_names:  # an older release did not write it, and no marks
        is_mark = pa.compute.equal(rows.column("operation"), WRITE_NO_OP).fill_null(False).to_numpy()
    lasts, epochs = (rows.column(name).to_numpy() for name in ("batch_last_offset", "controller_epoch"))
    return bases, lasts[places], times[places], epochs[places], is_mark[places]


def _row_groups(export: Export) -> Iterator[pa.Table]:
    for path in export.paths(RECORDS):
        try:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, list(_COLUMNS))
        except FileNotFoundError as error:
            raise moved_on(path) from error


def _begun(export: Export) -> tuple[int, int] | None:
    """Return time and claim of the snapshot that an export begins with; None where it begins with the log."""
    path = export.snapshot(export.first_offset) if export.first_offset else None
    if path is None:
        return None
    rows = pq.read_table(path, columns=["type", "ts", "controller_epoch"], partitioning=None)
    position = rows.filter(pa.compute.equal(rows.column("type"), _POSITION))
    return position.column("ts")[0].value // 1000, position.column("controller_epoch")[0].as_py()
