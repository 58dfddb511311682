"""Edge: a change feed over HTTP: the lines of the log that concern some topics, from an offset on, with a long poll.

A feed never skips: its last line names the offset that everything before was examined up to, and the next request begins
there. An answer that breaks off is resumed after its last line. As server-sent events it goes on by itself.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.errors import InvalidRequest, MetadataError, ThrottlingQuotaExceeded
from metadata_log.ids import TopicId, uuid_from_text
from metadata_log.log.topic_filter import TopicFilter
from metadata_log.wire.shapes import check_text
from quorum.http.bodies import NDJSON, integer
from quorum.http.door import Door

log = logging.getLogger(__name__)
PARAMETERS: Final = ("topics", "topic_ids", "wait_ms")
EVENT_STREAM: Final = "text/event-stream"
LAST_EVENT_ID: Final = "Last-Event-ID"
READS_WAIT_MS: Final = 200
"""For so long a stream waits where too many reads wait already."""


async def send_feed(door: Door, request: web.Request, start: int, until: int | None) -> web.StreamResponse:
    """Answer with the lines from `start` on, once there are some; without any when the time is up.

    Raises:
        InvalidRequest: the parameters are not as they must be.
        ThrottlingQuotaExceeded: too many feeds wait, or too many reads.
    """
    wait_ms = min(integer(request.query.get("wait_ms", "0"), "wait_ms"), limits.FEED_WAIT_MAX_MS)
    wanted = _wanted(request.query)
    feed = _Feed(door, wanted, start, until)
    first = await feed.goes_on(asyncio.get_running_loop().time() + wait_ms / 1000)
    door.identities.recheck(request)
    return await door.sender.send(
        request,
        feed.pieces(first),
        content_type=NDJSON,
        last_words=lambda error: json.dumps(door.error_body(error)).encode() + b"\n",
    )


async def send_stream(door: Door, request: web.Request, start: int) -> web.StreamResponse:
    """Answer with server-sent events, one for each line of the feed, until the client goes or its right ends.

    An event's id is the offset from which the client goes on, at any controller. One without data says up to where the log
    was examined: a client that was cut off does not have that looked at again.

    Raises:
        InvalidRequest: the parameters are not as they must be.
        ThrottlingQuotaExceeded: there are too many streams, or too many feeds or reads wait.
    """
    feed = _Feed(door, _wanted(request.query), start, None)
    with door.feeds.stream():
        lines = await feed.goes_on(0.0)  # a refusal is an answer of its own
        door.identities.recheck(request)
        response = web.StreamResponse(headers={**door.headers(), "Cache-Control": "no-store"})
        response.content_type = EVENT_STREAM
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            return response
        await _send_events(door, request, response, feed, lines)
    await response.write_eof()
    return response


async def _send_events(
    door: Door, request: web.Request, response: web.StreamResponse, feed: "_Feed", lines: bytes | None
) -> None:
    """Send the first lines and all that follow, until the client goes or its right ends."""
    while True:
        try:
            while lines is not None:
                door.identities.recheck(request)
                await response.write(_events(lines))  # waits while the client reads nothing
                lines = await feed.more()
            door.identities.recheck(request)
            await response.write(b"id: %d\n\n" % feed.examined)
            lines = await feed.goes_on(asyncio.get_running_loop().time() + limits.STREAM_SAYS_MS / 1000)
        except ThrottlingQuotaExceeded:
            # One record wakes many streams at once, and their reads are bounded.
            lines = None
            await asyncio.sleep(READS_WAIT_MS / 1000)
        except MetadataError as error:
            # Where it was is said: the client asks again there, and is told why in an answer of its own.
            log.info("feed_ended", extra={"reason": error.message})
            return


def _events(lines: bytes) -> bytes:
    """Return an event for each line: it begins with the line's offset, and its id is the one after."""
    return b"".join(
        b"id: %d\ndata: %s\n\n" % (json.loads(line)["offset"] + 1, line) for line in lines.splitlines()
    )


def _wanted(query: Mapping[str, str]) -> tuple[list[str], list[TopicId]] | None:
    """Return the names and ids of topics; None: all records are wanted."""
    if "topics" not in query and "topic_ids" not in query:
        return None
    names, ids = (query[key].split(",") if key in query else [] for key in ("topics", "topic_ids"))
    if len(names) + len(ids) > limits.FEED_TOPICS_MAX:
        raise InvalidRequest(f"a feed follows at most {limits.FEED_TOPICS_MAX} topics")
    for name in names:
        check_text("topics", name, bytes_max=limits.NAME_LENGTH_MAX)
        if not name:
            raise InvalidRequest("topics: a name has at least one character")
    try:
        return names, [TopicId(uuid_from_text(text)) for text in ids]
    except ValueError as error:
        raise InvalidRequest(f"topic_ids: {error}") from error


class _Feed:
    """What one answer has examined of the log so far."""

    def __init__(
        self, door: Door, wanted: tuple[list[str], list[TopicId]] | None, start: int, until: int | None
    ) -> None:
        self._door = door
        self._wanted = wanted
        """Until the filter of these names and ids is made."""
        self._at = start
        self._until = until
        self._until_s = 0.0
        self._left = 0
        self._topics: TopicFilter | None = None

    @property
    def _end(self) -> int:
        end_offset = self._door.committed_log.end_offset
        return end_offset if self._until is None else min(end_offset, self._until)

    @property
    def examined(self) -> int:
        """The offset up to which the log was looked at."""
        return self._at

    async def goes_on(self, until_s: float) -> bytes | None:
        """Return the next lines once there are some; None if the time is up without any."""
        self._until_s, self._left = until_s, limits.FEED_BYTES_MAX
        if not await self._is_reached():
            return None
        if self._wanted is not None:
            self._topics = await self._filter(*self._wanted)
            self._wanted = None
        return await self._first_of_now()

    async def more(self) -> bytes | None:
        """Return the lines that follow those before now, as `_next`."""
        return await self._next()

    async def _is_reached(self) -> bool:
        """Wait until this node has applied as much as the feed begins with; answer whether it has within the time.

        A follower lags: which topics are meant is known only then.
        """
        door, loop = self._door, asyncio.get_running_loop()
        while self._at > door.committed_log.end_offset:
            if loop.time() >= self._until_s:
                return False
            await door.feeds.wait(None, door.committed_log.end_offset, until_s=self._until_s)
        return True

    async def _first_of_now(self) -> bytes | None:
        door, loop = self._door, asyncio.get_running_loop()
        lines = await self._next_once_read()
        while lines is None and self._at == self._end and loop.time() < self._until_s:
            if self._until is not None and self._at >= self._until:
                break
            self._at = await door.feeds.wait(self._topics, self._at, until_s=self._until_s)
            lines = await self._next_once_read()
        return lines

    async def _next_once_read(self) -> bytes | None:
        """Return the first lines, if there are any; raises as `_next`.

        Raises:
            ThrottlingQuotaExceeded: clients have not read so much that these would not be sent.
        """
        if self._at < self._end:
            self._door.buffers.check(2 * limits.ANSWER_PIECE_BYTES)  # before the work
        return await self._next()

    async def _filter(self, names: list[str], ids: list[TopicId]) -> TopicFilter:
        door = self._door
        recent = door.feeds.filter_at(self._at, names=names, ids=ids)
        if recent is not None:
            return recent
        async with door.past.state_at(self._at) as past:
            return await past.topic_filter(names, ids)

    async def pieces(self, first: bytes | None) -> AsyncIterator[bytes]:
        """Yield the first lines, those that follow them now, and the line with the offset to go on from."""
        lines = first
        while lines is not None:
            yield lines
            lines = await self._next()
        yield json.dumps({"next_offset": self._at}).encode() + b"\n"

    async def _next(self) -> bytes | None:
        """Return further lines; None at the end of the log, or once FEED_BYTES_MAX were examined.

        Raises:
            LogDamaged: the log cannot be read there.
        """
        door = self._door
        while self._at < self._end and self._left > 0:
            start = self._at
            frames, end = await door.committed_log.read_in_thread(
                start, max_bytes=limits.ANSWER_PIECE_BYTES, until=self._end
            )
            if not frames:
                return None  # `until` lies within the next frame
            lines, self._at, self._topics = await door.past.lines(frames, start, self._topics)
            # The lines may have ended before the frames: these are read again from there on.
            self._left -= max(len(frames) * (self._at - start) // (end - start), 1)
            if lines:
                return lines
        return None
