"""Edge: `python -m ops.bench.idle_clients SETTINGS`: opens connections to one port, and keeps them without a word.

SETTINGS is a JSON object {"host","port","connections","source","ca" (null: in the clear)}. The connections come from the
address `source`, because a node admits only so many of one address. It prints a line {"open","closed"} each time a number
changes, at most twice a second; it ends when its standard input does.

A node closes connections that are silent for long. One that is nearly due asks HEAD /healthz, which needs no identity, so
that all are there at once however long it takes to open them.
"""

import json
import socket
import ssl
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import HTTP_SILENCE_MAX_MS
from metadata_log.node.credentials import trusting

OPENERS: Final = 4
KEEPERS: Final = 4
KEEP_AFTER_S: Final = 0.6 * HTTP_SILENCE_MAX_MS / 1000
PATIENCE_S: Final = 30.0
TOLD_EVERY_S: Final = 0.5
_KEPT: Final = b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Holder:
    """Opens the connections, and keeps them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        ca = settings["ca"]
        self._context = None if ca is None else trusting(Path(ca))
        self._held: deque[tuple[float, socket.socket]] = deque()
        """Those that said something least recently come first."""
        self._lock = threading.Lock()
        self.open = 0
        self.closed = 0

    def open_all(self) -> None:
        with ThreadPoolExecutor(OPENERS) as openers:
            for _ in range(self._settings["connections"]):
                openers.submit(self._open)

    def _open(self) -> None:
        try:
            connection = self._connected()
        except OSError:
            with self._lock:
                self.closed += 1
            return
        with self._lock:
            self._held.append((time.monotonic(), connection))
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
        """Let each connection that was silent for KEEP_AFTER_S ask for the node's health, for ever."""
        while True:
            with self._lock:
                is_due = bool(self._held) and time.monotonic() - self._held[0][0] >= KEEP_AFTER_S
                connection = self._held.popleft()[1] if is_due else None
            if connection is None:
                time.sleep(0.01)
            elif _is_kept(connection):
                with self._lock:
                    self._held.append((time.monotonic(), connection))
            else:
                connection.close()
                with self._lock:
                    self.open, self.closed = self.open - 1, self.closed + 1


def _is_kept(connection: socket.socket) -> bool:
    """Ask on a connection, and answer whether it was answered."""
    with suppress(OSError, ssl.SSLError):
        connection.sendall(_KEPT)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            piece = connection.recv(4_096)
            if not piece:
                return False
            answer += piece
        return answer.startswith(b"HTTP/1.1 200 ")
    return False


def _tell(holder: Holder) -> None:
    told = (-1, -1)
    while True:
        now = holder.open, holder.closed
        if now != told:
            told = now
            print(json.dumps({"open": now[0], "closed": now[1]}), flush=True)
        time.sleep(TOLD_EVERY_S)


def main() -> None:
    holder = Holder(json.loads(sys.argv[1]))
    for work in (holder.open_all, *[holder.keep] * KEEPERS, lambda: _tell(holder)):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
