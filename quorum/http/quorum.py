"""Edge: the quorum over HTTP: describe it, transfer its leadership, add and remove voters."""

from functools import partial
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NodeId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.addresses import HostPort, is_reachable, read_address
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import ID
from metadata_log.node.pace import until_done
from metadata_log.node.release import VERSION
from metadata_log.wire.shapes import INT32_MAX, INT64_MAX, Shape, check_text, read_shape
from quorum.decide.quorum import AddVoter, RemoveVoter, VotersChanged
from quorum.http.bodies import directory_id_of, int32, read_body, read_no_body
from quorum.http.door import Door
from quorum.http.routes import HERE, TRIAL, reading, writing
from quorum.node.config import settings_in_decisions


class Transfer(Shape, frozen=True):
    """`to` is the next leader; None leaves the choice to the controller."""

    to: Annotated[NodeId, Meta(ge=0, le=INT64_MAX)] | None


class NewVoter(Shape, frozen=True):
    id: Annotated[NodeId, Meta(ge=0, le=INT32_MAX)]
    directory_id: str
    raft: str
    validate_only: bool = False
    replaces: str | UnsetType = UNSET


async def show_quorum(door: Door, request: web.Request) -> web.Response:
    # Were all who ask answered in one turn of the loop, or did each count the digest, that turn would take as many times as
    # long. After a large change there is much to count.
    async with door.status.one_in_a_turn:
        counted = door.controller.committed
        await until_done(partial(counted.state_digest.count_some, counted))
        return door.ok(request, door.status.quorum(counted) | {"version": VERSION})


async def show_settings(door: Door, request: web.Request) -> web.Response:
    """Answer with what the active controller's file adds to the log when it decides."""

    def view(image: MetadataImage) -> dict[str, Any]:
        return {
            "end_offset": image.end_offset,
            "controller_epoch": image.controller_epoch,
            **settings_in_decisions(door.settings),
        }

    return door.ok(request, await door.read(request, view))


async def transfer_leadership(door: Door, request: web.Request) -> web.Response:
    body = await read_body(request, door.bodies)
    wanted = read_shape(body, Transfer, "transfer").to
    with door.audited(request, "TransferLeadership"):
        leader_id = await door.controller.transfer(wanted)
    return door.ok(request, {"leader_id": leader_id})


async def add_voter(door: Door, request: web.Request) -> web.Response:
    body = await read_body(request, door.bodies)
    voter = read_shape(body, NewVoter, "voter")
    host, port = _reachable(voter.raft)
    command = AddVoter(
        voter_id=voter.id,
        directory_id=directory_id_of(voter.directory_id),
        host=host,
        port=port,
        validate_only=voter.validate_only,
        replaces=directory_id_of(voter.replaces) if isinstance(voter.replaces, str) else None,
    )
    return await door.write(request, command, _voters_changed)


async def remove_voter(door: Door, request: web.Request) -> web.Response:
    if "directory_id" not in request.query:
        raise InvalidRequest("the query parameter directory_id is missing: it names the voter's disk")
    command = RemoveVoter(
        voter_id=NodeId(int32(request.match_info["id"], "a voter's id")),
        directory_id=directory_id_of(request.query["directory_id"]),
        validate_only=flag(request, "validate_only"),
    )
    await read_no_body(request)
    return await door.write(request, command, _voters_changed)


def _voters_changed(outcome: VotersChanged) -> dict[str, Any]:
    return {
        "voters": [
            {"id": voter.node_id, "directory_id": uuid_text(voter.directory_id)} for voter in outcome.voters
        ]
    }


def _reachable(text: str) -> HostPort:
    check_text("voter.raft", text)
    try:
        address = read_address(text)
    except ValueError:
        address = ("", 0)
    if not is_reachable(address):
        raise InvalidRequest(f"raft must be a HOST:PORT that others can reach, not {text!r}")
    return address


ROUTES: Final = (
    reading("/v1/quorum", show_quorum, "DescribeQuorum", HERE),
    reading("/v1/quorum/settings", show_settings, "DescribeQuorum"),
    writing("POST", "/v1/quorum/transfer", transfer_leadership, "TransferLeadership"),
    writing("POST", "/v1/quorum/voters", add_voter, "AddRaftVoter"),
    writing(
        "DELETE", "/v1/quorum/voters/{id}", remove_voter, "RemoveRaftVoter", {**TRIAL, "directory_id": ID}
    ),
)
