"""Pure: many partitions in a few lines: by broker and by topic, and because of which broker they lack a replica.
Tests: tests/unit/ops/command_line/test_partition_summary.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ops.command_line import render
from ops.command_line.render import Column, Look, Row

SHOWN_MAX: Final = 20
"""The most rows that a summary has, and that are shown without one."""
BY_BROKER: Final = (
    Column("broker"),
    Column("leaders", "LEADS"),
    Column("preferred"),
    Column("replicas"),
    Column("not_in_sync", "NOT IN SYNC", tone=lambda count: "bad" if count else ""),
)
BY_TOPIC: Final = (
    Column("topic"),
    Column("partitions"),
    Column("leaderless", tone=lambda count: "bad" if count else ""),
    Column("not_in_sync", "UNDER-REPLICATED", tone=lambda count: "warning" if count else ""),
)


def by_broker(partitions: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what each broker has of some partitions, each of which has leader, replicas and isr."""
    leaders = Counter(one["leader"] for one in partitions)
    preferred = Counter(one["replicas"][0] for one in partitions if one["replicas"])
    replicas = Counter(broker_id for one in partitions for broker_id in one["replicas"])
    missing = missing_replicas(partitions)
    return [
        {
            "broker": broker_id,
            "leaders": leaders[broker_id],
            "preferred": preferred[broker_id],
            "replicas": replicas[broker_id],
            "not_in_sync": missing[broker_id],
        }
        for broker_id in sorted(replicas)
    ]


def missing_replicas(partitions: Sequence[Row]) -> Counter[int]:
    """Return how many replicas of each broker are not in the ISR."""
    return Counter(
        broker_id for one in partitions for broker_id in one["replicas"] if broker_id not in one["isr"]
    )


def by_topic(partitions: Sequence[Row]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in partitions:
        row = found.setdefault(
            one["topic"], {"topic": one["topic"], "partitions": 0, "leaderless": 0, "not_in_sync": 0}
        )
        row["partitions"] += 1
        row["leaderless"] += one["leader"] == -1
        row["not_in_sync"] += len(one["isr"]) < len(one["replicas"])
    return sorted(found.values(), key=lambda row: (-row["partitions"], row["topic"]))


def causes(partitions: Sequence[Row], states: Mapping[int, str]) -> Iterator[str]:
    """Yield a line for each broker whose replicas are not in sync, most of them first; `states` are the brokers' states."""
    for broker_id, count in missing_replicas(partitions).most_common(SHOWN_MAX):
        state = states.get(broker_id, "not registered")
        many = f"{count:,} partition{'s' if count > 1 else ''}"
        if state == "ONLINE":
            yield f"{many}: broker {broker_id} is online, and its replica is not in sync"
        else:
            yield f"{many} because broker {broker_id} is away ({state})"


def summary(partitions: Sequence[Row], states: Mapping[int, str], look: Look) -> str:
    """Return the partitions by cause, by broker and by topic."""
    topics = by_topic(partitions)
    head = f"{len(partitions):,} partitions of {len(topics):,} topic{'s' if len(topics) > 1 else ''}"
    return "\n\n".join(
        [
            "\n".join([head, *causes(partitions, states)]),
            short(BY_BROKER, by_broker(partitions), look),
            *([short(BY_TOPIC, topics, look)] if len(topics) > 1 else []),
        ]
    )


def short(columns: Sequence[Column], rows: Sequence[Row], look: Look) -> str:
    """Return a table of the first rows, and how many more there are."""
    drawn = render.table(columns, rows[:SHOWN_MAX], empty="none", look=look)
    more = len(rows) - SHOWN_MAX
    return f"{drawn}\n... and {more:,} more" if more > 0 else drawn
