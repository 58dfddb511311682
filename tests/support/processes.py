"""Edge: real processes in tests: free ports, children that end with the test, deadlines that poll."""

import ctypes
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ops.local import layout
from ops.waits import until

Answer = TypeVar("Answer")
POLL_S = 0.03
"""A look at a node takes some milliseconds of a processor, here and there."""
KILL_DEADLINE_S = 60.0
PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have this process, which `parent` forked, end with it, also if that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(0)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens on now: one of `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return so many different ones.

    They lie below the range that the system gives to outgoing connections, so no connection takes one meanwhile,
    and none connects to itself there. Each worker of pytest draws from a share of its own (`tests/conftest.py`).
    """
    return list(islice(layout.free_ports(set(), random.Random()), count))


def poll_until(predicate: Callable[[], Answer | None], *, deadline_s: float, what: str) -> Answer:
    """Return the first true value of `predicate`, or fail after `deadline_s` with `what` did not come.

    A node that does not answer is asked again (`ops/waits.py`).
    """
    return until(what, predicate, deadline_s=deadline_s, poll_s=POLL_S, failure=AssertionError)


@dataclass(frozen=True)
class Child:
    """A process leading its own session; `stdout` and `stderr` are files that stay readable after its end."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, not to its children."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill -9 the whole process group and reap the child; what is dead already is left alone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(KILL_DEADLINE_S)

    def wait(self, *, deadline_s: float) -> int:
        """Return the exit code (minus the signal's number where one ended it)."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s} s; {self.tail()}") from None

    def tail(self) -> str:
        """Return the end of what it said, for a failure's message."""
        said = {path.name: path.read_text(errors="replace")[-2_000:] for path in (self.stdout, self.stderr)}
        return "\n".join(f"{name}:\n{text}" for name, text in said.items() if text)


@contextmanager
def running(
    argv: Sequence[str | Path],
    *,
    directory: Path,
    ready: Callable[[], object] = lambda: True,
    deadline_s: float = 120.0,
    env: Mapping[str, str] | None = None,
    name: str = "child",
) -> Iterator[Child]:
    """Run `argv` in `directory` until the block ends; enter the block once `ready` says so.

    Its output goes to `directory/name.stdout` and `.stderr` (appended: a restart keeps the first run's).
    `env` is added to ours. Whatever happens, its process group is killed at the end.
    """
    stdout, stderr = directory / f"{name}.stdout", directory / f"{name}.stderr"
    with stdout.open("ab") as out, stderr.open("ab") as err:
        process = subprocess.Popen(
            [str(word) for word in argv],
            cwd=directory,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    child = Child(process, stdout, stderr)

    def is_ready_or_dead() -> bool:
        return not child.is_running() or bool(ready())

    try:
        poll_until(is_ready_or_dead, deadline_s=deadline_s, what=f"{name} is ready")
        if not child.is_running() and process.returncode != 0:
            raise AssertionError(
                f"{name} ended with {process.returncode} before it was ready\n{child.tail()}"
            )
        yield child
    finally:
        child.kill()
