"""Edge: the made-up door in use, beside HTTP: a real process of the scratch copy, its socket, and the command line."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from metadata_log.codec import decode_all
from tests.support.processes import poll_until
from tests.support.scratch_cluster import cli, up

ANSWER_S = 30.0


class Client:
    """One connection to the door of lines."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    def ask(self, line: str) -> list[str]:
        self._socket.sendall(line.encode() + b"\n")
        return self._lines.readline().decode().rstrip("\n").split(" ")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def use(root: Path, cluster: Path) -> Iterator[str]:
    """Run a cluster of one controller from the code in `root`, and yield a line for each thing that worked."""
    with up(root, cluster):
        poll_until(
            lambda: next(cluster.rglob("lines.sock"), None) is not None,
            deadline_s=ANSWER_S,
            what="the door of lines is open",
        )
        path = next(cluster.rglob("lines.sock"))
        clients = [Client(path) for _ in range(2)]
        try:
            yield from _use(clients[0], clients[1], root, cluster)
        finally:
            for client in clients:
                client.close()


def _use(client: Client, other: Client, root: Path, cluster: Path) -> Iterator[str]:
    word, base, end = client.ask("SET a.setting 7")
    assert (word, int(end)) == ("OK", int(base) + 1)
    listed = json.loads(cli(root, cluster, "configs", "list", "--cluster", "--json"))
    assert "a.setting" in json.dumps(listed), listed
    refused = client.ask("SET unclean.leader.election.enable perhaps")
    assert refused[0] == "INVALID_REQUEST", refused
    assert client.ask("GET a.setting")[0] == "INVALID_REQUEST"
    yield "a write through the door is decided, refused, and seen through HTTP"
    assert client.ask("TOPICS") == ["OK"]
    yield "a read is linearizable"
    kind, high_watermark, frames = client.ask("POLL 0 -1 0")
    batches = [batch for batch, _ in decode_all(bytes.fromhex(frames))]
    last = batches[-1]
    assert (kind, last.end_offset) == ("DELTA", int(high_watermark))
    answers: list[list[str]] = []
    position = f"POLL {last.end_offset} {last.controller_epoch} {last.crc}"
    polling = threading.Thread(target=lambda: answers.append(client.ask(position)))
    polling.start()
    assert other.ask("SET a.setting 8")[0] == "OK"
    polling.join(ANSWER_S)
    [(kind, _, frames)] = answers
    woken = [batch for batch, _ in decode_all(bytes.fromhex(frames))]
    assert (kind, woken[0].base_offset) == ("DELTA", last.end_offset)
    yield "a poll has the log from its start, and is woken by a write"
