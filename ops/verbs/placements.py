"""Edge: what `brokers drain` and `partitions rebalance` do: a plan of where replicas go is shown, or carried out.

Tests: tests/cluster/test_routines.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import BrokerIdNotRegistered, ElectionNotNeeded
from metadata_log.ids import BrokerId
from ops.admin.items import ELECT, send_items
from ops.command_line.changes import REFUSED
from ops.command_line.guard import ask_first
from ops.command_line.options import Network
from ops.command_line.render import Column
from ops.command_line.talk import say
from ops.verbs.reassignments import PROBLEMS, carry_out_plan, code_of

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from ops.admin.cluster import Cluster
    from ops.admin.placement_plan import Placed, Plan

ROUNDS_MAX: Final = 10
"""A topic that is created meanwhile may lie on a broker that is being drained: each round moves what came since the last."""
LOADS: Final = (
    Column("broker_id", "BROKER"),
    Column("replicas"),
    Column("replicas_then", "THEN"),
    Column("preferred"),
    Column("preferred_then", "THEN"),
)
BALANCED: Final = (LOADS[0], LOADS[1], LOADS[3])


def drain(
    asked: Network,
    broker_ids: Sequence[int],
    *,
    to: Sequence[int] | None,
    leaders_only: bool,
    at_most: int | None,
    patience_s: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Move replicas or leaderships off brokers, until none is left there or nothing can go on."""
    from ops.admin import placement_plan
    from ops.admin.live_state import live_image

    client = asked.client()
    image = live_image(client)
    drained = frozenset(map(BrokerId, broker_ids))
    for broker_id in sorted(drained):
        if broker_id not in image.brokers:
            raise BrokerIdNotRegistered(f"broker {broker_id} is not registered", broker_id=broker_id)
    goal = None if to is None else frozenset(map(BrokerId, to))

    def plan_of(image: "MetadataImage") -> "Plan":
        make = placement_plan.hand_over if leaders_only else placement_plan.drain
        return make(image, drained, to=goal)

    plan = plan_of(image)
    if dry_run:
        return show_plan(asked, image, plan)
    what = "leadership" if leaders_only else "replica"
    names = ", ".join(map(str, sorted(drained)))
    if not ask_first(f"this takes every {what} from broker {names}", lambda: effects(image, plan), yes=yes):
        return REFUSED
    code, problems, image = _in_rounds(client, image, plan_of, at_most=at_most, patience_s=patience_s)
    if leaders_only and not problems:
        image, problems = elect(client, image, placement_plan.led_by(image, drained))
        code = REFUSED if problems else code
    return _show_drained(asked, image, sorted(drained), problems, code, leaders_only=leaders_only)


def rebalance(
    asked: Network, *, at_most: int | None, patience_s: float | None, dry_run: bool, yes: bool
) -> int:
    """Carry out the plan of balancing, then let first replicas lead wherever they can."""
    from ops.admin.balance_plan import balance
    from ops.admin.live_state import live_image
    from ops.admin.placement_plan import led_by_others

    client = asked.client()
    image = live_image(client)
    plan = balance(image)
    if dry_run:
        return show_plan(asked, image, plan)
    code = 0
    problems: list[dict[str, Any]] = []
    if plan.wanted:
        if not ask_first("this balances the replicas of all topics", lambda: effects(image, plan), yes=yes):
            return REFUSED
        code, problems, image = _in_rounds(client, image, balance, at_most=at_most, patience_s=patience_s)
    if not code:
        image, problems = elect(client, image, led_by_others(image))
        code = REFUSED if problems else 0
    rows = [*_loads(image, balance(image))]

    def table() -> str:
        parts = [asked.table(PROBLEMS, problems, empty="")] if problems else []
        return "\n\n".join([*parts, asked.table(BALANCED, rows, empty="no broker is registered")])

    asked.show({"brokers": rows, "problems": problems}, table=table)
    return code


def _in_rounds(
    client: "Cluster",
    image: "MetadataImage",
    plan_of: Callable[["MetadataImage"], "Plan"],
    *,
    at_most: int | None,
    patience_s: float | None,
) -> tuple[int, list[dict[str, Any]], "MetadataImage"]:
    """Carry out plans until there is nothing left to plan; return the exit code, what is left undone, and the state then."""
    from ops.admin.live_state import newer_image

    code, problems = 0, []
    for _ in range(ROUNDS_MAX):
        plan = plan_of(image)
        if not plan.wanted:
            break
        say(f"{len(plan.wanted):,} partitions to reassign")
        progress = carry_out_plan(
            client,
            plan.wanted,
            at_most=at_most,
            patience_s=patience_s,
            allow_replication_factor_change=False,
        )
        image = newer_image(client, image)
        code, problems = code_of(progress), progress.problems()
        if code:
            break
    return code, problems, image


def elect(
    client: "Cluster", image: "MetadataImage", partitions: Sequence["Placed"]
) -> tuple["MetadataImage", list[dict[str, Any]]]:
    """Let the first replicas of partitions lead; return the state then, and what was refused."""
    from ops.admin.live_state import newer_image

    if not partitions:
        return image, []
    say(f"{len(partitions):,} elections of preferred leaders")
    wanted = [{"topic": one.topic, "partition": one.partition_id} for one in partitions]
    sent = send_items(client, ELECT, wanted, election="preferred")
    refused = [one for one in sent.results if one["error"] not in {None, ElectionNotNeeded.error}]
    return newer_image(client, image), refused


def show_plan(asked: Network, image: "MetadataImage", plan: "Plan") -> int:
    """Show a plan: as JSON it is one that `partitions reassign --plan` takes."""
    rows = [*_loads(image, plan)]
    value = {
        "version": 1,
        "partitions": [one.body() for one in plan.wanted],
        "in_fewer_racks": plan.in_fewer_racks,
        "brokers": rows,
    }

    def table() -> str:
        lines = [asked.table(LOADS, rows, empty="no broker is registered"), "", *_counts(image, plan)]
        return "\n".join(lines)

    asked.show(value, table=table)
    return 0


def effects(image: "MetadataImage", plan: "Plan") -> Iterator[str]:
    """Yield what a plan does, in lines."""
    yield from _counts(image, plan)
    for row in _loads(image, plan):
        if (row["replicas"], row["preferred"]) != (row["replicas_then"], row["preferred_then"]):
            yield (
                f"broker {row['broker_id']}: {row['replicas']:,} replicas, then {row['replicas_then']:,}; first of "
                f"{row['preferred']:,}, then of {row['preferred_then']:,}"
            )


def _loads(image: "MetadataImage", plan: "Plan") -> Iterator[dict[str, Any]]:
    """Yield for each registered broker what it has now, and once the plan is carried out."""
    from ops.admin.placement_plan import Load, loads_after

    now, then = loads_after(image, ()), loads_after(image, plan.wanted)
    for broker_id in sorted(image.brokers):
        was, becomes = now.get(broker_id, Load()), then.get(broker_id, Load())
        yield {
            "broker_id": broker_id,
            "replicas": was.replicas,
            "replicas_then": becomes.replicas,
            "preferred": was.preferred,
            "preferred_then": becomes.preferred,
        }


def _counts(image: "MetadataImage", plan: "Plan") -> Iterator[str]:
    from ops.admin.placement_plan import moved_replicas

    if not plan.wanted:
        yield "nothing to reassign"
        return
    yield f"{len(plan.wanted):,} partitions are reassigned, {moved_replicas(image, plan.wanted):,} replicas move"
    if plan.in_fewer_racks:
        yield f"{plan.in_fewer_racks:,} partitions lie in fewer racks than before"


def _show_drained(
    asked: Network,
    image: "MetadataImage",
    drained: Iterable[BrokerId],
    problems: Sequence[dict[str, Any]],
    code: int,
    *,
    leaders_only: bool,
) -> int:
    from ops.admin.placement_plan import held, led_by

    rows = [
        {
            "broker_id": broker_id,
            "replicas": held(image, broker_id, deleted=False),
            "of_deleted_topics": held(image, broker_id, deleted=True),
            "leaders": len(led_by(image, {broker_id})),
        }
        for broker_id in drained
    ]

    def table() -> str:
        parts = [asked.table(PROBLEMS, problems, empty="")] if problems else []
        return "\n".join([*parts, *(_told(row, leaders_only=leaders_only) for row in rows)])

    asked.show({"brokers": rows, "problems": problems}, table=table)
    is_left = any(row["leaders" if leaders_only else "replicas"] for row in rows)
    return code or (REFUSED if is_left else 0)


def _told(row: dict[str, Any], *, leaders_only: bool) -> str:
    broker = f"broker {row['broker_id']}"
    if leaders_only:
        count = row["leaders"]
        return f"{broker} still leads {count:,} partitions" if count else f"{broker} leads no partition"
    if row["replicas"]:
        return f"{broker} still has {row['replicas']:,} replicas: the same command goes on"
    may = f"{broker} holds no replica: it may be stopped, and unregistered once it is OFFLINE"
    if row["of_deleted_topics"]:
        may += f"; {row['of_deleted_topics']:,} replicas of deleted topics are lost then"
    return may
