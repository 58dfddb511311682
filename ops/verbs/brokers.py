"""Edge: `brokers list|describe|explain|unregister`."""

import argparse
from typing import Any

from metadata_log.errors import BrokerIdNotRegistered
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.arguments import Noun, from_to
from ops.client import client_from
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
    Column("endpoints"),
)


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
        "Remove a broker that is gone for good; its replicas stay assigned until they are reassigned.",
        run=run_unregister,
        parent=noun.flags.network,
        examples=("brokers unregister 11 --dry-run", "brokers unregister 11"),
    )
    unregister.add_argument("broker_id", type=from_to(0, INT32_MAX), metavar="ID")
    unregister.add_argument("--dry-run", action="store_true", help="show the records, and write nothing")


def run_explain(args: argparse.Namespace) -> int:
    from ops.explain import explain_broker
    from ops.live_state import history

    found = list(explain_broker(history(client_from(args)), args.broker_id))
    if not found:
        raise BrokerIdNotRegistered(
            f"the log tells nothing of broker {args.broker_id}", broker_id=args.broker_id
        )
    show(args, found, table=lambda: render.table(CHANGES, found, empty=""))
    return 0


def run_unregister(args: argparse.Namespace) -> int:
    if args.dry_run:
        from metadata_log.ids import BrokerId
        from metadata_log.wire.commands import UnregisterBroker
        from ops.dry_run import show_what_if

        return show_what_if(args, UnregisterBroker(broker_id=BrokerId(args.broker_id)))
    gone = client_from(args).write("DELETE", f"/v1/brokers/{args.broker_id}")
    show(args, gone, table=lambda: f"broker {gone['broker_id']} is no longer registered")
    return 0


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/brokers")["items"]
    show(args, items, table=lambda: render.table(BROKERS, items, empty="no brokers"))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    broker = client_from(args).read(f"/v1/brokers/{args.broker_id}")
    show(args, broker, table=lambda: render.fields((k, render.plain(v)) for k, v in broker.items()))
    return 0
