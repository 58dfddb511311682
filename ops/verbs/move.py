"""Edge: `move controller|broker`: a node comes to other addresses. Tests: tests/unit/ops/verbs/test_move.py,
tests/cluster/test_move.py.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import MetadataError
from metadata_log.node.addresses import HostPort, address_text, is_node_url, is_reachable, read_address
from metadata_log.wire.shapes import INT32_MAX
from ops.command_line.changes import REFUSED
from ops.command_line.guard import ask_first
from ops.command_line.options import Noun, either, option, together
from ops.command_line.routines import UNSAFE, Routine, routine
from ops.command_line.talk import fail_usage, say
from ops.command_line.values import from_to
from ops.node_commands import command_with, run_for
from ops.processes import keep_files_private

if TYPE_CHECKING:
    from ops.admin.moving import Move, Moving
    from ops.admin.roll_plan import Node

PLACES: Final = ("id", "role", "host", "http", "raft", "kafka")
NOUN: Final = Noun()


def _at(text: str) -> HostPort:
    address = read_address(text)
    if not is_reachable(address):
        raise ValueError(f"{text!r} is no HOST:PORT that others can reach")
    return address


def _url(text: str) -> str:
    if not is_node_url(text):
        raise ValueError(f"{text!r} is no http://HOST:PORT")
    return text


_http: Final = option("--http", read=_url, metavar="URL", help="where it is asked over HTTP from then on")


_moving: Final = together(
    option("--id", "node_id", read=from_to(0, INT32_MAX), required=True, metavar="N"),
    option(
        "--restart",
        "command",
        read=command_with(PLACES),
        metavar="COMMAND",
        help="stops the node, lets its settings name the new addresses, and starts it; without a shell; {id}, "
        "{role}, {host} (as it was), {http}, {raft} and {kafka} are replaced",
    ),
    either("command", "local"),
    routine(
        dry="show where it is reached now and then, and what is unsafe; change nothing",
        local="the node is one of `metaquorum up --dir DIR`: all files there are written, and it is started again",
        more_codes=("NAME_UNKNOWN",),
    ),
)
"""What both verbs take."""


@NOUN.verb(
    "controller",
    "Let a controller be reached at other addresses, on the same disk; its vote stays.",
    "move controller --id 3 --raft c3b:9191 --http https://c3b:9101 --dry-run",
    "move controller --id 3 --raft c3b:9191 --http https://c3b:9101 --restart './move.sh {id} {raft} {http}'",
)
@_http
@option("--raft", read=_at, metavar="HOST:PORT", help="where the other controllers reach it from then on")
@option("--kafka", read=_at, metavar="HOST:PORT", help="where Kafka's brokers reach it from then on")
@_moving
def run_controller(asked: Routine, **given: Any) -> int:
    return _run(asked, "controller", **given)


@NOUN.verb(
    "broker",
    "Let a broker be reached at another address, on the same disk.",
    "move broker --id 11 --http http://b11b:9101 --restart './move.sh {id} {http}'",
)
@_http
@_moving
def run_broker(asked: Routine, **given: Any) -> int:
    return _run(asked, "broker", raft=None, kafka=None, **given)


def _run(
    asked: Routine,
    role: str,
    *,
    node_id: int,
    http: str | None,
    raft: HostPort | None,
    kafka: HostPort | None,
    command: Sequence[str] | None,
) -> int:
    """Move a node; run again it only waits for what is not there yet."""
    from ops.admin.moving import Move, Moving

    keep_files_private()
    if http is None and raft is None and kafka is None:
        fail_usage("name at least one new address")
    move = Move(
        role="broker" if role == "broker" else "controller", id=node_id, http=http, raft=raft, kafka=kafka
    )
    restart = _restart(move, command, asked.local, asked.patience)
    moving = Moving(rolling=asked.rolling(asked.client(), restart), move=move)
    if asked.dry_run:
        return _show(asked, moving)
    if command is None and asked.local is None:
        fail_usage(
            "say how the node is restarted: --restart COMMAND or --local DIR; --dry-run shows what would change"
        )
    what = f"this restarts {move.name} at other addresses"
    if not ask_first(what, moving.changes, yes=asked.yes):
        return REFUSED
    restarted = moving.run()
    asked.show_fields(_told(moving) | {"restarted": restarted})
    if asked.local is None:
        say(
            f"write the new addresses of {move.name} into the files of the other nodes ([[voters]], controllers), and into "
            "what names it to clients; until then they find it through the others, and need no restart"
        )
    return 0


def _told(moving: "Moving") -> dict[str, Any]:
    wanted = {name.lower(): address_text(at) for name, at in moving.move.wanted.items()}
    return {"role": moving.move.role, "id": moving.move.id, "addresses": wanted}


def _show(asked: Routine, moving: "Moving") -> int:
    """Show which addresses would change, where the node is reached now, and why it cannot be moved."""
    unsafe = None
    lacking = {name.lower(): address_text(at) for name, at in moving.lacking().items()}
    now = {name.lower(): address_text(at) for name, at in moving.present().items()}
    try:
        moving.check()
    except MetadataError as error:
        unsafe = error.message
    asked.show_fields(_told(moving) | {"now": now, "changes": lacking, "unsafe": unsafe})
    return UNSAFE if unsafe else 0


def _restart(
    move: "Move", command: Sequence[str] | None, local: Path | None, patience_s: float
) -> "Callable[[Node], None]":
    def restart(node: "Node") -> None:
        if local is not None:
            from ops.local.member_processes import restart_member
            from ops.local.moved_files import write_move

            write_move(local.resolve(), move)
            restart_member(local, move.id)
            return
        places = {
            "id": node.id,
            "role": node.role,
            "host": node.host,
            "http": move.http or "",
            "raft": "" if move.raft is None else address_text(move.raft),
            "kafka": "" if move.kafka is None else address_text(move.kafka),
        }
        run_for(command or (), places, name=node.name, patience_s=patience_s)

    return restart
