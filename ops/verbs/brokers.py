"""Edge: `brokers list|describe`."""

import argparse
from typing import Any

from ops import render
from ops.client import client_from
from ops.render import Column
from ops.talk import show
from ops.when import duration_text


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


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/brokers")["items"]
    show(args, items, table=lambda: render.table(BROKERS, items, empty="no brokers"))
    return 0


def run_describe(args: argparse.Namespace) -> int:
    broker = client_from(args).read(f"/v1/brokers/{args.broker_id}")
    show(args, broker, table=lambda: render.fields((k, render.plain(v)) for k, v in broker.items()))
    return 0
