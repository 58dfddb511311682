"""Edge: nodes of the tests' clusters, and verbs, begin as copies of a process that has imported their code.

To import it takes two thirds of the processor time of a node's start, and the tests start thousands of nodes. A copy is a
process of its own all the same: with a session, a working directory, variables, limits and files as those of its starter.
Tests: tests/unit/support/test_preloaded.py.
"""

import atexit
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Never

from ops.local import member_processes
from ops.log_format import STREAM_VARIABLE

ROOT: Final = Path(__file__).resolve().parents[2]
MESSAGE_BYTES_MAX: Final = 128 * 1024
LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)
POLL_S: Final = 0.01


class Copy:
    """A node's process, as `subprocess.Popen` has it; made by `Preloaded.start` alone."""

    def __init__(self, pid: int, preloaded: "Preloaded") -> None:
        self.pid = pid
        self._preloaded = preloaded
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code (minus the signal's number where one ended it), or None while it runs."""
        if self.returncode is None:
            self.returncode = self._preloaded.code_of(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code.

        Raises:
            subprocess.TimeoutExpired: it runs on after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Preloaded:
    """The process that is copied. It is begun with the first copy, and ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: socket.socket | None = None
        self._ended: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._codes: dict[int, int] = {}

    def close(self) -> None:
        """End the process that is copied; copies that run go on."""
        for each in (self._asked, self._ended):
            if each is not None:
                each.close()
        if self._process is not None:
            self._process.wait()

    def start(
        self,
        words: Sequence[str],
        variables: Mapping[str, str],
        output: IO[bytes],
        errors: IO[bytes] | None = None,
    ) -> Copy:
        """Start `metaquorum WORDS` with exactly these variables. What it prints goes to `output`, and what it says on stderr
        to `errors`, if that is given.
        """
        with self._lock:
            asked = self._asked or self._begin()
            limits = [resource.getrlimit(limit) for limit in LIMITS]
            wanted = {
                "words": list(words),
                "variables": dict(variables),
                "cwd": str(Path.cwd()),
                "limits": limits,
            }
            files = [each.fileno() for each in (output, errors or output)]
            socket.send_fds(asked, [json.dumps(wanted).encode()], files)
            told = asked.recv(MESSAGE_BYTES_MAX)
            if not told:
                raise AssertionError("the process that is copied has ended")
            pid = json.loads(told)
            # The system may have given the number of an older copy, whose exit code was never asked for.
            self._codes.pop(pid, None)
            return Copy(pid, self)

    def code_of(self, pid: int) -> int | None:
        """Return the exit code of a copy that has ended."""
        with self._lock:
            assert self._ended is not None
            while pid not in self._codes and _has_bytes(self._ended):
                told = self._ended.recv(MESSAGE_BYTES_MAX)
                if not told:
                    raise AssertionError("the process that is copied has ended")
                ended, code = json.loads(told)
                self._codes[ended] = code
            return self._codes.pop(pid, None)

    def _begin(self) -> socket.socket:
        asked, asks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ended, ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asks, ends:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "tests.support.preloaded",
                    str(asks.fileno()),
                    str(ends.fileno()),
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=(asks.fileno(), ends.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._asked, self._ended = asked, ended
        return asked


PRELOADED: Final = Preloaded()
"""That of this process."""
atexit.register(PRELOADED.close)


def _has_bytes(each: socket.socket) -> bool:
    # `select` knows no file with a number above 1,023, and a long run of tests may have as many.
    poll = select.poll()
    poll.register(each, select.POLLIN)
    return bool(poll.poll(0))


def python_path() -> str:
    """Return the PYTHONPATH of a process that finds this code from any working directory."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def copy_nodes() -> None:
    """Let local clusters begin their nodes as copies, where a node has the code and the variables of this process; Kafka's
    are formatted here (`tests/support/kafka_tools.py`).
    """
    begun = member_processes.begun

    def begin(words: Sequence[str], variables: Mapping[str, str], output: IO[bytes]) -> Any:
        plain = {**os.environ, STREAM_VARIABLE: "none", "PYTHONPATH": python_path()}
        module, *rest = words
        if module == "ops.cli" and variables == plain:
            return PRELOADED.start(rest, variables, output)
        if module == "ops.kafka":
            from tests.support.kafka_tools import format_node  # few tests have nodes of Kafka

            format_node(Path(*rest), variables)
        return begun(words, variables, output)

    member_processes.begun = begin


# --- the process that is copied


def _copied(asks: socket.socket, ends: socket.socket) -> list[str]:
    """Make a copy for each request, and end with the process of the tests. In a copy, return the words of its command."""
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    poll = select.poll()
    for each in (asks, wake):
        poll.register(each, select.POLLIN)
    while True:
        ready = {number for number, _ in poll.poll()}
        if wake.fileno() in ready:
            wake.recv(MESSAGE_BYTES_MAX)
            _tell_ended(ends)
        if asks.fileno() in ready:
            message, files, _, _ = socket.recv_fds(asks, MESSAGE_BYTES_MAX, 2)
            if not message:
                sys.exit()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (asks, ends, wake, woken):
                    each.close()
                return _become(json.loads(message), *files)
            for file in files:
                os.close(file)
            asks.send(json.dumps(pid).encode())


def _tell_ended(ends: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            ends.send(json.dumps([ended[0], os.waitstatus_to_exitcode(ended[1])]).encode())


def _become(wanted: dict[str, Any], output: int, errors: int) -> list[str]:
    """Make of this copy what a process has that was begun by itself."""
    os.setsid()
    for file, number in ((output, 1), (errors, 2)):
        os.dup2(file, number)
        os.close(file)
    for limit, values in zip(LIMITS, wanted["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["variables"])
    words: list[str] = wanted["words"]
    return words


def _end(code: int) -> Never:
    """End this copy as `multiprocessing` ends its own: to take all modules apart costs as much as the start of a node."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    from metadata_log.node.uncollected import no_collections

    with no_collections():
        import broker_agent.process  # noqa: F401
        import ops.cli
        import ops.node_process
        import ops.settings
        import ops.verbs.process
        import quorum.http.listener
        import quorum.kafka.listener
        import quorum.node.server  # noqa: F401

    # A copy looks for cycles among its own objects alone: memory that it only reads stays shared.
    gc.collect()
    gc.freeze()
    _end(ops.cli.main(_copied(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))))
