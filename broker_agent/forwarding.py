"""Edge: requests of clients that know only this broker, forwarded to the active controller, and its answers.

Kafka's brokers forward in an Envelope. Here the same request goes on, so a repetition with the same X-Request-Id gets
the first answer, through whichever node it comes. The client chooses neither host nor path: only the paths of FORWARDED
are forwarded, and only to a controller that the settings or another controller name.

Each attempt has a connection of its own. So a connection that breaks was broken under this request, and nothing but this
file repeats a request.
"""

import asyncio
import io
import math
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple, Self

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
from metadata_log.node.leaderless import says_leaderless

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


READ_SILENT_S: Final = 0.2
"""After this silence a read is sent to the next controller, too: the silent one may be frozen. The first answer counts."""
PAST_SILENT_S: Final = 1.0
"""The same for what is made of past states."""
SILENT_FOR_S: Final = 2.0
"""So long a controller that was silent is asked last."""


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


def silence_max_ms(request: web.Request) -> int:
    """Return for how long a controller may be silent before another is asked.

    A feed is silent for as long as its client lets it wait, and a state of the past for as long as it waits for its turn.
    """
    if _is_write(request):
        return limits.FORWARD_SILENCE_MAX_MS
    wait_ms = request.query.get("wait_ms", "")
    if wait_ms.isascii() and wait_ms.isdigit():
        return limits.FORWARD_READ_SILENCE_MAX_MS + min(int(wait_ms[:9]), limits.FEED_WAIT_MAX_MS)
    if _is_of_the_past(request):
        return limits.FORWARD_READ_SILENCE_MAX_MS + limits.PAST_READ_WAIT_MAX_MS
    return limits.FORWARD_READ_SILENCE_MAX_MS


class _Asked:
    """The controllers that one request waits for: a read goes on to the next one while a silent one may still answer.

    A slow answer comes, too, and no controller works twice for one read. What is left at the end is given up.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        attempt: Callable[[str], Coroutine[Any, Any, _Attempt]],
        active: Callable[[], str],
    ) -> None:
        """`active` returns the URL of the controller that this broker takes for the active one."""
        self._group = group
        self._attempt = attempt
        self._active = active
        self._tasks: dict[str, asyncio.Task[_Attempt]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks.values():
            if not task.done():
                task.cancel()
            elif not task.exception() and (answer := task.result().answer) is not None:
                answer.close()

    @property
    def waits(self) -> bool:
        return bool(self._tasks)

    def waits_for(self, url: str) -> bool:
        return url in self._tasks

    def begin(self, url: str) -> None:
        """Ask one more, unless it has been asked and is silent."""
        if url not in self._tasks:
            self._tasks[url] = self._group.create_task(self._attempt(url))

    async def first_ended(self, url: str, *, gives_up: bool, patience_s: float) -> tuple[str, _Attempt]:
        """Return which attempt ended, and how; or `url`, which is waited for still, if all are silent for `patience_s`.

        With `gives_up`, `url` is given up if this broker itself finds another controller meanwhile: it may be frozen.
        """
        known, loop = self._active(), asyncio.get_running_loop()
        until_s = loop.time() + patience_s
        while True:
            await asyncio.wait(
                self._tasks.values(),
                timeout=min(LOOK_AGAIN_S, patience_s),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one, task in self._tasks.items():
                if task.done():
                    del self._tasks[one]
                    return one, task.result()
            if gives_up and self._active() not in {known, url}:
                self._tasks.pop(url).cancel()
                return url, _Attempt(None, "is silent, and another controller is active")
            if loop.time() >= until_s:
                return url, _Attempt(None, f"is silent for {patience_s:g} s")


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
        self._silent_until: dict[str, float] = {}
        """Controllers that did not answer a read in time, by URL, and until when that counts (the loop's time)."""
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
        async with asyncio.TaskGroup() as group:
            with _Asked(group, lambda url: self._attempt(url, request, body), self._controller_url) as asked:
                answer, failures, may_be_written = await self._first_answer(asked, request)
        if answer is not None:
            return answer
        why = "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        if may_be_written:
            raise OutcomeUnknown(
                f"broker {self._settings.broker_id} forwarded this and got no answer, so it may still take effect: repeat "
                f"it with the same X-Request-Id ({why})"
            )
        raise BrokerNotAvailable(
            f"broker {self._settings.broker_id} reaches no controller, nothing was written: ask again, or another broker "
            f"({why})"
        )

    async def _first_answer(
        self, asked: "_Asked", request: web.Request
    ) -> tuple[aiohttp.ClientResponse | None, Mapping[str, str], bool]:
        """Return the answer to pass back, else why each controller gave none, and whether the write may take effect."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.FORWARD_MAX_MS / 1000
        is_write, repeatable = _is_write(request), _is_repeatable(request)
        turn = Round(self._in_order(loop.time()))
        failures: dict[str, str] = {}
        refusal: aiohttp.ClientResponse | None = None
        may_be_written = False
        pause_s, patience_s, attempts = PAUSE_FIRST_S, _patience_s(request), 0
        while True:
            begins = attempts < limits.FORWARD_ATTEMPTS_MAX and (attempts == 0 or loop.time() < deadline)
            if begins:
                asked.begin(turn.current)
                attempts += 1
            elif not asked.waits:
                break
            hint, known = None, self._controller_url()
            url, (answer, failure, sent) = await asked.first_ended(
                turn.current,
                gives_up=begins and (repeatable or not is_write),
                patience_s=patience_s if begins else math.inf,
            )
            if asked.waits_for(url):
                self._silent_until[url] = loop.time() + SILENT_FOR_S
            elif answer is not None:
                self._silent_until.pop(url, None)
            if answer is None and self._controller_url() != known:
                hint = self._controller_url()
            if answer is not None:
                if not _is_not_active(answer):
                    if may_be_written and _says_not_written(answer):
                        failures[url] = f"answered {answer.status} to the repetition"
                        answer.close()
                        break
                    return answer, failures, False
                if refusal is not None:
                    refusal.close()
                refusal, hint = answer, answer.headers.get("X-Controller")
                failures[url] = "is not the active controller"
            else:
                failures[url] = failure
                may_be_written |= is_write and sent
                if may_be_written and not repeatable:
                    break  # to send it again could carry it out twice
            if not begins or turn.advance(hint if hint is not None and is_node_url(hint) else None):
                continue
            if not is_write and refusal is not None and says_leaderless(refusal.headers):
                return refusal, failures, False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return None if may_be_written else refusal, failures, may_be_written

    def _in_order(self, now_s: float) -> tuple[str, ...]:
        """Return the controllers in the order in which they are asked: the active one, as far as it is known, and the silent
        ones last.
        """
        urls = dict.fromkeys([self._controller_url(), *self._settings.controllers])
        return tuple(sorted(urls, key=lambda url: self._silent_until.get(url, now_s) > now_s))

    async def _attempt(self, url: str, request: web.Request, body: bytes) -> _Attempt:
        """Send the request to one controller; a small answer is read whole."""
        headers = {name: request.headers[name] for name in SENT_ON if name in request.headers}
        if SESSION_TOKEN in request:
            headers[hdrs.AUTHORIZATION] = f"Bearer {request[SESSION_TOKEN]}"
        headers |= trace_headers(request)
        headers[hdrs.VIA] = f"1.1 {VIA_BROKER}{self._settings.broker_id}"
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=limits.FORWARD_CONNECT_MAX_MS / 1000,
            sock_read=silence_max_ms(request) / 1000,
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


def _is_write(request: web.Request) -> bool:
    return request.method not in {hdrs.METH_GET, hdrs.METH_HEAD}


def _patience_s(request: web.Request) -> float:
    """Return for how long a controller may be silent before the next one is asked, too."""
    waits = "wait_ms" in request.query or EVENT_STREAM in request.headers.get(hdrs.ACCEPT, "")
    if _is_write(request) or waits:
        return math.inf
    return PAST_SILENT_S if _is_of_the_past(request) else READ_SILENT_S


def _is_of_the_past(request: web.Request) -> bool:
    return request.path in OF_THE_PAST or "at" in request.query


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
