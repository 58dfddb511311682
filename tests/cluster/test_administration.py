"""Real processes: the program in docs/administer-in-python.md does what the page says."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ops.local.cluster import LocalCluster
from tests.cluster.test_cluster import run
from tests.support.wire import calm

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "administer-in-python.md"

pytestmark = pytest.mark.slow


def program() -> str:
    """Return the page's lines of code."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.startswith("    ") or not line]
    return textwrap.dedent("\n".join(code))


def test_the_program_of_the_page_runs_as_it_says(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        code = f"BOOTSTRAP = {','.join(cluster.bootstrap)!r}\n{program()}"
        asked = [sys.executable, "-W", "error", "-c", code]
        ran = await asyncio.to_thread(
            subprocess.run, asked, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        created, *brokers, lacking, refused, health = ran.stdout.splitlines()
        assert created == "created"
        assert [line.split()[:2] for line in brokers] == [
            ["11", "ONLINE"],
            ["12", "ONLINE"],
            ["13", "ONLINE"],
        ]
        assert lacking == "0 partitions lack a replica"
        assert refused == "UNKNOWN_TOPIC_OR_PARTITION"
        assert health in {"green", "yellow"}
        assert ran.stderr == ""

    assert len(program().strip().splitlines()) <= 14, "some ten lines, blank and imported ones aside"
    run(story, LocalCluster(tmp_path, controllers=1, brokers=3, adjust=calm))
