"""Edge: `controllers list|unregister`."""

from typing import Any, Final

from metadata_log.ids import NodeId
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.dry_run import foresee
from ops.command_line import render
from ops.command_line.changes import REFUSED, Change, change, show_foreseen
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, Noun, argument, reading, watchable
from ops.command_line.render import Column
from ops.command_line.values import from_to
from ops.when import time_text


def _time(ms: Any) -> str:
    return "-" if ms is None else time_text(ms)


def _ranges(features: Any) -> str:
    return ",".join(f"{render.plain(each['name'])} {each['min']}-{each['max']}" for each in features) or "-"


CONTROLLERS: Final = (
    Column("controller_id", "ID"),
    Column("incarnation_id", "INCARNATION", is_wide=True),
    Column("registration_epoch", "EPOCH", is_wide=True),
    Column("registered_at_ms", "REGISTERED AT", _time),
    Column("is_voter", "VOTER"),
    Column("linked", tone=render.good_if(True)),
    Column("endpoints", "ADDRESS", render.address),
    Column("endpoints", is_wide=True),
    Column("features", "FEATURES", _ranges, is_wide=True),
)


NOUN: Final = Noun()


@NOUN.verb(
    "list",
    "List the controllers that registered, and the levels of features that each supports.",
    "controllers list",
    "controllers list -o json",
)
@watchable
@reading
def run_list(asked: Network) -> int:
    items = asked.client().controllers()
    asked.show_items(items, CONTROLLERS, empty="no controllers are registered")
    return 0


@NOUN.verb(
    "unregister",
    "Remove the registration of a controller that is gone for good; one that votes or runs keeps it. It asks first.",
    "controllers unregister 4 --dry-run",
    "controllers unregister 4 --yes",
)
@argument("controller_id", "ID", read=from_to(0, INT32_MAX))
@guarded
@change
def run_unregister(asked: Change, *, controller_id: int, yes: bool) -> int:
    client = asked.client()
    if asked.dry_run:
        from quorum.decide.controllers import UnregisterController

        # Which controllers run is what the active one sees of its links.
        linked = [one["controller_id"] for one in client.controllers() if one["linked"]]
        command = UnregisterController(controller_id=NodeId(controller_id), validate_only=False)
        return show_foreseen(asked, foresee(client, [command], linked=linked))
    if not yes:
        # What would be refused is refused before anybody is asked.
        client.write("DELETE", f"/v1/controllers/{controller_id}?validate_only=true")
    what = f"this removes the registration of controller {controller_id}"
    if not ask_first(what, lambda: ("it registers again if it is started",), yes=yes):
        return REFUSED
    gone = client.write("DELETE", f"/v1/controllers/{controller_id}")
    asked.show(gone, table=lambda: f"controller {gone['controller_id']} is no longer registered")
    return 0
