"""Edge: `state`: everything, now or as it was."""

import argparse
from collections.abc import Mapping
from typing import Any

from metadata_log.node.http_answers import JSON
from ops import render
from ops.admin.bulk_reads import bulk_source, read_in_bulk
from ops.arguments import Noun, client_from, moment
from ops.talk import say, show
from ops.when import AtOffset, time_text


def add_parsers(noun: Noun) -> None:
    state = noun.command(
        run=run_state,
        parent=noun.flags.network,
        examples=("state", "state --at 1234 -o json", "state --at -2h"),
    )
    state.add_argument("--at", type=moment, metavar="WHEN", help="an end offset or a time; default: now")
    state.add_argument(
        "--leader", action="store_true", help="with --at: read from the leader, not from a follower"
    )


def run_state(args: argparse.Namespace) -> int:
    client = client_from(args)
    if args.at is None:
        state = client.read("/v1/state")
    else:
        source = bulk_source(client, from_leader=args.leader)
        state = read_in_bulk(client, source, f"/v1/state?at={args.at.query}", accept=JSON).json()
        if isinstance(args.at, AtOffset) and state["end_offset"] != args.at.offset:
            say(f"{args.at.offset} lies inside a batch that begins at {state['end_offset']}: shown there")
    show(args, state, table=lambda: _table(state))
    return 0


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
