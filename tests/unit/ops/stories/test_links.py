"""Edge: a link holds answers whole, lets them pass one by one, and drops them when it is cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ops.stories.links import Link, Links
from tests.support.processes import poll_until

DEADLINE_S = 30.0


@contextmanager
def leader() -> Iterator[tuple[str, int]]:
    """Answer each byte with that many bytes, as a framed answer."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while asked := connection.recv(1):
                connection.sendall(asked[0].to_bytes(4, "big") + b"x" * asked[0])

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()
    finally:
        listening.close()


@pytest.fixture
def link() -> Iterator[Link]:
    with leader() as address, Links() as links:
        yield links.to(address)


def ask(follower: socket.socket, size: int) -> None:
    follower.sendall(bytes([size]))


def connect(link: Link) -> socket.socket:
    return socket.create_connection(link.address, DEADLINE_S)


def answer(follower: socket.socket) -> int:
    """Return the size of the next answer; 0: the connection is closed."""
    size = int.from_bytes(follower.recv(4, socket.MSG_WAITALL), "big")
    return len(follower.recv(size, socket.MSG_WAITALL)) if size else 0


def waits(link: Link, size: int) -> None:
    poll_until(
        lambda: link.held_bytes() == size, deadline_s=DEADLINE_S, what=f"an answer of {size} bytes waits"
    )


def test_an_open_link_passes_everything(link: Link) -> None:
    with connect(link) as follower:
        ask(follower, 5)
        assert answer(follower) == 5
        assert link.held_bytes() == 0


def test_a_held_link_lets_one_answer_pass_at_a_time(link: Link) -> None:
    link.hold()
    with connect(link) as follower:
        ask(follower, 5)
        ask(follower, 6)
        waits(link, 5)
        link.let_one_pass()
        assert answer(follower) == 5
        waits(link, 6)
        link.open()
        assert answer(follower) == 6


def test_a_cut_link_drops_what_waits_and_refuses_connections(link: Link) -> None:
    link.hold()
    with connect(link) as follower:
        ask(follower, 5)
        waits(link, 5)
        link.cut()
        with suppress(ConnectionResetError):
            assert answer(follower) == 0
        assert link.held_bytes() == 0
        with connect(link) as refused, suppress(ConnectionResetError):
            assert answer(refused) == 0
        link.open()
        with connect(link) as later:
            ask(later, 7)
            assert answer(later) == 7


def test_a_leader_that_is_not_there_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    with Links() as links, connect(links.to(address)) as follower, suppress(ConnectionResetError):
        assert answer(follower) == 0
