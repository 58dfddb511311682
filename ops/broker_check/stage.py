"""Edge: two endpoints that play controllers: each request of a broker waits here until the play answers it.
Tests: tests/cluster/test_broker_check.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgpack
from aiohttp import web

from metadata_log.errors import InvalidRequest, MetadataError, SnapshotNotFound
from metadata_log.node.http.answers import MSGPACK, error_body, status_of
from metadata_log.node.pace import next_turn
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import RegisterBroker
from metadata_log.wire.fetch import (
    SESSION_TIMEOUT_HEADER,
    FetchAnswer,
    FetchRequest,
    encode_fetch_body,
)
from ops.broker_check.story import CONTROLLER, Story

REGISTER: Final = "/v1/brokers/register"
FETCH: Final = "/v1/metadata/fetch"
OVERLAP_S: Final = 0.5
"""For so long an older poll may still look open: that its connection was closed is seen later than a new request."""
TURNS_TO_SEE_AN_END: Final = 2
"""Turns of the loop after which a connection that the broker had closed before the answer is seen as closed."""


class Asked:
    """One registration or poll of the broker, until `answer` or `drop` ends it."""

    def __init__(self, request: web.Request, body: bytes, controller: int, now_ms: int) -> None:
        self._request = request
        self._body = body
        self._answered: asyncio.Future[web.StreamResponse | None] = asyncio.get_running_loop().create_future()
        self.path = request.path
        self.controller = controller
        """0: the first address that the broker was given, 1: the second."""
        self.arrived_ms = now_ms
        self.is_gone = False
        """The broker closed the connection before it had an answer."""

    @property
    def is_registration(self) -> bool:
        return self.path == REGISTER

    @property
    def is_open(self) -> bool:
        return not self._answered.done()

    def registration(self) -> RegisterBroker:
        """Return the registration in the body.

        Raises:
            InvalidRequest: the body is none; the message names the field.
        """
        return RegisterBroker.from_map(self._map())

    def poll(self) -> FetchRequest:
        """Return the poll in the body; raises as `registration`."""
        return FetchRequest.from_map(self._map())

    def _map(self) -> Any:
        if self._request.content_type != MSGPACK:
            raise InvalidRequest(f"Content-Type is {self._request.content_type}, wanted {MSGPACK}")
        return unpack(self._body)

    def answer(self, body: dict[str, Any]) -> None:
        self._respond(web.Response(body=msgpack.packb(body), content_type=MSGPACK))

    def answer_poll(
        self, head: FetchAnswer, frames: bytes, *, session_timeout_ms: int, more: dict[str, Any]
    ) -> None:
        """Answer a poll; `more` are fields that a later release may add to the head."""
        body = encode_fetch_body(head, frames)
        if more:
            packed = msgpack.packb(head.to_map() | more)
            body = len(packed).to_bytes(4) + packed + frames
        timeout = {SESSION_TIMEOUT_HEADER: str(session_timeout_ms)}
        self._respond(web.Response(body=body, content_type=MSGPACK, headers=timeout))

    def refuse(self, error: MetadataError, *, leader: str | None = None) -> None:
        """Answer an error; `leader` is the URL of the active controller."""
        self._respond(_refusal(error, leader))

    def drop(self) -> None:
        """Close the connection without an answer."""
        if self.is_open:
            self._answered.set_result(None)

    def _respond(self, response: web.StreamResponse) -> None:
        if self.is_open:
            self._answered.set_result(response)

    async def response(self) -> web.StreamResponse:
        """Wait for the play's answer."""
        try:
            response = await self._answered
            for _ in range(TURNS_TO_SEE_AN_END):
                await next_turn()
        except asyncio.CancelledError:
            self.is_gone = True
            raise
        if response is None:
            assert self._request.transport is not None
            self._request.transport.abort()
            return web.Response()
        return response


class Stage:
    """The two controllers, and what a broker asked them. Snapshots are answered without the play."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.story: Story | None = None
        self.urls: list[str] = []
        self.polls_at_once = 0
        """The most polls that were open at a time."""
        self.snapshots_sent = 0
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._open: list[Asked] = []

    async def next(self, patience_s: float) -> Asked | None:
        """Return the next registration or poll; None: there was none within `patience_s`."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._asked.get()
        except TimeoutError:
            return None

    def forget(self) -> None:
        """Drop what waits for an answer: the broker's process has ended."""
        while not self._asked.empty():
            self._asked.get_nowait()
        for asked in self._open:
            asked.drop()

    async def _take(self, controller: int, request: web.Request) -> web.StreamResponse:
        asked = Asked(request, await request.read(), controller, self.now_ms())
        if not asked.is_registration:
            await self._count_polls()
        self._open.append(asked)
        self._asked.put_nowait(asked)
        try:
            return await asked.response()
        finally:
            self._open.remove(asked)

    async def _count_polls(self) -> None:
        """Give older polls a moment to be seen as closed. Count the others, answered meanwhile or not, and the new one."""
        older = [asked for asked in self._open if not asked.is_registration and asked.is_open]
        deadline_ms = self.now_ms() + round(OVERLAP_S * 1000)
        while any(asked in self._open for asked in older) and self.now_ms() < deadline_ms:
            await asyncio.sleep(0.01)
        self.polls_at_once = max(self.polls_at_once, 1 + sum(not asked.is_gone for asked in older))

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        story = self.story
        if story is None or request.match_info["id"] != story.offer.id:
            return _refusal(SnapshotNotFound("no such snapshot"), None)
        self.snapshots_sent += 1
        data, etag = story.snapshot, {"ETag": f'"{story.offer.sha256}"'}
        if "Range" not in request.headers:
            return web.Response(body=data, headers=etag)
        wanted = request.http_range
        start, stop = wanted.start or 0, min(wanted.stop or len(data), len(data))
        ranged = etag | {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return web.Response(status=206, body=data[start:stop], headers=ranged)

    async def _other(self, request: web.Request) -> web.StreamResponse:
        """Answer a report of directories or ISRs; the play tells of no partition, so there is nothing to report."""
        report = unpack(await request.read())
        items: dict[str, list[Any]] = {name: [] for name in ("partitions", "replicas") if name in report}
        return web.Response(body=msgpack.packb(items), content_type=MSGPACK)

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator["Stage"]:
        """Serve both controllers; the second one's port is any free one."""
        runners: list[web.AppRunner] = []
        try:
            for controller, wanted in enumerate((port, 0)):
                runner = web.AppRunner(
                    self._app(controller), access_log=None, shutdown_timeout=0.1, handler_cancellation=True
                )
                await runner.setup()
                runners.append(runner)
                await web.TCPSite(runner, host, wanted).start()
                self.urls.append(f"http://{host}:{runner.addresses[0][1]}")
            yield self
        finally:
            self.forget()
            for runner in runners:
                await runner.cleanup()

    def _app(self, controller: int) -> web.Application:
        async def take(request: web.Request) -> web.StreamResponse:
            return await self._take(controller, request)

        app = web.Application()
        app.add_routes(
            [
                web.post(REGISTER, take),
                web.post(FETCH, take),
                web.post("/v1/partitions/alter", self._other),
                web.post("/v1/partitions/directories", self._other),
                web.get("/v1/metadata/snapshots/{id}", self._snapshot),
            ]
        )
        return app


def _refusal(error: MetadataError, leader: str | None) -> web.Response:
    headers = {} if leader is None else {"X-Controller": leader}
    return web.Response(
        body=msgpack.packb(error_body(error, controller_id=CONTROLLER, controller_epoch=1)),
        status=status_of(error),
        content_type=MSGPACK,
        headers=headers,
    )
