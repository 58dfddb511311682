"""Edge: configs over HTTP: list and alter those of a topic, of a broker, or of the whole cluster."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType, field

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnknownTopicOrPartition
from metadata_log.image.configs import configs_items, settings_items
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC
from metadata_log.wire.commands import AlterConfigs
from metadata_log.wire.shapes import Natural32, Shape, TextMap, check_text, check_text_map, read_shape
from quorum.decide.config_types import check_broker_configs
from quorum.decide.configs import ConfigsAltered
from quorum.http.bodies import broker_id_of, read_body
from quorum.http.door import Door, Write

RESOURCES: Final = ("topic", "broker", "cluster")


class Change(Shape, frozen=True):
    """Configs to set and to unset of the one resource named."""

    topic: str | UnsetType = UNSET
    broker: Natural32 | UnsetType = UNSET
    cluster: bool | UnsetType = UNSET
    set: TextMap = field(default_factory=dict)
    unset: Annotated[tuple[str, ...], Meta(max_length=limits.LIST_ITEMS_MAX)] = ()


async def alter_configs(door: Door, request: web.Request) -> web.Response:
    body = await read_body(request, door.bodies)
    return await door.write(request, _change(body), _altered)


def _change(body: Any) -> AlterConfigs:
    change = read_shape(body, Change, "configs")
    check_text_map("configs.set", change.set, value_bytes_max=limits.CONFIG_VALUE_BYTES_MAX)
    for name in change.unset:
        check_text("configs.unset", name)
    named = {name: getattr(change, name) for name in RESOURCES if getattr(change, name) is not UNSET}
    resource_type, resource_name = _resource(named)
    if resource_type == BROKER:
        check_broker_configs(resource_name, change.set)
    return AlterConfigs(
        resource_type=resource_type, resource_name=resource_name, set=change.set, unset=change.unset
    )


def _altered(outcome: ConfigsAltered) -> dict[str, Any]:
    return {"items": settings_items(outcome.resource_type, outcome.resource_name, dict(outcome.settings))}


async def list_configs(door: Door, request: web.Request) -> web.Response:
    named: dict[str, Any] = {name: request.query[name] for name in RESOURCES if name in request.query}
    if "broker" in named:
        named["broker"] = broker_id_of(named["broker"])
    if "cluster" in named:
        named["cluster"] = named["cluster"] in ("1", "true")
    resource_type, resource_name = _resource(named)

    def items(image: MetadataImage) -> list[Any]:
        if resource_type == TOPIC and resource_name not in image.topics.ids:
            raise UnknownTopicOrPartition(f"topic {resource_name!r} does not exist")
        return configs_items(image.configs, resource_type, resource_name)

    return await door.read_items(request, items)


def _resource(named: Mapping[str, Any]) -> tuple[int, str]:
    """Return resource_type and resource_name of the one thing named: topic, broker or cluster."""
    match list(named.items()):
        case [("topic", str(name))]:
            return TOPIC, name
        case [("broker", int(broker_id))]:
            return BROKER, str(broker_id)
        case [("cluster", True)]:
            return BROKER, CLUSTER_DEFAULT
        case _:
            raise InvalidRequest('name one of "topic": NAME, "broker": ID, "cluster": true')


WRITES: Final = {"IncrementalAlterConfigs": Write(_change, _altered)}
ROUTES: Final = (
    ("GET", "/v1/configs", list_configs),
    ("PATCH", "/v1/configs", alter_configs),
)
