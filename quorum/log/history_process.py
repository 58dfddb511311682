"""Edge: a process of its own that computes what readers of the past ask for, and so never holds this one's interpreter.

Threads of one Python process share its interpreter: while one of them turns the log into lines, or folds a past state, the
event loop waits for it many times a second. The child process has an interpreter of its own and a lower priority. It is
given bytes and returns bytes; of the disk it reads only snapshots, which never change. It is started when it is first
needed, and ends with the socket that links it to this process, however this process ends.

    parent -> child    length, 8 bytes, big-endian; msgpack of [name of the work, arguments]
    child -> parent    length, 8 bytes, big-endian; msgpack of [true, result] or [false, the error as text]

Tests: tests/unit/quorum/log/test_past.py.
"""

import gc
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgpack

from metadata_log.codec import DamagedFrame
from metadata_log.errors import MetadataError, ThrottlingQuotaExceeded

log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">Q")
_NICE: Final = 5
"""The reader of the past gets about a third of the share of a processor that the controller gets."""
_ROOT: Final = Path(__file__).parents[2]


class WorkFailed(Exception):
    """The work that the child was asked for raised an error there. A caller that does it here meets the error itself."""

    @property
    def kind(self) -> str:
        """The name of that error's class."""
        return str(self).partition(":")[0]


class HistoryProcess:
    """The child process of one controller. Its methods block, and are called in worker threads."""

    def __init__(self, module: str) -> None:
        """`module` is what the child runs: it calls `be_history_process`."""
        self._module = module
        self._child: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._calling = Lock()
        self._is_shut_down = False

    def call(self, work: str, *args: object) -> Any:
        """Return what the work of a name returns in the child. Arguments and results are what msgpack has.

        Raises:
            WorkFailed: `work` raised an error.
            ThrottlingQuotaExceeded: the child could not be started, or ended meanwhile. The next call starts another one,
                which knows nothing of earlier calls.
        """
        with self._calling:
            try:
                link = self._link or self._start()
                _send(link, (work, args))
                answer = _receive(link)
                if answer is None:
                    raise EOFError("it ended")
            except (OSError, EOFError, subprocess.SubprocessError) as error:
                self._end()
                if not self._is_shut_down:
                    log.warning(
                        "history_process_failed", extra={"reason": str(error) or type(error).__name__}
                    )
                raise ThrottlingQuotaExceeded(
                    f"the process that reads the past failed ({error}): ask again shortly, or another controller"
                ) from error
        is_done, result = answer
        if not is_done:
            raise WorkFailed(result)
        return result

    def shut_down(self) -> None:
        """End the child; a call under way fails, and so do later ones."""
        self._is_shut_down = True
        child = self._child
        if child is not None:
            child.kill()
        with self._calling:
            self._end()

    def _start(self) -> socket.socket:
        if self._is_shut_down:
            raise EOFError("this controller stops")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = subprocess.Popen(  # noqa: S603 (our own module)
                    [sys.executable, "-P", "-m", self._module],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])},
                )
            except BaseException:
                ours.close()
                raise
        self._link = ours
        return ours

    def _end(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


def _send(link: socket.socket, message: object) -> None:
    body = msgpack.packb(message)
    link.sendall(_LENGTH.pack(len(body)))
    link.sendall(body)


def _receive(link: socket.socket) -> Any | None:
    """Return the next message; None once the other side is gone."""
    head = _receive_bytes(link, _LENGTH.size)
    body = None if head is None else _receive_bytes(link, _LENGTH.unpack(head)[0])
    return None if body is None else msgpack.unpackb(body, strict_map_key=False)


def _receive_bytes(link: socket.socket, size: int) -> bytearray | None:
    received = bytearray(size)
    view, at = memoryview(received), 0
    while at < size:
        count = link.recv_into(view[at:])
        if not count:
            return None
        at += count
    return received


def serve(
    link: socket.socket,
    works: Mapping[str, Callable[..., object]],
    *,
    idle_s: float | None = None,
    on_idle: Callable[[], None] = lambda: None,
) -> None:
    """Do what the parent asks, one after the other, until it is gone; in the child. A bug ends it, and the parent starts
    another one. `on_idle` is called each time nothing was asked for `idle_s`; None: never.
    """
    while (request := _next_request(link, idle_s, on_idle)) is not None:
        name, args = request
        try:
            answer: tuple[bool, object] = (True, works[name](*args))
        except (MetadataError, DamagedFrame, LookupError) as error:
            answer = (False, f"{type(error).__name__}: {error}")
        _send(link, answer)


def _next_request(link: socket.socket, idle_s: float | None, on_idle: Callable[[], None]) -> Any | None:
    while not select.select([link], [], [], idle_s)[0]:
        on_idle()
    return _receive(link)


def be_history_process(
    works: Mapping[str, Callable[..., object]], *, idle_s: float, on_idle: Callable[[], None]
) -> None:
    """Be the child process that does `works`, until the parent is gone; the rest as `serve`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends this process
    os.nice(_NICE)
    gc.disable()  # images and answers hold no cycles, and a walk of an image takes long
    with socket.socket(fileno=os.dup(0)) as link:
        try:
            serve(link, works, idle_s=idle_s, on_idle=on_idle)
        except OSError:
            return  # the parent is gone
