"""Edge: a node as the process that runs it: its loop, its log in its data directory, and what its end says.
Tests: tests/unit/ops/verbs/test_process.py.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import DirectoryInUse, InvariantBroken, MetadataError, leaves, most_telling
from metadata_log.node.disk.data_directory import Role
from metadata_log.node.disk.durable_files import renamed_os_errors
from ops.log_format import PROCESS_FAILED, setup_logging
from ops.processes import running_process

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
"""After a broken invariant whose message names no runbook."""


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


async def advised(process: Coroutine[Any, Any, None], role: Role) -> None:
    """Run a node; where an invariant of it is broken and names no runbook, its message gets what to do next."""
    try:
        await process
    except InvariantBroken as error:
        if "runbook" not in error.context:
            error.message += WHAT_NEXT[role]
        raise


async def in_one_process(
    controller: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
    broker: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
) -> None:
    """Run a controller and a broker on this loop until SIGINT or SIGTERM; each is called with the event that stops it.

    The broker stops first: it hands its leaderships over through the controllers, this one among them. What ends one of
    them unforeseen ends the other.
    """
    broker_stops, controller_stops = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, broker_stops.set)

    async def broker_first() -> None:
        await broker(broker_stops)
        controller_stops.set()

    async def controller_last() -> None:
        await controller(controller_stops)
        broker_stops.set()

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller_last())
            tasks.create_task(broker_first())
    except BaseExceptionGroup as failures:
        raise most_telling(leaves(failures)) from None


def run_node(
    start: Callable[[], Coroutine[Any, Any, None]],
    text_log: Path,
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run a node to its end; what ended it is the last line of its log, and reported to a person by who called."""
    with renamed_os_errors(text_log):
        setup_logging(text_log)
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(_to_its_end(start()))
    except BaseException as error:
        # The last line of the log names the cause; the traceback of a bug goes to the log only.
        foreseen = isinstance(error, MetadataError)
        reason = f"{type(error).__name__}: {error}"
        log.critical(PROCESS_FAILED, exc_info=not foreseen, extra={"reason": reason})
        raise
    return 0
