"""Edge: a kept connection to another node ends with the certificates that it began with."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from broker_agent.controller_client import ControllerClient
from broker_agent.session import Call, Unreachable
from metadata_log import limits
from metadata_log.node.addresses import http_url
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.kept_connections import KeptConnections
from metadata_log.node.http.server import listen
from metadata_log.node.identity.access import peer_certificate
from metadata_log.node.identity.certified_names import name_in
from metadata_log.node.identity.tls import Tls
from ops.certificates import Authority
from tests.support.certificates import DAY_S, certified, date_authority
from tests.support.lab import fetch_of
from tests.unit.metadata_log.node.http.test_server import answer
from tests.unit.metadata_log.node.identity.test_tls import CLUSTER, authority, copied

NOW_S = int(time.time())
ENDS_S = NOW_S + DAY_S


class Server:
    """A node that says which connection and which client it sees; a request of /wait is never answered."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()

    async def who(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        return web.json_response([port, name_in(peer_certificate(request.transport) or {}, CLUSTER)])

    async def wait(self, request: web.Request) -> web.Response:
        self.waits.set()
        await asyncio.Event().wait()
        raise AssertionError(request)


@asynccontextmanager
async def serving(tls: Tls | None, server: Server) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", server.who)
    app.router.add_get("/wait", server.wait)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = await listen(
        runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers(), tls=None if tls is None else tls.server
    )
    try:
        yield http_url(listener.sockets[0].getsockname()[:2], tls=tls is not None)
    finally:
        listener.close()
        await runner.cleanup()


async def asked(http: aiohttp.ClientSession, url: str) -> tuple[int, str | None]:
    """Return the port that a request came from, and the name that its client showed."""
    async with http.get(url) as response:
        port, name = await response.json()
        return port, name


def nodes(ours: Authority, ended: str) -> None:
    """Have the named end's certificate expire at ENDS_S, and all else later."""
    ends = {"server": (2, 1), "client": (1, 2), "authority": (2, 2), "nothing": (2, 2)}[ended]
    date_authority(ours, begins_s=NOW_S - DAY_S, ends_s=NOW_S + (1 if ended == "authority" else 3) * DAY_S)
    for role, who, days in (("controller", "1", ends[1]), ("broker", "11", ends[0])):
        certified(ours, role, who, begins_s=NOW_S - DAY_S, ends_s=NOW_S + days * DAY_S)


@pytest.mark.parametrize("ended", ["server", "client", "authority", "nothing"])
async def test_a_kept_connection_is_not_used_once_a_certificate_of_either_end_has_expired(
    tmp_path: Path, ended: str
) -> None:
    """Method: the client's own clock passes the end; the handshakes are judged by the machine's."""
    ours, now_s = authority(tmp_path), NOW_S
    nodes(ours, ended)
    ours = authority(tmp_path)
    served = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    own = Tls(ours.certify("broker", "11"), cluster_id=CLUSTER, now_ms=lambda: 1000 * now_s)
    async with (
        serving(served, Server()) as url,
        aiohttp.ClientSession(connector=KeptConnections(own)) as http,
    ):
        first = await asked(http, url)
        assert first[1] == "Broker:11"
        now_s = ENDS_S  # valid up to and with this second
        assert await asked(http, url) == first
        now_s = ENDS_S + 1
        assert (await asked(http, url) == first) is (ended == "nothing")


async def test_a_request_under_way_fails_when_the_certificate_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "TLS_CHECK_S", 0.02)
    ours, now_s = authority(tmp_path), NOW_S
    nodes(ours, "server")
    served = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    own = Tls(ours.certify("broker", "11"), cluster_id=CLUSTER, now_ms=lambda: 1000 * now_s)
    server = Server()
    async with (
        asyncio.timeout(60),
        serving(served, server) as url,
        aiohttp.ClientSession(connector=KeptConnections(own)) as http,
    ):
        # aiohttp sends a GET again by itself, once, on a new connection: to the machine's clock all is well.
        http._retry_connection = False
        waiting = asyncio.ensure_future(http.get(f"{url}/wait"))
        await server.waits.wait()
        now_s = ENDS_S + 1
        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting
    (ended,) = [record for record in caplog.records if record.getMessage() == "connection_ended"]
    assert ended.levelno == logging.WARNING


async def test_after_a_renewal_requests_have_new_connections_and_those_under_way_are_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TLS_CHECK_S", 0.02)
    ours = authority(tmp_path / "ours")
    served = Tls(ours.certify("controller", "1"), cluster_id=CLUSTER)
    own = Tls(copied(ours.certify("broker", "11"), tmp_path), cluster_id=CLUSTER)
    server = Server()
    async with (
        asyncio.timeout(60),
        serving(served, server) as url,
        aiohttp.ClientSession(connector=KeptConnections(own)) as http,
    ):
        waiting = asyncio.ensure_future(http.get(f"{url}/wait"))
        await server.waits.wait()
        first = await asked(http, url)
        copied(ours.certify("broker", "12"), tmp_path)
        own.look_again()
        second = await asked(http, url)
        assert (first[1], second[1]) == ("Broker:11", "Broker:12") and first[0] != second[0]
        assert await asked(http, url) == second
        await asyncio.sleep(5 * limits.TLS_CHECK_S)
        assert not waiting.done()
        waiting.cancel()


async def test_in_the_clear_a_connection_is_kept() -> None:
    async with (
        serving(None, Server()) as url,
        aiohttp.ClientSession(connector=KeptConnections(None)) as http,
    ):
        assert await asked(http, url) == await asked(http, url)


async def test_a_certificate_with_seconds_to_live_ends_the_connection_of_a_broker_s_client(
    tmp_path: Path,
) -> None:
    """Goal: by the machine's clock, too. Method: a request again and again, until TLS fails by name."""
    ours = authority(tmp_path)
    ends_s = int(time.time()) + 3
    files = certified(ours, "controller", "1", begins_s=time.time() - DAY_S, ends_s=ends_s)
    served = Tls(files, cluster_id=CLUSTER)
    own = Tls(ours.certify("broker", "11"), cluster_id=CLUSTER)
    async with asyncio.timeout(60), serving(served, Server()) as url, ControllerClient(tls=own) as client:
        first = await asked(client.http, url)

        async def keep_asking() -> None:
            while True:
                assert await asked(client.http, url) == first
                await asyncio.sleep(0.05)

        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="certificate has expired"):
            await keep_asking()
        assert time.time() > ends_s


@pytest.mark.parametrize(
    ("role", "left_s", "reason"),
    [
        ("controller", -9, "certificate has expired"),
        ("broker", DAY_S, "its certificate names Broker:1, and not a controller"),
    ],
)
async def test_a_broker_outlives_a_controller_whose_certificate_it_refuses(
    tmp_path: Path, role: str, left_s: int, reason: str
) -> None:
    """Goal: no certificate of another node ends a broker. Method: its poll, which fails by name."""
    ours, now_s = authority(tmp_path), time.time()
    files = certified(ours, role, "1", begins_s=now_s - DAY_S, ends_s=now_s + left_s)
    served = Tls(files, cluster_id=CLUSTER, now_ms=lambda: round(1000 * (now_s - 60)))
    own = Tls(ours.certify("broker", "11"), cluster_id=CLUSTER)
    poll = fetch_of(11, 1, applied=0)
    async with asyncio.timeout(60), serving(served, Server()) as url, ControllerClient(tls=own) as client:
        outcome = await client.perform(Call(url=url, request=poll, sent_ms=0, silence_max_ms=10_000))
        assert isinstance(outcome, Unreachable) and reason in outcome.reason
