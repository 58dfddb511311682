"""Edge: brokers over HTTP: register, list, describe, unregister."""

from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from metadata_log import limits
from metadata_log.errors import BrokerIdNotRegistered, InvalidRegistration
from metadata_log.ids import BrokerId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.items import Items, listed
from metadata_log.node.http.query import flag
from metadata_log.orders import in_parts
from metadata_log.records.registry import json_rows
from metadata_log.wire.commands import RegisterBroker
from metadata_log.wire.shapes import INT32_MAX, Shape, read_shape
from quorum.decide.brokers import BrokerRegistered, BrokerUnregistered, UnregisterBroker
from quorum.decide.fencing import state_of
from quorum.http.bodies import broker_id_of, caller_of, read_no_body
from quorum.http.door import Door, Write, items_of
from quorum.http.routes import TRIAL, reading, writing
from quorum.views.broker_view import BrokerView, registration_state


async def register_broker(door: Door, request: web.Request) -> web.Response:
    command = RegisterBroker.from_map(await door.broker_body(request))
    if door.settings.listen_kafka is not None and not door.settings.kafka.other_brokers:
        raise InvalidRegistration(
            "this cluster's brokers are Kafka's, and those of another kind would be given replicas: follow as an observer, "
            "or set `other_brokers = true` in [kafka] of the controllers' settings"
        )
    written = await door.controller.submit(command, caller_of(request))
    assert isinstance(written.outcome, BrokerRegistered)
    committed = door.controller.committed
    timing = door.settings.timing
    answer = {
        "broker_epoch": written.outcome.broker_epoch,
        "controller_id": door.settings.node_id,
        "controller_epoch": committed.controller_epoch,
        "high_watermark": committed.end_offset,
        "session_timeout_ms": timing.session_timeout_ms,
        "max_wait_ms": timing.max_wait_ms,
    }
    return door.ok(request, answer)


async def unregister_broker(door: Door, request: web.Request) -> web.Response:
    command = UnregisterBroker(broker_id=broker_id_of(request.match_info["id"]))
    await read_no_body(request)
    if flag(request, "validate_only"):
        return await door.try_out(request, command, lambda _: {"broker_id": command.broker_id})
    return await door.write(request, command, _unregistered)


class NamedBroker(Shape, frozen=True):
    broker_id: Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]


def _named_broker(body: Any) -> UnregisterBroker:
    return UnregisterBroker(broker_id=read_shape(body, NamedBroker, "broker").broker_id)


def _unregistered(outcome: BrokerUnregistered) -> dict[str, Any]:
    return {"broker_id": outcome.broker_id}


async def list_brokers(door: Door, request: web.Request) -> web.StreamResponse:
    view: BrokerView = await door.read(request, lambda image: _view(door, image))
    if len(view.image.brokers) <= limits.LARGE_VIEW_ITEMS:
        return door.ok(request, listed(_described(view)))
    view = view.at_rest()
    return await door.sender.send_made(request, lambda: _described(view))


def _described(view: BrokerView) -> dict[str, Any]:
    brokers = view.image.brokers
    rows = (describe_broker(view, broker_id) for broker_id in in_parts(brokers))
    return items_of(view.image, Items(len(brokers), rows))


async def show_broker(door: Door, request: web.Request) -> web.Response:
    broker_id = broker_id_of(request.match_info["id"])

    def view(image: MetadataImage) -> dict[str, Any]:
        if broker_id not in image.brokers:
            raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
        return describe_broker(_view(door, image), broker_id)

    return door.ok(request, await door.read(request, view))


def _view(door: Door, image: MetadataImage) -> BrokerView:
    sessions = door.controller.sessions if door.controller.is_active else None
    return BrokerView(image, sessions, now_ms=door.now_ms())


def describe_broker(view: BrokerView, broker_id: BrokerId) -> dict[str, Any]:
    """Return a registered broker; without sessions, what only the active controller knows is None."""
    image, sessions, now_ms = view.image, view.sessions, view.now_ms
    broker = image.brokers[broker_id]
    has_session = sessions is not None and sessions.has_session(broker_id, broker.broker_epoch, now_ms=now_ms)
    applied_offset = None if sessions is None else sessions.applied_offset(broker_id)
    contact_ms_ago = None if sessions is None else sessions.last_contact_ms_ago(broker_id, now_ms=now_ms)
    age_ms = None if sessions is None else sessions.metadata_age_ms(broker_id, now_ms=now_ms)
    lag = None if applied_offset is None else max(image.end_offset - applied_offset, 0)
    return {
        "broker_id": broker_id,
        "state": state_of(image, broker_id, has_session=has_session).value,
        "broker_epoch": broker.broker_epoch,
        "incarnation_id": uuid_text(broker.incarnation_id),
        "rack": broker.rack,
        "endpoints": json_rows(broker.endpoints),
        "control_state": view.control_state(broker).value,
        "registration_state": registration_state(broker).name,
        "in_controlled_shutdown": broker.in_controlled_shutdown,
        "is_cordoned": broker.is_cordoned,
        "shutdown_offset": None
        if sessions is None
        else sessions.shutdown_offset(broker_id, broker.broker_epoch),
        "waits_for": view.waits_for(broker),
        "applied_offset": applied_offset,
        "lag_records": lag,
        "last_contact_ms_ago": contact_ms_ago,
        "metadata_age_ms": age_ms,
        "would_serve_stale": None if lag is None else has_session and not broker.fenced and lag > 0,
    }


WRITES: Final = {"UnregisterBroker": Write(_named_broker, _unregistered)}
ROUTES: Final = (
    writing("POST", "/v1/brokers/register", register_broker, "RegisterBroker"),
    reading("/v1/brokers", list_brokers, "DescribeCluster"),
    reading("/v1/brokers/{id}", show_broker, "DescribeCluster"),
    writing("DELETE", "/v1/brokers/{id}", unregister_broker, "UnregisterBroker", TRIAL),
)
