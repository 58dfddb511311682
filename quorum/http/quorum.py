"""Edge: the quorum over HTTP: describe it, transfer its leadership, add and remove voters."""

import urllib.parse
from typing import Final

from aiohttp import web

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NodeId
from metadata_log.wire.commands import AddVoter, RemoveVoter
from metadata_log.wire.fields import INT32_MAX, Fields, is_host
from quorum.config import WILDCARDS
from quorum.http.bodies import directory_id_of, int32, read_body, read_raw, truth
from quorum.http.door import Door


async def show_quorum(door: Door, request: web.Request) -> web.Response:
    return door.ok(request, door.status.quorum())


async def transfer_leadership(door: Door, request: web.Request) -> web.Response:
    body, _ = await read_body(request)
    fields = Fields(body, "transfer")
    to = fields.optional("to", lambda value: NodeId(Fields({"to": value}, "transfer").integer("to")))
    fields.done()
    leader_id = await door.controller.transfer(to)
    return door.ok(request, {"leader_id": leader_id})


async def add_voter(door: Door, request: web.Request) -> web.Response:
    body, raw = await read_body(request)
    fields = Fields(body, "voter")
    host, port = _host_port(fields.text("raft"))
    command = AddVoter(
        voter_id=NodeId(fields.integer("id", high=INT32_MAX)),
        directory_id=directory_id_of(fields.text("directory_id")),
        host=host,
        port=port,
        validate_only=fields.boolean("validate_only", default=False),
        replaces=directory_id_of(fields.text("replaces")) if fields.has("replaces") else None,
    )
    fields.done()
    return await door.write(request, command, raw)


async def remove_voter(door: Door, request: web.Request) -> web.Response:
    # Refuse unknown parameters: a misspelt validate_only must not remove a voter.
    fields = Fields(dict(request.query), "query")
    command = RemoveVoter(
        voter_id=NodeId(int32(request.match_info["id"], "a voter's id")),
        directory_id=directory_id_of(fields.text("directory_id")),
        validate_only=truth(fields.text("validate_only", default="false"), "validate_only"),
    )
    fields.done()
    return await door.write(request, command, await read_raw(request))


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


ROUTES: Final = (
    ("GET", "/v1/quorum", show_quorum),
    ("POST", "/v1/quorum/transfer", transfer_leadership),
    ("POST", "/v1/quorum/voters", add_voter),
    ("DELETE", "/v1/quorum/voters/{id}", remove_voter),
)
