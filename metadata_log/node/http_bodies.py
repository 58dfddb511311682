"""Edge: the bytes of a request's body, bounded in size and time, for controllers and brokers alike."""

import asyncio

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnsupportedMediaType


async def read_raw(request: web.Request) -> bytes:
    """Return the body's bytes.

    Raises:
        InvalidRequest: the body did not arrive in time.
        UnsupportedMediaType: it is compressed.
        web.HTTPRequestEntityTooLarge: it has more than HTTP_BODY_BYTES_MAX bytes.
    """
    if "Content-Encoding" in request.headers:
        raise UnsupportedMediaType("a compressed body is not accepted")
    announced = request.content_length or 0
    if announced > limits.HTTP_BODY_BYTES_MAX:
        # Refuse before the body arrives: it may take long, or never come.
        raise web.HTTPRequestEntityTooLarge(max_size=limits.HTTP_BODY_BYTES_MAX, actual_size=announced)
    if request.content.is_eof():
        # It is here already: no timer is needed, and no copy of it piece by piece.
        body = request.content.read_nowait()
        if len(body) > limits.HTTP_BODY_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(max_size=limits.HTTP_BODY_BYTES_MAX, actual_size=len(body))
        return body
    try:
        async with asyncio.timeout(limits.HTTP_ARRIVAL_MAX_MS / 1000):
            return await request.read()
    except TimeoutError as error:
        raise InvalidRequest(f"the body did not arrive within {limits.HTTP_ARRIVAL_MAX_MS} ms") from error
