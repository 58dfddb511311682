"""Edge: what `partitions reassign|reassignments` do; their arguments stand with the noun's others in `partitions.py`.
Tests: tests/cluster/test_http_surface.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.limits import REASSIGNMENTS_MAX
from metadata_log.wire.shapes import INT32_MAX
from ops.admin.items import REASSIGN
from ops.command_line import render
from ops.command_line.changes import REFUSED, Change, carry_out, result_columns
from ops.command_line.options import Network, R, option
from ops.command_line.render import Column
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to, seconds, text_of
from ops.when import AtOffset, When, duration_text, short_time_text

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster
    from ops.admin.placement_plan import Wanted
    from ops.admin.reassignment_plan import Progress

AT_MOST: Final = 500
"""Of a plan, under way at a time: half a request, which the leader decides and all apply in some milliseconds."""
PATIENCE_S: Final = 60.0
"""A broker that restarts is back within it."""
STUCK: Final = 10
"""The exit code where something of a plan is stuck, and nothing was refused."""
HISTORY_LISTED: Final = 10_000
PARTITION: Final = (Column("topic"), Column("partition"))
ACCEPTED: Final = result_columns(*PARTITION, done="accepted")
PROBLEMS: Final = (*PARTITION, Column("error", "WHY"), Column("message"))
UNDER_WAY: Final = (
    Column("topic"),
    Column("partition"),
    Column("replicas"),
    Column("isr", is_wide=True),
    Column("adding_replicas", "ADDING"),
    Column("removing_replicas", "REMOVING"),
    Column("why_stuck", "STUCK", lambda why: "" if why is None else str(why)),
)
HISTORY: Final = (
    Column("begun_ms", "BEGUN AT", lambda ms: "before" if ms is None else short_time_text(ms)),
    Column("begun_offset", "OFFSET", lambda offset: "" if offset is None else str(offset), is_wide=True),
    Column("topic"),
    Column("partition"),
    Column("from", show=lambda replicas: "?" if replicas is None else render.plain(replicas), is_wide=True),
    Column("to"),
    Column("actor", "BY", lambda actor: "" if actor is None else str(actor), is_wide=True),
    Column("duration_ms", "TOOK", lambda ms: "" if ms is None else duration_text(ms)),
    Column("ended"),
)


def reassigning(run: R) -> R:
    """Declare how a plan is carried out that the verb makes: it gets `at_most` and `patience`."""
    bound = option(
        "--at-most",
        read=from_to(0, INT32_MAX),
        metavar="N",
        help=f"so many partitions are reassigned at a time; 0: no bound; default: {AT_MOST}",
    )
    patience = option(
        "--patience",
        read=seconds,
        metavar="DURATION",
        help=f"give up once all under way are stuck for so long; default: {PATIENCE_S:g}s",
    )
    return bound(patience(run))


def carry_out_all(asked: Change, wanted: Sequence[Mapping[str, Any]], **more: Any) -> int:
    empty = "no reassignment is under way"
    return carry_out(asked, REASSIGN, wanted, ACCEPTED, empty=empty, **more)


def run_plan(asked: Change, file: Path, *, at_most: int | None, patience_s: float | None, **more: Any) -> int:
    """Carry out a plan, or show its records; say what of it was refused or is stuck."""
    from ops.admin.reassignment_plan import read_plan

    try:
        plan = read_plan(json.loads(text_of(file)))
    except json.JSONDecodeError as error:
        fail_usage(f"{file} is no plan: it is no JSON: {error}")
    except ValueError as error:
        fail_usage(f"{file} is no plan: {error}")
    if asked.dry_run:
        return carry_out_all(asked, [one.body() for one in plan], **more)
    at_most = AT_MOST if at_most is None else at_most
    if asked.all_or_nothing:
        if len(plan) > REASSIGNMENTS_MAX:
            what = f"--all-or-nothing takes at most {REASSIGNMENTS_MAX} in one request"
            fail_usage(f"{len(plan)} partitions; {what}")
        at_most, more = 0, {**more, "all_or_nothing": True}
    progress = carry_out_plan(asked.client(), plan, at_most=at_most, patience_s=patience_s, **more)
    asked.show(summary_of(progress, len(plan)), table=lambda: told(asked, progress, len(plan)))
    return code_of(progress)


def carry_out_plan(
    client: "Cluster", plan: Sequence["Wanted"], *, at_most: int | None, patience_s: float | None, **more: Any
) -> "Progress":
    """Carry out a plan; `more` are further fields of each request."""
    from ops.admin.reassignment_plan import Carrying

    carrying = Carrying(
        client=client,
        at_most=AT_MOST if at_most is None else at_most,
        patience_s=PATIENCE_S if patience_s is None else patience_s,
        more=more,
    )
    try:
        return carrying.run(plan)
    except KeyboardInterrupt:
        say("interrupted; what is under way goes on, and the same command carries out the rest")
        raise


def summary_of(progress: "Progress", partitions: int) -> dict[str, Any]:
    return {
        "partitions": partitions,
        "done": progress.done,
        "under_way": len(progress.under_way),
        "to_do": len(progress.to_do),
        "problems": progress.problems(),
    }


def told(asked: Network, progress: "Progress", partitions: int) -> str:
    """Return how far a plan is, and what of it stays undone."""
    problems = progress.problems()
    rows = f"\n\n{asked.table(PROBLEMS, problems, empty='')}" if problems else ""
    return f"{partitions} partitions: {progress.line()}{rows}"


def code_of(progress: "Progress") -> int:
    if progress.refused or progress.moved:
        return REFUSED
    return STUCK if progress.under_way else 0


def show_history(asked: Network, *, topic: str | None, since: When | None, limit: int) -> int:
    """Show the reassignments in the order in which they began, at most `limit` of them."""
    from ops.admin.live_state import history
    from ops.admin.reassignment_history import Reassignment, reassignments_of

    def is_wanted(one: Reassignment) -> bool:
        if topic not in (None, one.topic):
            return False
        if since is None or one.begun_offset is None or one.begun_ms is None:
            return since is None
        if isinstance(since, AtOffset):
            return one.begun_offset >= since.offset
        return one.begun_ms >= since.unix_ms

    found = reassignments_of(history(asked.client(), since=since), is_wanted=is_wanted, most=limit)
    if found.next_offset is not None:
        say(f"the first {limit} are shown; to go on: --since {found.next_offset}")
    items = [one.shown(found.now_ms) for one in found.items]
    rows = [{**one, "ended": one["ended"] or _under_way(one["why_stuck"])} for one in items]
    empty = "the log tells of no reassignment"
    asked.show(items, table=lambda: asked.table(HISTORY, rows, empty=empty))
    return 0


def _under_way(why_stuck: str | None) -> str:
    return "under way" if why_stuck is None else f"stuck: {why_stuck}"
