"""Edge: `advise`: what topics survive with their settings, what blocks their writes, and what to change.
Tests: tests/unit/quorum/whatif/test_durability.py.
"""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any, Final

from metadata_log.errors import UnknownTopicOrPartition
from ops.options import Network, Verb, argument, reading
from ops.partition_summary import SHOWN_MAX
from ops.render import Column

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


@argument("names", "TOPIC...", nargs=-1, help="default: all")
@reading
def run_advise(asked: Network, *, names: Sequence[str]) -> int:
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


NOUN: Final = Verb(run_advise, examples=("advise", "advise orders", "advise orders -o json"))


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
