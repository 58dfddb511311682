"""Edge: `python -m ops.bench.idle_clients SETTINGS`: opens connections to one port, and keeps them without a word.

SETTINGS is a JSON object {"host","port","connections","source","ca" (null: in the clear)}. The connections come from the
address `source`, because a node admits only so many of one address. It prints a line each time a number changes, at most
twice a second: {"open", and one member for each `Lost`}. It ends when its standard input does.

A node closes connections that are silent for long. One that is nearly due asks HEAD /healthz, which needs no identity, so
that all are there at once however long it takes to open them. Tests: tests/unit/ops/bench/test_idle.py.
"""

import json
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import HTTP_SILENCE_MAX_MS
from metadata_log.node.identity.credentials import trusting

OPENERS: Final = 4
KEEPERS: Final = 4
SILENCE_MAX_S: Final = HTTP_SILENCE_MAX_MS / 1000
KEEP_AFTER_S: Final = 0.6 * SILENCE_MAX_S
PATIENCE_S: Final = 30.0
TOLD_EVERY_S: Final = 0.5
_KEPT: Final = b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Lost(Enum):
    """Why a connection is not there."""

    REFUSED = "refused"
    """The node closed it before it was open."""
    CLOSED = "closed"
    """The node closed it, or answered that it will not serve it, although it was not silent for too long."""
    OVERDUE = "overdue"
    """The node closed it, and this process had let it be silent for longer than a node waits."""
    GIVEN_UP = "given_up"
    """The node did nothing for PATIENCE_S: this process closed it."""


class Holder:
    """Opens the connections, and keeps them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        ca = settings["ca"]
        self._context = None if ca is None else trusting(Path(ca))
        self._held: deque[tuple[float, socket.socket, bool, bool]] = deque()
        """When each said something, least recently first; whether it has ever asked, and whether too late."""
        self.lock = threading.Lock()
        self.open = 0
        self.lost = dict.fromkeys(Lost, 0)

    def open_all(self) -> None:
        with ThreadPoolExecutor(OPENERS) as openers:
            for _ in range(self._settings["connections"]):
                openers.submit(self._open)

    def _open(self) -> None:
        try:
            connection = self._connected()
        except OSError as error:
            with self.lock:
                self.lost[Lost.GIVEN_UP if isinstance(error, TimeoutError) else Lost.REFUSED] += 1
            return
        with self.lock:
            self._held.append((time.monotonic(), connection, False, False))
            self.open += 1

    def _connected(self) -> socket.socket:
        settings = self._settings
        plain = socket.socket()
        try:
            plain.settimeout(PATIENCE_S)
            plain.bind((settings["source"], 0))
            plain.connect((settings["host"], settings["port"]))
            if self._context is None:
                return plain
            return self._context.wrap_socket(plain, server_hostname=settings["host"])
        except OSError:
            plain.close()
            raise

    def keep(self) -> None:
        """Let each connection that was silent for KEEP_AFTER_S ask for the node's health, for ever.

        It reads the answer before it asks again: were it waited for, a busy node would answer so few in a second that the
        others become overdue.
        """
        while True:
            with self.lock:
                is_due = bool(self._held) and time.monotonic() - self._held[0][0] >= KEEP_AFTER_S
                last, connection, asked, late = self._held.popleft() if is_due else (0.0, None, False, False)
            if connection is None:
                time.sleep(0.01)
                continue
            late = late or time.monotonic() - last >= SILENCE_MAX_S
            lost = asked_again(connection, asked=asked)
            if lost is None:
                with self.lock:
                    self._held.append((time.monotonic(), connection, True, late))
                continue
            connection.close()
            if lost is Lost.CLOSED and late:
                lost = Lost.OVERDUE
            with self.lock:
                self.open -= 1
                self.lost[lost] += 1


def asked_again(connection: socket.socket, *, asked: bool) -> Lost | None:
    """Ask on a connection, once it was answered if it `asked` before; return why it is lost, or None where it is not."""
    answer = b""
    try:
        while asked and not answer.endswith(b"\r\n\r\n"):
            piece = connection.recv(4_096)
            if not piece:
                return Lost.CLOSED
            answer += piece
        if asked and not answer.startswith(b"HTTP/1.1 200 "):
            return Lost.CLOSED
        connection.sendall(_KEPT)
    except TimeoutError:
        return Lost.GIVEN_UP
    except OSError:
        return Lost.CLOSED
    return None


def _tell(holder: Holder) -> None:
    told: dict[str, int] = {}
    while True:
        with holder.lock:
            now = {"open": holder.open, **{why.value: count for why, count in holder.lost.items()}}
        if now != told:
            told = now
            print(json.dumps(told), flush=True)
        time.sleep(TOLD_EVERY_S)


def main() -> None:
    holder = Holder(json.loads(sys.argv[1]))
    for work in (holder.open_all, *[holder.keep] * KEEPERS, lambda: _tell(holder)):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
