"""Edge: `brokers list|describe|explain|unregister`."""

from collections.abc import Sequence
from typing import Any, Final

from metadata_log.errors import BrokerIdNotRegistered, Rejected
from metadata_log.wire.shapes import INT32_MAX
from ops import render
from ops.changes import REFUSED, Change, change, result_columns
from ops.options import Network, Noun, argument, reading
from ops.render import Column
from ops.values import from_to
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


ID: Final = from_to(0, INT32_MAX)
NOUN: Final = Noun()


@NOUN.verb(
    "list",
    "List brokers, their states and how far each has applied the log.",
    "brokers list",
    "brokers list -o jsonl",
)
@reading
def run_list(asked: Network) -> int:
    items = asked.client().brokers()
    asked.show(items, table=lambda: render.table(BROKERS, items, empty="no brokers"))
    return 0


@NOUN.verb("describe", "Show one broker.", "brokers describe 11")
@argument("broker_id", "ID", read=ID)
@reading
def run_describe(asked: Network, *, broker_id: int) -> int:
    broker = asked.client().read(f"/v1/brokers/{broker_id}")
    asked.show_fields(broker)
    return 0


@NOUN.verb("explain", "Show each change of a broker's registration, and why.", "brokers explain 11")
@argument("broker_id", "ID", read=ID)
@reading
def run_explain(asked: Network, *, broker_id: int) -> int:
    from ops.admin.explain import explain_broker
    from ops.admin.live_state import history

    found = list(explain_broker(history(asked.client()).steps, broker_id))
    if not found:
        raise BrokerIdNotRegistered(f"the log tells nothing of broker {broker_id}", broker_id=broker_id)
    asked.show(found, table=lambda: render.table(CHANGES, found, empty=""))
    return 0


@NOUN.verb(
    "unregister",
    "Remove brokers that are gone for good; their replicas stay assigned until they are reassigned.",
    "brokers unregister 11 --dry-run",
    "brokers unregister 11 12",
)
@argument("broker_ids", "ID...", nargs=-1, required=True, read=ID)
@change
def run_unregister(asked: Change, *, broker_ids: Sequence[int]) -> int:
    """Remove brokers one after the other: each is a change in parts, with a result of its own."""
    if asked.dry_run:
        return asked.foreseen("UnregisterBroker", *({"broker_id": one} for one in broker_ids))
    client = asked.client()
    results = []
    for broker_id in broker_ids:
        error = message = None
        try:
            client.write("DELETE", f"/v1/brokers/{broker_id}")
        except Rejected as refusal:
            error, message = refusal.error, refusal.message
        results.append({"broker_id": broker_id, "error": error, "message": message})
    asked.show(results, table=lambda: render.table(UNREGISTERED, results, empty=""))
    return 0 if all(one["error"] is None for one in results) else REFUSED
