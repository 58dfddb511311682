"""Edge: a connection that speaks Kafka's protocol: one request at a time, answered in order, each after its size.

A request that can be answered at once, or that waits for news, has neither a task nor a timer: a thousand idle brokers ask
2,500 times in a second. Only what waits for a commit or a thread has a task.

Of the bytes that arrive, the first request is served at once. Connections with further ones wait in one queue, whose slices
leave the loop to others, and are not read meanwhile beyond a bound.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from struct import Struct
from time import monotonic
from typing import Any, Final, TypeVarTuple

from metadata_log import limits
from metadata_log.errors import AuthenticationFailed, MetadataError, ThrottlingQuotaExceeded
from metadata_log.kafka.messages import API_VERSIONS, Malformed, RequestHeader, read_whole, request_header
from metadata_log.kafka.messages import REQUESTS as SCHEMAS
from metadata_log.kafka.reading import Values
from metadata_log.node.collector import leave_no_cycle
from metadata_log.node.identity.access import peer_certificate
from metadata_log.node.identity.rights import NOBODY, Principal
from metadata_log.node.pace import Pieces
from metadata_log.node.recent_warnings import BY_STRANGER
from quorum.controller.broker_link import BrokerLink
from quorum.controller.callers import Caller
from quorum.kafka.cluster import known_versions
from quorum.kafka.door import (
    Answer,
    Api,
    Asked,
    AtOnce,
    GiveUp,
    KafkaDoor,
    Login,
    Parks,
    Waits,
    answered_at_once,
    answered_in_time,
    is_large,
    tail_in_time,
)

log = logging.getLogger(__name__)
Ts = TypeVarTuple("Ts")

SWEEP_S: Final = 1.0
REPEATED_BYTES_MAX: Final = 512
"""Of a request that may be repeated: a Fetch or a heartbeat has some 150."""
LOG_AGAIN_S: Final = 10.0
AT_ONCE_BYTES_MAX: Final = min(limits.KAFKA_LOGIN_BYTES_MAX, limits.HTTP_BODY_AT_ONCE_BYTES)
"""Of a request that is served without a buffer: its sender may send as much before login, and nothing is counted."""
SILENT: Final = "silent"
"""Why a connection is closed of which nothing is heard any more: that is no warning."""
_SIZE: Final = Struct(">i")
_CORRELATION_AT: Final = 4
"""Of a request without its size: after its key and its version."""
_CORRELATED: Final = slice(_SIZE.size + _CORRELATION_AT, 2 * _SIZE.size + _CORRELATION_AT)
"""Bytes of a request with its size: the correlation id."""
_COPIED_MAX: Final = 64 * limits.KIB
"""A larger answer is written after its head, not copied after it."""


class _Repeated:
    """The last request of a connection, and what was read of it: an idle broker repeats it, but for its correlation id."""

    __slots__ = ("_before", "_behind", "api", "asked", "size")

    def __init__(self, request: bytes, api: Api, asked: Asked) -> None:
        self._before = _SIZE.pack(len(request)) + request[:_CORRELATION_AT]
        self._behind = request[_CORRELATION_AT + _SIZE.size :]
        self.size = _SIZE.size + len(request)
        self.api = api
        self.asked = asked

    def is_all_of(self, data: bytes) -> bool:
        """Answer whether this request is what has arrived, and nothing else."""
        return len(data) == self.size and data.startswith(self._before) and data.endswith(self._behind)


class Serving:
    """What the connections of one listener share."""

    def __init__(self, door: KafkaDoor, *, counts_addresses: bool = True) -> None:
        """`counts_addresses`: connections count themselves by their address. With TLS they are counted before it begins."""
        self.door = door
        self.counts_addresses = counts_addresses
        self.connections: set[KafkaConnection] = set()
        self.closed: Counter[str] = Counter()
        """Connections that this node closed, by the reason."""
        self._queued: dict[KafkaConnection, None] = {}
        """Connections that may have a request to serve, each once, in the order of their turns."""
        self._slices = Pieces(self._serve_next, now_ms=door.now_ms)
        self._log_again_s = 0.0
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._begun = 0
        """Requests that were begun to be carried out."""
        self._under_way: dict[int, asyncio.Task[None]] = {}
        """The tasks of those that are not ended, by their numbers."""

    def closing(self, reason: str, address: str | None) -> None:
        """Count a connection that this node closes; log one now and then, since strangers may have many closed."""
        self.closed[reason] += 1
        self.door.controller.metrics.kafka_connections_closed.inc()
        now_s = monotonic()
        if reason != SILENT and now_s >= self._log_again_s:
            self._log_again_s = now_s + LOG_AGAIN_S
            facts = {"address": address, "reason": reason, "closed": self.closed.total(), BY_STRANGER: True}
            log.warning("kafka_connection_closed", extra=facts)

    def queue(self, connection: "KafkaConnection") -> None:
        """Serve a connection's next request after those of the connections that are queued already."""
        self._queued[connection] = None
        self._slices.wake()

    def is_queued(self, connection: "KafkaConnection") -> bool:
        return connection in self._queued

    def leave(self, connection: "KafkaConnection") -> None:
        """Forget a connection that is lost."""
        self.connections.discard(connection)
        self._queued.pop(connection, None)

    def _serve_next(self) -> bool:
        if not self._queued:
            return False
        connection = next(iter(self._queued))
        del self._queued[connection]
        is_served = False
        try:
            connection.serve()
            is_served = True
        finally:
            if not is_served:  # an unforeseen error, which the loop logs, ends one connection
                connection.refuse("failed")
        return True

    def carry_out(
        self, connection: "KafkaConnection", work: Callable[[*Ts], Awaitable[None]], *args: *Ts
    ) -> None:
        """Carry out work of one request. An unforeseen error ends its connection alone, and is logged."""
        number = self._begun = self._begun + 1
        # No task of a group: the first that fails would end all others.
        self._under_way[number] = asyncio.Task(
            self._carried_out(number, connection, work, *args), loop=self._loop
        )

    async def _carried_out(
        self, number: int, connection: "KafkaConnection", work: Callable[[*Ts], Awaitable[None]], *args: *Ts
    ) -> None:
        is_done = False
        try:
            await work(*args)
            is_done = True
        finally:
            task = self._under_way.pop(number)
            if not is_done:  # a callback of each task would be one more round of the loop for each request
                task.add_done_callback(partial(self._failed, connection))

    def _failed(self, connection: "KafkaConnection", task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return  # this node stops
        log.error("kafka_request_failed", exc_info=task.exception())
        connection.refuse("failed")

    def sweep(self) -> None:
        """Close connections that have been silent for too long, or on which a request does not arrive in time; again and
        again until `close`.
        """
        now_s = monotonic()
        for connection in list(self.connections):
            connection.look(now_s)
        self._sweep = self._loop.call_later(SWEEP_S, self.sweep)

    async def close(self, within_s: float) -> None:
        """Close all connections, once what is carried out has been answered, or after this time."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=within_s)
        for connection in list(self.connections):
            connection.close()
        for task in self._under_way.values():
            task.cancel()


class KafkaConnection(asyncio.Protocol):
    """One connection of a broker, a client or a tool."""

    __slots__ = (
        "_address",
        "_buffer",
        "_caller",
        "_certificate",
        "_correlation",
        "_counted",
        "_give_up",
        "_in_hand",
        "_is_busy",
        "_is_read",
        "_is_unread",
        "_known",
        "_known_until_s",
        "_login",
        "_loop",
        "_parked",
        "_repeated",
        "_serving",
        "_since_s",
        "_transport",
        "link",
    )

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        """Set while the connection counts among those of its address."""
        self.link = BrokerLink(None)
        """The client's address, and what the socket tells of a broker that is silent."""
        self._certificate: Mapping[str, Any] | None = None
        self._login = Login()
        self._caller: Caller | None = None
        """The sender of the last request that was read; most clients send all of a connection as one."""
        self._known = NOBODY
        self._known_until_s = 0.0
        """How long `_known` is taken for the principal of the connection."""
        self._buffer = bytearray()
        """What arrived and is not served yet."""
        self._in_hand = 0
        """Bytes of the request that is served."""
        self._counted = 0
        """What is counted of both, where that is much."""
        self._is_busy = False
        """A request has been read and is not answered yet."""
        self._is_read = True
        """Whether the socket is read on."""
        self._is_unread = False
        """The client does not take what it is sent."""
        self._since_s = monotonic()
        """Since when nothing has arrived, the request that arrives is not whole, or the client does not take its answers."""
        self._correlation = b""
        """The bytes by which the answer to the request that is served names it."""
        self._repeated: _Repeated | None = None
        self._parked: tuple[Api, Asked] | None = None
        self._give_up: GiveUp | None = None

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        serving = self._serving
        if serving.counts_addresses:
            self._address = serving.door.connections.addresses.enter(transport.get_extra_info("peername"))
            if not self._address:
                transport.abort()
                return
        # Only the kernel sees what the reader takes; its timer restarts whenever there is room for more.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.HTTP_SILENCE_MAX_MS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.HTTP_SEND_BUFFER_BYTES)
        transport.set_write_buffer_limits(high=limits.KAFKA_UNREAD_BYTES_MAX)
        self._transport = transport
        self.link = BrokerLink(transport)
        if serving.door.access.is_on:
            self._certificate = peer_certificate(transport)
        serving.connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        serving = self._serving
        self.link.ended(exc)
        if self._give_up is not None:
            self._give_up()
        leave_no_cycle(self._transport)
        self._transport = self._give_up = self._parked = None
        self._buffer.clear()
        self._in_hand = 0
        self._count()
        serving.door.buffers.hold(self, 0)
        serving.leave(self)
        if self._address:
            serving.door.connections.addresses.leave(self._address)
            self._address = ""

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._is_unread = True
        self._since_s = monotonic()
        self._serving.door.buffers.hold(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_unread = False
        self._since_s = monotonic()
        self._serving.door.buffers.hold(self, 0)
        if self._buffer:
            self._serving.queue(self)

    def look(self, now_s: float) -> None:
        """Close the connection if it was silent, its request incomplete, or its answers unread, for too long."""
        waited_ms = 1000 * (now_s - self._since_s)
        if self._is_busy or waited_ms <= limits.HTTP_ARRIVAL_MAX_MS or self._serving.is_queued(self):
            return  # the shortest of the bounds is not over
        # A stranger's connection is not kept for its answers to what needs no login.
        idle_max_ms = limits.HTTP_SILENCE_MAX_MS if self._known is NOBODY else limits.KAFKA_SILENCE_MAX_MS
        if self._is_unread:
            if waited_ms > idle_max_ms:
                self.refuse("unread")
        elif self._buffer:
            if waited_ms > limits.HTTP_ARRIVAL_MAX_MS:
                self.refuse("slow")
        elif waited_ms > idle_max_ms:
            self.refuse(SILENT)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def refuse(self, reason: str) -> None:
        """Close the connection, as Kafka does where there is no answer that its client would understand."""
        self._serving.closing(reason, self.link.address)
        if self._transport is not None:
            self._transport.abort()

    # --- requests

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        if not buffer and not self._is_busy:
            repeated = self._repeated
            if repeated is not None and repeated.is_all_of(data) and self._may_repeat(repeated.asked):
                self._in_hand = len(data) - _SIZE.size
                self._correlation = data[_CORRELATED]
                self._handle(repeated.api, repeated.asked)
                return
            size = len(data) - _SIZE.size
            if (
                0 <= size <= AT_ONCE_BYTES_MAX
                and int.from_bytes(data[: _SIZE.size]) == size
                and self._is_served()
            ):
                # One request and no more, as almost always: it needs no buffer.
                self._begin(data[_SIZE.size :])
                return
            self._since_s = monotonic()
        buffer += data
        if not self._count():
            self.refuse("full")
        elif self._serving.is_queued(self):
            self._read_or_pause()
        else:
            self.serve()

    def _is_served(self) -> bool:
        """Answer whether a request that arrives where nothing waits is served now."""
        transport = self._transport
        return not (self._is_unread or transport is None or transport.is_closing())

    def _may_repeat(self, asked: Asked) -> bool:
        """Answer whether a request that arrives once more is served now, for the principal for which it was read before."""
        return self._is_served() and asked.caller.principal is self._principal() is not NOBODY

    def _read_or_pause(self) -> None:
        """Read the socket on, unless much has arrived that is not served now.

        What is neither behind a request or an answer, nor queued, is one request that is not whole: its size is bounded.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_read = len(self._buffer) <= limits.HTTP_EARLY_BYTES_MAX or not (
            self._is_busy or self._is_unread or self._serving.is_queued(self)
        )
        if is_read is self._is_read:
            return
        self._is_read = is_read
        if is_read:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _count(self) -> bool:
        """Count what is held here for requests, if it is much; return whether there is room for it."""
        bodies = self._serving.door.body_buffers
        size = len(self._buffer) + self._in_hand
        if size <= limits.HTTP_BODY_AT_ONCE_BYTES:  # as almost always
            if self._counted:
                bodies.release(self._counted)
                self._counted = 0
            return True
        if bodies.more(self._counted, size) is not None:
            return False
        self._counted = size
        return True

    def serve(self) -> None:
        """Serve the next request, if it is whole and may be served."""
        if not self._is_busy and not self._is_unread:
            request = self._next()
            if request is not None:
                self._begin(request)
        self._read_or_pause()

    def _next(self) -> bytes | None:
        """Return the next request without its size, or None where it is not whole yet."""
        buffer = self._buffer
        if self._transport is None or self._transport.is_closing() or len(buffer) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(buffer)
        if not 0 <= size <= self._bytes_max():
            self.refuse("size")
            return None
        end = _SIZE.size + size
        if len(buffer) < end:
            return None
        request = bytes(buffer[_SIZE.size : end])
        del buffer[:end]
        return request

    def _bytes_max(self) -> int:
        return limits.KAFKA_LOGIN_BYTES_MAX if self._principal() is NOBODY else limits.HTTP_BODY_BYTES_MAX

    def _principal(self) -> Principal:
        """Return the principal of the connection; NOBODY before login, and once its certificate or its token has ended.

        It is looked for at most once in IDENTITY_CHECK_S: a token is compared with all there are.
        """
        now_s = monotonic()
        if now_s >= self._known_until_s:
            try:
                self._known = self._serving.door.principal(self._certificate, self._login)
            except AuthenticationFailed:
                self._known = NOBODY
            self._known_until_s = now_s + limits.IDENTITY_CHECK_S
        return self._known

    def _begin(self, request: bytes) -> None:
        """Read a request, in a thread if it is large, and have it handled."""
        self._in_hand = len(request)
        self._correlation = request[_CORRELATION_AT : _CORRELATION_AT + _SIZE.size]
        self._repeated = None
        try:
            header = request_header(request)
            api = self._serving.door.apis.get(header.key)
            if header.key == API_VERSIONS and header.version not in SCHEMAS[API_VERSIONS].versions:
                self._send(known_versions())
                return
            principal = self._principal()
            if api is None:
                self.refuse("unknown")
            elif principal is NOBODY and api.operation is not None:
                self.refuse("login")
            elif len(request) > limits.HTTP_BODY_AT_ONCE_BYTES:
                self._is_busy = True
                self._serving.carry_out(self, self._read_beside, api, header, request)
            else:
                values = read_whole(SCHEMAS[header.key], header.version, request, header.at)
                asked = self._asked(header, values, principal)
                if len(request) <= REPEATED_BYTES_MAX and not isinstance(api.handler, Waits):
                    self._repeated = _Repeated(request, api, asked)
                self._handle(api, asked)
        except Malformed:
            self.refuse("malformed")

    async def _read_beside(self, api: Api, header: RequestHeader, request: bytes) -> None:
        """Read a large request in a thread: one of 2 MiB takes a third of a second."""
        schema = SCHEMAS[header.key]
        try:
            values = await self._serving.door.bodies.run(
                read_whole, schema, header.version, request, header.at
            )
        except Malformed:
            self.refuse("malformed")
        except ThrottlingQuotaExceeded:
            self.refuse("full")
        else:
            self._handle(api, self._asked(header, values, self._principal()))

    def _asked(self, header: RequestHeader, values: Values, principal: Principal) -> Asked:
        client_id, caller = header.client_id or "", self._caller
        if caller is None or caller.principal is not principal or caller.client_id != client_id:
            caller = self._caller = Caller(
                principal, self.link.address, door="kafka", client_id=client_id, link=self.link
            )
        return Asked(header.version, values, caller, self._login)

    def _handle(self, api: Api, asked: Asked) -> None:
        door = self._serving.door
        match api.handler:
            case Parks() as handler:
                self._park(api, handler, asked)
            case AtOnce() as handler:
                self._send(api.tail(asked.version, answered_at_once(api, handler, door, asked)))
            case Waits() as handler:
                self._is_busy = True
                self._serving.carry_out(self, self._wait, api, handler, asked)

    async def _wait(self, api: Api, handler: Waits, asked: Asked) -> None:
        door = self._serving.door
        answer = await answered_in_time(api, handler, door, asked)
        if is_large(answer):
            self._send(await tail_in_time(api, door, asked.version, answer))
        else:
            self._send(api.tail(asked.version, answer))

    def _park(self, api: Api, handler: Parks, asked: Asked) -> None:
        door = self._serving.door
        self._is_busy = True
        self._parked = parked = (api, asked)
        try:
            api.check(door, asked.caller)
            if asked.made is None:
                asked = self._made(handler, asked)
            taken = handler.take(door, asked, self._done)
        except MetadataError as error:
            self._done(error)
            return
        if taken is None or callable(taken):
            if self._parked is parked:
                self._give_up = taken
        else:
            self._parked = None
            waits = Waits(lambda _door, _asked: taken)
            self._serving.carry_out(self, self._wait, api, waits, asked)

    def _made(self, handler: Parks, asked: Asked) -> Asked:
        """Have a handler make what it needs of a request, and keep that for the same one."""
        made = asked._replace(made=handler.make(self._serving.door, asked))
        if self._repeated is not None and self._repeated.asked is asked:
            self._repeated.asked = made
        return made

    def _done(self, outcome: Answer | MetadataError) -> None:
        """Answer the request that is parked."""
        if self._parked is None:
            return
        has_waited = self._give_up is not None
        (api, asked), self._parked, self._give_up = self._parked, None, None
        if has_waited and not isinstance(outcome, MetadataError):
            principal = self._principal()
            if (
                principal is not asked.caller.principal
            ):  # its certificate, its token or its role may have ended
                try:
                    api.check(self._serving.door, asked.caller._replace(principal=principal))
                except MetadataError as error:
                    outcome = error
        if isinstance(outcome, MetadataError):
            outcome = api.refusal(self._serving.door, asked, outcome)
        self._send(api.tail(asked.version, outcome))

    # --- answers

    def _send(self, tail: bytes) -> None:
        """Answer the request that is served, and continue with what has arrived after it."""
        self._is_busy, self._in_hand = False, 0
        if self._counted:
            self._count()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._since_s = monotonic()
        size = len(tail) + 4
        if self._serving.door.buffers.refusal(size) is not None:
            self.refuse("unread")
            return
        head = _SIZE.pack(size) + self._correlation
        if size <= _COPIED_MAX:
            transport.write(head + tail)
        else:
            transport.write(head)
            transport.write(tail)
            if self._is_unread:  # perhaps since its head was written
                self._serving.door.buffers.hold(self, transport.get_write_buffer_size())
        login = self._login
        if login.is_new:
            login.is_new, self._known_until_s = False, 0.0
            self._principal()
        if login.has_failed:
            self._serving.closing("login", self.link.address)
            transport.close()
            return
        if self._buffer and not self._is_unread:
            self._serving.queue(self)
        if self._buffer or not self._is_read:
            self._read_or_pause()
