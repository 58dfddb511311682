"""Edge: `controller run` and `broker run`: one process in the foreground, its log in its data directory; `broker verify`."""

import asyncio
import logging
import random
import shlex
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import DirectoryInUse, DiskFailed, InvariantBroken, MetadataError
from metadata_log.ids import random_uuid, uuid_text
from metadata_log.node.addresses import HostPort, read_address
from metadata_log.node.disk.data_directory import Role, read_meta
from metadata_log.node.disk.durable_files import renamed_os_errors
from ops import render
from ops.changes import REFUSED
from ops.log_format import PROCESS_FAILED, setup_logging
from ops.options import Noun, Output, argument, option, output
from ops.processes import keep_files_private, running_process
from ops.render import Column
from ops.settings import load_broker_settings, load_controller_settings
from ops.settings_values import cluster_id
from ops.talk import say
from ops.values import seconds

log = logging.getLogger(__name__)

_AGAIN: Final = (
    ". It stopped rather than go on wrongly: copy its data directory and report this, then start it again; "
    "if it ends so once more, "
)
WHAT_NEXT: Final[Mapping[Role, str]] = {
    "controller": _AGAIN + "treat its disk as lost (ops/runbooks/wiped-voter.md)",
    "broker": _AGAIN + "move its data directory away and run `metaquorum storage format --config FILE`: "
    "it fetches everything again from the controllers",
}
"""Behind a broken invariant whose message names no runbook."""


CONTROLLER: Final = Noun()
BROKER: Final = Noun()
POINTS: Final = (Column("point"), Column("result"), Column("seen"))
LOCAL: Final = ("127.0.0.1", 0)


@CONTROLLER.verb(
    "run",
    "Run one controller in the foreground until SIGINT or SIGTERM.",
    "controller run --config controller.toml",
)
@option("--config", read=Path, required=True, metavar="FILE")
def run_controller_process(*, config: Path) -> int:
    from quorum.node.server import run_controller
    from quorum.pace.loop_turns import TimedSelector

    keep_files_private()
    settings = load_controller_settings(config)
    read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    text_log = text_log_of(settings.data_dir, "controller")
    turns = TimedSelector()
    process = run_controller(settings, text_log=text_log, turns=turns)
    return _run(process, "controller", text_log, lambda: asyncio.SelectorEventLoop(turns))


@BROKER.verb(
    "run", "Run one broker in the foreground until SIGINT or SIGTERM.", "broker run --config broker.toml"
)
@option("--config", read=Path, required=True, metavar="FILE")
def run_broker_process(*, config: Path) -> int:
    from broker_agent.process import run_broker

    keep_files_private()
    settings = load_broker_settings(config)
    read_meta(settings.data_dir, "broker", settings.broker_id, settings.cluster_id)
    text_log = text_log_of(settings.data_dir, "broker")
    return _run(run_broker(settings, text_log=text_log), "broker", text_log)


@BROKER.verb(
    "verify",
    "Play a controller to a broker of any make, and report point by point whether it keeps the protocol.",
    "broker verify --run './broker {cluster_id} 11 {controllers}'",
    "broker verify --listen 127.0.0.1:9093 --cluster-id AAAAAAAAAAAAAAAAAAAAAA",
    "broker verify http://127.0.0.1:8080/readyz --run './broker {cluster_id} 11 {controllers}'",
)
@argument("url", "[URL]", required=False)
@option(
    "--run", "command", metavar="COMMAND", help="starts the broker; without it a person does, when asked to"
)
@option(
    "--listen",
    read=read_address,
    default=LOCAL,
    metavar="HOST:PORT",
    help="the controller's address; else any",
)
@option("--cluster-id", "cluster", read=cluster_id, metavar="ID", help="22 characters; else one is drawn")
@option(
    "--session-timeout",
    "session_s",
    read=seconds,
    default=3.0,
    metavar="S",
    help="what the broker is told; default: 3",
)
@option(
    "--patience",
    "patience_s",
    read=seconds,
    default=10.0,
    metavar="S",
    help="for each request; ten times as long for a start or a stop; default: 10",
)
@output
def run_verify(
    asked: Output,
    *,
    url: str | None,
    command: str | None,
    listen: HostPort,
    cluster: str | None,
    session_s: float,
    patience_s: float,
) -> int:
    """Check a broker; URL is its own probe, which answers 200 while it serves clients, and another status else."""
    from ops.broker_check.brokers import ByHand, Commanded, probe
    from ops.broker_check.check import PASSED, check
    from ops.broker_check.play import Patience

    broker = ByHand(say) if command is None else Commanded(shlex.split(command))
    checked = check(
        broker,
        host=listen[0],
        port=listen[1],
        cluster_id=cluster or uuid_text(random_uuid(random.SystemRandom())),
        session_timeout_ms=round(session_s * 1000),
        patience=Patience(start_s=10 * patience_s, request_s=patience_s),
        serves=None if url is None else probe(url),
    )
    results = asyncio.run(checked)
    asked.show(results, table=lambda: render.table(POINTS, results, empty=""))
    return 0 if all(one["result"] == PASSED for one in results) else REFUSED


def text_log_of(data_dir: Path, role: Role) -> Path:
    """Return the text log that process.json names; a process that will be refused does not write into another's.

    Raises:
        DirectoryInUse: another process runs here.
    """
    process = running_process(data_dir)
    if process is not None:
        raise DirectoryInUse(f"{data_dir}: is in use by process {process['pid']}: stop it first")
    return data_dir.resolve() / f"{role}.log"


async def _to_its_end(process: Coroutine[Any, Any, None]) -> None:
    await process
    # Python frees a large state slowly at exit. A signal meanwhile would make a clean stop look like a kill.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


def _run(
    process: Coroutine[Any, Any, None],
    role: Role,
    text_log: Path,
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    try:
        with renamed_os_errors(text_log):
            setup_logging(text_log)
    except DiskFailed:
        process.close()  # it never ran
        raise
    try:
        try:
            with asyncio.Runner(loop_factory=make_loop) as runner:
                runner.run(_to_its_end(process))
        except InvariantBroken as error:
            if "runbook" not in error.context:
                error.message += WHAT_NEXT[role]
            raise
    except BaseException as error:
        # The last line of the log names the cause; the traceback of a bug goes to the log only.
        foreseen = isinstance(error, MetadataError)
        reason = f"{type(error).__name__}: {error}"
        log.critical(PROCESS_FAILED, exc_info=not foreseen, extra={"reason": reason})
        raise
    return 0
