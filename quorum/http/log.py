"""Edge: the committed log over HTTP, as frames or as a line per record. Tests: tests/unit/quorum/http/test_app.py."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import (
    Fault,
    InvalidRequest,
    MetadataError,
    OffsetCompacted,
    OffsetInFuture,
)
from metadata_log.node.clock import unix_ms
from metadata_log.node.http.routes import IDS, NAMES, NUMBER, WHEN
from metadata_log.records.registry import RECORD_TYPES
from quorum.controller.callers import authorize
from quorum.decide.access import CLUSTER, FETCH
from quorum.http.bodies import NDJSON, OCTETS, caller_of, integer
from quorum.http.door import Door, takes_stale
from quorum.http.feed import EVENT_STREAM, LAST_EVENT_ID, PARAMETERS, send_feed, send_stream
from quorum.http.routes import AS_FRESH, reading
from quorum.log.past import wait_ends_s

LOG_BYTES_DEFAULT: Final = 1 * limits.MIB
TIME_AHEAD_MAX_MS: Final = 60_000
"""A client's now may lie so far ahead of ours: clocks disagree by seconds, and `--until now` is no mistake."""
TYPE_NAMES: Final = frozenset(of.__name__.removesuffix("Record") for of in RECORD_TYPES)
_TYPE: Final = b'"type": "'
"""In a line the type stands before all texts that clients choose."""
LOG_BYTES_MAX: Final = 8 * limits.MIB


async def show_log(door: Door, request: web.Request) -> web.StreamResponse:
    return await _answer(door, request, is_lines=NDJSON in request.headers.get("Accept", ""))


async def show_lines(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer as `show_log` does a client that takes lines alone: a browser, and a broker that forwards."""
    return await _answer(door, request, is_lines=True)


async def _answer(door: Door, request: web.Request, *, is_lines: bool) -> web.StreamResponse:
    # Not the image: while the answer is read, it would hold all results that are evicted meanwhile.
    end_offset = await door.log_end(request)
    committed_log = door.committed_log
    log_start_offset, high_watermark = committed_log.log_start_offset, committed_log.end_offset
    query = request.query
    is_stream = EVENT_STREAM in request.headers.get("Accept", "")
    is_feed = is_stream or any(parameter in query for parameter in PARAMETERS)
    # A browser that was cut off repeats its first request, and says the id of the last event.
    resumed = request.headers.get(LAST_EVENT_ID) if is_stream else None
    start = await offset_of(
        resumed or query.get("from", str(log_start_offset)), offset_at=committed_log.base_offset_from
    )
    until = await offset_of(query.get("until", str(high_watermark)), offset_at=committed_log.end_offset_at)
    for offset in (start, until):
        # A follower that lags applies it soon, and a feed waits for that.
        if offset > high_watermark and not (is_feed and takes_stale(request)):
            raise OffsetInFuture(f"offset {offset} lies beyond the high watermark {end_offset}")
    if min(start, until) < log_start_offset:
        raise OffsetCompacted(f"the log of this controller begins at offset {log_start_offset}")
    if until < start and not (is_feed and "until" not in query):
        raise InvalidRequest(f"until {until} lies before from {start}")
    if "max_bytes" in query and (is_feed or is_lines):
        raise InvalidRequest(
            "the query parameter max_bytes bounds frames: lines and feeds have bounds of their own"
        )
    if "types" in query and (is_feed or not is_lines):
        raise InvalidRequest("the query parameter types narrows lines: frames and feeds have all records")
    if is_stream:
        if "wait_ms" in query or "until" in query:
            raise InvalidRequest(
                "a stream of events waits and goes on by itself: leave out wait_ms and until"
            )
        return await send_stream(door, request, start)
    if is_feed:
        if not is_lines:
            raise InvalidRequest(f"{', '.join(PARAMETERS)} need Accept: {NDJSON} or {EVENT_STREAM}")
        return await send_feed(door, request, start, until if "until" in query else None)
    if is_lines:
        return await door.sender.send(
            request,
            _lines(door, request, start, until, _types_of(query.get("types"))),
            content_type=NDJSON,
            last_words=lambda error: json.dumps(door.error_body(error)).encode() + b"\n",
        )
    _check_may_fetch(door, request)
    max_bytes = integer(query.get("max_bytes", str(LOG_BYTES_DEFAULT)), "max_bytes")
    if not 1 <= max_bytes <= LOG_BYTES_MAX:
        raise InvalidRequest(f"max_bytes must be from 1 to {LOG_BYTES_MAX}")
    return await door.sender.send(
        request, _frames(door, request, start, until, max_bytes), content_type=OCTETS
    )


def _check_may_fetch(door: Door, request: web.Request) -> None:
    authorize(caller_of(request), FETCH, (CLUSTER,), door.controller.committed)


async def _frames(
    door: Door, request: web.Request, start: int, until: int, max_bytes: int
) -> AsyncIterator[bytes]:
    """Yield whole frames: at least one if any exists below `until`, further ones while the sum stays within `max_bytes`.

    They end before a frame that cannot be read: a request from there on is refused by name.
    """
    left, is_first = max_bytes, True
    while left > 0:
        try:
            frames, end_offset = await door.committed_log.read_in_thread(
                start, max_bytes=min(left, limits.ANSWER_PIECE_BYTES), until=until
            )
        except MetadataError as error:
            if is_first or isinstance(error, Fault):
                raise
            return
        if not frames or (len(frames) > left and not is_first):
            return
        door.identities.recheck(request)
        _check_may_fetch(door, request)
        yield frames
        start, left, is_first = end_offset, left - len(frames), False


def _types_of(named: str | None) -> frozenset[bytes]:
    """Return the types of records that are asked for; none: all.

    Raises:
        InvalidRequest: there is no such type.
    """
    types = frozenset() if named is None else frozenset(named.split(","))
    unknown = types - TYPE_NAMES
    if unknown:
        raise InvalidRequest(
            f"no record is of type {', '.join(sorted(unknown))[:100]}: they are {', '.join(sorted(TYPE_NAMES))}"
        )
    return frozenset(name.encode() for name in types)


def _narrowed(lines: list[bytes], types: frozenset[bytes]) -> bytes:
    """Return the lines of records of these types; none: all."""
    return b"".join(
        line for line in lines if not types or line.partition(_TYPE)[2].partition(b'"')[0] in types
    )


async def _lines(
    door: Door, request: web.Request, start: int, until: int, types: frozenset[bytes]
) -> AsyncIterator[bytes]:
    """Yield the lines of some records at a time, also where the last of them are the first ones of a batch.

    Raises:
        LogDamaged: the log cannot be read there.
        ThrottlingQuotaExceeded: the first of them had to wait for too long.
    """
    order = door.past.order_of_lines()
    begin_by_s: float | None = wait_ends_s()
    while start < until:
        frames, _ = await door.committed_log.read_in_thread(
            start, max_bytes=limits.ANSWER_PIECE_BYTES, until=until
        )
        if not frames:  # `until` lies inside the next batch
            frames, _ = await door.committed_log.read_in_thread(start, max_bytes=1)
        lines, end, _ = await door.past.lines(frames, start, order=order, begin_by_s=begin_by_s)
        begin_by_s = None
        if not lines:
            return
        if end <= until and not types:
            yield lines
        elif narrowed := _narrowed(lines.splitlines(keepends=True)[: until - start], types):
            yield narrowed
        elif request.transport is None:
            return  # the client has gone, and there is nothing to send that would show it
        start = end


async def offset_of(text: str, *, offset_at: Callable[[int], Awaitable[int]]) -> int:
    """Read an offset, or t<UNIX_MS>: then `offset_at` finds the offset of that time.

    Raises:
        OffsetInFuture: the time has not come yet, so what lies there is not known.
    """
    if text.startswith("t"):
        asked_ms, now_ms = integer(text[1:], "a time"), unix_ms()
        if asked_ms > now_ms + TIME_AHEAD_MAX_MS:
            raise OffsetInFuture(f"the time {_utc(asked_ms)} has not come yet: here it is {_utc(now_ms)}")
        return await offset_at(asked_ms)
    return integer(text, "an offset")


def _utc(time_ms: int) -> str:
    """Return a time as text; as Unix milliseconds where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):
        return f"t{time_ms}"


_LINES: Final = {
    **AS_FRESH,
    "from": WHEN,
    "until": WHEN,
    "topics": NAMES,
    "topic_ids": IDS,
    "wait_ms": NUMBER,
    "types": NAMES,
}
ROUTES: Final = (
    reading(
        "/v1/log", show_log, "DescribeLog", {**_LINES, "max_bytes": NUMBER}, forwarded=False
    ),  # frames: FETCH
    reading("/v1/log/lines", show_lines, "DescribeLog", _LINES),
)
