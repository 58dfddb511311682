"""Edge: past states at a glance, what differs between two, and what a loss of brokers would do, over HTTP.

All of them compute for long, and are made in the process that reads the past. A client that accepts lines is told every
half a second how far its answer is; one that goes ends its question.
Tests: tests/unit/quorum/http/test_past.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

from aiohttp import hdrs, web

from metadata_log.digest import EMPTY_BUCKETS
from metadata_log.errors import InvalidRequest, MetadataError, NotAuthorized, OffsetInFuture
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http.encodings import json_bytes
from metadata_log.node.http.routes import NAME, NAMES, NODE, NUMBER, WHEN
from metadata_log.recount import told_line
from quorum.controller.callers import authorize
from quorum.decide.access import CLUSTER, FETCH
from quorum.http.bodies import NDJSON, caller_of, int32, integer
from quorum.http.door import Door
from quorum.http.log import offset_of
from quorum.http.routes import AS_FRESH, reading
from quorum.log.past import Progress
from quorum.node.config import settings_in_decisions

LOST_MAX: Final = 100
"""Brokers of one question."""
TOLD_EVERY_S: Final = 0.5
Answer: TypeAlias = Callable[[], Coroutine[Any, Any, dict[str, Any]]]
"""Makes what is asked for."""


async def show_past(door: Door, request: web.Request) -> web.StreamResponse:
    first, until = await _moments(door, request, "at")
    min_isr, progress = door.status.default_min_isr(), Progress()

    async def states() -> dict[str, Any]:
        if until is not None:
            return await door.past.difference(first, until, min_isr, progress)
        async with door.past.state_at(first, progress) as past:
            state = await past.view("summary", min_isr)
        return {"from": state, "to": None, "items": [], "more": False}

    return await _answered(door, request, states, progress)


async def show_diff(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with a line for each entity that differs between two states, of a topic or a broker alone if it is named."""
    query = request.query
    if "topic" in query and "broker" in query:
        raise InvalidRequest("name a topic or a broker, not both")
    start, until = await _moments(door, request, "from")
    if until is None:
        until = await _end_offset(door, request)
    broker_id = int32(query["broker"], "a broker's id") if "broker" in query else None
    return await door.sender.send(
        request,
        door.past.diff(start, until, topic=query.get("topic"), broker_id=broker_id),
        content_type=NDJSON,
        last_words=lambda error: json_bytes(door.error_body(error)) + b"\n",
    )


async def show_digest(door: Door, request: web.Request) -> web.Response:
    """Answer with the state digest at an offset, and what it is made of; of one bucket with its lines.

    A client that may not have the log itself gets the lines of secrets masked, also where a record has no mask key.
    """
    at, until = await _moments(door, request, "at")
    assert until is None, "the route has no such parameter"
    if "bucket" not in request.query:
        return door.ok(request, await door.past.digest_at(at))
    bucket = integer(request.query["bucket"], "a bucket")
    if bucket >= len(EMPTY_BUCKETS):
        raise InvalidRequest(f"bucket {bucket}: they are numbered from 0 to {len(EMPTY_BUCKETS) - 1}")
    found = await door.past.digest_lines(at, bucket)
    if not _may_see_secrets(door, request):
        found = {**found, "lines": [told_line(line) for line in found["lines"]]}
    return door.ok(request, found)


def _may_see_secrets(door: Door, request: web.Request) -> bool:
    """Answer whether a client has the log as it is, in which secrets are in plain text: nodes and administrators do."""
    try:
        authorize(caller_of(request), FETCH, (CLUSTER,), door.controller.committed)
    except NotAuthorized:
        return False
    return True


async def _moments(door: Door, request: web.Request, first: str) -> tuple[int, int | None]:
    """Return the offsets that the parameters `first` and "to" mean; None: there is no "to".

    Raises:
        InvalidRequest: the first is missing, or lies after the second.
        OffsetInFuture: the log does not reach that far.
    """
    query = request.query
    if first not in query:
        raise InvalidRequest(f"say which state: {first}=OFFSET, or t and a time")
    end_offset = await _end_offset(door, request)
    found: list[int] = []
    for name in (first, "to"):
        if name in query:
            found.append(await offset_of(query[name], offset_at=door.committed_log.end_offset_at))
            if found[-1] > end_offset:
                raise OffsetInFuture(f"offset {found[-1]} lies beyond the high watermark {end_offset}")
    if len(found) > 1 and found[1] < found[0]:
        raise InvalidRequest(f"to {found[1]} lies before {first} {found[0]}")
    return found[0], found[1] if len(found) > 1 else None


async def show_losses(door: Door, request: web.Request) -> web.StreamResponse:
    lost = [int32(text, "lose: a broker's id") for text in request.query.get("lose", "").split(",") if text]
    if not 1 <= len(lost) <= LOST_MAX:
        raise InvalidRequest(f"lose names from 1 to {LOST_MAX} brokers")
    end_offset = await _end_offset(door, request)
    progress = Progress()

    async def losses() -> dict[str, Any]:
        async with door.past.state_at(end_offset, progress) as past:
            return await past.losses(settings_in_decisions(door.settings), lost, progress)

    return await _answered(door, request, losses, progress)


async def _answered(
    door: Door, request: web.Request, answer: Answer, progress: Progress
) -> web.StreamResponse:
    """Answer with what takes long; in lines, the last of which is the answer, to a client that accepts them."""
    if NDJSON not in request.headers.get(hdrs.ACCEPT, ""):
        return door.ok(request, await answer())
    made = _Made()
    async with asyncio.TaskGroup() as group:
        making = group.create_task(made.make(answer))
        response = await made.of(
            door.sender.send(
                request,
                made.lines(progress),
                content_type=NDJSON,
                last_words=lambda error: json_bytes(door.error_body(error)) + b"\n",
            )
        )
        making.cancel()  # where its reader has gone
    if response is None:
        assert made.failure is not None
        raise made.failure
    return response


class _Made:
    """An answer that is made while lines tell how far it is. Failures are kept: a group of tasks would wrap them."""

    def __init__(self) -> None:
        self.failure: MetadataError | ConnectionError | None = None
        self._answer: dict[str, Any] = {}
        self._is_done = asyncio.Event()

    async def make(self, answer: Answer) -> None:
        try:
            self._answer = await answer()
        except MetadataError as error:
            self.failure = error
        self._is_done.set()

    async def of(self, sent: Awaitable[web.StreamResponse]) -> web.StreamResponse | None:
        """Return what was sent; None, with its failure kept, if it could not be sent whole."""
        try:
            return await sent
        except (MetadataError, ConnectionError) as error:
            self.failure = error
            return None

    async def lines(self, progress: Progress) -> AsyncIterator[bytes]:
        """Yield a line that says how far the answer is, each TOLD_EVERY_S, and the answer.

        Raises:
            MetadataError: it could not be made.
        """
        while not self._is_done.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(TOLD_EVERY_S):
                    await self._is_done.wait()
                    break
            yield json_bytes({"doing": progress.doing, "share": progress.share}) + b"\n"
        if self.failure is not None:
            raise self.failure
        yield json_bytes(self._answer) + b"\n"


async def _end_offset(door: Door, request: web.Request) -> int:
    def view(image: MetadataImage) -> int:
        return image.end_offset

    end_offset: int = await door.read(request, view)
    return min(end_offset, door.committed_log.end_offset)


ROUTES: Final = (
    reading("/v1/past", show_past, "DescribeState", {**AS_FRESH, "at": WHEN, "to": WHEN}),
    reading(
        "/v1/diff",
        show_diff,
        "DescribeState",
        {**AS_FRESH, "from": WHEN, "to": WHEN, "topic": NAME, "broker": NODE},
    ),
    reading("/v1/digest", show_digest, "DescribeState", {**AS_FRESH, "at": WHEN, "bucket": NUMBER}),
    reading("/v1/whatif", show_losses, "DescribeState", {**AS_FRESH, "lose": NAMES}),
)
