"""Edge: a broker as a process of its own: signals, process.json, and the log of its start and end.
Tests: tests/unit/broker_agent/test_agent.py.
"""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

from broker_agent.agent import BrokerAgent
from broker_agent.config import BrokerSettings
from broker_agent.configured_cordon import ConfiguredCordon
from broker_agent.dataless_host import DatalessHost
from metadata_log import limits
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.node.clock import unix_ms
from metadata_log.node.collector import short_collections
from metadata_log.node.disk.data_directory import leaving_no_process_json, write_process_json
from metadata_log.node.recent_warnings import recent_warnings
from metadata_log.node.threads import share_the_interpreter

log = logging.getLogger(__name__)


async def run_broker(
    settings: BrokerSettings, *, text_log: Path | None = None, stop: asyncio.Event | None = None
) -> None:
    """Run a broker until `stop` is set, or without it until SIGINT or SIGTERM.

    process.json names `text_log` as the file that its log is written to.

    Raises:
        Rejected: the controllers refuse this broker; the message says why.
        Fault: its message says what broke, where, and what to do.
    """
    limits.check_relations()
    share_the_interpreter()
    with short_collections() as collections, recent_warnings() as recent:
        host = DatalessHost(settings.broker_id)

        def on_delta(before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
            host.on_delta(before, after, delta)
            cordon.on_delta(before, after, delta)

        agent = BrokerAgent(settings, host=host, on_delta=on_delta, recent=recent)
        paths = {str(settings.data_dir), str(settings.data_dir.resolve())}
        cordon = ConfiguredCordon(
            settings.broker_id,
            directories=lambda: dict.fromkeys(paths, agent.log_dirs[0]),
            cordon=agent.cordon_directories,
            on_unknown=lambda named: log.warning(
                "cordoned_log_dirs_unknown",
                extra={"named": ",".join(named), "known": ",".join(sorted(paths))},
            ),
        )
        if stop is None:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, agent.stop)
        async with agent, asyncio.TaskGroup() as tasks:
            beside: list[asyncio.Task[Any]] = [
                tasks.create_task(host.run(agent)),
                tasks.create_task(collections.keep_walking()),
            ]
            if stop is not None:
                beside.append(tasks.create_task(_stop_once(stop, agent)))
            with leaving_no_process_json(settings.data_dir):
                write_process_json(
                    settings.data_dir,
                    role="broker",
                    node_id=settings.broker_id,
                    pid=os.getpid(),
                    incarnation_id=agent.incarnation_id,
                    http=agent.http_url,
                    raft=None,
                    started_at_ms=unix_ms(),
                    log=str(text_log or ""),
                )
                log.info("broker_started", extra={"broker_id": settings.broker_id, "http": agent.http_url})
                await agent.run()
            for task in beside:
                task.cancel()
        log.info("broker_stopped", extra={"broker_id": settings.broker_id})


async def _stop_once(asked: asyncio.Event, agent: BrokerAgent) -> None:
    await asked.wait()
    agent.stop()
