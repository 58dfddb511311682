"""Edge: `controllers list|unregister`."""

import argparse
from typing import Any, Final

from metadata_log.wire.commands import UnregisterController
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.admin.client import ClusterClient
from ops.arguments import Noun, client_from, from_to
from ops.dry_run import foresee, show_foreseen
from ops.render import Column
from ops.talk import show
from ops.when import time_text


def _time(ms: Any) -> str:
    return "-" if ms is None else time_text(ms)


def _ranges(features: Any) -> str:
    return ",".join(f"{render.plain(each['name'])} {each['min']}-{each['max']}" for each in features) or "-"


CONTROLLERS: Final = (
    Column("controller_id", "ID"),
    Column("incarnation_id", "INCARNATION"),
    Column("registration_epoch", "EPOCH"),
    Column("registered_at_ms", "REGISTERED AT", _time),
    Column("is_voter", "VOTER"),
    Column("linked"),
    Column("endpoints"),
    Column("features", "FEATURES", _ranges),
)


def add_parsers(noun: Noun) -> None:
    noun.verb(
        "list",
        "List the controllers that registered, and the levels of features that each supports.",
        run=run_list,
        parent=noun.flags.network,
        examples=("controllers list", "controllers list -o json"),
    )
    unregister = noun.verb(
        "unregister",
        "Remove the registration of a controller that is gone for good; one that votes or runs keeps it.",
        run=run_unregister,
        parent=noun.flags.network,
        examples=("controllers unregister 4 --dry-run", "controllers unregister 4"),
    )
    unregister.add_argument("controller_id", type=from_to(0, INT32_MAX), metavar="ID")
    unregister.add_argument("--dry-run", action="store_true", help="show the records, and write nothing")


def run_list(args: argparse.Namespace) -> int:
    items = client_from(args).read("/v1/controllers")["items"]
    show(args, items, table=lambda: render.table(CONTROLLERS, items, empty="no controllers are registered"))
    return 0


def run_unregister(args: argparse.Namespace) -> int:
    client = client_from(args)
    if args.dry_run:
        return _show_unregistration(args, client)
    gone = client.write("DELETE", f"/v1/controllers/{args.controller_id}")
    show(args, gone, table=lambda: f"controller {gone['controller_id']} is no longer registered")
    return 0


def _show_unregistration(args: argparse.Namespace, client: ClusterClient) -> int:
    """Show what would be written; which controllers run is what the active one sees of its links."""
    linked = [one["controller_id"] for one in client.read("/v1/controllers")["items"] if one["linked"]]
    command = UnregisterController(controller_id=args.controller_id, validate_only=False)
    return show_foreseen(args, foresee(args, [command], linked=linked))
