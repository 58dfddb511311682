"""Edge: `advise`: what topics survive with their settings, what blocks their writes, and what to change; what losses cost.
Tests: tests/unit/quorum/whatif/test_durability.py.
"""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any, Final

from metadata_log.errors import UnknownTopicOrPartition
from ops.command_line.options import Network, Verb, argument, flag, option, reading
from ops.command_line.partition_summary import SHOWN_MAX
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage
from ops.command_line.values import from_to

TOPICS: Final = (
    Column("topic"),
    Column("replicas"),
    Column("min_isr", "MIN ISR"),
    Column("losses_kept", "KEEPS ALL AT LOSSES"),
    Column("losses_written", "WRITES GO ON AT LOSSES"),
    Column("written_now", "NOW", tone=lambda left: "bad" if left < 0 else "warning" if left == 0 else ""),
    Column("is_unclean_allowed", "UNCLEAN", tone=lambda is_so: "warning" if is_so else ""),
    Column("blocking", "BLOCKED BY", show=lambda brokers: ",".join(brokers) or "-"),
)


COSTS: Final = (
    Column("broker"),
    Column("partitions"),
    Column("one_by_one_ms", "ONE BY ONE (MS)"),
    Column("writes", "WRITES HERE"),
    Column("here_ms", "HERE (MS)"),
    Column("brokers_told", "BROKERS TOLD"),
    Column("messages_by_queue", "MESSAGES BY QUEUE"),
    Column("messages_directly", "DIRECTLY"),
)
FROM_MS, TO_MS = 1, 60_000


@argument("names", "TOPIC...", nargs=-1, help="default: all")
@flag(
    "--failover",
    help="of each broker: what its loss costs here, and where each partition is stored by itself and told through a queue",
)
@option(
    "--write-ms",
    read=from_to(FROM_MS, TO_MS),
    metavar="MS",
    help="what one write takes, for --failover; default: 4, as ZooKeeper took",
)
@reading
def run_advise(asked: Network, *, names: Sequence[str], failover: bool, write_ms: int | None) -> int:
    if names and failover:
        fail_usage("--failover is of brokers: leave the topics out")
    if write_ms is not None and not failover:
        fail_usage("--write-ms is for --failover")
    return _failover(asked, write_ms) if failover else _topics(asked, names)


def _failover(asked: Network, write_ms: int | None) -> int:
    from ops.admin.live_state import live_image, live_options
    from quorum.whatif.cluster import Cluster
    from quorum.whatif.costs import STORE_WRITE_MS, cost_of_loss

    client = asked.client()
    options, image = live_options(client), live_image(client)
    costs = [
        cost_of_loss(Cluster(options, image), broker_id, write_ms=write_ms or STORE_WRITE_MS)
        for broker_id, broker in sorted(image.brokers.items())
        if not broker.fenced
    ]
    asked.show_items([cost._asdict() for cost in costs], COSTS, empty="no broker is up")
    return 0


def _topics(asked: Network, names: Sequence[str]) -> int:
    from ops.admin.live_state import live_image, live_options
    from quorum.whatif.cluster import Cluster
    from quorum.whatif.durability import durability

    client = asked.client()
    cluster = Cluster(live_options(client), live_image(client))
    topics = cluster.image.topics
    unknown = [name for name in names if name not in topics.ids]
    if unknown:
        raise UnknownTopicOrPartition(f"there is no topic {', '.join(unknown)}")
    context = cluster.context()
    found = [
        _row(durability(context, topics.by_id[topics.ids[name]])) for name in names or sorted(topics.ids)
    ]
    asked.show(found, table=lambda: _table(asked, found))
    return 0


NOUN: Final = Verb(
    run_advise, examples=("advise", "advise orders", "advise orders -o json", "advise --failover")
)


def _row(durability: Any) -> dict[str, Any]:
    row: dict[str, Any] = durability._asdict()
    row["blocking"] = {str(broker_id): count for broker_id, count in durability.blocking.items()}
    return row | {"advice": list(durability.advice)}


def _table(asked: Network, found: Sequence[dict[str, Any]]) -> str:
    """Return the topics as a table, and each piece of advice once with the topics that it is for."""
    parts = [asked.table(TOPICS, found, empty="no topics")]
    advice = sorted((line, row["topic"]) for row in found for line in row["advice"])
    for line, those in groupby(advice, key=lambda pair: pair[0]):
        parts.append(f"{_named([topic for _, topic in those])}: {line}")
    if not advice and found:
        parts.append("nothing to change, for producers with acks=all")
    return "\n\n".join(parts)


def _named(topics: Collection[str]) -> str:
    shown = sorted(topics)[:SHOWN_MAX]
    return ", ".join(shown) + (f" and {len(topics) - len(shown):,} more" if len(topics) > len(shown) else "")
