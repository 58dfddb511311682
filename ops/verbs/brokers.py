"""Edge: `brokers list|describe|explain|unregister`."""

import argparse
from typing import Any

from metadata_log.errors import BrokerIdNotRegistered, Rejected
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.arguments import Noun, client_from, from_to
from ops.dry_run import show_what_if
from ops.item_requests import REFUSED, add_flags, result_columns
from ops.render import Column
from ops.talk import show
from ops.when import duration_text, time_text


def _ago(ms: Any) -> str:
    return "-" if ms is None else f"{duration_text(ms)} ago"


BROKERS = (
    Column("broker_id", "ID"),
    Column("state"),
    Column("broker_epoch", "EPOCH"),
    Column("rack"),
    Column("applied_offset", "APPLIED"),
    Column("lag_records", "LAG"),
    Column("last_contact_ms_ago", "LAST CONTACT", _ago),
    Column("control_state", "CONTROL STATE"),
    Column("waits_for"),
    Column("endpoints"),
)

UNREGISTERED = result_columns(Column("broker_id", "ID"), done="unregistered")
CHANGES = (
    Column("time_ms", "TIME", time_text),
    Column("offset"),
    Column("changed"),
    Column("why"),
    Column("actor"),
)


def add_parsers(noun: Noun) -> None:
    noun.verb(
        "list",
        "List brokers, their states and how far each has applied the log.",
        run=run_list,
        parent=noun.flags.network,
        examples=("brokers list", "brokers list -o jsonl"),
    )
    describe = noun.verb(
        "describe",
        "Show one broker.",
        run=run_describe,
        parent=noun.flags.network,
        examples=("brokers describe 11",),
    )
    describe.add_argument("broker_id", type=from_to(0, INT32_MAX), metavar="ID")
    explain = noun.verb(
        "explain",
        "Show each change of a broker's registration, and why.",
        run=run_explain,
        parent=noun.flags.network,
        examples=("brokers explain 11",),
    )
    explain.add_argument("broker_id", type=from_to(0, INT32_MAX), metavar="ID")
    unregister = noun.verb(
        "unregister",
        "Remove brokers that are gone for good; their replicas stay assigned until they are reassigned.",
        run=run_unregister,
        parent=noun.flags.network,
        examples=("brokers unregister 11 --dry-run", "brokers unregister 11 12"),
    )
    unregister.add_argument("broker_ids", nargs="+", type=from_to(0, INT32_MAX), metavar="ID")
    add_flags(unregister, all_or_nothing=False)


def run_explain(args: argparse.Namespace) -> int:
    from ops.admin.explain import explain_broker
    from ops.admin.live_state import history

    found = list(explain_broker(history(client_from(args)).steps, args.broker_id))
    if not found:
        raise BrokerIdNotRegistered(
            f"the log tells nothing of broker {args.broker_id}", broker_id=args.broker_id
        )
    show(args, found, table=lambda: render.table(CHANGES, found, empty=""))
    return 0


def run_unregister(args: argparse.Namespace) -> int:
    """Remove brokers one after the other: each is a change in parts, with a result of its own."""
    if args.dry_run:
        return show_what_if(args, "UnregisterBroker", *({"broker_id": one} for one in args.broker_ids))
    client = client_from(args)
    results = []
    for broker_id in args.broker_ids:
        error = message = None
        try:
            client.write("DELETE", f"/v1/brokers/{broker_id}")
        except Rejected as refusal:
            error, message = refusal.error, refusal.message
        results.append({"broker_id": broker_id, "error": error, "message": message})
    show(args, results, table=lambda: render.table(UNREGISTERED, results, empty=""))
    return 0 if all(one["error"] is None for one in results) else REFUSED


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/brokers")["items"]
    show(args, items, table=lambda: render.table(BROKERS, items, empty="no brokers"))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    broker = client_from(args).read(f"/v1/brokers/{args.broker_id}")
    show(args, broker, table=lambda: render.fields((k, render.plain(v)) for k, v in broker.items()))
    return 0
