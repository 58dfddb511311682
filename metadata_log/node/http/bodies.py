"""Edge: the bytes of a request's body, bounded in size and time, for controllers and brokers alike.
Tests: tests/unit/metadata_log/node/http/test_body_buffers.py.
"""

import asyncio
from typing import Final

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnsupportedMediaType
from metadata_log.node.http.body_buffers import BodyBuffers

BODY_BUFFERS: Final = web.RequestKey("body_buffers", BodyBuffers)
"""What counts the bodies of all requests of this node."""
BODY_BYTES_HELD: Final = web.RequestKey("body_bytes_held", int)
"""How much of this request is counted there, if it is large."""


async def read_raw(request: web.Request, *, bytes_max: int = limits.HTTP_BODY_BYTES_MAX) -> bytes:
    """Return the body's bytes, `bytes_max` at most. A large body is counted until the request is answered.

    Raises:
        InvalidRequest: the body did not arrive in time.
        UnsupportedMediaType: it is compressed.
        ThrottlingQuotaExceeded: it is large, and so much is held of others that it finds no room.
        web.HTTPRequestEntityTooLarge: it has more bytes than it may.
    """
    if "Content-Encoding" in request.headers:
        raise UnsupportedMediaType("a compressed body is not accepted")
    announced = request.content_length or 0
    if announced > bytes_max:
        # Refuse before the body arrives: it may take long, or never come.
        raise web.HTTPRequestEntityTooLarge(max_size=bytes_max, actual_size=announced)
    if request.content.is_eof():
        # It is here already: no timer is needed.
        body = request.content.read_nowait()
        if len(body) > limits.HTTP_BODY_AT_ONCE_BYTES:
            _hold(request, [body], len(body), bytes_max)
        return body
    try:
        async with asyncio.timeout(limits.HTTP_ARRIVAL_MAX_MS / 1000):
            return await _arriving(request, bytes_max)
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not arrive within {limits.HTTP_ARRIVAL_MAX_MS} ms") from error


async def _arriving(request: web.Request, bytes_max: int) -> bytes:
    """Return a body that comes piece by piece; raises as `read_raw`."""
    pieces: list[bytes] = []
    size = 0
    while piece := await request.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > limits.HTTP_BODY_AT_ONCE_BYTES:
            _hold(request, pieces, size, bytes_max)
    return b"".join(pieces)


def _hold(request: web.Request, pieces: list[bytes], size: int, bytes_max: int) -> None:
    """Count the bytes of a body that are here, or let go of them and raise as `read_raw`."""
    if size > bytes_max:
        raise web.HTTPRequestEntityTooLarge(max_size=bytes_max, actual_size=size)
    buffers = request.get(BODY_BUFFERS)
    if buffers is None:
        return
    refused = buffers.more(request.get(BODY_BYTES_HELD, 0), size)
    if refused is not None:
        pieces.clear()
        raise refused
    request[BODY_BYTES_HELD] = size
