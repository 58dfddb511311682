"""Edge: controllers' registrations over HTTP: register, list, unregister.
Tests: tests/unit/quorum/node/test_registration.py.
"""

from typing import Any, Final

from aiohttp import web

from metadata_log.ids import NodeId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http.query import flag
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.registry import json_rows
from metadata_log.wire.commands import RegisterController
from quorum.decide.controllers import ControllerRegistered, ControllerUnregistered, UnregisterController
from quorum.http.bodies import int32, read_no_body, repeating_caller_of
from quorum.http.door import Door, items_of, offsets_of
from quorum.http.routes import TRIAL, reading, writing


async def register_controller(door: Door, request: web.Request) -> web.Response:
    command = RegisterController.from_map(await door.broker_body(request))
    written = await door.controller.submit(command, repeating_caller_of(request))
    return door.ok(request, {**_registered(written.outcome), **offsets_of(written)})


def _registered(outcome: Any) -> dict[str, Any]:
    assert isinstance(outcome, ControllerRegistered)
    return outcome._asdict()


async def unregister_controller(door: Door, request: web.Request) -> web.Response:
    command = UnregisterController(
        controller_id=NodeId(int32(request.match_info["id"], "a controller's id")),
        validate_only=flag(request, "validate_only"),
    )
    await read_no_body(request)
    return await door.write(request, command, _unregistered)


def _unregistered(outcome: ControllerUnregistered) -> dict[str, Any]:
    return outcome._asdict()


async def list_controllers(door: Door, request: web.Request) -> web.Response:
    image: MetadataImage = await door.read(request, lambda image: image)
    items = []
    for controller_id in sorted(image.controllers):
        controller = image.controllers[controller_id]
        registered_at_ms = await door.committed_log.appended_at_ms(controller.registration_epoch)
        items.append(_described(door, image, controller, registered_at_ms))
    return door.ok(request, items_of(image, items))


def _described(
    door: Door, image: MetadataImage, controller: RegisterControllerRecord, registered_at_ms: int | None
) -> dict[str, Any]:
    """Return a registration; "linked" and "registered_at_ms" are None where this node does not know."""
    controller_id = controller.controller_id
    raft = door.controller.raft.status()
    linked = {peer.node_id for peer in raft.peers if peer.reachable} | {door.settings.node_id}
    return {
        "controller_id": controller_id,
        "incarnation_id": uuid_text(controller.incarnation_id),
        "registration_epoch": controller.registration_epoch,
        "registered_at_ms": registered_at_ms,
        "is_voter": controller_id in [voter.node_id for voter in image.quorum.voters or ()],
        "linked": controller_id in linked if door.controller.is_active else None,
        "endpoints": json_rows(controller.endpoints),
        "features": json_rows(controller.features),
    }


ROUTES: Final = (
    writing("POST", "/v1/controllers/register", register_controller, "RegisterController"),
    reading("/v1/controllers", list_controllers, "DescribeControllers"),
    writing("DELETE", "/v1/controllers/{id}", unregister_controller, "UnregisterController", TRIAL),
)
