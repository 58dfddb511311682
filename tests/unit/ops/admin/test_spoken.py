"""Edge: an address whose port speaks something else than its URL says is named, by each verb, as a wrong request."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metadata_log.node.addresses import http_url
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.node.identity.tls import Tls
from ops import cli
from ops.admin import spoken, survey
from quorum.raft.handshake import PROBE, PROBED
from tests.support.processes import free_port
from tests.support.told_node import CutOff, Reply, Seen, node
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority, serving
from tests.unit.ops.admin.test_health import quorum, voter
from tests.unit.ops.verbs.test_quorum import speak
from tests.unit.quorum.raft.test_transport import Node, frame, until

REFUSED = 3
READS = [["quorum", "health"], ["quorum", "status"], ["topics", "list"], ["certificates", "list"]]
WRITE = ["topics", "create", "t", "--partitions", "1", "--replication-factor", "1"]
ANSWERED = b"\0\0\0\x0ameta" + bytes(6)
"""What Kafka's protocol answers: its size, the correlation id of the request, no error, no versions."""


@contextmanager
def kafka(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Yield the port of a listener for Kafka's protocol: it closes at bytes whose size is none of a request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                try:
                    with tls.wrap_socket(accepted, server_side=True) if tls else accepted as connection:
                        request = connection.recv(1024)
                        if request[:2] == b"\0\0":
                            connection.sendall(ANSWERED)
                except OSError:
                    accepted.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no machine is too busy to look at a port before its node counts as silent."""
    monkeypatch.setattr(survey, "ONE_NODE_S", 60.0)
    monkeypatch.setattr(spoken, "PROBE_S", 60.0)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return authority(tmp_path).certify("controller", "1")


def said_of(url: str, words: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert cli.main([*words, "--bootstrap", ",".join((url, *more))]) == REFUSED, words
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("words", [*READS, WRITE], ids=lambda words: " ".join(words[:2]))
async def test_http_at_a_port_with_tls_is_named(
    words: list[str], files: TlsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(Tls(files, cluster_id=CLUSTER)) as address:
        said = await asyncio.to_thread(said_of, http_url(address, tls=False), words, capsys)
    assert spoken.HAS_TLS in said


@pytest.mark.parametrize("words", [*READS, WRITE], ids=lambda words: " ".join(words[:2]))
def test_https_at_a_port_without_tls_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        assert spoken.HAS_NO_TLS in said_of(told.url.replace("http:", "https:"), words, capsys)
        assert [seen.path for seen in told.seen] == ["/healthz"]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_a_listener_for_kafkas_protocol_is_named(
    scheme: str, has_tls: bool, files: TlsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    context = None
    if has_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
    with kafka(context) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        assert spoken.spoken(url) == spoken.IS_KAFKA
        if not (has_tls and scheme == "https"):  # that is not trusted, first of all
            assert spoken.IS_KAFKA in said_of(url, ["quorum", "health"], capsys)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
async def test_a_raft_port_is_named_and_nothing_is_refused_there(
    scheme: str, has_tls: bool, files: TlsFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the port beside the right one is named. Method: a real one; with TLS it wants a controller's certificate."""
    port = free_port()
    controller = Node(1, {1: port})
    if has_tls:
        controller.transport._tls = Tls(files, cluster_id=CLUSTER)
    url = f"{scheme}://127.0.0.1:{port}"
    async with controller.running():
        assert await asyncio.to_thread(spoken.spoken, url) == spoken.IS_RAFT
        if not (has_tls and scheme == "https"):  # that is not trusted, first of all
            for words in READS:
                assert spoken.IS_RAFT in await asyncio.to_thread(said_of, url, words, capsys)
        assert controller.transport.refused() == {}
        await until(lambda: controller.transport.handshakes() == 0, "a probe is answered, and gone")


def test_the_probe_is_that_of_the_links() -> None:
    assert (frame(PROBE), frame(PROBED)) == (spoken.RAFT_ASKED, spoken.RAFT_ANSWERS)


def test_two_wrong_addresses_are_both_named(capsys: pytest.CaptureFixture[str]) -> None:
    with kafka() as port, node() as told:
        wrong = [f"http://127.0.0.1:{port}", told.url.replace("http:", "https:")]
        said = said_of(wrong[0], ["topics", "list"], capsys, wrong[1])
    assert f"{wrong[0]}: {spoken.IS_KAFKA}" in said and f"{wrong[1]}: {spoken.HAS_NO_TLS}" in said


def test_a_wrong_address_beside_a_right_one_is_yellow(capsys: pytest.CaptureFixture[str]) -> None:
    with kafka() as port, node() as told:
        wrong = f"http://127.0.0.1:{port}"
        speak(told, quorum(1, voters=[voter(1), voter(2, http=wrong)]), leader=told.url)
        at = f"{told.url},{wrong}"
        assert cli.main(["quorum", "health", "--bootstrap", at]) == 10
    assert f"does not answer ({spoken.IS_KAFKA})" in capsys.readouterr().out


def test_a_node_that_breaks_off_is_no_wrong_address(capsys: pytest.CaptureFixture[str]) -> None:
    def break_off(seen: Seen) -> Reply:
        if seen.path == "/healthz":
            return Reply()
        raise CutOff

    with node() as told:
        told.answer = break_off
        assert cli.main(["quorum", "health", "--bootstrap", told.url]) == 20
        assert "closed the connection without an answer" in capsys.readouterr().out
        assert [seen.path for seen in told.seen].count("/healthz") == 1


def test_where_nothing_listens_nothing_is_named() -> None:
    assert spoken.spoken(f"http://127.0.0.1:{free_port()}") is None


def test_a_server_with_tls_that_answers_other_bytes_as_http_is_none_without_tls(files: TlsFiles) -> None:
    """Goal: no user is told to leave TLS. Method: a server wants a certificate, and refuses bytes without TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                try:
                    if accepted.recv(1, socket.MSG_PEEK) == b"\x16":
                        accepted = context.wrap_socket(accepted, server_side=True)
                    elif accepted.recv(1024).startswith(b"GET"):
                        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                except OSError:
                    pass
                accepted.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert spoken.spoken(f"https://127.0.0.1:{listener.getsockname()[1]}") is None
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
