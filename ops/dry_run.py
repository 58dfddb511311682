"""Edge: what a command would write now: decided on the live state by the controller's own rules; nothing is written."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metadata_log.records.registry import to_json, type_name
from metadata_log.wire.commands import Command
from ops import render
from ops.client import client_from
from ops.live_state import live_image
from ops.talk import show

if TYPE_CHECKING:
    from quorum.whatif.cluster import Cluster


def show_what_if(args: argparse.Namespace, command: Command) -> int:
    """Print the records that a command would write, and what it would be answered.

    Raises:
        Rejected: it would be refused.
    """
    from quorum.whatif.cluster import Cluster, Options

    cluster = Cluster(Options(), live_image(client_from(args)))
    outcome = cluster.decide(command).result()
    records = _records(cluster)
    errors = [row._asdict() for row in getattr(outcome, "results", ()) if row.error is not None]
    show(args, {"records": records, "refused": errors}, table=lambda: _table(records, errors))
    return 0


def show_balancing(args: argparse.Namespace, percentage: int) -> int:
    """Print the records of the elections that balancing would hold now, for brokers whose imbalance exceeds `percentage`."""
    from quorum.decide.sweeps import Sweep, SweepKind
    from quorum.whatif.cluster import Cluster, Options

    cluster = Cluster(Options(), live_image(client_from(args)))
    sweep = Sweep(SweepKind.BALANCE, imbalance_percentage=percentage)
    while cluster.sweep(sweep):
        pass
    records = _records(cluster)
    show(args, {"records": records, "refused": []}, table=lambda: _table(records, []))
    return 0


def _records(cluster: "Cluster") -> list[dict[str, Any]]:
    return [
        {"type": type_name(record), **to_json(record)}
        for batch in cluster.take_written()
        for record in batch.records
    ]


def _table(records: list[dict[str, Any]], errors: list[dict[str, Any]]) -> str:
    lines = [_line(record) for record in records] or ["nothing would be written"]
    lines += [f"refused: {_line(error)}" for error in errors]
    return "\n".join(lines)


def _line(record: Mapping[str, Any]) -> str:
    told = (
        f"{name}={render.plain(value)}"
        for name, value in record.items()
        if name != "type" and value is not None
    )
    return f"{record.get('type', '')} {' '.join(told)}".strip()
