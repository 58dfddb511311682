"""Edge: `state`: everything, now or as it was."""

from collections.abc import Mapping
from typing import Any, Final

from ops.admin.bulk_reads import bulk_source, read_in_bulk
from ops.admin.exchange import JSON
from ops.command_line import render
from ops.command_line.options import Network, Verb, flag, option, reading
from ops.command_line.talk import say
from ops.command_line.values import moment
from ops.when import AtOffset, When, time_text


@option("--at", read=moment, metavar="WHEN", help="an end offset or a time; default: now")
@flag("--leader", help="with --at: read from the leader, not from a follower")
@reading
def run_state(asked: Network, *, at: When | None, leader: bool) -> int:
    client = asked.client()
    if at is None:
        state = client.read("/v1/state")
    else:
        source = bulk_source(client, from_leader=leader)
        state = read_in_bulk(client, source, f"/v1/state?at={at.query}", accept=JSON).json()
        if isinstance(at, AtOffset) and state["end_offset"] != at.offset:
            say(f"{at.offset} lies inside a batch that begins at {state['end_offset']}: shown there")
    asked.show(state, table=lambda: _table(state))
    return 0


NOUN: Final = Verb(run_state, examples=("state", "state --at 1234 -o json", "state --at -2h"))


def _table(state: Mapping[str, Any]) -> str:
    """Return the state in short; JSON has the whole of it."""
    partitions = sum(len(topic["partitions"]) for topic in state["topics"])
    return render.fields(
        [
            ("end_offset", str(state["end_offset"])),
            ("controller_epoch", str(state["controller_epoch"])),
            ("time", time_text(state["time_ms"]) if state["time_ms"] else "-"),
            ("digest", state["digest"]),
            ("voters", render.plain([voter["id"] for voter in state["voters"]])),
            ("controllers", render.plain([each["controller_id"] for each in state["controllers"]])),
            ("brokers", render.plain([broker["broker_id"] for broker in state["brokers"]])),
            ("topics", f"{len(state['topics'])} with {partitions} partitions"),
            ("configs", str(len(state["configs"]))),
            ("features", render.plain(state["features"])),
            ("next_producer_id", render.plain(state["next_producer_id"])),
        ]
    )
