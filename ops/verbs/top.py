"""Edge: `top`: the cluster live: its health, controllers, brokers, and what was written last.
Tests: tests/unit/ops/verbs/test_live.py.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from metadata_log.errors import OutcomeUnknown, Rejected, Unavailable
from ops.admin.bulk_reads import bulk_source
from ops.admin.cluster import Cluster
from ops.admin.health import merged_status
from ops.admin.log_feed import feed_lines
from ops.admin.survey import judged, surveyed
from ops.command_line import terminal
from ops.command_line.log_text import LogText
from ops.command_line.options import WATCH_S, Network, Verb, flag, option, reading
from ops.command_line.values import seconds
from ops.verbs import brokers, quorum

RECENT: Final = 12
"""Records of the log's end."""
SHOWN_MAX: Final = 40
"""Brokers: those that are not online first."""


@option("--every", read=seconds, default=WATCH_S, metavar="S", help=f"default: {WATCH_S:g}")
@flag("--once", help="show it once; so it does where stdout is no terminal")
@reading
def run_top(asked: Network, *, every: float, once: bool) -> int:
    client = asked.client()

    def show() -> int:
        nodes = surveyed(client)
        health = judged(client, nodes)
        status = merged_status(nodes)
        found = {"health": health, "quorum": status, "brokers": None if status is None else _brokers(client)}
        asked.show(found, table=lambda: "\n\n".join(_drawn(asked, client, found)))
        return 0

    is_live = not once and sys.stdout.isatty()
    return terminal.watch(show, every_s=every) if is_live else show()


NOUN: Final = Verb(run_top, examples=("top", "top --every 5s", "top --once -o json"))


def _brokers(client: Cluster) -> list[dict[str, Any]] | None:
    """Return the brokers, those that are not online first; None where no controller can say."""
    with suppress(Unavailable, OutcomeUnknown, Rejected):
        return sorted(client.brokers(), key=lambda one: (one["state"] == "ONLINE", one["broker_id"]))  # type: ignore[arg-type]
    return None


def _drawn(asked: Network, client: Cluster, found: dict[str, Any]) -> Iterator[str]:
    yield quorum.health_text(client, found["health"], asked.look)
    if found["quorum"] is None:
        return  # no controller answers: further questions would take the whole time-out
    yield quorum.status_text(found["quorum"], asked.look)
    if found["brokers"] is not None:
        rows = found["brokers"]
        more = f"\n... and {len(rows) - SHOWN_MAX:,} more" if len(rows) > SHOWN_MAX else ""
        yield asked.table(brokers.BROKERS, rows[:SHOWN_MAX], empty="no brokers") + more
    with suppress(Unavailable, OutcomeUnknown, Rejected):
        names = {topic["topic_id"]: topic["name"] for topic in client.topics()}
        source = bulk_source(client)
        first = max(source.status["log_start_offset"], source.end_offset - RECENT)
        lines = feed_lines(client, topics=(), first=str(first), until=None, follow=False)
        told = (line for line in lines if line["type"] != "NoOp")
        yield "\n".join(LogText(asked.look, names).text(told)) or "nothing was written lately"
