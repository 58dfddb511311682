"""Edge: `roll controllers|brokers|all`. Tests: tests/unit/ops/verbs/test_roll.py, tests/cluster/test_routines.py."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.ids import BrokerId
from metadata_log.records.features import METAQUORUM_VERSION
from metadata_log.wire.shapes import INT64_MAX
from ops.command_line.changes import REFUSED
from ops.command_line.guard import ask_first
from ops.command_line.options import Noun, either, flag, option, together
from ops.command_line.render import Column
from ops.command_line.routines import UNSAFE, Routine, routine
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to
from ops.node_commands import command_with, run_for

if TYPE_CHECKING:
    from ops.admin.cluster import Cluster
    from ops.admin.roll_plan import Node, Role

STEPS: Final = (Column("role"), Column("id"), Column("host"), Column("what"))
ROLLED: Final = (Column("role"), Column("id"), Column("took_s", "TOOK S"))
PLACES: Final = ("id", "role", "host")
NOUN: Final = Noun()


_rolling: Final = together(
    option(
        "--restart",
        "command",
        read=command_with(PLACES),
        metavar="COMMAND",
        help="restarts a node, and returns; without a shell; {id}, {role} and {host} are replaced",
    ),
    either("command", "local"),
    option(
        "--since",
        read=from_to(0, INT64_MAX),
        metavar="OFFSET",
        help="continue a roll: a node that registered at this offset or later is rolled already",
    ),
    flag(
        "--finalize",
        help="then raise metaquorum.version to the newest level, if all nodes run one release: an older one cannot "
        "follow from then on",
    ),
    routine(
        dry="show the order, the partitions that would suffer, and what --finalize would raise; restart nothing",
        local="the nodes are those of `metaquorum up --dir DIR`: SIGTERM stops one, and it is started again",
    ),
)
"""What the three verbs take."""


@NOUN.verb(
    "controllers",
    "Restart the controllers one at a time, the leader last, after another one took over.",
    "roll controllers --dry-run",
    "roll controllers --restart 'systemctl -H {host} restart metaquorum-{role}@{id}'",
)
@_rolling
def run_controllers(asked: Routine, **given: Any) -> int:
    return _roll(asked, ("controller",), **given)


@NOUN.verb(
    "brokers",
    "Restart the brokers one at a time; the next one once all ISRs are whole. Then first replicas lead again.",
    "roll brokers --dry-run",
    "roll brokers --local metaquorum-data --yes",
)
@_rolling
def run_brokers(asked: Routine, **given: Any) -> int:
    return _roll(asked, ("broker",), **given)


@NOUN.verb(
    "all",
    "Restart all controllers, then all brokers.",
    "roll all --restart 'ssh {host} service restart {role}-{id}' --yes",
    "roll all --restart 'ssh {host} service restart {role}-{id}' --since 1234",
)
@_rolling
def run_all(asked: Routine, **given: Any) -> int:
    return _roll(asked, ("controller", "broker"), **given)


def _roll(
    asked: Routine,
    roles: "Sequence[Role]",
    *,
    command: Sequence[str] | None,
    since: int | None,
    finalize: bool,
) -> int:
    from ops.admin.live_state import live_image, newer_image
    from ops.verbs.placements import elect

    client = asked.client()
    image = live_image(client)
    if since is not None and since > image.end_offset:
        fail_usage(
            f"--since {since}: the log ends at {image.end_offset}: no roll of this cluster began there"
        )
    begun = image.end_offset if since is None else since
    if asked.dry_run:
        return _show(asked, roles, begun, finalize=finalize)
    if asked.local is not None:
        _check_is_asked(asked.local, image.quorum.cluster_id)
    if command is None and asked.local is None:
        fail_usage("say how a node is restarted: --restart COMMAND or --local DIR; --dry-run shows the order")
    names = " and ".join(f"{role}s" for role in roles)
    what = f"this restarts {names}, one at a time" + (" and raises metaquorum.version" if finalize else "")
    if not ask_first(what, lambda: (f"what registered since {begun} stays",), yes=asked.yes):
        return REFUSED
    say(f"the roll began at offset {begun}; after an interruption, --since {begun} continues it")
    rolling = asked.rolling(
        client,
        _commanded(command, asked.patience) if command is not None else _local(asked.local or Path()),
    )
    rolled: list[dict[str, Any]] = []
    try:
        rolled += [one._asdict() for one in rolling.run(roles, since=begun)]
    except KeyboardInterrupt:
        say(f"interrupted: --since {begun} continues the roll")
        raise
    problems: list[dict[str, Any]] = []
    if "broker" in roles:
        from ops.admin.placement_plan import led_by_others

        image = newer_image(client, image)
        image, problems = elect(client, image, led_by_others(image))
    value: dict[str, Any] = {"since": begun, "rolled": rolled, "problems": problems}
    if finalize:
        value["finalized"] = _finalized(client)
    asked.show(value, table=lambda: asked.table(ROLLED, rolled, empty="every node is rolled already"))
    return REFUSED if problems else 0


def _finalized(client: "Cluster") -> int:
    """Raise metaquorum.version as far as all nodes support it, and return its level.

    Raises:
        UnsafeStep: two releases run, or a node holds the level back.
    """
    from ops.admin import versions
    from ops.admin.rolling import UnsafeStep

    step = _finalization(client)
    if step["why_not"] is not None:
        raise UnsafeStep(f"all nodes are rolled, and no level is raised: {step['why_not']}")
    level: int = step["to"]
    if level > step["level"]:
        client.write("POST", "/v1/features", versions.raised(METAQUORUM_VERSION, level))
        say(f"{METAQUORUM_VERSION} is {level} now, and was {step['level']}")
    else:
        say(f"{METAQUORUM_VERSION} is {level}, the newest level, already")
    return level


def _finalization(client: "Cluster") -> dict[str, Any]:
    """Return the level of metaquorum.version, the one to which it can be raised, and why it cannot be raised now."""
    from ops.admin import versions

    found, features = versions.nodes(client), versions.levels(client)
    ours = next((one for one in features if one.feature == METAQUORUM_VERSION), None)
    releases = {one["version"] for one in found} - {None}
    step: dict[str, Any] = {"feature": METAQUORUM_VERSION, "level": None, "to": None, "why_not": None}
    if ours is not None:
        step |= {"level": ours.level, "to": ours.possible}
    if ours is None or ours.possible is None or ours.held_back_by is not None or len(releases) > 1:
        step["why_not"] = versions.next_step(found, features)
    return step


def _finalization_told(step: Mapping[str, Any]) -> str:
    name, level, to = step["feature"], step["level"], step["to"]
    if step["why_not"] is not None:
        return f"then {name} stays at {level}, as the nodes are now: {step['why_not']}"
    if to > level:
        return f"then {name} is raised from {level} to {to}: an older release cannot follow from then on"
    return f"then {name} stays at {level}, the newest level"


def _show(asked: Routine, roles: "Sequence[Role]", since: int, *, finalize: bool) -> int:
    """Show the order of a roll, what suffers from the restart of each broker, and what is finalized then."""
    from metadata_log.errors import NotController
    from ops.admin.health import merged_status
    from ops.admin.live_state import live_image, live_options
    from ops.admin.roll_plan import View, in_order, suffering, told, why_no_majority
    from ops.admin.survey import survey

    client = asked.client()
    status = merged_status(survey(client))
    if status is None or status["leader_id"] == -1:
        raise NotController("no controller leads now")
    view = View(live_image(client), status["leader_id"], status["voters"])
    options = live_options(client)
    steps: list[dict[str, Any]] = []
    unsafe: list[dict[str, Any]] = []
    for node in in_order(view, roles):
        what = "rolled already" if node.registered >= since else "restart"
        if what == "restart" and view.leads(node):
            what = "transfer leadership, then restart"
        steps.append({"role": node.role, "id": node.id, "host": node.host, "what": what})
        why = None
        if node.role == "controller":
            why = why_no_majority(view, node.id)
        elif not view.is_down(node) and (suffers := suffering(view.image, options, BrokerId(node.id))):
            why = told(suffers)
        if why is not None:
            unsafe.append({"role": node.role, "id": node.id, "why": why})

    value: dict[str, Any] = {"since": since, "steps": steps, "unsafe": unsafe}
    if finalize:
        value["finalization"] = _finalization(client)

    def table() -> str:
        lines = [f"{one['role']} {one['id']} is not restarted: {one['why']}" for one in unsafe]
        if finalize:
            lines.append(_finalization_told(value["finalization"]))
        return "\n".join([asked.table(STEPS, steps, empty="no node is registered"), *lines])

    asked.show(value, table=table)
    return UNSAFE if unsafe else 0


def _commanded(command: Sequence[str], patience_s: float) -> "Callable[[Node], None]":
    """Return what restarts a node by a command."""

    def restart(node: "Node") -> None:
        run_for(
            command,
            {"id": node.id, "role": node.role, "host": node.host},
            name=node.name,
            patience_s=patience_s,
        )

    return restart


def _check_is_asked(directory: Path, cluster_id: str | None) -> None:
    """Refuse to restart the nodes of another cluster than the one whose health is looked at."""
    from ops.local.layout import read_cluster_file

    found, _, _ = read_cluster_file(directory / "cluster.json")
    if found != cluster_id:
        fail_usage(f"--local {directory} is cluster {found}, and the cluster that is asked is {cluster_id}")


def _local(directory: Path) -> "Callable[[Node], None]":
    """Return what restarts a node of a local cluster."""
    from ops.local.member_processes import restart_member

    def restart(node: "Node") -> None:
        restart_member(directory, node.id)

    return restart
