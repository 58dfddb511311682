"""Edge: `controller run` and `broker run`: one process in the foreground, its log in its data directory; `broker verify`."""

import shlex
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from metadata_log.node.addresses import HostPort, read_address
from ops.command_line import render
from ops.command_line.changes import REFUSED
from ops.command_line.options import Noun, Output, argument, option, output
from ops.command_line.render import Column
from ops.command_line.talk import say
from ops.command_line.values import seconds
from ops.settings_values import cluster_id

CONTROLLER: Final = Noun()
BROKER: Final = Noun()
POINTS: Final = (Column("point"), Column("result"), Column("seen"))
LOCAL: Final = ("127.0.0.1", 0)


@CONTROLLER.verb(
    "run",
    "Run one controller in the foreground until SIGINT or SIGTERM.",
    "controller run --config controller.toml",
    "controller run --config controller.toml --broker broker.toml",
)
@option("--config", read=Path, required=True, metavar="FILE")
@option(
    "--broker", read=Path, metavar="FILE", help="and this broker in the same process, to develop and to test"
)
def run_controller_process(*, config: Path, broker: Path | None) -> int:
    import asyncio

    from metadata_log.node.uncollected import no_collections

    with no_collections():  # which find nothing, and take a tenth of the time of these imports
        from metadata_log.node.disk.data_directory import read_meta
        from ops.node_process import advised, in_one_process, run_node, text_log_of
        from ops.processes import keep_files_private
        from ops.settings import load_broker_settings, load_controller_settings
        from quorum.node.server import run_controller
        from quorum.pace.loop_turns import TimedSelector

    keep_files_private()
    settings = load_controller_settings(config)
    guest = None if broker is None else load_broker_settings(broker)
    read_meta(settings.data_dir, "controller", settings.node_id, settings.cluster_id)
    text_log = text_log_of(settings.data_dir, "controller")
    turns = TimedSelector()

    def controller(stop: asyncio.Event | None = None) -> Coroutine[Any, Any, None]:
        return advised(run_controller(settings, text_log=text_log, turns=turns, stop=stop), "controller")

    def make_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(turns)

    if guest is None:
        return run_node(controller, text_log, make_loop)
    from broker_agent.process import run_broker

    read_meta(guest.data_dir, "broker", guest.broker_id, guest.cluster_id)
    text_log_of(guest.data_dir, "broker")  # refuses where another process runs

    def beside(stop: asyncio.Event) -> Coroutine[Any, Any, None]:
        return advised(run_broker(guest, text_log=text_log, stop=stop), "broker")

    return run_node(lambda: in_one_process(controller, beside), text_log, make_loop)


@BROKER.verb(
    "run", "Run one broker in the foreground until SIGINT or SIGTERM.", "broker run --config broker.toml"
)
@option("--config", read=Path, required=True, metavar="FILE")
def run_broker_process(*, config: Path) -> int:
    from metadata_log.node.uncollected import no_collections

    with no_collections():
        from broker_agent.process import run_broker
        from metadata_log.node.disk.data_directory import read_meta
        from ops.node_process import advised, run_node, text_log_of
        from ops.processes import keep_files_private
        from ops.settings import load_broker_settings

    keep_files_private()
    settings = load_broker_settings(config)
    read_meta(settings.data_dir, "broker", settings.broker_id, settings.cluster_id)
    text_log = text_log_of(settings.data_dir, "broker")
    return run_node(lambda: advised(run_broker(settings, text_log=text_log), "broker"), text_log)


@BROKER.verb(
    "verify",
    "Play a controller to a broker of any make, and report point by point whether it keeps the protocol.",
    "broker verify --run './broker {cluster_id} 11 {controllers}'",
    "broker verify --listen 127.0.0.1:9093 --cluster-id AAAAAAAAAAAAAAAAAAAAAA",
    "broker verify http://127.0.0.1:8080/readyz --run './broker {cluster_id} 11 {controllers}'",
)
@argument("url", "URL", required=False)
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
    import asyncio
    import random

    from metadata_log.ids import random_uuid, uuid_text
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
