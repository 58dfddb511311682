"""Edge: a copy is as a process that was begun by itself: its output, variables, limits, session and end."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.preloaded import ROOT, Copy, Preloaded
from tests.support.processes import poll_until
from tests.support.verbs import run_verb

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with closing(Preloaded()) as preloaded:
        yield preloaded


def begun(preloaded: Preloaded, output: Path, *words: str, **variables: str) -> Copy:
    with output.open("wb") as file:
        return preloaded.start(words, variables, file)


def test_it_says_and_returns_what_the_program_does(tmp_path: Path, preloaded: Preloaded) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    copies = [begun(preloaded, right, "help"), begun(preloaded, wrong, "topics", "lose")]
    assert [copy.wait(30) for copy in copies] == [0, 2]
    alone = subprocess.run(
        [sys.executable, "-m", "ops.cli", "topics", "lose"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert right.read_text().startswith("usage: metaquorum")
    assert wrong.read_bytes() == alone.stdout + alone.stderr != b""


def test_it_has_the_variables_that_it_is_given_and_no_others(tmp_path: Path, preloaded: Preloaded) -> None:
    output = tmp_path / "output"
    copy = begun(preloaded, output, "topics", "list", METAQUORUM_CONTEXT="nowhere", HOME=str(tmp_path))
    assert copy.wait(30) != 0
    assert "nowhere" in output.read_text()


def test_it_has_the_limits_and_the_directory_of_its_starter_and_a_signal_ends_it(
    tmp_path: Path, preloaded: Preloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        # It waits until somebody writes.
        copy = begun(preloaded, tmp_path / "output", "config", "check", "fifo")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(subprocess.TimeoutExpired):
        copy.wait(0.2)
    assert (Path(f"/proc/{copy.pid}/cwd").readlink(), os.getsid(copy.pid)) == (tmp_path, copy.pid)
    assert resource.prlimit(copy.pid, resource.RLIMIT_NOFILE) == (soft - 1, hard)
    copy.send_signal(signal.SIGKILL)
    assert (copy.wait(30), copy.poll(), copy.returncode) == (-signal.SIGKILL,) * 3
    copy.send_signal(signal.SIGTERM)  # another process may have its number by now


def test_a_verb_is_run_to_its_end(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, "-m", "ops.cli", "topics", "lose"], capture_output=True, text=True, check=False
    )
    wrong, right = run_verb("topics", "lose"), run_verb("topics", "--help")
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", alone.stderr)
    assert (right.returncode, right.stderr) == (0, "") and right.stdout.startswith("usage: metaquorum")
    assert "nowhere" in run_verb("topics", "list", variables={"METAQUORUM_CONTEXT": "nowhere"}).stderr
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(subprocess.TimeoutExpired) as ended:
        run_verb("config", "check", tmp_path / "fifo", timeout_s=0.2)
    pid = int(str(ended.value.cmd).split()[-1])
    poll_until(lambda: not Path(f"/proc/{pid}").exists(), deadline_s=30, what="it was killed")
