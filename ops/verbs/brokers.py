"""Edge: `brokers list|describe|explain|drain|unregister`."""

from collections.abc import Sequence
from typing import Any, Final

from metadata_log.errors import BrokerIdNotRegistered, NodeStillAlive, NotAuthorized, Rejected, Unavailable
from metadata_log.ids import NO_LEADER
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.cluster import Cluster
from ops.command_line import render
from ops.command_line.changes import REFUSED, Change, change, result_columns
from ops.command_line.guard import ask_first, guarded
from ops.command_line.options import Network, Noun, argument, flag, network, option, reading, watchable
from ops.command_line.render import Column, Tone
from ops.command_line.talk import say
from ops.command_line.values import broker_id_list, from_to
from ops.verbs import placements
from ops.verbs.reassignments import reassigning
from ops.when import duration_text, time_text


def _ago(ms: Any) -> str:
    return "-" if ms is None else f"{duration_text(ms)} ago"


def _age(ms: Any) -> str:
    return "-" if ms is None else duration_text(ms)


def _state_tone(state: Any) -> Tone:
    return "good" if state == "ONLINE" else "bad" if state == "OFFLINE" else "warning"


BROKERS = (
    Column("broker_id", "ID"),
    Column("state", tone=_state_tone),
    Column("broker_epoch", "EPOCH", is_wide=True),
    Column("rack"),
    Column("applied_offset", "APPLIED", is_wide=True),
    Column("lag_records", "LAG"),
    Column("last_contact_ms_ago", "CONTACT", _ago),
    Column("metadata_age_ms", "METADATA AGE", _age, is_wide=True),
    Column("would_serve_stale", "STALE", is_wide=True),
    Column("control_state", "CONTROL STATE", is_wide=True),
    Column("waits_for", is_wide=True),
    Column("endpoints", "ADDRESS", render.address),
    Column("endpoints", is_wide=True),
)

UNREGISTERED = result_columns(Column("broker_id", "ID"), done="unregistered")
CHANGES = (
    Column("time_ms", "TIME", time_text),
    Column("offset"),
    Column("changed"),
    Column("why"),
)


ID: Final = from_to(0, INT32_MAX)
NOUN: Final = Noun()


@NOUN.verb(
    "list",
    "List brokers, their states and how far each has applied the log.",
    "brokers list",
    "brokers list -o jsonl",
)
@watchable
@reading
def run_list(asked: Network) -> int:
    items = asked.client().brokers()

    def table() -> str:
        waits = [
            f"broker {one['broker_id']}: {render.plain(one['waits_for'])}"
            for one in items
            if one["waits_for"]
        ]
        return "\n".join([asked.table(BROKERS, items, empty="no brokers"), *(["", *waits] if waits else [])])

    asked.show(items, table=table)
    return 0


@NOUN.verb("describe", "Show one broker.", "brokers describe 11")
@argument("broker_id", "ID", read=ID)
@watchable
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
    from ops.admin.explain_lines import broker_changes
    from ops.admin.live_state import history
    from ops.admin.log_feed import feed_lines

    client = asked.client()
    try:
        found = list(explain_broker(history(client).steps, broker_id))
    except NotAuthorized:  # a reader gets the log's lines, which say the same
        found = list(
            broker_changes(feed_lines(client, topics=(), first=None, until=None, follow=False), broker_id)
        )
    if not found:
        raise BrokerIdNotRegistered(f"the log tells nothing of broker {broker_id}", broker_id=broker_id)
    rows = [{**one, "why": f"{one['why']}, by {one['actor']}"} if one["actor"] else one for one in found]
    asked.show(found, table=lambda: asked.table(CHANGES, rows, empty=""))
    return 0


@NOUN.verb(
    "drain",
    "Move every replica off brokers, so that they may be stopped for good, or the leaderships alone. It asks first, waits "
    "until all is moved, and goes on where it was if it is run again.",
    "brokers drain 13 --dry-run",
    "brokers drain 13 --to 14,15 --at-most 50 --yes",
    "brokers drain 13 --leaders-only --yes",
)
@argument("broker_ids", "ID...", nargs=-1, required=True, read=ID)
@option(
    "--to",
    read=broker_id_list,
    metavar="ID,ID,...",
    help="the brokers that get them; default: all that are neither fenced nor shutting down nor cordoned",
)
@flag(
    "--leaders-only",
    help="no replica moves: the first replica of a partition changes places with one in sync, and is elected",
)
@reassigning
@flag("--dry-run", help="show the plan, and write nothing")
@guarded
@network
def run_drain(
    asked: Network,
    *,
    broker_ids: Sequence[int],
    to: Sequence[int] | None,
    leaders_only: bool,
    at_most: int | None,
    patience: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    return placements.drain(
        asked,
        broker_ids,
        to=to,
        leaders_only=leaders_only,
        at_most=at_most,
        patience_s=patience,
        dry_run=dry_run,
        yes=yes,
    )


@NOUN.verb(
    "unregister",
    "Remove brokers that are gone for good; their replicas stay assigned until they are reassigned. It asks first, and "
    "refuses where a broker still runs: it would register again.",
    "brokers unregister 11 --dry-run",
    "brokers unregister 11 12 --yes",
)
@argument("broker_ids", "ID...", nargs=-1, required=True, read=ID)
@flag("--force", help="also brokers that still run")
@guarded
@change
def run_unregister(asked: Change, *, broker_ids: Sequence[int], force: bool, yes: bool) -> int:
    """Remove brokers one after the other: each is a change in parts, with a result of its own."""
    client = asked.client()
    if asked.dry_run:
        code = asked.foreseen("UnregisterBroker", *({"broker_id": one} for one in broker_ids))
        try:
            if not force:
                _refuse_living(client, broker_ids)
        except NodeStillAlive as refusal:
            say(f"it would be refused: {refusal.message}")
            return REFUSED
        return code
    if not force:
        _refuse_living(client, broker_ids)
    what = f"this unregisters broker {', '.join(map(str, broker_ids))}"
    if not ask_first(what, lambda: (_loss(client, one) for one in broker_ids), yes=yes):
        return REFUSED
    results = []
    for broker_id in broker_ids:
        error = message = None
        try:
            client.write("DELETE", f"/v1/brokers/{broker_id}")
        except Rejected as refusal:
            error, message = refusal.error, refusal.message
        results.append({"broker_id": broker_id, "error": error, "message": message})
    asked.show_items(results, UNREGISTERED, empty="")
    return 0 if all(one["error"] is None for one in results) else REFUSED


def _refuse_living(client: Cluster, broker_ids: Sequence[int]) -> None:
    """Raise NodeStillAlive if one of the brokers runs, as the active controller sees it.

    Kafka's controller unregisters a broker that runs, so ours does, too: the guard is the client's.
    """
    states = {broker["broker_id"]: broker["state"] for broker in client.brokers()}
    for broker_id in broker_ids:
        state = states.get(broker_id, "OFFLINE")
        if state != "OFFLINE":
            raise NodeStillAlive(
                f"broker {broker_id} is {state} and would register again at once ({_loss(client, broker_id)}): stop it "
                "first, and wait until it is OFFLINE; --force unregisters it all the same",
                broker_id=broker_id,
            )


def _loss(client: Cluster, broker_id: int) -> str:
    """Return what the unregistration of a broker does to the partitions that it has replicas of."""
    from ops.admin.dry_run import what_if

    try:
        records = what_if(client, "UnregisterBroker", {"broker_id": broker_id}).records
    except (Rejected, Unavailable) as error:
        return f"broker {broker_id}: {error.message}"
    changes = [record for record in records if record["type"] == "PartitionChange"]
    moved = sum(record.get("leader") is not None for record in changes)
    shrunk = sum(record.get("isr") is not None for record in changes)
    lost = sum(record.get("leader") == NO_LEADER for record in changes)
    what = f"{moved - lost:,} leaderships move, {lost:,} partitions lose their leader, {shrunk:,} ISRs shrink"
    return f"broker {broker_id}: {what}"
