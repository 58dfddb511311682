"""Edge: requests with many items: sent in requests of a bounded size, with a result for each item.
Tests: tests/unit/ops/admin/test_cluster.py.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from metadata_log.errors import PolicyViolation
from metadata_log.limits import ELECTIONS_MAX, REASSIGNMENTS_MAX, REQUEST_ITEMS_MAX
from ops.admin.client import ClusterClient

Item = TypeVar("Item")


class ItemRequest(NamedTuple):
    """Where items of one kind are sent: at most `items_max` in a list of the name `items`, which the answer has as well."""

    operation: str
    method: str
    path: str
    items: str
    items_max: int = REQUEST_ITEMS_MAX


CREATE_TOPICS: Final = ItemRequest("CreateTopics", "POST", "/v1/topics", "topics")
DELETE_TOPICS: Final = ItemRequest("DeleteTopics", "POST", "/v1/topics/delete", "topics")
CREATE_PARTITIONS: Final = ItemRequest("CreatePartitions", "POST", "/v1/topics/partitions", "topics")
UNDELETE_TOPICS: Final = ItemRequest("UndeleteTopics", "POST", "/v1/topics/undelete", "topics")
ALTER_CONFIGS: Final = ItemRequest("IncrementalAlterConfigs", "PATCH", "/v1/configs", "resources")
REPLACE_CONFIGS: Final = ItemRequest("LegacyAlterConfigs", "PUT", "/v1/configs", "resources")
CREATE_ACLS: Final = ItemRequest("CreateAcls", "POST", "/v1/acls", "acls")
DELETE_ACLS: Final = ItemRequest("DeleteAcls", "POST", "/v1/acls/delete", "filters")
ALTER_QUOTAS: Final = ItemRequest("AlterClientQuotas", "PATCH", "/v1/quotas", "entries")
ELECT: Final = ItemRequest("ElectLeaders", "POST", "/v1/partitions/elect", "partitions", ELECTIONS_MAX)
REASSIGN: Final = ItemRequest(
    "AlterPartitionReassignments", "POST", "/v1/partitions/reassign", "partitions", REASSIGNMENTS_MAX
)


@dataclass(frozen=True, slots=True)
class Sent:
    """What items came to: each has `error` and `message`, None where it was accepted."""

    results: list[dict[str, Any]]
    spans: list[tuple[int, int]]
    """The offsets of the records that each request wrote, from the first up to the last excluded."""

    @property
    def is_written(self) -> bool:
        """Whether a record was written for any of them."""
        return any(base < end for base, end in self.spans)


def send_items(
    client: ClusterClient, request: ItemRequest, items: Sequence[Mapping[str, Any]], **more: Any
) -> Sent:
    """Send the items with the fields `more`; `all_or_nothing=True` writes nothing if one of them is refused.

    Raises:
        Rejected, Unavailable, OutcomeUnknown: as `ClusterClient.write`; of several requests, some may have been carried
            out.
        PolicyViolation: as `in_parts`.
    """
    spans: list[tuple[int, int]] = []

    def send(some: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        answer = client.write(request.method, request.path, {request.items: some, **more})
        spans.append((answer["offsets"]["base"], answer["offsets"]["end"]))
        results: list[dict[str, Any]] = answer[request.items]
        return results

    results = in_parts(send, items, request.items_max, is_one=more.get("all_or_nothing", False))
    return Sent(results, spans)


def in_parts(
    send: Callable[[Sequence[Item]], list[dict[str, Any]]],
    items: Sequence[Item],
    size: int,
    *,
    is_one: bool = False,
) -> list[dict[str, Any]]:
    """Return the results of all items, sent in requests of at most `size`.

    One that the controller refuses because its records exceed a batch is sent again in halves, unless it `is_one`.

    Raises:
        PolicyViolation: one item alone exceeds a batch, and it is the only one asked for, or the request is one.
    """
    results: list[dict[str, Any]] = []
    waiting = deque(chunks(items, size))
    while waiting:
        some = waiting.popleft()
        try:
            results += send(some)
        except PolicyViolation as refusal:
            if is_one or len(items) == 1:
                raise
            if len(some) > 1:
                half = len(some) // 2
                waiting.extendleft((some[half:], some[:half]))
                continue
            item: Any = some[0]
            results.append({**item, "error": refusal.error, "message": refusal.message})
    return results


def chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    waiting = iter(items)
    while some := list(islice(waiting, size)):
        yield some
