"""Pure: what writes were answered, kept by request id so that a repetition gets its first answer.
Tests: tests/unit/metadata_log/test_apply.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import immutables

from metadata_log.ids import Uuid
from metadata_log.limits import (
    REQUEST_RESULT_AGE_MS,
    REQUEST_RESULT_BYTES_MAX,
    REQUEST_RESULT_STEP_MS,
    REQUEST_RESULTS_MAX,
)
from metadata_log.records.snapshots import RequestResultRecord


@dataclass(frozen=True, slots=True)
class RequestResults:
    """The results by request id, and the order in which they came: oldest first, by base_offset."""

    by_id: immutables.Map[Uuid, RequestResultRecord] = field(default_factory=immutables.Map)
    _span_ms: int = 0
    """The log's time from the oldest to the newest, as `_step_ms` counts it."""
    _order: immutables.Map[int, RequestResultRecord] = field(default_factory=immutables.Map, compare=False)
    """The results by number, `_first` to `_next` (exclusive)."""
    _first: int = field(default=0, compare=False)
    _next: int = field(default=0, compare=False)
    _bytes: int = field(default=0, compare=False)
    """Of all their answers."""

    @staticmethod
    def of(results: Iterable[RequestResultRecord]) -> "RequestResults":
        """Return the results of a snapshot, whatever their order there."""
        ordered = sorted(results, key=lambda result: result.base_offset)
        return RequestResults(
            immutables.Map({result.request_id: result for result in ordered}),
            sum(_step_ms(one, other.stored_at_ms) for one, other in pairwise(ordered)),
            immutables.Map(enumerate(ordered)),
            0,
            len(ordered),
            sum(len(result.response) for result in ordered),
        )

    def get(self, request_id: Uuid) -> RequestResultRecord | None:
        return self.by_id.get(request_id)

    def with_result(self, result: RequestResultRecord) -> "RequestResults":
        """Return the results with one that is newer than all; one with its id goes."""
        if result.request_id in self.by_id:
            return RequestResults.of([*self.by_id.delete(result.request_id).values(), result])
        return RequestResults(
            self.by_id.set(result.request_id, result),
            self._span_ms + self._since_newest_ms(result.stored_at_ms),
            self._order.set(self._next, result),
            self._first,
            self._next + 1,
            self._bytes + len(result.response),
        )

    def evicted(self, *, now_ms: int) -> "RequestResults":
        """Return the results without those beyond the bounds of number, bytes and age.

        `now_ms` is the applied batch's own time, so every replica evicts alike.
        """
        first, span_ms, by_id, order, size = self._first, self._span_ms, self.by_id, self._order, self._bytes
        since_newest_ms = self._since_newest_ms(now_ms)
        while first < self._next and (
            len(by_id) > REQUEST_RESULTS_MAX
            or size > REQUEST_RESULT_BYTES_MAX
            or span_ms + since_newest_ms > REQUEST_RESULT_AGE_MS
        ):
            oldest = order[first]
            size -= len(oldest.response)
            by_id, order, first = by_id.delete(oldest.request_id), order.delete(first), first + 1
            if first < self._next:
                span_ms -= _step_ms(oldest, order[first].stored_at_ms)
        return (
            self if first == self._first else RequestResults(by_id, span_ms, order, first, self._next, size)
        )

    def _since_newest_ms(self, now_ms: int) -> int:
        return _step_ms(self._order[self._next - 1], now_ms) if self._first < self._next else 0


def _step_ms(before: RequestResultRecord, now_ms: int) -> int:
    """Return what the log's time from a result to the next one, or to now, adds to the age of all before.

    Bounded, as each leader stamps with its own clock: one that is set, or differs by an hour from the last leader's, must
    not let a request that is repeated in these seconds find its answer gone.
    """
    return min(max(0, now_ms - before.stored_at_ms), REQUEST_RESULT_STEP_MS)
