"""Is a history of reads and writes of registers linearizable? Exact, and in n log n, where each value is written once.

Per key, the operations on one value form a cluster: its write and the reads that found it. Let `first_end` be the earliest
end among them and `last_start` the latest start. If first_end < last_start the value certainly stood in the register
throughout that span; else all of its operations overlap, and it may stand there for an instant anywhere in between. The
history is linearizable if and only if no read ends before its write begins, no two certain spans overlap, and no uncertain
span lies inside a certain one. A write whose outcome is unknown ends at infinity, and is left out where nobody read it.

Source: Gibbons and Korach, Testing Shared Memories, SIAM J. Comput. 26 (1997), section 4 (read-mapping known).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

INFINITY = float("inf")
NEVER_WRITTEN = ""
"""What a register holds before its first write."""


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of one client; `ended` stays infinite where its outcome is unknown."""

    key: str
    value: str
    is_write: bool
    began: float
    ended: float = INFINITY


@dataclass(slots=True)
class _Cluster:
    write: Operation | None = None
    first_end: float = INFINITY
    last_start: float = -INFINITY
    reads: list[Operation] = field(default_factory=list)

    def add(self, operation: Operation) -> None:
        self.first_end = min(self.first_end, operation.ended)
        self.last_start = max(self.last_start, operation.began)
        if operation.is_write:
            self.write = operation
        else:
            self.reads.append(operation)


def check(history: Iterable[Operation]) -> str | None:
    """Return what contradicts linearizability, None if nothing does."""
    by_key: dict[str, dict[str, _Cluster]] = defaultdict(dict)
    for operation in history:
        if operation.is_write or operation.ended != INFINITY:  # a read without an answer says nothing
            by_key[operation.key].setdefault(operation.value, _Cluster()).add(operation)
    for key, clusters in by_key.items():
        found = _check_register(key, clusters)
        if found is not None:
            return found
    return None


def _check_register(key: str, clusters: dict[str, _Cluster]) -> str | None:
    certain: list[tuple[float, float, str]] = []
    uncertain: list[tuple[float, float, str]] = []
    for value, cluster in clusters.items():
        if value == NEVER_WRITTEN:
            cluster.first_end = -INFINITY  # it was "written" before all
        elif cluster.write is None:
            return f"{key}: {value!r} was read and never written"
        elif not cluster.reads and cluster.write.ended == INFINITY:
            continue
        for read in cluster.reads:
            if cluster.write is not None and read.ended < cluster.write.began:
                return f"{key}: {value!r} was read at {read.ended:.4f}, written from {cluster.write.began:.4f} on"
        if cluster.first_end < cluster.last_start:
            certain.append((cluster.first_end, cluster.last_start, value))
        else:
            uncertain.append((cluster.last_start, cluster.first_end, value))
    certain.sort()
    for (_, end, one), (start, _, other) in pairwise(certain):
        if start < end:
            return f"{key}: {one!r} stood until {end:.4f}, but {other!r} from {start:.4f} on"
    at = 0
    for start, end, value in sorted(uncertain):
        while at < len(certain) and certain[at][1] < start:
            at += 1
        if at < len(certain) and certain[at][0] < start and end < certain[at][1]:
            start_stood, end_stood, stood = certain[at]
            return (
                f"{key}: {value!r} stood within {start:.4f} to {end:.4f}, but {stood!r} all the time from "
                f"{start_stood:.4f} to {end_stood:.4f}"
            )
    return None
