"""A run of a broker's forwarding: the shipped forwarder between clients and model controllers, of which one is active.

Connections break before and after a controller received a request, a write takes effect late, controllers refuse, throttle,
answer nothing, and leadership moves.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from broker_agent.config import BrokerSettings
from broker_agent.forwarding import NEVER_REPEATED, Forwarder
from metadata_log.errors import MetadataError, OutcomeUnknown
from metadata_log.ids import BrokerId
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import status_of
from metadata_log.node.http.identities import PRINCIPAL
from metadata_log.node.identity.rights import ANYBODY
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.door_run import DoorRun
from tests.simulation.world.virtual_loop import VirtualLoop

SECONDS: Final = 30.0
CLIENTS: Final = 6
URLS: Final = tuple(f"http://10.0.0.{number}:8001" for number in (1, 2, 3))
LEADS_S: Final = (0.1, 6.0)
LATE_S: Final = 4.0
"""What a connection that broke had delivered takes effect so much later at most."""
_BODY: Final = SimpleNamespace(is_eof=lambda: True, read_nowait=lambda: b"{}")
"""A body that is here already."""
WRITES: Final = (("PATCH", "/v1/configs"), ("POST", "/v1/topics"), ("POST", min(NEVER_REPEATED)))


@dataclass(eq=False, slots=True)
class _Answer:
    """What aiohttp's client returns, as far as it matters here."""

    method: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content_length: int = 2

    async def read(self) -> bytes:
        return b"{}"

    def close(self) -> None:
        """Do nothing: it was read whole."""


class Controllers:
    """Three of them behind a client of HTTP: they agree on everything, and one is active at a time."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self.active: str | None = URLS[0]
        self.carried_out: dict[str, int] = {}
        """How often, by the path with which a write was sent."""
        self._ids: set[str] = set()
        self.breaks = 0.0
        """The chance that a connection fails somehow."""

    async def lead(self) -> None:
        rng = self._rng
        while True:
            self.active = rng.choice((None, *URLS, *URLS))
            self.breaks = rng.choice((0.0, 0.3, 0.8))
            await asyncio.sleep(rng.uniform(*LEADS_S))

    async def request(
        self, method: str, url: URL, *, headers: Mapping[str, str], timeout: aiohttp.ClientTimeout, **_: Any
    ) -> _Answer:
        rng = self._rng
        if rng.random() < self.breaks / 2:
            await asyncio.sleep(rng.choice((0.0, timeout.sock_connect or 0.0)))
            raise aiohttp.ConnectionTimeoutError("nobody is there")
        await asyncio.sleep(rng.uniform(0.0, 0.01))
        breaks = rng.random() < self.breaks
        if breaks and rng.random() < 0.4:
            raise aiohttp.ServerDisconnectedError  # it never arrived
        origin = str(url.origin())
        if origin != self.active:
            return self._refused(method)
        if rng.random() < 0.25:
            return _Answer(method, rng.choice((429, 503)))
        if method == "GET":
            return _Answer(method, 200)
        if breaks:
            self._loop.call_outside(
                rng.choice((0.0, rng.uniform(0.0, LATE_S))), self._carry_out, url, headers
            )
            if rng.random() < 0.3:
                await asyncio.sleep(timeout.sock_read or 0.0)
                raise aiohttp.SocketTimeoutError("it answers nothing")
            raise aiohttp.ServerDisconnectedError
        if rng.random() < 0.1:
            self._loop.call_outside(rng.uniform(0.0, LATE_S), self._carry_out, url, headers)
            return _Answer(method, 504)
        self._carry_out(url, headers)
        return _Answer(method, 200)

    def _refused(self, method: str) -> _Answer:
        if self.active is None or self._rng.random() < 0.3:
            return _Answer(method, 503, headers={"Retry-After": "1"})
        return _Answer(method, 421, headers={"X-Controller": self.active})

    def _carry_out(self, url: URL, headers: Mapping[str, str]) -> None:
        request_id = headers.get("X-Request-Id")
        if request_id is not None and url.path not in NEVER_REPEATED:
            if request_id in self._ids:
                return
            self._ids.add(request_id)
        self.carried_out[url.query_string] = self.carried_out.get(url.query_string, 0) + 1


class ForwardRun:
    """One run; `run` returns what it violated."""

    a_write_is_carried_out_once = rule("a write is carried out once at most, however often it was sent")
    what_is_not_written_stays_so = rule("an answer that says that nothing was written stays true")
    what_is_written_is = rule("an answer that says that something was written is true by then")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop()
        self.controllers = Controllers(self.loop, self.rng)
        self.outcomes: dict[str, int] = {}
        self._sent = 0
        self._not_written: dict[str, str] = {}
        """Writes of which an answer said so, each with that answer."""

    def run(self) -> list[str]:
        try:
            self.loop.run_until_complete(self._run())
        except Violation as violation:
            return [str(violation)]
        finally:
            self.loop.close()
        return [str(DoorRun.nothing_unforeseen(failure)) for failure in self.loop.failures]

    async def _run(self) -> None:
        settings = BrokerSettings(
            cluster_id="4L6g3nShT-eMCtK--X86sw",
            broker_id=BrokerId(11),
            data_dir=Path("/nowhere"),
            controllers=URLS,
            listen_http=("127.0.0.1", 8011),
        )
        http = cast("aiohttp.ClientSession", self.controllers)
        forwarder = Forwarder(settings, lambda: self.rng.choice(URLS), http, AnswerBuffers())
        leading = self.loop.create_task(self.controllers.lead())
        asking = [self.loop.create_task(self._client(forwarder)) for _ in range(CLIENTS)]
        await asyncio.wait(asking)
        leading.cancel()
        for task in asking:
            task.result()
        await asyncio.sleep(2 * LATE_S)
        for sent, count in self.controllers.carried_out.items():
            if count > 1:
                raise self.a_write_is_carried_out_once(f"{sent} was carried out {count} times")
            if sent in self._not_written:
                raise self.what_is_not_written_stays_so(f"{sent} is, after {self._not_written[sent]}")

    async def _client(self, forwarder: Forwarder) -> None:
        rng = self.rng
        while self.loop.time() < SECONDS:
            self._sent += 1
            method, path = rng.choice((("GET", "/v1/topics"), *WRITES, *WRITES))
            sent = f"{method}-{self._sent}"
            headers = {"X-Request-Id": sent} if rng.random() < 0.6 else {}
            request = make_mocked_request(
                method,
                f"{path}?{sent}",
                headers=CIMultiDictProxy(CIMultiDict(headers)),
                payload=cast("aiohttp.StreamReader", _BODY),
            )
            request[PRINCIPAL] = ANYBODY  # identity is off
            await self._ask(forwarder, request, sent, is_write=method != "GET")
            await asyncio.sleep(rng.uniform(0.0, 0.5))

    async def _ask(self, forwarder: Forwarder, request: web.Request, sent: str, *, is_write: bool) -> None:
        try:
            answer = await forwarder.answer(request)
            status, outcome = answer.status, str(answer.status)
            is_known = status != 504
        except OutcomeUnknown:
            status, outcome, is_known = 504, "outcome unknown", False
        except MetadataError as error:
            status, outcome, is_known = status_of(error), type(error).__name__, True
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if not is_write or not is_known:
            return
        if status == 200:
            if self.controllers.carried_out.get(sent, 0) != 1:
                raise self.what_is_written_is(f"{sent} is answered with 200, and is not carried out")
        else:
            self._not_written[sent] = f"an answer of {outcome}"
