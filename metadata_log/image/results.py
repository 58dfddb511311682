"""P: what writes were answered, kept by request id so that a repetition gets its first answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import immutables

from metadata_log.ids import Uuid
from metadata_log.limits import REQUEST_RESULT_AGE_MS, REQUEST_RESULTS_MAX
from metadata_log.records.snapshots import RequestResultRecord


@dataclass(frozen=True, slots=True)
class RequestResults:
    """The results by request id, and the order in which they came: oldest first, by base_offset."""

    by_id: immutables.Map[Uuid, RequestResultRecord] = field(default_factory=immutables.Map)
    _order: immutables.Map[int, RequestResultRecord] = field(default_factory=immutables.Map, compare=False)
    """The results by number, `_first` to `_next` (exclusive); one whose id was used again since is no longer in `by_id`."""
    _first: int = field(default=0, compare=False)
    _next: int = field(default=0, compare=False)

    @staticmethod
    def of(results: Iterable[RequestResultRecord]) -> "RequestResults":
        """Return the results of a snapshot, whatever their order there."""
        ordered = sorted(results, key=lambda result: result.base_offset)
        return RequestResults(
            immutables.Map({result.request_id: result for result in ordered}),
            immutables.Map(enumerate(ordered)),
            0,
            len(ordered),
        )

    def get(self, request_id: Uuid) -> RequestResultRecord | None:
        return self.by_id.get(request_id)

    def with_result(self, result: RequestResultRecord) -> "RequestResults":
        return RequestResults(
            self.by_id.set(result.request_id, result),
            self._order.set(self._next, result),
            self._first,
            self._next + 1,
        )

    def evicted(self, *, now_ms: int) -> "RequestResults":
        """Return the results without those beyond the bounds of number and age.

        `now_ms` is the applied batch's own time, so every replica evicts alike.
        """
        first = self._first
        by_id, order = self.by_id, self._order
        while first < self._next:
            oldest = order[first]
            if by_id.get(oldest.request_id) is oldest:
                if (
                    len(by_id) <= REQUEST_RESULTS_MAX
                    and oldest.stored_at_ms >= now_ms - REQUEST_RESULT_AGE_MS
                ):
                    break
                by_id = by_id.delete(oldest.request_id)
            order = order.delete(first)
            first += 1
        return self if first == self._first else RequestResults(by_id, order, first, self._next)
