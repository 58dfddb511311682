"""Edge: TLS of a node: who is trusted, how certificates are replaced, and what strangers cost."""

import asyncio
import gc
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from random import Random

import pytest
from aiohttp import web
from cryptography import x509

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.node.addresses import http_url
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.server import listen
from metadata_log.node.identity.access import peer_certificate
from metadata_log.node.identity.certified_names import name_in
from metadata_log.node.identity.credentials import TlsFiles, trusting
from metadata_log.node.identity.tls import Encrypting, Tls
from metadata_log.replay.controller_client import Shown
from ops.admin.client import ClusterClient
from ops.admin.exchange import Credentials, Unreachable
from ops.certificates import Authority
from tests.unit.metadata_log.node.http.test_server import answer

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


def authority(folder: Path) -> Authority:
    return Authority(folder, cluster_id=CLUSTER)


def copied(files: TlsFiles, folder: Path) -> TlsFiles:
    """Return files of their own with this content."""
    for source, name in ((files.certificate, "crt"), (files.key, "key"), (files.ca, "ca")):
        partial = folder / f"{name}.part"
        partial.write_bytes(source.read_bytes())
        partial.chmod(0o600)
        partial.replace(folder / name)
    return TlsFiles(folder / "crt", folder / "key", folder / "ca")


@asynccontextmanager
async def serving(tls: Tls | None) -> AsyncIterator[tuple[str, int]]:
    async def who(request: web.Request) -> web.Response:
        assert request.secure is (tls is not None), "pages are compared by scheme"
        return web.Response(text=str(name_in(peer_certificate(request.transport) or {}, CLUSTER)))

    app = web.Application()
    app.router.add_get("/", who)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = await listen(
        runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers(), tls=None if tls is None else tls.server
    )
    try:
        yield listener.sockets[0].getsockname()[:2]
    finally:
        listener.close()
        await runner.cleanup()


async def told(address: tuple[str, int], context: ssl.SSLContext) -> tuple[str, str]:
    """Return the principal that a server sees, and its certificate's serial number."""
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    served = writer.get_extra_info("peercert")["serialNumber"]
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    said = await reader.read()
    writer.close()
    return said.rpartition(b"\r\n\r\n")[2].decode(), served


async def test_a_client_may_show_a_certificate_of_this_authority_or_none(tmp_path: Path) -> None:
    ours, foreign = authority(tmp_path / "ours"), authority(tmp_path / "foreign")
    tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    of_broker = ours.certify("broker", "11").client()
    stranger = foreign.certify("broker", "11")
    mixed = TlsFiles(stranger.certificate, stranger.key, ours.ca).client()
    async with serving(tls) as address:
        assert (await told(address, of_broker))[0] == "Broker:11"
        assert (await told(address, trusting(ours.ca)))[0] == "None"
        with pytest.raises(ssl.SSLCertVerificationError):
            await told(address, trusting(foreign.ca))
        with suppress(ConnectionError, ssl.SSLError):
            assert (await told(address, mixed))[0] == ""  # the connection ends unanswered


@pytest.mark.parametrize(
    ("role", "cluster_id", "of_nodes", "of_replay", "of_commands"),
    [
        ("controller", CLUSTER, True, True, True),
        ("controller", "another" * 3 + "c", False, True, True),
        ("broker", CLUSTER, False, False, True),
        ("guest", CLUSTER, False, False, False),
        ("user", CLUSTER, False, False, False),
    ],
)
async def test_a_certificate_of_somebody_else_does_not_pass_for_a_controller_s(
    tmp_path: Path, role: str, cluster_id: str, *, of_nodes: bool, of_replay: bool, of_commands: bool
) -> None:
    """Goal: nobody gets the tokens of clients by the port of a controller that is down. A command may ask brokers; it and
    replay know no cluster.
    """
    folder = tmp_path / "ours"
    own = authority(folder).certify("controller", "1")
    caller = Tls(own, cluster_id=CLUSTER)
    imposter = Tls(Authority(folder, cluster_id=cluster_id).certify(role, "2"), cluster_id=CLUSTER)
    reader = Shown(ca=own.ca).context()
    reader_with_certificate = Shown(ca=own.ca, cert=own.certificate, key=own.key).context()
    assert reader is not None and reader_with_certificate is not None

    def blocking(address: tuple[str, int], context: ssl.SSLContext) -> None:
        with (
            socket.create_connection(address, timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=address[0]),
        ):
            pass

    async with serving(imposter) as address, asyncio.timeout(60):
        for context, is_let_in in (
            (caller.client, of_nodes),
            (caller.anonymous, of_nodes),
            (reader, of_replay),
            (reader_with_certificate, of_replay),
            (own.client(), of_commands),
            (trusting(own.ca), of_commands),
        ):
            for asked in (told(address, context), asyncio.to_thread(blocking, address, context)):
                with nullcontext() if is_let_in else pytest.raises(ssl.SSLCertVerificationError):
                    await asked


async def test_a_command_says_whose_certificate_it_refused(tmp_path: Path) -> None:
    files = authority(tmp_path).certify("guest", "2")
    client = ClusterClient(
        ("https://127.0.0.1",), timeout_s=60, rng=Random(1), credentials=Credentials(files.client())
    )
    async with serving(Tls(files, cluster_id=CLUSTER)) as address:
        with pytest.raises(Unreachable, match="its certificate names nobody, and not a controller or broker"):
            await asyncio.to_thread(client.ask_one, http_url(address, tls=True), "/")


def test_the_test_authority_makes_no_user_a_server(tmp_path: Path) -> None:
    files = authority(tmp_path).certify("user", "alice")
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [f"metaquorum://{CLUSTER}/user/alice"]
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]


async def test_certificates_are_replaced_without_a_restart_and_halves_of_pairs_do_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = authority(tmp_path / "ours")
    first, second = ours.certify("controller", "1"), ours.certify("controller", "2")
    files = copied(first, tmp_path)
    tls = Tls(files, cluster_id=CLUSTER)
    async with serving(tls) as address:
        _, before = await told(address, trusting(ours.ca))
        (tmp_path / "key").write_bytes(second.key.read_bytes())
        tls.look_again()
        assert "certificates_not_reloaded" in caplog.messages
        assert (await told(address, trusting(ours.ca)))[1] == before
        copied(second, tmp_path)
        with caplog.at_level(logging.INFO):
            tls.look_again()
        assert "certificates_reloaded" in caplog.messages
        assert (await told(address, trusting(ours.ca)))[1] != before


async def test_an_authority_that_is_taken_from_the_file_is_trusted_no_longer(tmp_path: Path) -> None:
    """Goal: an authority whose key was lost can be replaced under running nodes. Method: both ends of a connection, before
    and after it is taken out, through one listener and one context of calls.
    """
    ours, lost = authority(tmp_path / "ours"), Authority(tmp_path / "lost", cluster_id="another name")
    lost._cluster_id = CLUSTER
    files = copied(ours.certify("controller", "1"), tmp_path)
    files.ca.write_bytes(ours.ca.read_bytes() + lost.ca.read_bytes())
    tls = Tls(files, cluster_id=CLUSTER)
    certified = lost.certify("broker", "11")
    of_lost = TlsFiles(certified.certificate, certified.key, ours.ca).client()
    server_of_lost = Tls(lost.certify("controller", "2"), cluster_id=CLUSTER)
    async with serving(tls) as address, serving(server_of_lost) as other:
        assert (await told(address, of_lost))[0] == "Broker:11"
        assert await told(other, tls.anonymous)
        files.ca.write_bytes(ours.ca.read_bytes())
        tls.look_again()
        with suppress(ConnectionError, ssl.SSLError):
            assert (await told(address, of_lost))[0] == ""
        with pytest.raises(ssl.SSLCertVerificationError):
            await told(other, tls.anonymous)
        assert (await told(address, ours.certify("broker", "11").client()))[0] == "Broker:11"


@pytest.mark.parametrize("broken", ["crt", "key", "ca"])
def test_what_is_no_certificate_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    files = copied(authority(tmp_path / "ours").certify("controller", "1"), tmp_path)
    (tmp_path / broken).write_bytes(b"-----BEGIN NOTHING-----\n")
    with pytest.raises(InvalidSettings, match=str(tmp_path / broken)):
        Tls(files, cluster_id=CLUSTER)
    (tmp_path / broken).unlink()
    with pytest.raises(InvalidSettings, match=str(tmp_path / broken)):
        Tls(files, cluster_id=CLUSTER)


async def test_who_does_not_finish_the_handshake_is_counted_and_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_ARRIVAL_MAX_MS", 500)
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 4)
    ours = authority(tmp_path / "ours")
    tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    async with serving(tls) as address, asyncio.timeout(60):
        silent = [await asyncio.open_connection(*address) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*address)  # beyond the share of one address
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        for held, to in silent:
            with suppress(ConnectionError):
                assert await held.read() == b""
            to.close()
        assert (await told(address, trusting(ours.ca)))[0] == "None"


def test_keys_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files = authority(tmp_path / "tls").certify("controller", "1")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (files.key, tmp_path / "tls" / "ca.key")} == {0o600}
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700
    again = authority(tmp_path / "tls").certify("controller", "1")
    assert again == files


def test_a_folder_of_keys_that_is_there_is_narrowed_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    folder.chmod(0o777)
    authority(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(InvalidSettings, match=f"{folder} belongs to another user"):
        authority(folder)


async def test_a_connection_that_is_not_entered_is_closed_at_once() -> None:
    def never() -> asyncio.Protocol:
        raise AssertionError("no protocol is made for it")

    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = await loop.create_server(lambda: Encrypting(never, context, lambda _: None), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_lost_connection_is_freed_without_the_cycle_collector(
    tmp_path: Path, *, is_encrypted: bool
) -> None:
    """Goal: connections that come and go cost no memory where nothing is walked any more. Method: nothing is walked."""
    ours = authority(tmp_path / "ours")
    tls = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER) if is_encrypted else None

    def held() -> int:
        return sum(type(each).__name__ == "_SelectorSocketTransport" for each in gc.get_objects())

    def ask(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as plain:
            context = trusting(ours.ca)
            with (
                context.wrap_socket(plain, server_hostname=address[0])
                if is_encrypted
                else plain as connection
            ):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 200"

    gc.collect()
    gc.disable()
    try:
        before = held()
        async with serving(tls) as address, asyncio.timeout(60):
            for _ in range(3):
                await asyncio.to_thread(ask, address)
            while held() > before:  # nothing tells when a transport is freed
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
