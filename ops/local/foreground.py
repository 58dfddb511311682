"""Edge: a local cluster in the foreground: one line for whatever happens to it, until a signal ends it.
Tests: tests/unit/ops/verbs/test_up.py.
"""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from metadata_log.node.clock import unix_ms
from ops.admin.connect import BOOTSTRAP_VARIABLE
from ops.command_line import render
from ops.command_line.talk import put
from ops.local.cluster import Active, LocalCluster, admin_variables
from ops.local.layout import Member
from ops.local.member_processes import ended_with, metaquorum_command
from ops.when import time_text

LOOK_S = 0.25
"""The period of looking at the cluster: short enough that a change is printed at once."""
LATE_MS: Final = 2_000
"""A change that is seen this long after the last look (this process was stopped, no controller was active) is no news."""


class Events:
    """Reports what happens: a line of text each, or an object of JSON."""

    def __init__(self, output: str, now_ms: Callable[[], int] = unix_ms) -> None:
        self._as_text = output in render.TEXT
        self.now_ms = now_ms

    def report(self, event: str, text: str, /, *, since_ms: int | None = None, **facts: Any) -> None:
        """Report an event under the time at which it was seen.

        `since_ms`: when it was not so yet (Unix ms), which is reported beside an event that was seen late.
        """
        now_ms = self.now_ms()
        if since_ms is not None and now_ms - since_ms > LATE_MS:
            first, *others = text.split("\n")
            text = "\n".join([f"{first} (at some time since {time_text(since_ms)[11:23]})", *others])
            facts["since_ms"] = since_ms
        if self._as_text:
            print(f"{time_text(now_ms)[11:23]}  {text}", flush=True)
        else:
            put(render.json_line({"event": event, "time_ms": now_ms, **facts}), output="jsonl", flush=True)

    def explain(self, text: str) -> None:
        """Print what only people want."""
        if self._as_text:
            print(text, flush=True)

    def narrate(self, text: str) -> None:
        """Tell a piece of the demo."""
        if self._as_text:
            print(text, flush=True)
        else:
            self.report("demo", text, text=text)


async def run_in_foreground(cluster: LocalCluster, events: Events, *, demo: bool, stay: bool) -> None:
    main = asyncio.current_task()
    assert main is not None
    asked_to_stop = was_interrupted = False

    def on_signal() -> None:
        nonlocal asked_to_stop
        if asked_to_stop:
            cluster.kill_all()
        else:
            asked_to_stop = True
            main.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    try:
        await _start(cluster, events, demo=demo)
        if demo:
            await _demo_of(cluster)(cluster, events.narrate)
        if stay or not demo:
            await _follow(cluster, events)
    except asyncio.CancelledError:
        if not asked_to_stop:
            raise
        main.uncancel()
        was_interrupted = True
        events.explain("\nstopping brokers, then controllers; once more kills them")
    finally:
        asked_to_stop = True
        await cluster.stop()
    events.report("stopped", "stopped", dir=str(cluster.directory))
    if was_interrupted and demo:
        os._exit(0)  # else Python would wait for what Spark does in a thread, which nothing can interrupt


def _demo_of(cluster: LocalCluster) -> Callable[[LocalCluster, Callable[[str], None]], Awaitable[None]]:
    if cluster.is_for_kafka:
        from ops.kafka.demo import run_kafka_demo

        return run_kafka_demo
    from ops.local.demo import run_demo

    return run_demo


async def _start(cluster: LocalCluster, events: Events, *, demo: bool) -> None:
    cluster.prepare()
    for member in cluster.members:
        runs_already = member.process_of is None and cluster.pid(member.id) is not None
        await cluster.start_one(member.id)
        pid = cluster.pid(member.id)
        how = "runs already" if runs_already else "started"
        whose = "" if member.process_of is None else f" of controller {member.process_of}"
        text = f"{member.role} {member.id} {how}, process {pid}{whose}"
        events.report(
            "started", text, role=member.role, id=member.id, pid=pid, http=member.http, kafka=member.kafka
        )
    await cluster.wait_until_ready()
    active = await cluster.active()
    events.report(
        "ready",
        f"ready: cluster {cluster.cluster_id} in {cluster.directory}",
        dir=str(cluster.directory),
        cluster_id=cluster.cluster_id,
        bootstrap=list(cluster.bootstrap),
        controllers=[member.to_json() for member in cluster.controllers],
        brokers=[member.to_json() for member in cluster.brokers],
        controller_id=-1 if active is None else active.controller_id,
        metaquorum=metaquorum_command(),
    )
    console = next((one.http for one in cluster.controllers if active and one.id == active.controller_id), "")
    events.explain(f"\nconsole: {console or cluster.bootstrap[0]}/\n\n{_where(cluster, active)}")
    if not demo:
        events.explain(f"\n{_what_next(cluster, active)}\n")


def _where(cluster: LocalCluster, active: Active | None) -> str:
    rows = [
        {
            "node": f"{member.role} {member.id}"
            + (" (active)" if active and active.controller_id == member.id else ""),
            "listens": member.listens,
            "process": cluster.pid(member.id),
            "log": str(cluster.text_log(member.id)),
        }
        for member in cluster.members
    ]
    columns = [
        render.Column("node"),
        render.Column("listens"),
        render.Column("process"),
        render.Column("log"),
    ]
    return render.table(columns, rows, empty="")


def _what_next(cluster: LocalCluster, active: Active | None) -> str:
    command = metaquorum_command()
    replication = min(3, len(cluster.brokers))
    export = shlex.quote(str(cluster.directory / "export"))
    tries = [f"export {BOOTSTRAP_VARIABLE}={','.join(cluster.bootstrap)}"]
    tries += [f"export {name}={shlex.quote(path)}" for name, path in admin_variables(cluster).items()]
    if cluster.brokers:
        last = cluster.brokers[-1]
        tries += [
            f"{command} topics create orders --partitions 6 --replication-factor {replication}",
            f"{command} topics describe orders",
        ]
        if last.process_of is None:
            tries += [
                f"kill -9 {cluster.pid(last.id)}    # broker {last.id}: it is fenced, its leaderships move",
                cluster.start_command(last.id),
            ]
    if active is not None and len(cluster.controllers) > 1:
        pid = cluster.pid(active.controller_id)
        tries.append(
            f"kill -9 {pid}    # controller {active.controller_id}, the active one: another takes over"
        )
    tries += [
        f"{command} quorum health",
        f"{command} log dump --from -10m",
        *_adding_what_reads_exports(),
        f"{command} log export --to {export}",
        f"{command} replay report --export {export}",
    ]
    lines = "".join(f"  {line}\n" for line in tries)
    return f"try, in a second terminal:\n{lines}\nCtrl-C stops all of it. What happens meanwhile:"


def _adding_what_reads_exports() -> list[str]:
    """Return the command that adds the packages of the next two, where `ops/up` has not installed them."""
    if find_spec("pyarrow") is not None:
        return []
    script = Path(__file__).parents[1] / "add-spark"
    added = script if script.exists() else f"{sys.executable} -m pip install 'metaquorum[replay]'"
    return [f"{added}    # once: what the next two need"]


async def _follow(cluster: LocalCluster, events: Events) -> None:
    """Tell exits, returns, changes of the active controller and of brokers' states, until cancelled."""
    pids = {member.id: cluster.pid(member.id) for member in cluster.members}
    known = await cluster.active()
    states = {} if known is None else dict(known.broker_states)
    looked_ms = asked_ms = events.now_ms()
    while True:
        await asyncio.sleep(LOOK_S)
        since_ms, looked_ms = looked_ms, events.now_ms()
        for member in cluster.members:
            pid, before = cluster.pid(member.id), pids[member.id]
            if pid != before and before is not None:
                _tell_exit(cluster, events, member, before, since_ms=since_ms)
            if pid != before and pid is not None:
                text = f"{member.role} {member.id} runs again, process {pid}"
                events.report("returned", text, since_ms=since_ms, role=member.role, id=member.id, pid=pid)
            pids[member.id] = pid
        active = await cluster.active()
        if active is None:
            if known is not None:
                events.report("no_controller", "no controller is active", since_ms=asked_ms)
        elif known is None or known.controller_epoch != active.controller_epoch:
            text = f"controller {active.controller_id} is active, epoch {active.controller_epoch}"
            facts = {"controller_id": active.controller_id, "controller_epoch": active.controller_epoch}
            events.report("controller", text, since_ms=asked_ms, **facts)
        known = active
        for broker_id, state in ({} if active is None else active.broker_states).items():
            if state != states.get(broker_id):
                was = states.get(broker_id)
                text = f"broker {broker_id} is {state}" + (f", was {was}" if was else "")
                events.report(
                    "broker_state", text, since_ms=asked_ms, broker_id=broker_id, state=state, previous=was
                )
                states[broker_id] = state
        if active is not None:
            asked_ms = looked_ms


def _tell_exit(cluster: LocalCluster, events: Events, member: Member, pid: int, *, since_ms: int) -> None:
    code = cluster.exit_code(member.id, pid=pid)
    again = cluster.start_command(member.id)
    how = "ended" if code is None else f"ended with {ended_with(code)}"
    last_words = cluster.last_words(member.id) if code is not None and code > 0 else None
    events.report(
        "exited",
        f"{member.role} {member.id} {how}"
        + (f": {last_words}" if last_words else "")
        + f"\n    start it again: {again}",
        since_ms=since_ms,
        role=member.role,
        id=member.id,
        pid=pid,
        exit_code=code,
        last_words=last_words,
        start_again=again,
    )
