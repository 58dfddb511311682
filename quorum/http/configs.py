"""Edge: configs over HTTP: list and alter those of topics, brokers, the whole cluster, groups, clients' metrics.
Tests: tests/unit/quorum/http/test_administration.py.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType, field

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnknownTopicOrPartition
from metadata_log.image.configs import configs_items, settings_items, type_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import NAME, NODE, SWITCH
from metadata_log.records.configs import BROKER, CLIENT_METRICS, CLUSTER_DEFAULT, GROUP, TOPIC
from metadata_log.records.registry import json_rows
from metadata_log.wire.shapes import Natural32, Shape, TextMap, check_text, check_text_map, read_shape
from quorum.decide.configs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigsAltered,
    IncrementalAlterConfigs,
    LegacyAlterConfigs,
    ResourceChange,
    ResourcesAltered,
    check_node,
)
from quorum.decide.described_configs import (
    describe_broker_configs,
    describe_cluster_configs,
    describe_topic_configs,
)
from quorum.decide.topic_names import check_name
from quorum.http.bodies import broker_id_of
from quorum.http.door import Door, Write, carry_out
from quorum.http.routes import AS_FRESH, reading, topic_in_query, writing

RESOURCES: Final = ("topic", "broker", "cluster", "group", "client_metrics")


class Resource(Shape, frozen=True):
    """The one resource named."""

    topic: str | UnsetType = UNSET
    broker: Natural32 | UnsetType = UNSET
    cluster: bool | UnsetType = UNSET
    group: str | UnsetType = UNSET
    client_metrics: str | UnsetType = UNSET


Names = Annotated[tuple[str, ...], Meta(max_length=limits.LIST_ITEMS_MAX)]


class ChangeAlone(Resource, frozen=True):
    """Settings to set and to unset of the one resource named."""

    set: TextMap = field(default_factory=dict)
    unset: Names = ()


class Change(ChangeAlone, frozen=True):
    """Changes of one of many resources; `append` and `subtract` have items of lists, with commas between."""

    append: TextMap = field(default_factory=dict)
    subtract: TextMap = field(default_factory=dict)


class Changes(Shape, frozen=True):
    resources: Annotated[tuple[Change, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


class Settings(Resource, frozen=True, kw_only=True):
    """The only settings that the one resource named shall have."""

    configs: TextMap


class AllSettings(Shape, frozen=True):
    resources: Annotated[tuple[Settings, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


def _changes(body: Any) -> AlterConfigs | IncrementalAlterConfigs:
    """Return changes of one resource, or, where a body has "resources", of many."""
    if isinstance(body, dict) and "resources" in body:
        wanted = read_shape(body, Changes, "configs")
        return IncrementalAlterConfigs(
            resources=tuple(map(_resource_change, wanted.resources)),
            validate_only=wanted.validate_only,
            all_or_nothing=wanted.all_or_nothing,
        )
    change = read_shape(body, ChangeAlone, "configs")
    _check_values("set", change.set)
    _check_names(change.unset)
    resource_type, resource_name = _named(change)
    return AlterConfigs(
        resource_type=resource_type, resource_name=resource_name, set=change.set, unset=change.unset
    )


def _resource_change(change: Change) -> ResourceChange:
    valued = (
        (ConfigOperation.SET, change.set),
        (ConfigOperation.APPEND, change.append),
        (ConfigOperation.SUBTRACT, change.subtract),
    )
    for operation, values in valued:
        _check_values(operation.name.lower(), values)
    _check_names(change.unset)
    return ResourceChange(
        *_named(change),
        (
            *(
                ConfigChange(name, operation, value)
                for operation, values in valued
                for name, value in values.items()
            ),
            *(ConfigChange(name, ConfigOperation.DELETE, None) for name in change.unset),
        ),
    )


def _replacements(body: Any) -> LegacyAlterConfigs:
    wanted = read_shape(body, AllSettings, "configs")
    for one in wanted.resources:
        _check_values("configs", one.configs)
    return LegacyAlterConfigs(
        resources=tuple(
            ResourceChange(
                *_named(one),
                tuple(ConfigChange(name, ConfigOperation.SET, value) for name, value in one.configs.items()),
            )
            for one in wanted.resources
        ),
        validate_only=wanted.validate_only,
        all_or_nothing=wanted.all_or_nothing,
    )


def _check_values(field_name: str, values: Mapping[str, str]) -> None:
    check_text_map(f"configs.{field_name}", values, value_bytes_max=limits.CONFIG_VALUE_BYTES_MAX)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        check_text("configs.unset", name)


def _named(resource: Resource) -> tuple[int, str]:
    return _resource(
        {name: getattr(resource, name) for name in RESOURCES if getattr(resource, name) is not UNSET}
    )


def _altered(outcome: ConfigsAltered | ResourcesAltered) -> dict[str, Any]:
    if isinstance(outcome, ResourcesAltered):
        return {
            "resources": [
                {**row, "resource_type": type_text(row["resource_type"])}
                for row in json_rows(outcome.results)
            ]
        }
    return {"items": settings_items(outcome.resource_type, outcome.resource_name, dict(outcome.settings))}


async def list_configs(door: Door, request: web.Request) -> web.Response:
    """Answer with the settings of one resource: those that are set, or, with `effective`, every one that counts for it."""
    named: dict[str, Any] = {name: request.query[name] for name in RESOURCES if name in request.query}
    if "broker" in named:
        named["broker"] = broker_id_of(named["broker"])
    if "cluster" in named:
        named["cluster"] = flag(request, "cluster")
    resource_type, resource_name = _resource(named)
    is_effective = flag(request, "effective")
    node_id = broker_id_of(request.query["on"]) if "on" in request.query else door.settings.node_id
    if "on" in request.query and not (is_effective and resource_type == TOPIC):
        raise InvalidRequest('"on" is of the effective settings of a topic')
    if is_effective and resource_type in (GROUP, CLIENT_METRICS):
        raise InvalidRequest("brokers know the effective settings of groups and of clients' metrics")

    def items(image: MetadataImage) -> list[Any]:
        if resource_type == TOPIC:
            check_name(resource_name)
        if resource_type == TOPIC and resource_name not in image.topics.ids:
            raise UnknownTopicOrPartition(f"topic {resource_name!r} does not exist")
        if not is_effective:
            return configs_items(image.configs, resource_type, resource_name)
        static = door.settings.topics.static_configs
        if resource_type == TOPIC:
            described = describe_topic_configs(image.configs, resource_name, node_id=node_id, static=static)
        elif resource_name == CLUSTER_DEFAULT:
            described = describe_cluster_configs(image.configs)
        else:
            check_node(image, resource_name)
            described = describe_broker_configs(image.configs, int(resource_name), static=static)
        return json_rows(described)

    return await door.read_items(request, items)


def _resource(named: Mapping[str, Any]) -> tuple[int, str]:
    """Return resource_type and resource_name of the one thing named."""
    match list(named.items()):
        case [("topic", str(name))]:
            return TOPIC, name
        case [("broker", int(broker_id))]:
            return BROKER, str(broker_id)
        case [("cluster", True)]:
            return BROKER, CLUSTER_DEFAULT
        case [("group" | "client_metrics" as kind, str(name))]:
            check_text(f"configs.{kind}", name)
            return GROUP if kind == "group" else CLIENT_METRICS, name
        case _:
            raise InvalidRequest(
                'name one of "topic": NAME, "broker": ID, "cluster": true, "group": NAME, "client_metrics": NAME'
            )


WRITES: Final = {
    "IncrementalAlterConfigs": Write(_changes, _altered),
    "LegacyAlterConfigs": Write(_replacements, _altered),
}
ROUTES: Final = (
    reading(
        "/v1/configs",
        list_configs,
        "DescribeConfigs",
        {
            **AS_FRESH,
            "topic": NAME,
            "broker": NODE,
            "cluster": SWITCH,
            "group": NAME,
            "client_metrics": NAME,
            "effective": SWITCH,
            "on": NODE,
        },
        resources=topic_in_query,
    ),
    writing("PATCH", "/v1/configs", carry_out(WRITES["IncrementalAlterConfigs"]), "IncrementalAlterConfigs"),
    writing("PUT", "/v1/configs", carry_out(WRITES["LegacyAlterConfigs"]), "LegacyAlterConfigs"),
)
