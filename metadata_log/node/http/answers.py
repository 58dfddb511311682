"""Edge: answers over HTTP: how a value is encoded and how an error is reported, by controllers and brokers alike."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgpack
from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from metadata_log.errors import (
    ChangePending,
    ExpectationFailed,
    Fault,
    ForeignCaller,
    InvalidRequest,
    MetadataError,
    MethodNotAllowed,
    NotCaughtUp,
    RequestTooLarge,
    UnknownRoute,
    UnsupportedMediaType,
)
from metadata_log.node.http.bodies import BODY_BUFFERS, BODY_BYTES_HELD
from metadata_log.node.http.body_buffers import BodyBuffers
from metadata_log.node.http.encodings import json_bytes, packed

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
STATUS: Final[Mapping[str, int]] = {
    "NOT_CONTROLLER": 421,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "UNKNOWN_TOPIC_ID": 404,
    "BROKER_ID_NOT_REGISTERED": 404,
    "UNKNOWN_CONTROLLER_ID": 404,
    "VOTER_NOT_FOUND": 404,
    "RESOURCE_NOT_FOUND": 404,
    "SNAPSHOT_NOT_FOUND": 404,
    "TOPIC_ALREADY_EXISTS": 409,
    "STALE_BROKER_EPOCH": 409,
    "DUPLICATE_BROKER_REGISTRATION": 409,
    "DUPLICATE_VOTER": 409,
    "NODE_STILL_ALIVE": 409,
    "INCONSISTENT_CLUSTER_ID": 409,
    "OFFSET_IN_FUTURE": 409,
    "OFFSET_COMPACTED": 410,
    "POSITION_OUT_OF_RANGE": 416,
    "BROKER_NOT_AVAILABLE": 503,
    "AUTHORIZER_NOT_READY": 503,
    "KAFKA_STORAGE_ERROR": 503,
    "SASL_AUTHENTICATION_FAILED": 401,
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "TOPIC_AUTHORIZATION_FAILED": 403,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": 403,
    "DELEGATION_TOKEN_OWNER_MISMATCH": 403,
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": 403,
    "DELEGATION_TOKEN_NOT_FOUND": 404,
    "POLICY_VIOLATION": 422,
    "THROTTLING_QUOTA_EXCEEDED": 429,
    "REQUEST_TIMED_OUT": 504,
    "UNKNOWN_SERVER_ERROR": 500,
}
"""The status of each error name; every other name has 400."""
STATUS_OF_LEAF: Final[Mapping[type[MetadataError], int]] = {
    ChangePending: 503,
    NotCaughtUp: 503,
    ForeignCaller: 403,
    UnknownRoute: 404,
    MethodNotAllowed: 405,
    RequestTooLarge: 413,
    UnsupportedMediaType: 415,
    ExpectationFailed: 417,
}
"""The status of an error class, for names that several classes share."""

AS_IT_IS_CALLED: Final[Mapping[str, str]] = {"X-Content-Type-Options": "nosniff"}
"""A header of every answer: no browser takes it for a script or a page that it is not called."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer: TypeAlias = Callable[[web.BaseRequest, MetadataError], web.Response]
"""Renders an error as the answer to a request."""


def status_of(error: MetadataError) -> int:
    """Return the HTTP status; the caller sets 503 for a NOT_CONTROLLER that names no other controller."""
    return STATUS_OF_LEAF.get(type(error)) or STATUS.get(error.error, 400)


def error_body(
    error: MetadataError, *, controller_id: object = -1, controller_epoch: int = -1
) -> dict[str, Any]:
    return {
        "error": error.error,
        "code": error.code,
        "family": error.family,
        "message": error.message,
        "retryable": error.retryable,
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
    }


def errors_answered(
    answer: Answer,
    *,
    body_bytes_max: int,
    check: Callable[[web.Request], None],
    on_fault: Callable[[Fault], None] = lambda _: None,
    on_refusal: Callable[[web.Request, MetadataError], None] = lambda _request, _error: None,
    on_answer: Callable[[web.Request, web.StreamResponse], None] = lambda _request, _response: None,
    no_such_path: Callable[[web.Request], str] = lambda request: f"no such path: {request.path}",
    buffers: BodyBuffers | None = None,
) -> Any:
    """Return the middleware that turns every error of a handler or of the router into an answer of the one shape.

    `check` raises what refuses a request before anything of it is done.

    `on_fault` learns of each Fault a handler raised, `on_refusal` of each other MetadataError. `no_such_path` words the
    refusal of an unknown path. `on_answer` is called with each answer; a large one is sent by then. `buffers` counts the
    bodies of all requests of this process; None: all come here.
    """
    buffers = buffers or BodyBuffers()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _has_unclear_end(request):
            response = answer(
                request,
                InvalidRequest(
                    "Transfer-Encoding may be chunked, of HTTP/1.1, and nothing else: send Content-Length"
                ),
            )
            response.force_close()
            return response
        request[BODY_BUFFERS] = buffers
        made = await answered(request, handler)
        on_answer(request, made)
        return made

    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check(request)
            return await handler(request)
        except MetadataError as error:
            if isinstance(error, Fault):
                on_fault(error)
            else:
                on_refusal(request, error)
            return answer(request, error)
        except web.HTTPNotFound:
            return answer(request, UnknownRoute(no_such_path(request)))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            refusal = MethodNotAllowed(f"{request.method} is not allowed here, only {allowed}")
            response = answer(request, refusal)
            response.headers["Allow"] = allowed
            return response
        except web.HTTPRequestEntityTooLarge:
            return answer(
                request, RequestTooLarge(f"the body exceeds {body_bytes_max} bytes; ask for less at once")
            )
        except ConnectionError:
            return web.Response(status=400)  # the client is gone and does not receive this
        finally:
            buffers.release(request.get(BODY_BYTES_HELD, 0))

    return middleware


def _has_unclear_end(request: web.BaseRequest) -> bool:
    """Return whether a proxy in front may see this request end elsewhere: then what follows is none of its own requests.

    aiohttp reads such a body all the same: by chunks in HTTP/1.0, and by Content-Length after an empty Transfer-Encoding.

    Source: RFC 9112, 6.1 and 6.3.
    """
    codings = request.headers.getall(hdrs.TRANSFER_ENCODING, [])
    is_chunked = [coding.lower() for coding in codings] == ["chunked"]
    return bool(codings) and not (is_chunked and request.version >= HttpVersion11)


class WholeResponse(web.Response):
    """An answer that is written at once, with the bytes and the limits of aiohttp's own, in a third of its time.

    Only for headers that no client has a part in: a line break in one is not looked for.
    """

    _is_written = False

    @property
    def keep_alive(self) -> bool | None:
        return True if self._is_written else super().keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the answer, unless it needs more than the head and the body as they are."""
        is_plain = request.version == HttpVersion11 and request.method != hdrs.METH_HEAD
        body, transport = self.body, request.transport
        if not (is_plain and request.keep_alive and super().keep_alive is None and isinstance(body, bytes)):
            return await super().prepare(request)
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        lines = [f"{name}: {value}\r\n" for name, value in self.headers.items()]
        transport.write(
            f"HTTP/1.1 {self.status} {self.reason}\r\n{''.join(lines)}Content-Length: {len(body)}\r\n"
            f"Date: {rfc822_formatted_time()}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n".encode()
            + body
        )
        self._is_written = True
        if request.protocol.writing_paused:
            await (
                request.writer.drain()
            )  # the next request waits until the client has read most of this answer
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        if not self._is_written:
            await super().write_eof(data)


def encoded(
    request: web.BaseRequest, body: object, *, status: int = 200, headers: Mapping[str, str]
) -> web.Response:
    """Answer in msgpack if the client asked for it or sent it, else in JSON.

    A refusal may quote half a surrogate pair, which no encoding of text holds. The answer shows its escape.
    """
    kind = WholeResponse if status < HTTPStatus.MULTIPLE_CHOICES else web.Response
    headers = headers or AS_IT_IS_CALLED  # those of the door hold it; a stranger's answer has no others
    if wants_msgpack(request):
        return kind(body=packed(body), status=status, content_type=MSGPACK, headers=headers)
    text = json_bytes(body)
    return kind(body=text, status=status, content_type=JSON, charset="utf-8", headers=headers)


def whole_answer(error: MetadataError) -> bytes:
    """Return the bytes of an answer that reports an error, where there is no request, and nothing follows."""
    body = json_bytes(error_body(error))
    fields = {
        **AS_IT_IS_CALLED,
        hdrs.CONTENT_TYPE: f"{JSON}; charset=utf-8",
        hdrs.CONTENT_LENGTH: str(len(body)),
        hdrs.CONNECTION: "close",
    }
    status = HTTPStatus(status_of(error))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode() + body


def encoded_items(
    request: web.BaseRequest, name: str, items: Sequence[bytes], *, headers: Mapping[str, str]
) -> web.Response:
    """Answer with a map of one list, whose items are encoded already: each by `packed` or each by `json_bytes`."""
    if wants_msgpack(request):
        packer = msgpack.Packer()
        parts = (packer.pack_map_header(1), packer.pack(name), packer.pack_array_header(len(items)), *items)
        return web.Response(body=b"".join(parts), content_type=MSGPACK, headers=headers)
    text = b'{"%b":[%b]}' % (name.encode(), b",".join(items))
    return web.Response(body=text, content_type=JSON, charset="utf-8", headers=headers)


def without_details(reasons: Iterable[Mapping[str, str]], *, ready: bool) -> dict[str, Any]:
    """Return what /readyz answers to a client without the right to read: each code once.

    The details name brokers, peers' addresses, certificates and files.
    """
    codes = dict.fromkeys(reason["code"] for reason in reasons)
    return {"ready": ready, "reasons": [{"code": code} for code in codes]}


def wants_msgpack(request: web.BaseRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return MSGPACK in accept or (request.content_type == MSGPACK and JSON not in accept)
