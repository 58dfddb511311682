"""Edge: a controller and a broker run under what their units of systemd allow: the system calls and the memory."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.local.cluster import LocalCluster
from tests.support.processes import running

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def confined(role: str, *command: str) -> list[str]:
    unit = ROOT / f"ops/systemd/metaquorum-{role}.service"
    return [sys.executable, "-m", "tests.support.confined", str(unit), *command]


async def test_nodes_run_under_the_system_calls_of_their_units(tmp_path: Path) -> None:
    """Goal: no call that a node needs is refused where nobody watches. Method: a cluster whose nodes confine themselves;
    it takes a write, a snapshot, and a read of the past, for which a controller starts a process of a lower priority.
    """
    cluster = LocalCluster(tmp_path / "cluster", controllers=1, brokers=1)
    cluster.prepare()
    with ExitStack() as nodes:
        for member in cluster.members:
            run = (sys.executable, "-m", "ops.cli", member.role, "run", "--config")
            command = confined(member.role, *run, str(cluster.directory / member.config))
            nodes.enter_context(
                running(command, directory=tmp_path, env={"PYTHONPATH": str(ROOT)}, name=member.role)
            )
        try:
            await cluster.wait_until_ready()
            for words in (
                "topics create orders --partitions 3 --replication-factor 1",
                "snapshot take",
                "state --at 3",
                "quorum health",
            ):
                asked = [sys.executable, "-m", "ops.cli", *words.split(), "--bootstrap", cluster.bootstrap[0]]
                ran = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
                assert ran.returncode == 0, ran.stderr
        finally:
            await cluster.stop()
    for member in cluster.members:
        said = cluster.text_log(member.id).read_text()
        assert f"{member.role}_stopped" in said
        assert "Operation not permitted" not in said
