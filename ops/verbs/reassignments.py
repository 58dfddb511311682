"""Edge: what `partitions reassign|reassignments` do; their arguments stand with the noun's others in `partitions.py`."""

import argparse
import json
from typing import Any, Final

from metadata_log.limits import REASSIGNMENTS_MAX
from ops import render
from ops.admin.client import ClusterClient
from ops.arguments import client_from
from ops.item_requests import REFUSED, ItemRequest, carry_out, result_columns
from ops.render import Column
from ops.talk import fail_usage, say, show
from ops.verbs.topics import quoted
from ops.when import AtOffset, When, duration_text, time_text

AT_MOST: Final = 500
"""Of a plan, under way at a time: half a request, which the leader decides and all apply in some milliseconds."""
PATIENCE_S: Final = 60.0
"""A broker that restarts is back within it."""
STUCK: Final = 10
"""The exit code where something of a plan is stuck, and nothing was refused."""
HISTORY_LISTED: Final = 10_000
PARTITION: Final = (Column("topic"), Column("partition"))
REASSIGNMENT: Final = ItemRequest(
    operation="AlterPartitionReassignments",
    method="POST",
    path="/v1/partitions/reassign",
    items="partitions",
    items_max=REASSIGNMENTS_MAX,
    columns=result_columns(*PARTITION, done="accepted"),
    empty="no reassignment is under way",
)
PROBLEMS: Final = (*PARTITION, Column("error", "WHY"), Column("message"))
UNDER_WAY: Final = (
    Column("topic"),
    Column("partition"),
    Column("replicas"),
    Column("isr"),
    Column("adding_replicas", "ADDING"),
    Column("removing_replicas", "REMOVING"),
    Column("why_stuck", "STUCK", lambda why: "" if why is None else str(why)),
)
HISTORY: Final = (
    Column("begun_ms", "BEGUN AT", lambda ms: "before" if ms is None else time_text(ms)),
    Column("begun_offset", "OFFSET", lambda offset: "" if offset is None else str(offset)),
    Column("topic"),
    Column("partition"),
    Column("from", show=lambda replicas: "?" if replicas is None else render.plain(replicas)),
    Column("to"),
    Column("actor", "BY", lambda actor: "" if actor is None else str(actor)),
    Column("ended", show=lambda ended: "under way" if ended is None else str(ended)),
    Column("duration_ms", "TOOK", lambda ms: "" if ms is None else duration_text(ms)),
    Column("why_stuck", "STUCK", lambda why: "" if why is None else str(why)),
)


def run_reassign(args: argparse.Namespace) -> int:
    may_change = not args.keep_replication_factor
    if args.plan is not None:
        return _run_plan(args, allow_replication_factor_change=may_change)
    if args.at_most is not None or args.patience is not None:
        fail_usage("--at-most and --patience are of a plan: --plan FILE")
    wanted = _named(args, client_from(args))
    return carry_out(args, REASSIGNMENT, wanted, allow_replication_factor_change=may_change)


def _run_plan(args: argparse.Namespace, **more: Any) -> int:
    """Carry out a plan, or show its records; say what of it was refused or is stuck."""
    from ops.admin.reassignment_plan import Carrying, NotAPlan, read_plan

    try:
        plan = read_plan(json.loads(args.plan.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        what = error if isinstance(error, NotAPlan) else f"{type(error).__name__}: {error}"
        fail_usage(f"{args.plan} is no plan: {what}")
    if args.dry_run:
        return carry_out(args, REASSIGNMENT, [one.body() for one in plan], **more)
    at_most = AT_MOST if args.at_most is None else args.at_most
    if args.all_or_nothing:
        if len(plan) > REASSIGNMENTS_MAX:
            fail_usage(
                f"{len(plan)} partitions; --all-or-nothing takes at most {REASSIGNMENTS_MAX} in one request",
            )
        at_most, more = 0, {**more, "all_or_nothing": True}
    carrying = Carrying(
        client=client_from(args),
        at_most=at_most,
        patience_s=PATIENCE_S if args.patience is None else args.patience,
        more=more,
    )
    try:
        progress = carrying.run(plan)
    except KeyboardInterrupt:
        say("interrupted; what is under way goes on, and the same command carries out the rest")
        raise
    problems = progress.problems()
    summary = {
        "partitions": len(plan),
        "done": progress.done,
        "under_way": len(progress.under_way),
        "to_do": len(progress.to_do),
        "problems": problems,
    }

    def table() -> str:
        rows = f"\n\n{render.table(PROBLEMS, problems, empty='')}" if problems else ""
        return f"{len(plan)} partitions: {progress.line()}{rows}"

    show(args, summary, table=table)
    if progress.refused or progress.moved:
        return REFUSED
    return STUCK if progress.under_way else 0


def _named(args: argparse.Namespace, client: ClusterClient) -> list[dict[str, Any]]:
    """Return the partitions that the flags name."""
    if args.cancel and args.partition is None:
        under_way = client.read("/v1/partitions/reassignments")["items"]
        numbers = [one["partition"] for one in under_way if one["topic"] == args.topic]
        if not numbers:
            client.read(f"/v1/topics/{quoted(args.topic)}")  # is refused where there is none of that name
            say(f"no reassignment of {args.topic} is under way")
    elif args.partition is None or (args.replicas is None and not args.cancel):
        fail_usage("--partition with --replicas or --cancel is needed")
    else:
        numbers = args.partition
    return [{"topic": args.topic, "partition": number, "replicas": args.replicas} for number in numbers]


def run_list(args: argparse.Namespace) -> int:
    client = client_from(args)
    if args.history:
        return _show_history(args, client)
    if args.since is not None:
        fail_usage("--since is of the history: add --history")
    items = client.read("/v1/partitions/reassignments")["items"]
    items = [one for one in items if args.topic in (None, one["topic"])]
    if args.topic is not None and not items:
        client.read(f"/v1/topics/{quoted(args.topic)}")  # is refused where there is none of that name
    show(args, items, table=lambda: render.table(UNDER_WAY, items, empty="no reassignment is under way"))
    return 0


def _show_history(args: argparse.Namespace, client: ClusterClient) -> int:
    """Show the reassignments in the order in which they began, at most --limit of them."""
    from ops.admin.live_state import history
    from ops.admin.reassignment_history import Reassignment, reassignments_of

    since: When | None = args.since

    def is_wanted(one: Reassignment) -> bool:
        if args.topic not in (None, one.topic):
            return False
        if since is None or one.begun_offset is None or one.begun_ms is None:
            return since is None
        if isinstance(since, AtOffset):
            return one.begun_offset >= since.offset
        return one.begun_ms >= since.unix_ms

    found = reassignments_of(history(client, since=since), is_wanted=is_wanted, most=args.limit)
    if found.next_offset is not None:
        say(f"the first {args.limit} are shown; to go on: --since {found.next_offset}")
    items = [one.shown(found.now_ms) for one in found.items]
    show(args, items, table=lambda: render.table(HISTORY, items, empty="the log tells of no reassignment"))
    return 0
