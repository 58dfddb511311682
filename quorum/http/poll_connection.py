"""Edge: a connection on which polls are answered without a task, a request and a response of aiohttp for each.

aiohttp spends several times as much on a poll as the poll itself takes. So a poll in the one form that clients send (one
whole request, plain headers, msgpack) is read and answered here, with bytes that all polls with the same answer share.
Everything else goes to aiohttp unread: other requests, polls in any other form, polls that need a task, and refusals at
arrival, but for that of a controller that is not active: when a leader dies, all its brokers ask the others at once.
"""

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from metadata_log import limits
from metadata_log.errors import AuthenticationFailed, Fault, MetadataError, NotAuthorized, NotController
from metadata_log.node.http.answers import MSGPACK
from metadata_log.node.http.encodings import packed
from metadata_log.node.http.server import NamedErrors
from metadata_log.node.identity.access import Peer, peer_of
from metadata_log.wire.bodies import unpack
from metadata_log.wire.fetch import OBSERVER, SESSION_TIMEOUT_HEADER, FetchRequest, encode_fetch_body
from quorum.controller.broker_link import BrokerLink
from quorum.controller.callers import Caller, authorize_poll
from quorum.fetch.poll import Outcome, Poll, Reply
from quorum.http.door import Door

PATH: Final = "/v1/metadata/fetch"
_POLL_LINE: Final = f"POST {PATH} HTTP/1.1".encode()
_POLLS: Final = f"POST {PATH}".encode()
_STALE_LINE: Final = f"POST {PATH}?consistency=stale HTTP/1.1".encode()
_HEAD: Final = re.compile(rb"((?!CONNECT )[A-Z]+ /[!-~]* HTTP/1\.1)((?:\r\n[A-Za-z-]+: ?[ -~]*)*)\r\n\r\n")
"""Not of CONNECT: what others take for its body is the next request to aiohttp."""
_FRAMED_OTHERWISE: Final = {b"transfer-encoding", b"upgrade", b"expect", b"connection"}
_PLAIN_HEADERS: Final = {
    b"host",
    b"content-type",
    b"content-length",
    b"accept",
    b"accept-encoding",
    b"user-agent",
}
HEAD_BYTES_MAX: Final = 2_048
POLL_BYTES_MAX: Final = 16 * 1024
HEADS_KEPT: Final = 1_000
REQUESTS_KEPT: Final = 256
RENDERED_KEPT: Final = 16
RENDERED_BYTES_MAX: Final = 256 * 1024


class Head:
    """What the head of a request says, as far as it matters here."""

    __slots__ = ("body_bytes", "host", "is_poll")

    def __init__(self, body_bytes: int, *, host: str, is_poll: bool) -> None:
        self.body_bytes = body_bytes
        self.host = host
        self.is_poll = is_poll


def read_head(head: bytes) -> Head | None:
    """Return what a head says, up to its empty line; None unless its form is plain and its body's length is certain."""
    matched = _HEAD.fullmatch(head) if len(head) <= HEAD_BYTES_MAX else None
    if matched is None:
        return None
    line, lines = matched[1], matched[2].split(b"\r\n")[1:]
    headers: dict[bytes, bytes] = {}
    for each in lines:
        name, _, value = each.partition(b":")
        headers[name.lower()] = value.strip()
    length = headers.get(b"content-length", b"0")
    if len(headers) < len(lines) or not headers.keys().isdisjoint(_FRAMED_OTHERWISE):
        return None
    if not (length.isdigit() and len(length) < 8):
        return None
    is_poll = (
        line in (_POLL_LINE, _STALE_LINE)
        and headers.keys() <= _PLAIN_HEADERS
        and b"host" in headers
        and headers.get(b"content-type") == MSGPACK.encode()
        and headers.get(b"accept", MSGPACK.encode()) in (MSGPACK.encode(), b"*/*")
    )
    return Head(int(length), host=headers.get(b"host", b"").decode(), is_poll=is_poll)


class PollAnswers:
    """What the connections of one controller share: polls and their heads that were read, answers that were rendered."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.fetches = door.fetches
        self.early_bytes = 0
        """What clients have sent after polls that wait."""
        self._heads: dict[bytes, Head] = {}
        self._requests: dict[bytes, FetchRequest] = {}
        self._rendered: dict[Reply, bytes] = {}
        """Responses to what was replied, as long as `_rendered_at` holds."""
        self._rendered_at: tuple[object, ...] = ()

    def head(self, head: bytes) -> Head | None:
        try:
            return self._heads[head]
        except KeyError:
            read = read_head(head)
            if read is not None and read.is_poll and not self.door.own_names.is_own(read.host):
                read.is_poll = False  # aiohttp refuses it
            if read is not None and read.is_poll:  # that of a write has an id, and is not sent again
                if len(self._heads) >= HEADS_KEPT:
                    self._heads.clear()
                self._heads[head] = read
            return read

    def request(self, body: bytes) -> FetchRequest:
        """Return the poll in a body. Observers at one position send the same bytes.

        Raises:
            InvalidRequest: as `FetchRequest.from_map`.
        """
        known = self._requests.get(body)
        if known is None:
            if len(self._requests) >= REQUESTS_KEPT:
                self._requests.clear()
            known = self._requests[body] = FetchRequest.from_map(unpack(body))
        return known

    def rendered(self, outcome: Outcome) -> bytes:
        """Return the whole response; polls with the same reply get the same bytes."""
        door = self.door
        if isinstance(outcome, MetadataError):
            if isinstance(outcome, Fault):
                door.on_fault(outcome)
            status, headers = door.refusal(outcome)
            return _response(status, headers, packed(door.error_body(outcome)))
        committed = door.controller.committed
        holds_at = (committed.end_offset, committed.controller_epoch, rfc822_formatted_time())
        if holds_at != self._rendered_at or len(self._rendered) >= RENDERED_KEPT:
            self._rendered.clear()
            self._rendered_at = holds_at
        known = self._rendered.get(outcome)
        if known is None:
            session_timeout = {SESSION_TIMEOUT_HEADER: str(door.settings.timing.session_timeout_ms)}
            body = encode_fetch_body(outcome.answer, outcome.frames)
            known = _response(200, door.headers() | session_timeout, body)
            if len(known) <= RENDERED_BYTES_MAX:
                self._rendered[outcome] = known
        return known


def _response(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """Return a response as aiohttp would send it."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    lines += [
        f"Content-Type: {MSGPACK}",
        f"Content-Length: {len(body)}",
        f"Date: {rfc822_formatted_time()}",
        f"Server: {SERVER_SOFTWARE}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class PollConnection(NamedErrors):
    """Reads polls before aiohttp does, where it is certain that a request begins; all else passes to aiohttp.

    `_begins_request` is lost for ever with the first bytes that are not exactly one whole request: where the next one
    begins is known to aiohttp's parser alone from then on.
    """

    __slots__ = (
        "_answers",
        "_arrived_ms",
        "_begins_request",
        "_early",
        "_is_busy",
        "_over",
        "_peer",
        "_poll",
        "_polls_as",
        "_received",
        "link",
    )

    def __init__(self, server: web.Server, answers: PollAnswers, *, silence_max_s: float) -> None:
        super().__init__(
            server, answers.door.error, silence_max_s=silence_max_s, buffers=answers.door.buffers
        )
        self._answers = answers
        self._begins_request = True
        self.link = BrokerLink(None)
        """What the socket tells of a broker that is silent."""
        self._peer = Peer()
        """The client, where identity is on."""
        self._is_busy = False
        """A poll has been read here and is not answered yet."""
        self._arrived_ms = 0
        """When it was read."""
        self._poll: Poll | None = None
        self._polls_as = OBSERVER
        self._received = b""
        """The poll's bytes, for aiohttp if it has to take over."""
        self._early = b""
        self._over: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link = BrokerLink(transport)
        if self._answers.door.access.is_on:
            self._peer = peer_of(transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp continues with what its parser holds
            super().data_received(data)
            return
        if self._is_busy:
            self._hold_early(data)
            return
        begins = self._begins_request
        if begins and data.startswith(_POLLS):
            head = self._one_request(data)
            if head is not None and head.is_poll and self._is_idle():
                self._is_busy, self._received, self._arrived_ms = True, data, self._answers.door.now_ms()
                fetches = self._answers.fetches
                if fetches.is_crowded:
                    fetches.polls.admit_later(self._take)
                else:
                    self._take()
                return
        super().data_received(data)
        self._begins_request = begins and self._read_one

    def _hold_early(self, data: bytes) -> None:
        """Keep what the client sends while its poll waits; it loses its connection if all clients together send too much."""
        answers = self._answers
        answers.early_bytes += len(data)
        self._early += data
        if answers.early_bytes > limits.EARLY_HELD_BYTES_MAX:
            self._take_early()
            if self.transport is not None:
                self.transport.abort()
        elif len(self._early) > limits.HTTP_EARLY_BYTES_MAX:
            self._pause_transport_reading()

    def _take_early(self) -> bytes:
        """Return what is kept, and keep it no longer."""
        early, self._early = self._early, b""
        self._answers.early_bytes -= len(early)
        return early

    def _one_request(self, data: bytes) -> Head | None:
        """Return the head of the request that these bytes are; None if they are not one, or of unusual form."""
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            return None
        head = self._answers.head(data[:end])
        return head if head is not None and len(data) == end + head.body_bytes else None

    def _is_idle(self) -> bool:
        """Whether aiohttp waits for the next request, and the client takes what it is sent."""
        return self._waits_for_request() and not self.writing_paused

    def _take(self) -> None:
        """Have the poll evaluated; aiohttp takes over if it needs a task, or if the active controller refuses it."""
        if self.transport is None or not self._is_idle():
            self._hand_over()
            return
        answers, data = self._answers, self._received
        if len(data) <= POLL_BYTES_MAX:
            try:
                request = answers.request(data[data.find(b"\r\n\r\n") + 4 :])
                self._polls_as = request.broker_id
                takes_stale = data.startswith(_STALE_LINE)
                self._poll = answers.fetches.take(
                    request,
                    self._answered,
                    self._caller(),
                    arrived_ms=self._arrived_ms,
                    takes_stale=takes_stale,
                )
            except NotController as refusal:
                self._answered(refusal)
                return
            except MetadataError:  # perhaps there is a token, which aiohttp reads; else it refuses the poll
                self._poll = None
        if self._poll is None:
            self._hand_over()
            return
        # While a poll waits, the connection is not silent by the client's fault.
        max_wait_s = answers.door.settings.timing.max_wait_ms / 1000
        self._next_keepalive_close_time = self._loop.time() + max_wait_s + self.keepalive_timeout

    def _hand_over(self) -> None:
        self._is_busy = False
        data, self._received = self._received, b""
        if self._early:
            data += self._take_early()
            self._begins_request = False
            self._resume_transport_reading()
        if self.transport is not None:
            super().data_received(data)

    def _answered(self, outcome: Outcome) -> None:
        has_waited, self._poll = self._poll is not None, None
        if has_waited and isinstance(outcome, Reply) and not self._may_poll_still():
            outcome = NotAuthorized("the right to poll ended while this poll waited: poll again")
        transport = self.transport
        if transport is not None and not transport.is_closing():
            rendered = self._answers.rendered(outcome)
            refused = self._buffers.refusal(len(rendered)) if isinstance(outcome, Reply) else None
            transport.write(rendered if refused is None else self._answers.rendered(refused))
            self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout
        self._is_busy, self._received = False, b""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if self._early:
            self._is_busy = True
            self._answers.fetches.polls.admit_later(self._go_on)

    def _may_poll_still(self) -> bool:
        """Return whether what the client showed still lets it poll: its certificate may have ended, or its role."""
        try:
            authorize_poll(self._caller(), self._polls_as, self._answers.door.controller.committed)
        except (AuthenticationFailed, NotAuthorized):
            return False
        return True

    def _caller(self) -> Caller:
        """Return the client by what its connection shows; raises as `Access.principal`."""
        return Caller(self._answers.door.access.principal(self._peer), self._peer.address, link=self.link)

    def _go_on(self) -> None:
        """Read what the client sent while its poll waited."""
        self._is_busy = False
        early = self._take_early()
        if self.transport is not None:
            self._resume_transport_reading()
            self.data_received(early)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.link.ended(exc)
        if self._poll is not None:
            self._answers.fetches.polls.give_up(self._poll)
            self._poll = None
        self._take_early()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 aiohttp's signature
        """Close the connection once its poll is answered."""
        if self._poll is not None:
            self._over = self._loop.create_future()
            await asyncio.wait([self._over], timeout=timeout)
        await super().shutdown(timeout)


def poll_connections(door: Door) -> Callable[[web.Server], PollConnection]:
    """Return what makes the protocol of each connection to a controller."""
    answers = PollAnswers(door)
    return lambda server: PollConnection(server, answers, silence_max_s=limits.HTTP_SILENCE_MAX_MS / 1000)
