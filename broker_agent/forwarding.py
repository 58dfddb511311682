"""Edge: requests of clients that know only this broker, forwarded to the active controller, and its answers.

Kafka's brokers forward in an Envelope. Here the same request goes on, so a repetition with the same X-Request-Id gets
the first answer, through whichever node it comes. The client chooses neither host nor path: only the paths of FORWARDED
are forwarded, and only to a controller that the settings or another controller name.

Each attempt has a connection of its own. So a connection that breaks was broken under this request, and nothing but this
file repeats a request.
"""

import asyncio
import io
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Final, NamedTuple

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from broker_agent.config import BrokerSettings
from broker_agent.session import Round
from metadata_log import limits
from metadata_log.errors import (
    BrokerNotAvailable,
    InvalidRequest,
    MetadataError,
    OutcomeUnknown,
    RequestTooLarge,
    ThrottlingQuotaExceeded,
)
from metadata_log.node.addresses import VIA_BROKER, is_node_url
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.bodies import read_raw
from metadata_log.node.http.identities import SESSION_TOKEN, of
from metadata_log.node.http.trace import trace_headers
from metadata_log.node.identity.credentials import why_it_failed
from metadata_log.node.identity.rights import ANYBODY, NOBODY

NEVER_REPEATED: Final = frozenset({"/v1/quorum/transfer"})
"""Each such request moves leadership on, whatever its X-Request-Id."""
SENT_ON: Final = (hdrs.ACCEPT, hdrs.AUTHORIZATION, hdrs.CONTENT_TYPE, "X-Request-Id", "Last-Event-ID")
HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
)
"""Headers of a controller's answer that describe its connection, not the answer."""
PAUSE_FIRST_S: Final = 0.02
"""After a round in which no controller was active; an election takes tens of milliseconds. Each next pause doubles."""
PAUSE_MAX_S: Final = 0.5
OF_THE_PAST: Final = frozenset({"/v1/past", "/v1/whatif"})
"""Answers that are made of past states, in their turn."""
EVENT_STREAM: Final = "text/event-stream"
LOOK_AGAIN_S: Final = 0.1
"""So often a forwarded request that waits looks whether this broker found another controller."""


class _Attempt(NamedTuple):
    """One controller's answer, or why there is none; `sent`: the controller may have received the request."""

    answer: aiohttp.ClientResponse | None
    failure: str = ""
    sent: bool = True


@asynccontextmanager
async def forwarding(
    settings: BrokerSettings,
    controller_url: Callable[[], str],
    buffers: AnswerBuffers,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator["Forwarder"]:
    """Yield a forwarder; `controller_url` returns the controller that the broker itself asks now."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=True if tls is None else tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        auto_decompress=False,
    ) as http:
        # aiohttp sends a DELETE again by itself after its connection broke, and has no public switch.
        http._retry_connection = False  # noqa: SLF001
        yield Forwarder(settings, controller_url, http, buffers)


def silence_max_ms(request: web.Request, *, is_write: bool) -> int:
    """Return for how long a controller may be silent before another is asked.

    A feed is silent for as long as its client lets it wait, and a state of the past for as long as it waits for its turn.
    """
    if is_write:
        return limits.FORWARD_SILENCE_MAX_MS
    wait_ms = request.query.get("wait_ms", "")
    if wait_ms.isascii() and wait_ms.isdigit():
        return limits.FORWARD_READ_SILENCE_MAX_MS + min(int(wait_ms[:9]), limits.FEED_WAIT_MAX_MS)
    if request.path in OF_THE_PAST or "at" in request.query:
        return limits.FORWARD_READ_SILENCE_MAX_MS + limits.PAST_READ_WAIT_MAX_MS
    return limits.FORWARD_READ_SILENCE_MAX_MS


class Forwarder:
    """Forwards FORWARDS_MAX requests at a time."""

    def __init__(
        self,
        settings: BrokerSettings,
        controller_url: Callable[[], str],
        http: aiohttp.ClientSession,
        buffers: AnswerBuffers,
    ) -> None:
        self._settings = settings
        self._controller_url = controller_url
        self._http = http
        self._buffers = buffers
        self._in_flight = 0
        self._followed = Counter[str]()
        """Pages that follow events through this broker, by principal."""

    async def answer(
        self, request: web.Request, *, recheck: Callable[[web.Request], None] = lambda _: None
    ) -> web.StreamResponse:
        """Return the active controller's answer to a request.

        `recheck` raises a MetadataError where its client may not be sent more of the answer: the controller sees the token,
        and not whether the session still lasts that it was sent for.

        Raises:
            InvalidRequest: the request came by another broker, or its body is refused.
            ThrottlingQuotaExceeded: too many requests are being forwarded.
            BrokerNotAvailable: no controller answered; nothing was written.
            OutcomeUnknown: a write was sent and not answered.
        """
        via = ", ".join(request.headers.getall(hdrs.VIA, []))
        if VIA_BROKER in via:
            raise InvalidRequest(
                f"this request came by another broker (Via: {via[: limits.TEXT_BYTES_MAX]}): the controllers in that "
                f"broker's settings are to be controllers, and broker {self._settings.broker_id} is none"
            )
        # A client that sends its body slowly takes no place among the requests in flight.
        body = await self._body_of(request)
        with self._place():
            answer = await self._ask_controllers(request, body)
        try:
            return await self._passed_back(request, answer, recheck)
        finally:
            answer.close()

    async def _body_of(self, request: web.Request) -> bytes:
        """Return the body; of a client whose token this broker does not know, a small one: anybody may send a token.

        Raises:
            RequestTooLarge: that client's body is larger.
        """
        if of(request) is not NOBODY:
            return await read_raw(request)
        try:
            return await read_raw(request, bytes_max=limits.HTTP_BODY_AT_ONCE_BYTES)
        except web.HTTPRequestEntityTooLarge as error:
            raise RequestTooLarge(
                f"broker {self._settings.broker_id} does not know this token, and takes bodies of at most "
                f"{limits.HTTP_BODY_AT_ONCE_BYTES} bytes with it: ask a controller, or put the token's hash into the "
                "principals file of this broker"
            ) from error

    @contextmanager
    def _room_for(self, request: web.Request, answer: aiohttp.ClientResponse) -> Iterator[None]:
        """Hold what passing a large answer back takes, until it is passed back.

        Events last for hours and are a few bytes at a time: they take no room of answers, or pages that follow them would
        keep the broker's clients from large metadata. What a page has not read counts with its connection.

        Raises:
            ThrottlingQuotaExceeded: too many answers have not been read, or too many pages follow events here.
        """
        if answer.content_type == EVENT_STREAM:
            principal = of(request)
            most = limits.FORWARDS_MAX if principal is ANYBODY else limits.FOLLOWED_PER_PRINCIPAL_MAX
            if self._followed.total() >= limits.FORWARDS_MAX or self._followed[principal.name] >= most:
                raise ThrottlingQuotaExceeded(
                    f"{self._followed.total()} pages follow events through broker {self._settings.broker_id} already, "
                    f"{self._followed[principal.name]} of them of {principal.name}: close some, or ask another broker, or a "
                    "controller"
                )
            self._followed[principal.name] += 1
            try:
                yield
            finally:
                self._followed[principal.name] -= 1
                if not self._followed[principal.name]:
                    del self._followed[principal.name]
            return
        # A write is done by now: its answer is passed back however much of others is unread.
        is_read = request.method == hdrs.METH_GET
        with self._buffers.holding(2 * limits.ANSWER_PIECE_BYTES) if is_read else nullcontext():
            yield

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._in_flight >= limits.FORWARDS_MAX:
            raise ThrottlingQuotaExceeded(
                f"broker {self._settings.broker_id} forwards {limits.FORWARDS_MAX} requests already: ask again "
                "shortly, or another broker"
            )
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    # --- to the controllers

    async def _ask_controllers(self, request: web.Request, body: bytes) -> aiohttp.ClientResponse:
        """Ask the controllers in turn, the one that a redirect names first, until one answers as the active one.

        A write that may have been carried out is sent again only with an X-Request-Id. From then on no answer that says
        "nothing was written" is passed back, because it speaks of the repetition alone.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.FORWARD_MAX_MS / 1000
        is_write = request.method not in {hdrs.METH_GET, hdrs.METH_HEAD}
        repeatable = _is_repeatable(request)
        turn = Round(tuple(dict.fromkeys([self._controller_url(), *self._settings.controllers])))
        failures: dict[str, str] = {}
        refusal: aiohttp.ClientResponse | None = None
        may_be_written = False
        pause_s = PAUSE_FIRST_S
        for _ in range(limits.FORWARD_ATTEMPTS_MAX):
            url, hint = turn.current, None
            known = self._controller_url()
            answer, failure, sent = await self._attempt_while_known(
                url, request, body, is_write=is_write, gives_up=repeatable or not is_write
            )
            if answer is None and self._controller_url() != known:
                hint = self._controller_url()
            if answer is not None:
                if not _is_not_active(answer):
                    if may_be_written and _says_not_written(answer):
                        failures[url] = f"answered {answer.status} to the repetition"
                        answer.close()
                        break
                    return answer
                if refusal is not None:
                    refusal.close()
                refusal, hint = answer, answer.headers.get("X-Controller")
                failures[url] = "is not the active controller"
            else:
                failures[url] = failure
                may_be_written |= is_write and sent
                if may_be_written and not repeatable:
                    break  # to send it again could carry it out twice
            if loop.time() >= deadline:
                break
            if not turn.advance(hint if hint is not None and is_node_url(hint) else None):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        why = "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        if may_be_written:
            raise OutcomeUnknown(
                f"broker {self._settings.broker_id} forwarded this and got no answer, so it may still take effect: repeat "
                f"it with the same X-Request-Id ({why})"
            )
        if refusal is not None:
            return refusal
        raise BrokerNotAvailable(
            f"broker {self._settings.broker_id} reaches no controller, nothing was written: ask again, or another broker "
            f"({why})"
        )

    async def _attempt_while_known(
        self, url: str, request: web.Request, body: bytes, *, is_write: bool, gives_up: bool
    ) -> _Attempt:
        """Ask one controller; give it up if this broker itself finds another one meanwhile: it may be frozen."""
        known = self._controller_url()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._attempt(url, request, body, is_write=is_write))
            while not (await asyncio.wait({asking}, timeout=LOOK_AGAIN_S))[0]:
                if gives_up and self._controller_url() not in {known, url}:
                    asking.cancel()
                    return _Attempt(None, "is silent, and another controller is active")
        return asking.result()

    async def _attempt(self, url: str, request: web.Request, body: bytes, *, is_write: bool) -> _Attempt:
        """Send the request to one controller; a small answer is read whole."""
        headers = {name: request.headers[name] for name in SENT_ON if name in request.headers}
        if SESSION_TOKEN in request:
            headers[hdrs.AUTHORIZATION] = f"Bearer {request[SESSION_TOKEN]}"
        headers |= trace_headers(request)
        headers[hdrs.VIA] = f"1.1 {VIA_BROKER}{self._settings.broker_id}"
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=limits.FORWARD_CONNECT_MAX_MS / 1000,
            sock_read=silence_max_ms(request, is_write=is_write) / 1000,
        )
        answer: aiohttp.ClientResponse | None = None
        try:
            answer = await self._http.request(
                request.method,
                # `rel_url` has neither scheme nor host, whatever form of target the client sent.
                URL(f"{url}{request.rel_url}", encoded=True),
                data=io.BytesIO(body) if body else None,  # large bytes would be sent in one turn
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            )
            if _is_small(answer):
                await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            return _Attempt(None, why_it_failed(error), sent=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if answer is not None:
                answer.close()
            return _Attempt(None, why_it_failed(error))
        return _Attempt(answer)

    # --- to the client

    async def _passed_back(
        self, request: web.Request, answer: aiohttp.ClientResponse, recheck: Callable[[web.Request], None]
    ) -> web.StreamResponse:
        """Answer with status, headers and body of the controller; a large body goes through piece by piece."""
        # Not the name of a header that the controller repeats: it repeats none.
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        headers[hdrs.VIA] = f"1.1 {VIA_BROKER}{self._settings.broker_id}"
        if _is_small(answer):
            return web.Response(status=answer.status, headers=headers, body=await answer.read())
        with self._room_for(request, answer):
            response = web.StreamResponse(status=answer.status, headers=headers)
            response.content_length = answer.content_length
            await response.prepare(request)
            try:
                async for piece in answer.content.iter_chunked(limits.ANSWER_PIECE_BYTES):
                    recheck(request)
                    await response.write(piece)
            except (aiohttp.ClientError, TimeoutError, MetadataError) as error:
                if request.transport is not None:
                    request.transport.close()
                raise ConnectionResetError("the answer is cut short: it is not whole") from error
            await response.write_eof()
            return response


def _is_repeatable(request: web.Request) -> bool:
    """Answer whether a write that was sent twice is carried out once."""
    return "X-Request-Id" in request.headers and request.path not in NEVER_REPEATED


def _is_small(answer: aiohttp.ClientResponse) -> bool:
    length = answer.content_length
    return answer.method == hdrs.METH_HEAD or (length is not None and length <= limits.SMALL_ANSWER_BYTES)


def _is_not_active(answer: aiohttp.ClientResponse) -> bool:
    """Answer whether a controller said NOT_CONTROLLER: 421 with the active one's name, or 503 with Retry-After."""
    return answer.status == 421 or (answer.status == 503 and "Retry-After" in answer.headers)


def _says_not_written(answer: aiohttp.ClientResponse) -> bool:
    """Answer whether an error may claim that nothing was written and that the request may succeed later."""
    return answer.status == 429 or answer.status >= 500
