"""Edge: `whatif`: what the controller would decide, from an empty cluster, a snapshot or the live state; nothing is
written. Tests: tests/unit/ops/verbs/test_kinds.py.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.ids import BrokerId, NodeId
from metadata_log.records.registry import to_json, type_name
from ops.command_line import render
from ops.command_line.options import Network, Verb, either, flag, option, reading
from ops.command_line.partition_summary import BY_TOPIC, SHOWN_MAX, by_topic, short
from ops.command_line.render import Column, Look
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import existing_path

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from ops.admin.cluster import Cluster as Live
    from quorum.whatif.cluster import Options

SUFFERS: Final = 10
"""The exit code where a loss or a restart leaves a partition without a leader or with too few in-sync replicas."""
STEPS: Final = (
    Column("broker"),
    Column("what"),
    Column("records"),
    Column("leaders_moved", "LEADERS MOVED"),
    Column("unclean"),
    Column("leaderless"),
    Column("under_min_isr", "UNDER MIN ISR"),
)
CONTROLLERS: Final = (
    Column("controller"),
    Column("what"),
    Column("led", "LED", lambda led: "yes" if led else ""),
    Column("successors", "MAY LEAD NEXT"),
    Column("records"),
    Column("running", "VOTERS UP"),
    Column("majority"),
    Column("writes", "QUORUM WRITES", lambda writes: "yes" if writes else "NO"),
)
SUFFERING: Final = (
    Column("broker"),
    Column("topic"),
    Column("partition"),
    Column("leader", show=lambda leader: "none" if leader == -1 else str(leader)),
    Column("isr"),
    Column("replicas"),
    Column("min_isr", "MIN ISR"),
)
SUFFERING_TOPICS: Final = BY_TOPIC[:3]


def _loss(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    is_id = name.isascii() and name.isdigit()
    if (
        kind not in ("broker", "controller", "rack")
        or not equals
        or not name
        or (kind != "rack" and not is_id)
    ):
        raise ValueError(
            f"{text!r} is none of broker=ID, controller=ID and rack=NAME; of several, repeat --lose"
        )
    return kind, name


@option(
    "--lose",
    "losses",
    multiple=True,
    read=_loss,
    metavar="broker=ID|controller=ID|rack=NAME",
    help="these brokers, or these controllers, are lost, one after the other; may be repeated",
)
@flag("--roll", help="every broker is stopped and started, one after the other")
@flag("--roll-controllers", help="every controller is stopped and started, the leader last")
@either("losses", "roll", "roll_controllers")
@option("--from", "path", read=existing_path, metavar="SNAPSHOT", help="begin with this state")
@flag(
    "--live",
    help="begin with the state of the running cluster: the default for losses and rolls; a script else begins with an "
    "empty cluster",
)
@either("path", "live")
@reading
def run_whatif(
    asked: Network,
    *,
    losses: Sequence[tuple[str, str]],
    roll: bool,
    roll_controllers: bool,
    path: Path | None,
    live: bool,
) -> int:
    """Answer a script from stdin line by line, or show what a loss or a roll of brokers or controllers does."""
    controllers = [NodeId(int(name)) for kind, name in losses if kind == "controller"]
    if controllers and len(controllers) < len(losses):
        fail_usage("name brokers or controllers: their losses are played apart")
    asks = path is None and (live or losses or roll or roll_controllers)
    client = asked.client() if asks else None  # one alone: what it found of a leader is not found again
    if controllers or roll_controllers:
        return _run_controllers(asked, controllers, path, client)
    if losses or roll:
        return _run_losses(asked, losses, path, client)
    image = _image(path, client) if live or path else None
    options = _options(client) if live else None
    if sys.stdin.isatty():
        fail_usage("name a loss (--lose, --roll), or send a script of operations on stdin")
    if not _answer(sys.stdin, image, options):
        say("nothing was asked: name a loss (--lose, --roll), or send a script of operations on stdin")
    return 0


NOUN: Final = Verb(
    run_whatif,
    examples=(
        "whatif --lose broker=11",
        "whatif --lose rack=a -o json",
        "whatif --roll",
        "whatif --lose controller=1 --lose controller=2",
        "whatif --roll-controllers",
        "whatif < script.jsonl",
        "whatif --live < script.jsonl",
    ),
)


def _answer(lines: Iterable[str], image: "MetadataImage | None", options: "Options | None") -> int:
    """Answer a script line by line; return how many operations it had."""
    from quorum.whatif.script import Script

    script, count = Script(image, options), 0
    for line in lines:
        if not line.strip():
            continue
        try:
            operation = json.loads(line)
        except ValueError:
            operation = None  # no operation: it is answered as such
        answer = script.answer(operation if isinstance(operation, dict) else {})
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        count += 1
    return count


def _image(path: Path | None, client: "Live | None") -> "MetadataImage":
    from ops.admin.live_state import live_image
    from ops.command_line.given_snapshots import read_given

    if client is not None:
        return live_image(client)
    assert path is not None
    return read_given(path, "whatif --from")


def _options(client: "Live | None") -> "Options":
    """Return the settings of the cluster that is asked; a snapshot has none, so Kafka's defaults count."""
    from ops.admin.live_state import live_options
    from quorum.whatif.cluster import Options

    return Options() if client is None else live_options(client)


def _run_losses(
    asked: Network, losses: Sequence[tuple[str, str]], path: Path | None, client: "Live | None"
) -> int:
    """Show the losses one after the other; without any, a roll of all brokers."""
    from quorum.whatif.cluster import Cluster
    from quorum.whatif.losses import Step, lose, roll

    image = _image(path, client)
    up = [broker_id for broker_id, broker in sorted(image.brokers.items()) if not broker.fenced]
    cluster = Cluster(_options(client), image)
    steps: list[Step] = []
    for step in lose(cluster, _lost(image, up, losses)) if losses else roll(cluster, up):
        steps.append(step)
        if step.what == "lost" and not step.records:
            say(f"broker {step.broker_id} is fenced already: nothing changes")
    rows = [_row(step) for step in steps]
    suffering = [row for step in steps for row in _suffering(step)]
    value = {
        "end_offset": image.end_offset,
        "steps": [
            row | {"records": [{"type": type_name(record), **to_json(record)} for record in step.records]}
            for row, step in zip(rows, steps, strict=True)
        ],
        "suffering": suffering,
    }
    asked.show(value, table=lambda: _table(rows, suffering, asked.look))
    return SUFFERS if suffering else 0


def _run_controllers(asked: Network, lost: Sequence[NodeId], path: Path | None, client: "Live | None") -> int:
    """Show the losses of controllers one after the other; without any, a roll of all of them."""
    from quorum.whatif.cluster import Cluster
    from quorum.whatif.controllers import QuorumOf

    image = _image(path, client)
    voters = [voter.node_id for voter in image.quorum.voters or ()]
    unknown = [controller_id for controller_id in lost if controller_id not in voters]
    if unknown:
        known = ", ".join(map(str, voters)) or "none are known"
        raise InvalidRequest(f"controller {unknown[0]} is no voter; voters: {known}")
    running: Iterable[NodeId] = voters
    leader_id = None if image.claimant is None else image.claimant.controller_id
    if client is not None:
        status = client.read("/v1/quorum")
        running = [row["id"] for row in status["voters"] if row["reachable"]]
        leader_id = status["leader_id"]
    quorum = QuorumOf(Cluster(_options(client), image), running=running, leader_id=leader_id)
    steps = [*(quorum.lose(dict.fromkeys(lost)) if lost else quorum.roll(quorum.ids))]
    rows = [
        {
            "controller": step.controller_id,
            "what": step.what,
            "led": step.led,
            "successors": [*step.successors],
            "records": len(step.records),
            "running": step.running,
            "majority": step.majority,
            "writes": step.writes,
        }
        for step in steps
    ]
    stopped = [row for row in rows if not row["writes"]]
    value = {
        "end_offset": image.end_offset,
        "steps": [
            row | {"records": [{"type": type_name(record), **to_json(record)} for record in step.records]}
            for row, step in zip(rows, steps, strict=True)
        ],
    }

    def table() -> str:
        told = "the quorum writes all the while, but for an election where a leader goes"
        if stopped:
            first = stopped[0]
            told = (
                f"once controller {first['controller']} is {first['what']}, {first['running']} of {len(voters)} voters "
                f"run, and {first['majority']} are needed: nothing can be changed, and no broker is fenced or elected"
            )
        return f"{render.table(CONTROLLERS, rows, empty='no voters', look=asked.look)}\n\n{told}"

    asked.show(value, table=table)
    return SUFFERS if stopped else 0


def _lost(
    image: "MetadataImage", up: list[BrokerId], losses: Sequence[tuple[str, str]]
) -> Iterator[BrokerId]:
    """Yield the brokers that are lost, each once; those of a rack are the ones that are up."""
    found: dict[BrokerId, None] = {}
    for kind, name in losses:
        if kind == "broker":
            broker_id = BrokerId(int(name))
            if broker_id not in image.brokers:
                raise InvalidRequest(
                    f"broker {name} is not registered; `metaquorum brokers list` shows who is"
                )
            found[broker_id] = None
            continue
        in_rack = [broker_id for broker_id in up if image.brokers[broker_id].rack == name]
        if not in_rack:
            racks = sorted({image.brokers[broker_id].rack or "none" for broker_id in up})
            raise InvalidRequest(f"no broker that is up stands in rack {name}; racks: {', '.join(racks)}")
        found |= dict.fromkeys(in_rack)
    yield from found


def _row(step: Any) -> dict[str, Any]:
    return {
        "broker": step.broker_id,
        "what": step.what,
        "records": len(step.records),
        "leaders_moved": step.leaders_moved,
        "unclean": step.unclean,
        "leaderless": step.leaderless,
        "under_min_isr": step.under_min_isr,
    }


def _suffering(step: Any) -> Iterator[dict[str, Any]]:
    for each in step.suffering:
        yield {
            "broker": step.broker_id,
            "what": step.what,
            "topic": each.topic,
            "partition": each.partition_id,
            "leader": each.leader,
            "isr": list(each.isr),
            "replicas": list(each.replicas),
            "min_isr": each.min_isr,
        }


def _table(rows: list[dict[str, Any]], suffering: list[dict[str, Any]], look: Look) -> str:
    steps = render.table(STEPS, rows, empty="no broker is up", look=look)
    if not suffering:
        return f"{steps}\n\nevery partition keeps a leader and min.insync.replicas"
    topics = by_topic(suffering)
    parts = [steps, _because(suffering)]
    if len(topics) > 1 and len(suffering) > SHOWN_MAX:
        parts.append(short(SUFFERING_TOPICS, topics, look))
    more = len(suffering) - SHOWN_MAX
    rest = f"\n... and {more:,} more: -o json has all of them, and every record" if more > 0 else ""
    parts.append(f"{render.table(SUFFERING, suffering[:SHOWN_MAX], empty='', look=look)}{rest}")
    return "\n\n".join(parts)


def _because(suffering: list[dict[str, Any]]) -> str:
    """Return a line for each broker whose loss makes partitions suffer."""
    lost: dict[int, list[dict[str, Any]]] = {}
    for one in suffering:
        lost.setdefault(one["broker"], []).append(one)
    return "\n".join(
        f"once broker {broker} is {some[0]['what']}: {len(some):,} partitions suffer, "
        f"{sum(one['leader'] == -1 for one in some):,} of them without a leader"
        for broker, some in lost.items()
    )
