"""Edge: `controller run` and `broker run`: one process in the foreground, its log in its data directory."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import DirectoryInUse, DiskFailed, InvariantBroken, MetadataError
from metadata_log.node.disk.data_directory import Role, read_meta
from metadata_log.node.disk.durable_files import renamed_os_errors
from ops.log_format import PROCESS_FAILED, setup_logging
from ops.options import Noun, option
from ops.processes import keep_files_private, running_process
from ops.settings import load_broker_settings, load_controller_settings

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
