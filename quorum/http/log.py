"""Edge: the committed log over HTTP, as frames or as a line per record."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.codec import DamagedFrame, damaged_answer, decode_all
from metadata_log.errors import (
    Fault,
    InvalidRequest,
    LogDamaged,
    MetadataError,
    OffsetCompacted,
    OffsetInFuture,
)
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.log.lines import log_lines
from quorum.http.bodies import NDJSON, OCTETS, integer
from quorum.http.door import Door

LOG_BYTES_DEFAULT: Final = 1 * limits.MIB
LOG_BYTES_MAX: Final = 8 * limits.MIB


async def show_log(door: Door, request: web.Request) -> web.StreamResponse:
    committed: MetadataImage = await door.read(request, lambda image: image)
    committed_log = door.committed_log
    log_start_offset, high_watermark = committed_log.log_start_offset, committed_log.end_offset
    query = request.query
    start = offset_of(query.get("from", str(log_start_offset)), offset_at=committed_log.base_offset_from)
    until = offset_of(query.get("until", str(high_watermark)), offset_at=committed_log.end_offset_at)
    for offset in (start, until):
        if offset > high_watermark:
            raise OffsetInFuture(f"offset {offset} lies beyond the high watermark {committed.end_offset}")
    if min(start, until) < log_start_offset:
        raise OffsetCompacted(f"the log of this controller begins at offset {log_start_offset}")
    if until < start:
        raise InvalidRequest(f"until {until} lies before from {start}")
    if NDJSON in request.headers.get("Accept", ""):
        return await _send_lines(door, request, start, until)
    max_bytes = integer(query.get("max_bytes", str(LOG_BYTES_DEFAULT)), "max_bytes")
    if not 1 <= max_bytes <= LOG_BYTES_MAX:
        raise InvalidRequest(f"max_bytes must be from 1 to {LOG_BYTES_MAX}")
    frames = committed_log.read(start, max_bytes=max_bytes, until=until)
    return web.Response(body=frames, content_type=OCTETS, headers=door.headers())


async def _send_lines(door: Door, request: web.Request, start: int, until: int) -> web.StreamResponse:
    """Answer with a line for each record. If a later page cannot be read, the last line is the error, and the connection
    closes before the answer is whole.
    """
    # Read the first page before the answer begins: if that fails, the answer is an ordinary refusal.
    lines, at = await _page_of_lines(door, start, until)
    response = web.StreamResponse(headers=door.headers())
    response.content_type = NDJSON
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    while lines:
        await response.write(lines)
        try:
            lines, at = await _page_of_lines(door, at, until)
        except MetadataError as error:
            if isinstance(error, Fault):
                door.on_fault(error)
            await response.write(json.dumps(door.error_body(error)).encode() + b"\n")
            if request.transport is not None:
                request.transport.close()
            raise ConnectionResetError("the answer is cut short: it is not whole") from error
    await response.write_eof()
    return response


async def _page_of_lines(door: Door, start: int, until: int) -> tuple[bytes, int]:
    """Return lines from an offset on, and the offset after them; no lines at `until`.

    Raises:
        LogDamaged: the log cannot be read there.
    """
    if start >= until:
        return b"", start
    frames = door.committed_log.read(start, max_bytes=LOG_BYTES_DEFAULT, until=until)
    try:
        # In a thread: a page of small records is 30,000 lines, and takes longer than an election timeout.
        return await asyncio.to_thread(_lines_of, frames, start)
    except DamagedFrame as error:
        raise LogDamaged(damaged_answer("the log of this controller", error).message) from error


def _lines_of(frames: bytes, start: int) -> tuple[bytes, int]:
    """Return a line for each record from an offset on, and the offset after them.

    Raises:
        DamagedFrame: the bytes are no frames.
    """
    lines, at = [], start
    for batch, _ in decode_all(frames):
        lines += [f"{json.dumps(line)}\n" for line in log_lines(batch, from_offset=start)]
        at = batch.end_offset
    return "".join(lines).encode(), at


def offset_of(text: str, *, offset_at: Callable[[int], int]) -> int:
    """Read an offset, or t<UNIX_MS>: then `offset_at` finds the offset of that time."""
    if text.startswith("t"):
        return offset_at(integer(text[1:], "a time"))
    return integer(text, "an offset")


ROUTES: Final = (("GET", "/v1/log", show_log),)
