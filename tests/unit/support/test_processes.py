"""Edge: the helpers that start processes leave none behind, and report what failed."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import free_ports, poll_until, running

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
WITH_GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
print(child.pid, flush=True)
child.wait()
"""


def is_gone(pid: int) -> bool:
    """A zombie whose parent died is gone too: where nobody reaps orphans it stays in the table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_child_and_its_children_end_with_the_block(tmp_path: Path) -> None:
    out = tmp_path / "child.stdout"
    command = [sys.executable, "-c", WITH_GRANDCHILD]
    with running(command, directory=tmp_path, ready=out.read_text) as child:
        grandchild = int(out.read_text().split()[0])
        assert child.is_running()
    assert not child.is_running()
    poll_until(lambda: is_gone(grandchild), deadline_s=60, what="the grandchild is gone")


def test_a_child_that_never_gets_ready_is_shown_and_killed(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"ended with 3 before it was ready(.|\n)*no port"),
        running(
            [sys.executable, "-c", "import sys; print('no port'); sys.exit(3)"],
            directory=tmp_path,
            ready=bool,
        ),
    ):
        pass


def test_signals_reach_the_child_alone_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "child.stdout"
    with running([sys.executable, "-c", SLEEP], directory=tmp_path, ready=out.read_text) as child:
        assert os.getsid(child.pid) == child.pid
        child.signal(signal.SIGTERM)
        assert child.wait(deadline_s=60) == -signal.SIGTERM


def test_a_condition_that_does_not_come_is_named() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: pigs fly"):
        poll_until(bool, deadline_s=0.05, what="pigs fly")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
