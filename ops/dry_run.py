"""Edge: what a command would write now: decided on the live state by the controller's own rules; nothing is written."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metadata_log.records.registry import json_rows, to_json, type_name
from ops import render
from ops.client import client_from
from ops.talk import show

if TYPE_CHECKING:
    from quorum.whatif.cluster import Cluster


def show_what_if(args: argparse.Namespace, operation: str, *bodies: Mapping[str, Any]) -> int:
    """Print the records that requests with these bodies would write one after the other, and the items they would refuse.

    Replicas that nobody assigns are placed by chance, and new topics get chance ids: the real ones will differ.

    Raises:
        Rejected: one of the requests would be refused.
    """
    from quorum.http.batch import KINDS

    commands = [KINDS[operation].read(body) for body in bodies]
    cluster = _live_cluster(args, undelete_window_ms=undelete_window_ms(args, operation))
    end_offset = cluster.image.end_offset
    refused: list[dict[str, Any]] = []
    for command in commands:
        outcome: Any = cluster.decide(command).result()
        refused += json_rows([row for row in getattr(outcome, "results", ()) if row.error is not None])
    return _show(args, cluster, end_offset, refused)


def undelete_window_ms(args: argparse.Namespace, operation: str) -> int:
    """Return what the controllers' settings say, where it matters."""
    if operation != "DeleteTopics":
        return 0
    window_ms: int = client_from(args).read("/v1/topics?deleted=true")["undelete_window_ms"]
    return window_ms


def _live_cluster(args: argparse.Namespace, *, undelete_window_ms: int = 0) -> "Cluster":
    from ops.live_state import live_image
    from quorum.whatif.cluster import Cluster, Options

    options = Options(undelete_window_ms=undelete_window_ms)
    return Cluster(options, live_image(client_from(args)), checks_as_brokers=True)


def show_balancing(args: argparse.Namespace, percentage: int) -> int:
    """Print the records of the elections that balancing would hold now, for brokers whose imbalance exceeds `percentage`."""
    from quorum.decide.sweeps import Sweep, SweepKind

    cluster = _live_cluster(args)
    end_offset = cluster.image.end_offset
    sweep = Sweep(SweepKind.BALANCE, imbalance_percentage=percentage)
    while cluster.sweep(sweep):
        pass
    return _show(args, cluster, end_offset, [])


def _show(
    args: argparse.Namespace, cluster: "Cluster", end_offset: int, refused: list[dict[str, Any]]
) -> int:
    """Print what was decided on the state at `end_offset` (exclusive)."""
    records = [
        {"type": type_name(record), **to_json(record)}
        for batch in cluster.take_written()
        for record in batch.records
    ]
    shown = {"end_offset": end_offset, "records": records, "refused": refused}
    show(args, shown, table=lambda: _table(records, refused))
    return 0


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
