"""Edge: `metaquorum up` as a process: its output and its end."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops.local import foreground
from ops.local.cluster import Active, LocalCluster
from ops.processes import is_locked
from tests.support.processes import poll_until

ROOT = Path(__file__).parents[3]
DEADLINE_S = 90.0
UP = (sys.executable, "-m", "ops.cli", "up")


class Running:
    """An `up`, and the events that it told so far."""

    def __init__(self, directory: Path, *flags: str, python_path: str = "") -> None:
        self.process = subprocess.Popen(
            [*UP, "--dir", str(directory), "-o", "jsonl", *flags],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((python_path, os.environ.get("PYTHONPATH", ""))),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self.stderr = ""
        self._readers = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_err)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.events.append(json.loads(line))

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.stderr = lines.read()

    def event(self, name: str, **facts: Any) -> dict[str, Any]:
        """Wait for an event of this name with these facts."""

        def find() -> dict[str, Any] | None:
            wanted = {"event": name, **facts}
            return next((event for event in self.events if wanted.items() <= event.items()), None)

        found = poll_until(find, deadline_s=DEADLINE_S, what=f"{name} {facts}")
        assert found is not None
        return found

    def end(self) -> int:
        code = self.process.wait(DEADLINE_S)
        for reader in self._readers:
            reader.join()
        return code


@contextmanager
def up(directory: Path, *flags: str, python_path: str = "") -> Iterator[Running]:
    running = Running(directory, *flags, python_path=python_path)
    try:
        yield running
    finally:
        for _ in range(2):
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGTERM)
        running.end()


def state_of(directory: Path) -> str:
    state: str = json.loads((directory / "cluster.json").read_bytes())["state"]
    return state


@pytest.mark.slow
def test_a_life_of_up(tmp_path: Path) -> None:
    """Goal: ready, an exit with the command that starts it again, a return by hand, and a stop of all of it."""
    directory = tmp_path / "c"
    with up(directory, "--controllers", "1", "--brokers", "1") as running:
        ready = running.event("ready")
        assert ready["bootstrap"] == [ready["controllers"][0]["http"]]
        assert state_of(directory) == "ready"
        pid = running.event("started", id=11)["pid"]
        os.kill(pid, signal.SIGKILL)
        exited = running.event("exited", id=11)
        assert exited["exit_code"] == -9
        assert exited["start_again"].endswith(f"broker run --config {directory / 'broker-11.toml'}")
        running.event("broker_state", broker_id=11, state="OFFLINE")
        by_hand = subprocess.Popen(
            [sys.executable, "-m", "ops.cli", "broker", "run", "--config", str(directory / "broker-11.toml")],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert running.event("returned", id=11)["pid"] == by_hand.pid
            running.event("broker_state", broker_id=11, state="ONLINE")
            by_hand.terminate()
            assert by_hand.wait(DEADLINE_S) == 0
            assert running.event("exited", pid=by_hand.pid)["exit_code"] is None, (
                "that of our own child is older"
            )
            running.process.send_signal(signal.SIGINT)
            assert running.end() == 0
        finally:
            by_hand.kill()
            by_hand.wait()
        assert running.events[-1]["event"] == "stopped"
        assert running.stderr == ""
    assert state_of(directory) == "stopped"
    assert not any(is_locked(directory / name) for name in ("controller-1", "broker-11"))
    assert not list(directory.glob("*/process.json"))


@pytest.mark.slow
def test_a_node_that_fails_to_start_is_the_exit_code(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with up(directory, "--controllers", "1", "--brokers", "0") as running:
        http = running.event("ready")["bootstrap"][0]
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
    with socket.create_server(("127.0.0.1", int(http.rpartition(":")[2]))), up(directory) as again:
        assert again.end() == 6
        assert "controller 1 ended with exit code 6: metaquorum: CannotListen: " in again.stderr
        assert "Traceback" not in again.stderr
    assert state_of(directory) == "stopped"


@pytest.mark.slow
def test_no_node_outlives_an_up_that_cannot_write_its_file(tmp_path: Path) -> None:
    """As on a full disk; `finally` ends what the assertions would leave."""
    directory = tmp_path / "c"
    with up(directory, "--controllers", "1", "--brokers", "0") as running:
        running.event("ready")
        pid = running.event("started", id=1)["pid"]
        (directory / "cluster.json.part").mkdir()
        running.process.send_signal(signal.SIGTERM)
        try:
            assert running.end() == 6
            assert '"error": "DiskFailed"' in running.stderr
            assert not is_locked(directory / "controller-1")
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_demo_that_is_told_to_stop_does_not_wait_for_spark(tmp_path: Path) -> None:
    """Method: a pyspark that never comes to an end. Without an end of its own the process is killed."""
    spark, reached = tmp_path / "path" / "pyspark.py", tmp_path / "reached"
    spark.parent.mkdir()
    spark.write_text(
        f"import pathlib, threading\npathlib.Path({str(reached)!r}).touch()\nthreading.Event().wait()\n"
    )
    flags = ("--demo", "--controllers", "1", "--brokers", "1")
    with up(tmp_path / "c", *flags, python_path=str(spark.parent)) as running:
        poll_until(reached.exists, deadline_s=DEADLINE_S, what="Spark's start")
        running.process.send_signal(signal.SIGTERM)
        running.event("stopped")
        try:
            assert running.end() == 0
        finally:
            running.process.kill()


@pytest.mark.slow
def test_another_shape_is_a_usage_error_and_leaves_the_cluster_alone(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with up(directory, "--controllers", "1", "--brokers", "0") as running:
        running.event("ready")
        with up(directory) as second:
            assert second.end() == 6
            assert "another `metaquorum up`" in second.stderr
        assert state_of(directory) == "ready"
    with up(directory, "--controllers", "3") as other:
        assert other.end() == 2
        assert "holds 1 controllers" in other.stderr


class Watched:
    """A cluster of one broker whose process ends, and whose controller is replaced, at some looks."""

    def __init__(self, looks: list[tuple[int, int | None, Active | None]]) -> None:
        self.now_ms = 0
        self._looks = looks
        self._pid: int | None = 100
        self.members = (SimpleNamespace(id=11, role="broker"),)

        self._active: Active | None = None

    async def sleep(self, _: float) -> None:
        self.now_ms, self._pid, self._active = self._looks.pop(0)

    def pid(self, _: int) -> int | None:
        return self._pid

    async def active(self) -> Active | None:
        return self._active

    def exit_code(self, _: int, *, pid: int) -> int:
        return -9

    def start_command(self, _: int) -> str:
        return "broker run"


def followed(looks: list[tuple[int, int | None, Active | None]], output: Any, monkeypatch: Any) -> None:
    cluster = Watched(looks)
    asyncio.run(cluster.sleep(0))
    monkeypatch.setattr(foreground, "asyncio", SimpleNamespace(sleep=cluster.sleep))
    events = foreground.Events(output, now_ms=lambda: cluster.now_ms)
    with suppress(IndexError):
        asyncio.run(foreground._follow(cast("LocalCluster", cluster), events))


def active(epoch: int, state: str) -> Active:
    return Active(controller_id=1, controller_epoch=epoch, broker_states={11: state})


LATE: list[tuple[int, int | None, Active | None]] = [
    (0, 100, active(1, "ONLINE")),
    (250, 100, active(1, "ONLINE")),
    (500, 100, None),
    (9_500, 100, active(2, "FENCED")),
    (49_500, None, active(2, "OFFLINE")),
    (49_750, None, active(2, "FENCED")),
]


def test_what_happened_while_nothing_was_looked_at_is_told_as_past(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no event has the time at which it was seen alone, if that was late. Method: no controller is active for nine
    seconds, then `up` itself is suspended for forty.
    """
    followed([*LATE], "table", monkeypatch)
    assert capsys.readouterr().out.splitlines() == [
        "00:00:00.500  no controller is active",
        "00:00:09.500  controller 1 is active, epoch 2 (at some time since 00:00:00.250)",
        "00:00:09.500  broker 11 is FENCED, was ONLINE (at some time since 00:00:00.250)",
        "00:00:49.500  broker 11 ended with SIGKILL (at some time since 00:00:09.500)",
        "    start it again: broker run",
        "00:00:49.500  broker 11 is OFFLINE, was FENCED (at some time since 00:00:09.500)",
        "00:00:49.750  broker 11 is FENCED, was OFFLINE",
    ]
    followed([*LATE], "jsonl", monkeypatch)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event.get("since_ms") for event in events] == [None, 250, 250, 9_500, 9_500, None]
