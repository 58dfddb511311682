"""Edge: HTTP: routes to commands and views; error to status, one table."""

import asyncio
import hashlib
import json
import logging
import os
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import msgpack
from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.codec import DamagedFrame, damaged_answer, decode_all
from metadata_log.errors import (
    BrokerIdNotRegistered,
    DamagedFile,
    Fault,
    InvalidRequest,
    LogDamaged,
    MetadataError,
    MethodNotAllowed,
    NotController,
    OffsetCompacted,
    OffsetInFuture,
    PositionOutOfRange,
    RequestTooLarge,
    SnapshotNotFound,
    UnknownRoute,
    UnknownTopicOrPartition,
    UnsupportedMediaType,
)
from metadata_log.ids import BrokerId, NodeId, Uuid, uuid_from_text
from metadata_log.image.configs import configs_items
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import list_topics
from metadata_log.image.views import describe_topic, state_json
from metadata_log.log.lines import log_lines
from metadata_log.node.http_answers import error_body, status_of
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC
from metadata_log.wire.bodies import check_depth, distinct, unpack
from metadata_log.wire.commands import (
    AddVoter,
    AlterConfigs,
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    RemoveVoter,
    UnregisterBroker,
)
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest
from metadata_log.wire.fields import INT32_MAX, Fields, is_host
from quorum import metrics
from quorum.config import WILDCARDS, ControllerSettings
from quorum.controller import Controller, Request
from quorum.decide.dispatch import OPERATIONS
from quorum.fetch.service import FetchService
from quorum.http.views import describe_broker
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.status import QuorumStatus
from snapshots.history import image_at
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
NDJSON: Final = "application/x-ndjson"
OCTETS: Final = "application/octet-stream"
LOG_BYTES_DEFAULT: Final = 1 * limits.MIB
LOG_BYTES_MAX: Final = 8 * limits.MIB
PIECE_BYTES: Final = 64 * limits.KIB
"""A state is sent in pieces of about so much."""
ANONYMOUS: Final = "User:ANONYMOUS"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpApi:
    """The HTTP face of one controller."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        fetches: FetchService,
        keeper: SnapshotKeeper,
        store: SnapshotStore,
        status: QuorumStatus,
        on_fault: Callable[[Fault], None],
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._fetches = fetches
        self._keeper = keeper
        self._store = store
        self._status = status
        self._on_fault = on_fault

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._answer_errors], client_max_size=limits.HTTP_BODY_BYTES_MAX)
        app.add_routes(
            [
                web.post("/v1/brokers/register", self._register),
                web.post("/v1/metadata/fetch", self._fetch),
                web.get("/v1/metadata/snapshots/{id}", self._snapshot_bytes),
                web.get("/v1/topics", self._topics),
                web.post("/v1/topics", self._create_topic),
                web.get("/v1/topics/{name}", self._topic),
                web.delete("/v1/topics/{name}", self._delete_topic),
                web.get("/v1/brokers", self._brokers),
                web.get("/v1/brokers/{id}", self._broker),
                web.delete("/v1/brokers/{id}", self._unregister),
                web.get("/v1/configs", self._configs),
                web.patch("/v1/configs", self._alter_configs),
                web.get("/v1/quorum", self._quorum),
                web.post("/v1/quorum/transfer", self._transfer),
                web.post("/v1/quorum/voters", self._add_voter),
                web.delete("/v1/quorum/voters/{id}", self._remove_voter),
                web.get("/v1/snapshots", self._snapshots),
                web.post("/v1/snapshots", self._take_snapshot),
                web.get("/v1/state", self._state),
                web.get("/v1/log", self._log),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        return app

    # --- what every answer has

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except MetadataError as error:
            if isinstance(error, Fault):
                self._on_fault(error)
            return self.error(request, error)
        except web.HTTPNotFound:
            return self.error(request, UnknownRoute(f"no such path: {request.path}"))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            refusal = MethodNotAllowed(f"{request.method} is not allowed here, only {allowed}")
            response = self.error(request, refusal)
            response.headers["Allow"] = allowed
            return response
        except web.HTTPRequestEntityTooLarge:
            return self.error(
                request,
                RequestTooLarge(f"the body exceeds {limits.HTTP_BODY_BYTES_MAX} bytes; ask for less at once"),
            )
        except ConnectionError:
            return web.Response(status=400)  # who asked is gone, so nobody hears this

    def _headers(self) -> dict[str, str]:
        committed = self._controller.committed
        return {
            "X-Controller-Epoch": str(committed.controller_epoch),
            "X-High-Watermark": str(committed.end_offset),
        }

    def error(self, request: web.BaseRequest, error: MetadataError) -> web.Response:
        """Return the answer that tells an error."""
        status = status_of(error)
        headers = self._headers()
        if isinstance(error, NotController):
            url = error.context.get("controller_url")
            if url is None:
                status = 503
                headers["Retry-After"] = "1"
            else:
                headers["X-Controller"] = str(url)
        return _encoded(request, self._body_of(error), status=status, headers=headers)

    def _body_of(self, error: MetadataError) -> dict[str, Any]:
        leader_id = self._controller.leader_hint
        controller_id: object = -1 if leader_id is None else leader_id
        if isinstance(error, NotController):
            controller_id = error.context.get("controller_id", -1)
        epoch = self._controller.committed.controller_epoch
        return error_body(error, controller_id=controller_id, controller_epoch=epoch)

    def _ok(self, request: web.Request, body: object, *, status: int = 200) -> web.Response:
        return _encoded(request, body, status=status, headers=self._headers())

    # --- brokers' protocol

    async def _register(self, request: web.Request) -> web.Response:
        command = RegisterBroker.from_map(await _broker_body(request))
        outcome = await self._controller.submit(command, actor=f"Broker:{command.broker_id}", request=None)
        committed = self._controller.committed
        timing = self._settings.timing
        answer = {
            "broker_epoch": outcome.answer["broker_epoch"],
            "controller_id": self._settings.node_id,
            "controller_epoch": committed.controller_epoch,
            "high_watermark": committed.end_offset,
            "session_timeout_ms": timing.session_timeout_ms,
            "max_wait_ms": timing.max_wait_ms,
        }
        return self._ok(request, answer)

    async def _fetch(self, request: web.Request) -> web.Response:
        answer = await self._fetches.fetch(FetchRequest.from_map(await _broker_body(request)))
        told = {SESSION_TIMEOUT_HEADER: str(self._settings.timing.session_timeout_ms)}
        return web.Response(body=answer, content_type=MSGPACK, headers=self._headers() | told)

    async def _snapshot_bytes(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        path = self._store.path(name)
        with self._keeper.downloading(name):
            offer = await asyncio.to_thread(self._keeper.offer, name)
            etag = f'"{offer.sha256}"'
            start, end = _range(request, offer.bytes, etag)
            try:
                if start == 0:
                    await asyncio.to_thread(self._store.check, name)
                file = path.open("rb")  # held: another download may find it damaged, and move it
            except (DamagedFile, FileNotFoundError) as error:
                raise SnapshotNotFound(
                    f"snapshot {name} was damaged here: fetch the metadata anew"
                ) from error
            with file:
                headers = {
                    **self._headers(),
                    "ETag": etag,
                    "Accept-Ranges": "bytes",
                    "Content-Length": str(end - start),
                }
                partial = (start, end) != (0, offer.bytes)
                if partial:
                    headers["Content-Range"] = f"bytes {start}-{end - 1}/{offer.bytes}"
                response = web.StreamResponse(status=206 if partial else 200, headers=headers)
                response.content_type = OCTETS
                await response.prepare(request)
                # aiohttp sends what is written all the same, and the connection's next answer would begin with it.
                if request.method == hdrs.METH_HEAD:
                    return response
                for at in range(start, end, limits.SNAPSHOT_CHUNK_BYTES):
                    size = min(limits.SNAPSHOT_CHUNK_BYTES, end - at)
                    chunk = await asyncio.to_thread(os.pread, file.fileno(), size, at)
                    await response.write(chunk)
                await response.write_eof()
                return response

    # --- writes

    async def _write(
        self, request: web.Request, command: Command, raw: bytes, *, status: int = 200
    ) -> web.Response:
        request_id = _request_id(request)
        key = None
        if request_id is not None:
            operation = OPERATIONS[type(command)]
            hashed = b"\x00".join((operation.encode(), request.raw_path.encode(), raw))
            key = Request(request_id=request_id, sha256=hashlib.sha256(hashed).digest())
        if isinstance(command, AddVoter | RemoveVoter):
            outcome = await self._controller.change_voters(command, actor=ANONYMOUS, request=key)
        else:
            outcome = await self._controller.submit(command, actor=ANONYMOUS, request=key)
        offsets = {"base": outcome.base_offset, "end": outcome.end_offset}
        return self._ok(request, {**outcome.answer, "offsets": offsets}, status=status)

    async def _create_topic(self, request: web.Request) -> web.Response:
        body, raw = await _body(request)
        fields = Fields(body, "topic")
        command = CreateTopic(
            name=fields.text("name", bytes_max=limits.HTTP_BODY_BYTES_MAX),
            partitions=fields.integer("partitions", low=-(2**31), high=2**31 - 1, default=-1),
            replication_factor=fields.integer("replication_factor", low=-(2**31), high=2**31 - 1, default=-1),
            assignment=_assignment(fields),
            configs=fields.text_map("configs", bytes_max=limits.CONFIG_VALUE_BYTES_MAX, default={}),
            validate_only=fields.boolean("validate_only", default=False),
        )
        fields.done()
        return await self._write(request, command, raw, status=200 if command.validate_only else 201)

    async def _delete_topic(self, request: web.Request) -> web.Response:
        return await self._write(
            request, DeleteTopic(name=request.match_info["name"]), await _raw_body(request)
        )

    async def _unregister(self, request: web.Request) -> web.Response:
        command = UnregisterBroker(broker_id=_broker_id(request.match_info["id"]))
        return await self._write(request, command, await _raw_body(request))

    async def _transfer(self, request: web.Request) -> web.Response:
        body, _ = await _body(request)
        fields = Fields(body, "transfer")
        to = fields.optional("to", lambda value: NodeId(Fields({"to": value}, "transfer").integer("to")))
        fields.done()
        leader_id = await self._controller.transfer(to)
        return self._ok(request, {"leader_id": leader_id})

    async def _add_voter(self, request: web.Request) -> web.Response:
        body, raw = await _body(request)
        fields = Fields(body, "voter")
        host, port = _host_port(fields.text("raft"))
        command = AddVoter(
            voter_id=NodeId(fields.integer("id", high=INT32_MAX)),
            directory_id=_directory_id(fields.text("directory_id")),
            host=host,
            port=port,
            validate_only=fields.boolean("validate_only", default=False),
            replaces=_directory_id(fields.text("replaces")) if fields.has("replaces") else None,
        )
        fields.done()
        return await self._write(request, command, raw)

    async def _remove_voter(self, request: web.Request) -> web.Response:
        # A misspelt validate_only must not remove a voter: what is not known here is refused.
        fields = Fields(dict(request.query), "query")
        command = RemoveVoter(
            voter_id=NodeId(_int32(request.match_info["id"], "a voter's id")),
            directory_id=_directory_id(fields.text("directory_id")),
            validate_only=_truth(fields.text("validate_only", default="false")),
        )
        fields.done()
        return await self._write(request, command, await _raw_body(request))

    async def _alter_configs(self, request: web.Request) -> web.Response:
        body, raw = await _body(request)
        fields = Fields(body, "configs")
        resource_type, resource_name = _resource(
            {name: fields.anything(name) for name in ("topic", "broker", "cluster") if fields.has(name)}
        )
        command = AlterConfigs(
            resource_type=resource_type,
            resource_name=resource_name,
            set=fields.text_map("set", bytes_max=limits.CONFIG_VALUE_BYTES_MAX, default={}),
            unset=fields.items("unset", _name, default=()),
        )
        fields.done()
        return await self._write(request, command, raw)

    # --- reads

    async def _read(self, request: web.Request, view: Callable[[MetadataImage], Any]) -> Any:
        consistency = request.query.get("consistency", "linearizable")
        if consistency == "stale":
            return view(self._controller.committed)
        if consistency != "linearizable":
            raise InvalidRequest("consistency is linearizable or stale")
        return await self._controller.read(view)

    async def _list(self, request: web.Request, items: Callable[[MetadataImage], list[Any]]) -> web.Response:
        body = await self._read(
            request,
            lambda image: {
                "end_offset": image.end_offset,
                "controller_epoch": image.controller_epoch,
                "items": items(image),
            },
        )
        return self._ok(request, body)

    async def _topics(self, request: web.Request) -> web.Response:
        return await self._list(request, lambda image: list_topics(image.topics))

    async def _topic(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]

        def view(image: MetadataImage) -> Any:
            topic = image.topics.named(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
            return describe_topic(image, topic)

        return self._ok(request, await self._read(request, view))

    def _describe_broker(self, image: MetadataImage, broker_id: BrokerId) -> dict[str, Any]:
        liveness = self._controller.liveness if self._controller.is_active else None
        return describe_broker(image, broker_id, liveness=liveness, now_ms=self._status.now_ms())

    async def _brokers(self, request: web.Request) -> web.Response:
        return await self._list(
            request,
            lambda image: [self._describe_broker(image, broker_id) for broker_id in sorted(image.brokers)],
        )

    async def _broker(self, request: web.Request) -> web.Response:
        broker_id = _broker_id(request.match_info["id"])

        def view(image: MetadataImage) -> Any:
            if broker_id not in image.brokers:
                raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
            return self._describe_broker(image, broker_id)

        return self._ok(request, await self._read(request, view))

    async def _configs(self, request: web.Request) -> web.Response:
        named: dict[str, Any] = {
            name: request.query[name] for name in ("topic", "broker", "cluster") if name in request.query
        }
        if "broker" in named:
            named["broker"] = _broker_id(named["broker"])
        if "cluster" in named:
            named["cluster"] = named["cluster"] in ("1", "true")
        resource_type, resource_name = _resource(named)

        def items(image: MetadataImage) -> list[Any]:
            if resource_type == TOPIC and resource_name not in image.topics.ids:
                raise UnknownTopicOrPartition(f"topic {resource_name!r} does not exist")
            return configs_items(image.configs, resource_type, resource_name)

        return await self._list(request, items)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        committed: MetadataImage = await self._read(request, lambda image: image)
        if "at" not in request.query:
            return await self._send_state(request, committed)
        committed_log = self._status.committed_log
        at = self._offset(request.query["at"], end_of=committed_log.end_offset_at)
        if at > committed.end_offset:
            raise OffsetInFuture(f"offset {at} lies beyond the high watermark {committed.end_offset}")
        with committed_log.reading():
            image = await asyncio.to_thread(image_at, committed_log.segments, self._store, at)
        return await self._send_state(request, image)

    async def _send_state(self, request: web.Request, image: MetadataImage) -> web.StreamResponse:
        """Answer with a whole state, piece by piece: heartbeats leave in between, and no copy of it is held."""
        response = web.StreamResponse(headers=self._headers())
        as_msgpack = _wants_msgpack(request)
        response.content_type, response.charset = (MSGPACK, None) if as_msgpack else (JSON, "utf-8")
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            return response
        state, waiting = state_json(image), bytearray()
        for piece in _msgpack_pieces(state, len(image.topics.by_id)) if as_msgpack else _json_pieces(state):
            waiting += piece
            if len(waiting) >= PIECE_BYTES:
                await response.write(bytes(waiting))
                waiting.clear()
                await asyncio.sleep(0)
        await response.write(bytes(waiting))
        await response.write_eof()
        return response

    async def _log(self, request: web.Request) -> web.StreamResponse:
        committed: MetadataImage = await self._read(request, lambda image: image)
        committed_log = self._status.committed_log
        segments, high_watermark = committed_log.segments, committed_log.end_offset
        start = self._offset(
            request.query.get("from", str(segments.log_start_offset)), end_of=committed_log.base_offset_from
        )
        until = self._offset(
            request.query.get("until", str(high_watermark)), end_of=committed_log.end_offset_at
        )
        for offset in (start, until):
            if offset > high_watermark:
                raise OffsetInFuture(f"offset {offset} lies beyond the high watermark {committed.end_offset}")
        if min(start, until) < segments.log_start_offset:
            raise OffsetCompacted(f"the log of this controller begins at offset {segments.log_start_offset}")
        if until < start:
            raise InvalidRequest(f"until {until} lies before from {start}")
        if NDJSON in request.headers.get("Accept", ""):
            return await self._log_lines(request, start, until)
        max_bytes = _integer(request.query.get("max_bytes", str(LOG_BYTES_DEFAULT)), "max_bytes")
        if not 1 <= max_bytes <= LOG_BYTES_MAX:
            raise InvalidRequest(f"max_bytes must be from 1 to {LOG_BYTES_MAX}")
        frames = committed_log.read(start, max_bytes=max_bytes, until=until)
        return web.Response(body=frames, content_type=OCTETS, headers=self._headers())

    async def _log_lines(self, request: web.Request, start: int, until: int) -> web.StreamResponse:
        """Answer with a line for each record; an answer that comes to one that cannot be read says so, and breaks off."""
        # Before the answer begins: what cannot be read is refused as everything else is.
        lines, at = await self._page_of_lines(start, until)
        response = web.StreamResponse(headers=self._headers())
        response.content_type = NDJSON
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            return response
        while lines:
            await response.write(lines)
            try:
                lines, at = await self._page_of_lines(at, until)
            except MetadataError as error:
                if isinstance(error, Fault):
                    self._on_fault(error)
                await response.write(json.dumps(self._body_of(error)).encode() + b"\n")
                if request.transport is not None:
                    request.transport.close()
                raise ConnectionResetError("the answer is cut short: it is not whole") from error
        await response.write_eof()
        return response

    async def _page_of_lines(self, start: int, until: int) -> tuple[bytes, int]:
        """Return lines from an offset on, and the offset behind them; none at `until`.

        Raises:
            LogDamaged: the log cannot be read there.
        """
        if start >= until:
            return b"", start
        frames = self._status.committed_log.read(start, max_bytes=LOG_BYTES_DEFAULT, until=until)
        try:
            # Off the loop: a page of small records is 30,000 lines, and takes longer than an election timeout.
            return await asyncio.to_thread(_lines_of, frames, start)
        except DamagedFrame as error:
            raise LogDamaged(damaged_answer("the log of this controller", error).message) from error

    def _offset(self, text: str, *, end_of: Callable[[int], int]) -> int:
        """Read an offset, or the offset that `end_of` finds for t<UNIX_MS>."""
        if text.startswith("t"):
            return end_of(_integer(text[1:], "a time"))
        return _integer(text, "an offset")

    # --- never in need of a leader

    async def _quorum(self, request: web.Request) -> web.Response:
        return self._ok(request, self._status.quorum())

    async def _snapshots(self, request: web.Request) -> web.Response:
        committed = self._controller.committed
        items = await asyncio.to_thread(self._keeper.offers)
        body = {
            "end_offset": committed.end_offset,
            "controller_epoch": committed.controller_epoch,
            "items": [{name: getattr(offer, name) for name in offer.__slots__} for offer in items],
        }
        return self._ok(request, body)

    async def _take_snapshot(self, request: web.Request) -> web.Response:
        await _raw_body(request)
        offer = await self._keeper.take()
        return self._ok(request, {name: getattr(offer, name) for name in offer.__slots__}, status=201)

    async def _healthz(self, request: web.Request) -> web.Response:
        return self._ok(request, {"ok": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._status.reasons_not_ready()
        told = reasons + self._status.warnings()
        body = {"ready": not reasons, "reasons": told, "passed": self._status.recent.rows()}
        return self._ok(request, body, status=503 if reasons else 200)

    async def _metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002 (a handler's signature)
        text = metrics.exposition(self._status)
        return web.Response(body=text, headers={**self._headers(), "Content-Type": metrics.CONTENT_TYPE})


# --- bodies, encodings, parameters


def _encoded(
    request: web.BaseRequest, body: object, *, status: int, headers: Mapping[str, str]
) -> web.Response:
    """Answer in msgpack where it was asked for, or spoken, else in JSON.

    A refusal may quote half a surrogate pair, which no encoding of text holds: it is shown as its escape.
    """
    if _wants_msgpack(request):
        return web.Response(body=_packed(body), status=status, content_type=MSGPACK, headers=headers)
    return web.Response(body=_json(body), status=status, content_type=JSON, charset="utf-8", headers=headers)


def _wants_msgpack(request: web.BaseRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return MSGPACK in accept or (request.content_type == MSGPACK and JSON not in accept)


def _packed(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="backslashreplace")
    return packed


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def _msgpack_pieces(body: Mapping[str, Any], items: int) -> Iterator[bytes]:
    """Encode a map, one of whose values is an iterator over so many items."""
    packer = msgpack.Packer()
    yield packer.pack_map_header(len(body))
    for name, value in body.items():
        yield _packed(name)
        if isinstance(value, Iterator):
            yield packer.pack_array_header(items)
            yield from map(_packed, value)
        else:
            yield _packed(value)


def _json_pieces(body: Mapping[str, Any]) -> Iterator[bytes]:
    """Encode a map, whose values may be iterators."""
    for place, (name, value) in enumerate(body.items()):
        yield (b"," if place else b"{") + _json(name) + b":"
        if isinstance(value, Iterator):
            yield b"["
            for item_place, item in enumerate(value):
                yield (b"," if item_place else b"") + _json(item)
            yield b"]"
        else:
            yield _json(value)
    yield b"}"


async def _raw_body(request: web.Request) -> bytes:
    if "Content-Encoding" in request.headers:
        raise UnsupportedMediaType("a compressed body is not accepted")
    announced = request.content_length or 0
    if announced > limits.HTTP_BODY_BYTES_MAX:
        # Not waited for: it may be long in coming, or never come.
        raise web.HTTPRequestEntityTooLarge(max_size=limits.HTTP_BODY_BYTES_MAX, actual_size=announced)
    try:
        async with asyncio.timeout(limits.HTTP_BODY_TIMEOUT_MS / 1000):
            return await request.read()
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not arrive within {limits.HTTP_BODY_TIMEOUT_MS} ms") from error


async def _broker_body(request: web.Request) -> Any:
    body, _ = await _body(request)
    if request.content_type != MSGPACK:
        raise UnsupportedMediaType(f"brokers speak {MSGPACK}")
    return body


async def _body(request: web.Request) -> tuple[Any, bytes]:
    """Return the body's value and its bytes as received."""
    raw = await _raw_body(request)
    if request.content_type == MSGPACK:
        return unpack(raw), raw
    if request.content_type not in (JSON, OCTETS, "text/plain"):
        raise UnsupportedMediaType(f"send {JSON} or {MSGPACK}, not {request.content_type}")
    try:
        # Decoded here: the parser alone would guess at UTF-16 and UTF-32, too.
        value = json.loads(raw.decode(), object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    check_depth(value)
    return value, raw


def _request_id(request: web.Request) -> Uuid | None:
    text = request.headers.get("X-Request-Id")
    if text is None:
        return None
    try:
        return uuid_from_text(text) if len(text) == 22 else _hyphenated(text)
    except ValueError as error:
        raise InvalidRequest(
            f"X-Request-Id must be a uuid as 8-4-4-4-12 or as 22 characters: {error}"
        ) from error


def _hyphenated(text: str) -> Uuid:
    parsed = uuid.UUID(text)
    if str(parsed) != text.lower():
        raise ValueError(f"not 8-4-4-4-12: {text!r}")
    return Uuid(parsed.bytes)


def _integer(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequest(f"{what} must be a number, not {text!r}")
    return int(text)


def _int32(text: str, what: str) -> int:
    value = _integer(text, what)
    if value > INT32_MAX:
        raise InvalidRequest(f"{what} is at most {INT32_MAX}, not {text}")
    return value


def _broker_id(text: str) -> BrokerId:
    return BrokerId(_int32(text, "a broker id"))


def _directory_id(text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise InvalidRequest(f"directory_id: {error}") from error


def _lines_of(frames: bytes, start: int) -> tuple[bytes, int]:
    """Return a line for each record from an offset on, and the offset behind them.

    Raises:
        DamagedFrame: bytes are no frames.
    """
    lines, at = [], start
    for batch, _ in decode_all(frames):
        lines += [f"{json.dumps(line)}\n" for line in log_lines(batch, from_offset=start)]
        at = batch.end_offset
    return "".join(lines).encode(), at


def _host_port(text: str) -> tuple[str, int]:
    """Read HOST:PORT; an IPv6 host stands in brackets."""
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if (
        not is_host(host)
        or not port
        or host in WILDCARDS
        or parts.netloc != text
        or parts.username is not None
    ):
        raise InvalidRequest(f"raft must be a HOST:PORT that others can reach, not {text!r}")
    return host, port


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidRequest(f"validate_only is true or false, not {text!r}")
    return text == "true"


def _name(value: object) -> str:
    return Fields({"name": value}, "unset").text("name")


def _assignment(fields: Fields) -> tuple[tuple[BrokerId, ...], ...] | None:
    def replicas(value: object) -> tuple[BrokerId, ...]:
        if not isinstance(value, list | tuple) or len(value) > limits.LIST_ITEMS_MAX:
            raise fields.wrong("assignment", "a list of lists of broker ids")
        for broker_id in value:
            if isinstance(broker_id, bool) or not isinstance(broker_id, int) or not 0 <= broker_id < 2**31:
                raise fields.wrong("assignment", "a list of lists of broker ids")
        return tuple(map(BrokerId, value))

    if not fields.has("assignment"):
        return None
    return fields.optional(
        "assignment",
        lambda value: Fields({"assignment": value}, "topic").items(
            "assignment", replicas, most=limits.PARTITIONS_PER_TOPIC_MAX + 1
        ),
    )


def _resource(named: Mapping[str, Any]) -> tuple[int, str]:
    """Return resource_type and resource_name of the one thing named: topic, broker or cluster."""
    match list(named.items()):
        case [("topic", str(name))]:
            return TOPIC, name
        case [("broker", int(broker_id))] if not isinstance(broker_id, bool) and 0 <= broker_id < 2**31:
            return BROKER, str(broker_id)
        case [("cluster", True)]:
            return BROKER, CLUSTER_DEFAULT
        case _:
            raise InvalidRequest('name one of "topic": NAME, "broker": ID, "cluster": true')


def _range(request: web.Request, size: int, etag: str) -> tuple[int, int]:
    """Return the wanted bytes, end exclusive; all of them where If-Range names another content."""
    if request.headers.get("If-Range", etag) != etag:
        return 0, size
    try:
        wanted = request.http_range
    except ValueError as error:
        raise PositionOutOfRange(f"no range: {request.headers.get('Range')}") from error
    start = 0 if wanted.start is None else wanted.start
    if start == 0 and "-0" in request.headers.get("Range", "").replace("=", " ").split():
        start = size  # the last no bytes
    if start < 0:
        start = max(0, size + start)
    end = size if wanted.stop is None else min(wanted.stop, size)
    if start >= end:
        raise PositionOutOfRange(
            f"the snapshot has {size} bytes; {request.headers.get('Range')} holds none of them"
        )
    return start, end
