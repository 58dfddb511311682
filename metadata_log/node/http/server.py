"""Edge: the connections of aiohttp's server: their number is bounded, and every failure on one has a named error."""

import asyncio
import ipaddress
import logging
import math
import os
import resource
import socket
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final, TypeGuard

from aiohttp import hdrs, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import StreamReader

from metadata_log import limits
from metadata_log.errors import (
    AuthenticationFailed,
    CannotListen,
    ExpectationFailed,
    Fault,
    InvalidRequest,
    InvalidSettings,
    MetadataError,
)
from metadata_log.node.collector import leave_no_cycle
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import Answer, whole_answer
from metadata_log.node.http.foreign_bytes import unquoted
from metadata_log.node.identity.tls import Encrypting
from metadata_log.node.recent_warnings import BY_STRANGER

log = logging.getLogger(__name__)

_READS: Final = {hdrs.METH_GET, hdrs.METH_HEAD}
REASON_MAX: Final = 200
LOG_AGAIN_S: Final = 10.0
TO_REVOKED: Final = whole_answer(
    AuthenticationFailed("the certificate of this client is revoked: show another one, or a token")
)
UNFORESEEN: Final = (
    "this node met an error that nobody foresaw, and describes it in its log; a write may still take effect: repeat it "
    "with the same X-Request-Id, and report the log"
)


class NamedErrors(web.RequestHandler):
    """Answers with a named error when bytes are not HTTP, when aiohttp itself refuses a request, and when a handler raises
    something unforeseen. The handler of a read is cancelled when its client goes.

    A request that arrives whole while aiohttp waits for one is handled in the turn of the loop that reads it, and what
    follows its answer is done with it: by aiohttp's own task each takes a turn more. Any other request is left to that task,
    which goes on to wait meanwhile.
    """

    __slots__ = (
        "_address",
        "_answer",
        "_buffers",
        "_handling",
        "_head_began",
        "_idle",
        "_read_one",
        "addresses",
    )

    def __init__(
        self, server: web.Server, answer: Answer, *, silence_max_s: float, buffers: AnswerBuffers
    ) -> None:
        """`answer` renders an error. `buffers` counts what the client has not read. `silence_max_s` bounds how long the
        client may be silent: before a request, and while it takes nothing of an answer.

        A compressed body is not decompressed.
        """
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=silence_max_s,
            access_log=None,  # type: ignore[arg-type]  # no log of every request, as web.AppRunner takes it
            auto_decompress=False,
            lingering_time=limits.HTTP_LINGERING_MS / 1000,
        )
        self._answer = answer
        self._buffers = buffers
        self._head_began = False
        self._idle: asyncio.Future[None] | None = None
        """What aiohttp's task waits for while a request is handled without it."""
        self._handling: asyncio.Task[None] | None = None
        """The task of such a request."""
        self._read_one = False
        """Whether what was read last is one whole request to aiohttp's parser, and nothing before or after it."""
        self._address = ""
        """Set while the connection counts among those of its address."""
        self.addresses: Addresses | None = None
        """Where connections are counted by address, if they are."""

    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp continues with what its parser holds
            super().data_received(data)
            return
        waiter = self._waiter if self._waits_for_request() else None
        unread = len(self._messages)
        if waiter is not None:
            self._waiter = None  # else aiohttp's task wakes
        try:
            super().data_received(data)
        finally:
            if waiter is not None:
                self._waiter = waiter
        self._read_one = len(self._messages) == unread + 1 and _is_all(data, *self._messages[-1])
        if waiter is not None and self._messages:
            self._head_began = False
            self._handle(waiter)
            return
        if self._messages or self._request_in_progress:
            self._head_began = False
        elif not self._head_began and self._keepalive_handle is not None:
            # A part of a head: from now on it is not silence that counts.
            self._head_began = True
            due = self._loop.time() + limits.HTTP_ARRIVAL_MAX_MS / 1000
            if due < self._next_keepalive_close_time:
                self._next_keepalive_close_time = due
                self._keepalive_handle.cancel()
                self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)

    def _waits_for_request(self) -> bool:
        """Answer whether aiohttp's task waits for the next request."""
        waiter = self._waiter
        return waiter is not None and not (
            waiter.done() or self._messages or self._close or self._force_close
        )

    def _handle(self, waiter: asyncio.Future[None]) -> None:
        """Handle the request that has been read, or leave it, and those after it, to aiohttp's task."""
        message, payload = self._messages[0]
        if len(self._messages) > 1 or not _is_whole(message, payload) or message.should_close:
            waiter.set_result(None)
            return
        self._idle, self._waiter = waiter, None
        self._handling = self._loop.create_task(self._handle_now(message, payload))
        self._handling.add_done_callback(self._log_failure)

    def _log_failure(self, handled: asyncio.Task[None]) -> None:
        """Log an unforeseen error, as aiohttp's own task does; only the connection has ended."""
        error = None if handled.cancelled() else handled.exception()
        if error is not None:
            self.log_exception("Unhandled exception", exc_info=error)

    async def _handle_now(self, message: RawRequestMessage, payload: StreamReader) -> None:
        """Handle a request as aiohttp's own task does, and let that wait for the next one."""
        goes_on = False
        try:
            manager, parser = self._manager, self._parser
            if manager is None or parser is None:
                return  # the connection was lost before this first turn
            self._messages.popleft()
            assert self._request_factory is not None
            assert self._request_handler is not None
            assert self._task_handler is not None
            parser.message_consumed()
            manager.requests_count += 1
            writer = StreamWriter(self, self._loop)
            request = self._request_factory(message, payload, self, writer, self._task_handler)
            response, is_gone = await self._handle_request(request, None, self._request_handler)
            self._keepalive = bool(response.keep_alive)
            goes_on = self._keepalive and not is_gone
        except ConnectionError:
            pass  # the client is gone
        finally:
            self._handling = None
            self._wait_again(goes_on=goes_on)

    def _wait_again(self, *, goes_on: bool) -> None:
        """Let aiohttp's task wait for the next request, read what came meanwhile, or end with its connection."""
        waiter, self._idle = self._idle, None
        if waiter is None or waiter.done():
            return  # the connection was lost meanwhile
        self._waiter = waiter
        if not goes_on or self._close or self._force_close:
            transport = self.transport
            self.close()
            if transport is not None:
                transport.close()
            return
        self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(
                self._next_keepalive_close_time, self._process_keepalive
            )
        if self._messages:
            waiter.set_result(None)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 aiohttp's signature
        await super().shutdown(timeout)
        if self._handling is not None:
            self._handling.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        assert self.transport is not None
        self._buffers.hold(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._buffers.hold(self, 0)

    def connection_lost(self, exc: BaseException | None) -> None:
        leave_no_cycle(self.transport)
        self._buffers.hold(self, 0)
        if self.addresses is not None:
            if not self._address:
                return  # it was refused, and never began
            self.addresses.leave(self._address)
        asked, handling = self._current_request, self._handling or self._task_handler
        if self._idle is not None:
            self._waiter, self._idle = self._idle, None  # aiohttp's task ends
        super().connection_lost(exc)
        # No client receives the answer, and a read that waits for its turn would delay other readers. A write continues.
        if asked is not None and asked.method in _READS and handling is not None:
            handling.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.addresses is not None:
            self._address = self.addresses.enter(transport.get_extra_info("peername"))
            if not self._address:
                assert isinstance(transport, asyncio.Transport)
                transport.abort()
                return
        # Only the kernel sees what the reader takes. Its timer restarts whenever there is room for more, so a slow reader of
        # a large answer is not cut off. The timer also covers what is left when the connection is closed.
        silence_max_ms = int(self.keepalive_timeout * 1000)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_max_ms)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.HTTP_SEND_BUFFER_BYTES)
        super().connection_made(transport)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = self._answer(request, _unknown_expectation(request))
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if self._is_about_expect(request, exc):
            response = self._answer(request, _unknown_expectation(request))
            response.force_close()
            return response
        # The base class logs, and closes a connection on which an answer had begun.
        super().handle_error(request, status, exc, message)
        if not hasattr(request.headers, "getall"):
            # Bytes that are no HTTP: aiohttp makes a request of them whose headers are a plain dict.
            request = request.clone(headers={})
        error: MetadataError = Fault(UNFORESEEN)
        if status != HTTPStatus.INTERNAL_SERVER_ERROR:
            reason = (unquoted(exc) if exc is not None else message or "")[:REASON_MAX]
            error = InvalidRequest(f"what was sent is not HTTP as this node speaks it: {reason}")
        response = self._answer(request, error)
        response.force_close()
        return response

    def _is_about_expect(self, request: web.BaseRequest, error: BaseException | None) -> bool:
        """Answer whether aiohttp failed at Expect, before any handler: it cannot quote one that is no text, nor answer
        100-continue to a client that has gone.
        """
        if "Expect" not in request.headers:
            return False
        is_gone = self.transport is None or self.transport.is_closing()
        return isinstance(error, UnicodeEncodeError) or (isinstance(error, ConnectionResetError) and is_gone)


def _is_whole(message: object, payload: StreamReader) -> TypeGuard[RawRequestMessage]:
    """Answer whether a request is here with all of its body, and the next one begins after it."""
    return isinstance(message, RawRequestMessage) and payload.is_eof() and not message.upgrade


def _is_all(data: bytes, message: object, payload: StreamReader) -> bool:
    """Answer whether a request that was read from `data`, from the begin of a request on, is all that is there."""
    if not _is_whole(message, payload) or message.chunked:
        return False
    return data.find(b"\r\n\r\n") + 4 + int(message.headers.get(hdrs.CONTENT_LENGTH, 0)) == len(data)


def _unknown_expectation(request: web.BaseRequest) -> ExpectationFailed:
    expected = request.headers.get("Expect", "")[:REASON_MAX]
    return ExpectationFailed(f"Expect: {expected} is not known here, only 100-continue")


class _Refused(asyncio.Protocol):
    """Closes a connection beyond the bound as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Addresses:
    """Counts the connections of each address, and admits so many of one."""

    def __init__(self, each_max: int, refused: Callable[[], None]) -> None:
        self._each_max = each_max
        self._refused = refused
        self._held: dict[str, int] = {}
        self.total = 0
        """Connections of all addresses."""

    def enter(self, peer: tuple[str, int] | None) -> str:
        """Count a connection; return what to `leave`, or nothing where it is refused."""
        if peer is None:
            return "?"  # it is gone already
        address = _network_of(peer[0])
        held = self._held.get(address, 0)
        if held >= self._each_max:
            self._refused()
            return ""
        self._held[address] = held + 1
        self.total += 1
        return address

    def leave(self, address: str) -> None:
        held = self._held.pop(address, 0)
        self.total -= min(held, 1)
        if held > 1:
            self._held[address] = held - 1


def _network_of(address: str) -> str:
    """Return an IPv4 address, or the network of 64 bits of an IPv6 address: a machine has all of it."""
    if ":" not in address:
        return address
    numeric = ipaddress.IPv6Address(address.partition("%")[0])
    mapped = numeric.ipv4_mapped
    return str(mapped) if mapped is not None else numeric.packed[:8].hex()


class _RefusalLog:
    """Logs refused connections: the first one, then at most once per LOG_AGAIN_S."""

    def __init__(self) -> None:
        self._count = 0
        self._again_at = -math.inf

    def refused(self, connections_max: int) -> None:
        self._count += 1
        now = asyncio.get_running_loop().time()
        if now < self._again_at:
            return
        self._again_at = now + LOG_AGAIN_S
        facts = {"connections": connections_max, "refused": self._count, BY_STRANGER: True}
        log.warning("http_connections_refused", extra=facts)
        self._count = 0


class ConnectionBound:
    """How many connections the listeners of this process may have together, and of one address of a client; each refusal is
    counted and logged.

    Raises:
        InvalidSettings: the process may open hardly any files.
    """

    def __init__(self) -> None:
        self._max = connections_max()
        self._refusals = _RefusalLog()
        each_max = max(1, int(limits.HTTP_CONNECTIONS_PER_ADDRESS * self._max))
        self.addresses = Addresses(each_max, lambda: self._refusals.refused(each_max))

    def enter(self, transport: asyncio.Transport) -> Callable[[], None] | None:
        """Count a connection that was accepted; with TLS before that begins, as strangers who never finish it use up files.

        Returns what ends its count; None: there is no room.
        """
        if not self.has_room:
            return None
        entered = self.addresses.enter(transport.get_extra_info("peername"))
        return partial(self.addresses.leave, entered) if entered else None

    @property
    def has_room(self) -> bool:
        """Whether one more connection may begin; a refusal is counted."""
        if self.addresses.total >= self._max:
            self._refusals.refused(self._max)
            return False
        return True


async def listen(
    runner: web.AppRunner,
    answer: Answer,
    address: tuple[str, int],
    *,
    buffers: AnswerBuffers,
    bound: ConnectionBound | None = None,
    connection_of: Callable[[web.Server], NamedErrors] | None = None,
    tls: ssl.SSLContext | None = None,
) -> asyncio.Server:
    """Serve a node's application on an address. The bound on connections leaves the node the files it needs.

    `buffers` counts the unsent bytes of all connections, `bound` the connections of all listeners; None: this is the only
    one.

    `connection_of` makes the protocol of each connection, if it is to be another than NamedErrors.

    Raises:
        CannotListen: the address is in use or not ours.
        InvalidSettings: the process may open hardly any files.
    """
    bound = bound or ConnectionBound()

    def connection() -> asyncio.BaseProtocol:
        server = runner.server
        assert server is not None
        if not bound.has_room:
            return _Refused()
        if connection_of is not None:
            made = connection_of(server)
        else:
            silence_max_s = limits.HTTP_SILENCE_MAX_MS / 1000
            made = NamedErrors(server, answer, silence_max_s=silence_max_s, buffers=buffers)
        if tls is None:
            made.addresses = bound.addresses
        return made

    def accepted() -> asyncio.BaseProtocol:
        if tls is None:
            return connection()
        return Encrypting(connection, tls, bound.enter, to_revoked=TO_REVOKED)

    return await accepting_on(address, accepted, key="listen.http")


async def accepting_on(
    address: tuple[str, int], protocol: Callable[[], asyncio.BaseProtocol], *, key: str
) -> asyncio.Server:
    """Accept connections on an address, which the settings have under a key.

    Raises:
        CannotListen: the address is in use or not ours.
    """
    host, port = address
    table, _, name = key.partition(".")
    try:
        # asyncio accepts as many connections in one turn of the loop as its backlog holds.
        server = await asyncio.get_running_loop().create_server(
            protocol, host, port, backlog=limits.HTTP_ACCEPTS_PER_TURN
        )
    except socket.gaierror as error:
        raise CannotListen(f"{host} is not known ({error.strerror}): correct [{table}] {name}") from error
    except OSError as error:
        raise CannotListen(
            f"{host}:{port} cannot be listened on ({os.strerror(error.errno or 0)}): another process may have it; stop that "
            f"one, or change [{table}] {name}"
        ) from error
    for listening in server.sockets:
        _lengthen_backlog(listening.fileno())
    return server


def _lengthen_backlog(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        listening.listen(limits.HTTP_BACKLOG)


def connections_max() -> int:
    """Return the bound on HTTP connections: clients never use up the files that the disk and the other nodes need.

    It raises the process's limit of open files as far as it may.

    Raises:
        InvalidSettings: the limit leaves hardly any.
    """
    wanted = limits.HTTP_CONNECTIONS_MAX + limits.FILES_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY) and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits.HTTP_CONNECTIONS_MAX
    if soft < 2 * limits.FILES_RESERVED:
        raise InvalidSettings(
            f"this process may open only {soft} files, and {2 * limits.FILES_RESERVED} are needed at least: raise the limit "
            "(`ulimit -n`, LimitNOFILE= of a systemd unit)"
        )
    return soft - limits.FILES_RESERVED
