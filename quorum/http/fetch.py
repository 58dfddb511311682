"""Edge: MetadataFetch over HTTP. Tests: tests/unit/quorum/http/test_poll_connection.py."""

from typing import Final

from aiohttp import web

from metadata_log.node.http.answers import MSGPACK
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest, encode_fetch_body
from quorum.controller.callers import authorize_poll
from quorum.decide.access import FETCH
from quorum.http.bodies import caller_of, read_broker_body
from quorum.http.door import Door, takes_stale
from quorum.http.routes import AS_FRESH, writing


async def fetch_metadata(door: Door, request: web.Request) -> web.Response:
    poll = FetchRequest.from_map(await read_broker_body(request, door.bodies))
    caller = caller_of(request)._replace(link=getattr(request.protocol, "link", None))
    reply = await door.fetches.fetch(poll, caller, takes_stale=takes_stale(request))
    door.identities.recheck(request)  # it may have waited
    authorize_poll(caller_of(request), poll.broker_id, door.controller.committed)
    answer = encode_fetch_body(reply.answer, reply.frames)
    door.buffers.check(len(answer))
    session_timeout = {SESSION_TIMEOUT_HEADER: str(door.settings.timing.session_timeout_ms)}
    return web.Response(body=answer, content_type=MSGPACK, headers=door.headers() | session_timeout)


ROUTES: Final = (writing("POST", "/v1/metadata/fetch", fetch_metadata, FETCH, AS_FRESH, forwarded=False),)
