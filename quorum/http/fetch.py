"""Edge: MetadataFetch over HTTP. Tests: tests/unit/quorum/http/test_poll_connection.py."""

from typing import Final

from aiohttp import web

from metadata_log.node.http.answers import MSGPACK
from metadata_log.node.http.identities import of
from metadata_log.node.http.routes import RouteRule
from metadata_log.node.identity.rights import Right
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest, encode_fetch_body
from quorum.http.bodies import caller_of, read_broker_body
from quorum.http.door import Door, takes_stale
from quorum.http.routes import AS_FRESH, READ, Route


async def fetch_metadata(door: Door, request: web.Request) -> web.Response:
    poll = FetchRequest.from_map(await read_broker_body(request, door.bodies))
    of(request).check_poll(poll.broker_id, door.controller.committed.brokers)
    reply = await door.fetches.fetch(poll, caller_of(request), takes_stale=takes_stale(request))
    door.identities.recheck(request)  # it may have waited
    of(request).check_poll(poll.broker_id, door.controller.committed.brokers)
    answer = encode_fetch_body(reply.answer, reply.frames)
    door.buffers.check(len(answer))
    session_timeout = {SESSION_TIMEOUT_HEADER: str(door.settings.timing.session_timeout_ms)}
    return web.Response(body=answer, content_type=MSGPACK, headers=door.headers() | session_timeout)


ROUTES: Final = (
    Route(
        "POST",
        "/v1/metadata/fetch",
        fetch_metadata,
        READ,
        RouteRule(Right.RAW, AS_FRESH),  # of a broker, also its id: its poll is its heartbeat
        forwarded=False,
    ),
)
