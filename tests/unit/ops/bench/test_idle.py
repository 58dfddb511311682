"""Edge: the benchmark of idle connections refuses more of them than a controller takes, and says why others are lost."""

import resource
import socket
from collections.abc import Iterator

import pytest

from metadata_log.limits import HTTP_CONNECTIONS_MAX
from ops.bench import idle
from ops.bench.idle_clients import Holder, Lost, asked_again
from ops.cli import main
from ops.command_line.options import Noun
from ops.verbs.bench import NOUN


@pytest.fixture
def kept_limit() -> Iterator[None]:
    """The benchmark raises this process's limit of open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("kept_limit")
def test_more_connections_than_a_controller_takes_are_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(idle, "connections_max", lambda: 1_000)
    assert main(["bench", "idle", "--connections", "901"]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert "BenchmarkFailed: 901 connections cannot be open at once here" in line
    assert "ask for --connections 900 or fewer, or --spread, or raise the limit" in line


def test_the_most_that_may_be_asked_for_is_what_a_controller_takes() -> None:
    assert isinstance(NOUN, Noun)
    (most,) = (param for param in NOUN.commands["idle"].params if param.name == "connections")
    assert most.default == HTTP_CONNECTIONS_MAX - idle.OWN


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Lost.CLOSED),
        (b"", Lost.CLOSED),
        (None, Lost.GIVEN_UP),
    ],
)
def test_a_connection_is_lost_by_the_node_or_given_up_by_its_client(
    answer: bytes | None, why: Lost | None
) -> None:
    client, node = socket.socketpair()
    with client, node:
        if answer is None:
            client.settimeout(0.01)
        else:
            node.sendall(answer)
            node.shutdown(socket.SHUT_WR)
        assert asked_again(client, asked=True) is why


def test_a_connection_that_nobody_takes_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        holder = Holder(
            {"host": "127.0.0.1", "port": port, "source": "127.0.0.1", "connections": 2, "ca": None}
        )
        holder.open_all()
    assert (holder.open, holder.lost[Lost.REFUSED], sum(holder.lost.values())) == (0, 2, 2)
