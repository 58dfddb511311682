"""Edge: how a process ends, and what it reports about a broken invariant."""

import asyncio
import re
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest

from metadata_log.errors import Fault, InvariantBroken
from metadata_log.node.disk.data_directory import Role
from metadata_log.wire.fetch import BrokerState
from ops import cli, node_process
from ops.local.cluster import LocalCluster
from tests.support.processes import poll_until

ROOT = Path(cli.__file__).parents[1]
SIGNAL_EVERY_S = 0.005
"""Python 3.11 hangs in its own signal handler where thousands come at once."""


async def _ending(error: InvariantBroken) -> None:
    raise error


BACKWARDS = "offsets in this directory run backwards"


@pytest.mark.parametrize(
    ("role", "error", "added"),
    [
        ("controller", InvariantBroken(BACKWARDS), node_process.WHAT_NEXT["controller"]),
        ("broker", InvariantBroken(BACKWARDS), node_process.WHAT_NEXT["broker"]),
        ("controller", InvariantBroken("keep all", runbook="two-histories.md"), ""),
    ],
    ids=["a controller", "a broker", "of a page"],
)
def test_who_names_no_runbook_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role, error: InvariantBroken, added: str
) -> None:
    monkeypatch.setattr(node_process, "setup_logging", lambda _: None)
    said = error.message
    with pytest.raises(InvariantBroken) as ended:
        node_process.run_node(lambda: node_process.advised(_ending(error), role), tmp_path / f"{role}.log")
    assert ended.value.message == said + added
    assert ("wiped-voter" in added) == (role == "controller" and added != "")


def test_every_runbook_that_is_named_is_there_and_said() -> None:
    named = 0
    for room in ("metadata_log", "snapshots", "quorum", "broker_agent"):
        for file in (ROOT / room).rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            for page in re.findall(r'runbook="([^"]+)"', source):
                named += 1
                assert (ROOT / "ops" / "runbooks" / page).exists()
                assert f"(ops/runbooks/{page})" in source
    assert named


def test_the_runbooks_name_whatever_stops_a_process_or_colours_health() -> None:
    """Goal: no code without a page or a line. Method: the codes are gathered from the sources that tell them."""
    codes = {f"BROKER_{state.value}" for state in BrokerState if state is not BrokerState.ONLINE}
    codes |= {fault.__name__ for fault in Fault.__subclasses__() if fault.__module__ == Fault.__module__}
    for file, code in {
        "ops/admin/health.py": r'"([A-Z]+(?:_[A-Z]+)+)"',
        "quorum/views/status.py": r'"([A-Z]+(?:_[A-Z]+)+)"',
        "quorum/raft/handshake.py": r'^[A-Z_]+: Final = "([A-Z]+(?:_[A-Z]+)+)"',
        "broker_agent/http_api.py": r'reasons = .*"([A-Z_]+)"',
        "broker_agent/fetch_loop.py": r'warnings\["([A-Z_]+)"\]',
        "broker_agent/cache_thread.py": r'warnings\["([A-Z_]+)"\]',
        "broker_agent/cache.py": r'warnings\["([A-Z_]+)"\]',
    }.items():
        told = re.findall(code, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert told, file
        codes |= set(told)
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "ops/runbooks").glob("*.md"))
    assert [code for code in sorted(codes) if not re.search(rf"`{code}\b", pages)] == []


@pytest.mark.slow
@pytest.mark.parametrize("role", ["controller", "broker"])
def test_signals_that_come_while_a_process_stops_change_nothing(tmp_path: Path, role: str) -> None:
    cluster = LocalCluster(tmp_path, controllers=1, brokers=1)
    cluster.prepare()
    member = next(member for member in cluster.members if member.role == role)
    command = [sys.executable, "-m", "ops.cli", role, "run", "--config", str(tmp_path / member.config)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        told = cluster.data(member.id) / "process.json"
        poll_until(told.exists, deadline_s=60, what="process.json")
        for number in cycle((signal.SIGTERM, signal.SIGINT)):
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SIGNAL_EVERY_S)
                break
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0, said


class Told:
    """Two nodes that note what happens to them; each ends once it is told to, or fails."""

    def __init__(self, *, failing: str | None = None) -> None:
        self.events: list[str] = []
        self._failing = failing

    async def node(self, role: str, stop: asyncio.Event) -> None:
        self.events.append(f"{role} started")
        if role == self._failing:
            raise InvariantBroken(BACKWARDS)
        try:
            await stop.wait()
        except asyncio.CancelledError:
            self.events.append(f"{role} cancelled")
            raise
        await asyncio.sleep(0)
        self.events.append(f"{role} ended")

    async def run(self) -> None:
        await node_process.in_one_process(
            lambda stop: self.node("controller", stop), lambda stop: self.node("broker", stop)
        )


async def test_in_one_process_the_broker_ends_before_the_controller() -> None:
    told = Told()
    running = asyncio.ensure_future(told.run())
    await asyncio.sleep(0.01)
    signal.raise_signal(signal.SIGTERM)
    await running
    assert told.events == ["controller started", "broker started", "broker ended", "controller ended"]


@pytest.mark.parametrize(
    ("failing", "events"),
    [
        ("controller", ["controller started", "broker started", "broker cancelled"]),
        ("broker", ["controller started", "broker started", "controller cancelled"]),
    ],
)
async def test_what_ends_one_node_of_a_process_ends_the_other(failing: str, events: list[str]) -> None:
    told = Told(failing=failing)
    with pytest.raises(InvariantBroken, match=BACKWARDS):
        await told.run()
    assert told.events == events
