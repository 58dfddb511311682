"""Edge: settings in Kafka's protocol are described and altered: of topics, brokers, the cluster, groups and metrics."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final

from metadata_log.errors import InvalidRequest, MetadataError, UnknownTopicOrPartition
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.reading import Values
from metadata_log.records.configs import BROKER, CLIENT_METRICS, CLUSTER_DEFAULT, GROUP, TOPIC
from quorum.decide.configs import (
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    LegacyAlterConfigs,
    ResourceAltered,
    ResourceChange,
    check_node,
    no_settings,
    resource_of,
)
from quorum.decide.described_configs import (
    ConfigSource,
    DescribedConfig,
    describe_broker_configs,
    describe_cluster_configs,
    describe_own_configs,
    describe_topic_configs,
)
from quorum.decide.topic_names import check_name
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
SETTINGS_AT_ONCE: Final = 2_000
"""Of one command; some of them have long values."""
_PATTERN_BYTES: Final = 8
"""They take as long to check as another setting."""
SOURCES: Final[Mapping[ConfigSource, int]] = {
    ConfigSource.TOPIC: 1,
    ConfigSource.BROKER: 2,
    ConfigSource.CLUSTER: 3,
    ConfigSource.STATIC: 4,
    ConfigSource.DEFAULT: 5,
    ConfigSource.CLIENT_METRICS: 7,
    ConfigSource.GROUP: 8,
}
"""Source: Kafka's DescribeConfigsResponse.ConfigSource."""
_TYPES: Final = (
    "UNKNOWN",
    "BOOLEAN",
    "STRING",
    "INT",
    "SHORT",
    "LONG",
    "DOUBLE",
    "LIST",
    "CLASS",
    "PASSWORD",
)
TYPES: Final[Mapping[str, int]] = {name: number for number, name in enumerate(_TYPES)}
"""Source: Kafka's DescribeConfigsResponse.ConfigType."""
_OPERATIONS: Final[Mapping[int, ConfigOperation]] = {each.value: each for each in ConfigOperation}


# --- changes


async def alter_incrementally(door: KafkaDoor, asked: Asked) -> Values:
    resources, validate_only = asked.values
    known, refused = [], []
    for resource_type, name, changes in resources:
        try:
            of = [ConfigChange(setting, _OPERATIONS[number], value) for setting, number, value in changes]
            known.append(ResourceChange(resource_type, name, tuple(of)))
        except KeyError:
            error = KafkaError(InvalidRequest.code, "an operation on a setting is not known")
            refused.append(_not_altered(resource_type, name, error))
    parts = await _altered(
        door,
        asked,
        known,
        lambda some: IncrementalAlterConfigs(resources=tuple(some), validate_only=validate_only),
    )
    return (NO_THROTTLE, [*refused, *_rows(parts)])


async def alter_wholly(door: KafkaDoor, asked: Asked) -> Values:
    resources, validate_only = asked.values
    wanted = [
        ResourceChange(
            resource_type,
            name,
            tuple(ConfigChange(setting, ConfigOperation.SET, value) for setting, value in configs),
        )
        for resource_type, name, configs in resources
    ]
    parts = await _altered(
        door,
        asked,
        wanted,
        lambda some: LegacyAlterConfigs(resources=tuple(some), validate_only=validate_only),
    )
    return (NO_THROTTLE, list(_rows(parts)))


def _altered(
    door: KafkaDoor, asked: Asked, resources: Sequence[ResourceChange], command_of: Any
) -> Awaitable[list[Part]]:
    return decided_in_parts(
        door,
        asked.caller,
        resources,
        command_of,
        weight=_weight,
        weight_max=SETTINGS_AT_ONCE,
        name=lambda resource: resource[:2],
        asks=("LegacyAlterConfigs", lambda each: resource_of(each.resource_type, each.resource_name)),
    )


def _weight(resource: ResourceChange) -> int:
    """Return what a resource weighs; regular expressions, of which clients' metrics have some, take the longest to check."""
    weight = len(resource.changes) + 1
    if resource.resource_type == CLIENT_METRICS:
        weight += sum(len(change.value or "") for change in resource.changes) // _PATTERN_BYTES
    return weight


def _rows(parts: Iterable[Part]) -> Iterable[Values]:
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            for resource_type, name in dict.fromkeys(each[:2] for each in some):
                yield _not_altered(resource_type, name, error)
        else:
            yield from map(_row, outcome.results)


def _row(resource: ResourceAltered) -> Values:
    code, message = item_error(resource.error, resource.message)
    return (code, message, resource.resource_type, resource.resource_name)


def _not_altered(resource_type: int, name: str, error: KafkaError) -> Values:
    return (error.code, error.message, resource_type, name)


def _refused_change(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [_not_altered(resource[0], resource[1], error) for resource in asked.values[0]])


# --- description


async def describe_configs(door: KafkaDoor, asked: Asked) -> Values:
    resources, with_synonyms, _ = asked.values
    image: MetadataImage = await door.controller.read(lambda image: image)

    def described() -> list[Values]:
        return [_described(door, image, *resource, with_synonyms=with_synonyms) for resource in resources]

    return (NO_THROTTLE, await door.reads.run(described))


def _described(
    door: KafkaDoor,
    image: MetadataImage,
    resource_type: int,
    name: str,
    wanted: Sequence[str] | None,
    *,
    with_synonyms: bool,
) -> Values:
    try:
        settings = _settings(door, image, resource_type, name)
    except MetadataError as refusal:
        return _not_described(resource_type, name, kafka_error(refusal))
    names = None if wanted is None else frozenset(wanted)
    rows = [
        _setting(setting, with_synonyms=with_synonyms)
        for setting in settings
        if names is None or setting.name in names
    ]
    return (NONE, None, resource_type, name, rows)


def _settings(
    door: KafkaDoor, image: MetadataImage, resource_type: int, name: str
) -> Sequence[DescribedConfig]:
    configs, node_id = image.configs, door.settings.node_id
    static = door.settings.topics.static_configs
    if resource_type == TOPIC:
        check_name(name)
        if name not in image.topics.ids:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return describe_topic_configs(configs, name, node_id=node_id, static=static)
    if resource_type in (CLIENT_METRICS, GROUP):
        if not name:
            raise InvalidRequest("the settings of a group or of clients' metrics need a name")
        return describe_own_configs(configs, resource_type, name)
    if resource_type != BROKER:
        raise InvalidRequest(no_settings(resource_type))
    if name == CLUSTER_DEFAULT:
        return describe_cluster_configs(configs)
    check_node(image, name, node_id)
    return describe_broker_configs(configs, int(name), static=static if int(name) == node_id else {})


def _setting(setting: DescribedConfig, *, with_synonyms: bool) -> Values:
    synonyms = (
        [(each.name, each.value, SOURCES[each.source]) for each in setting.synonyms] if with_synonyms else ()
    )
    return (
        setting.name,
        setting.value,
        setting.read_only,
        SOURCES[setting.source],
        setting.is_sensitive,
        synonyms,
        TYPES.get(setting.type, 0),
        None,  # the texts of Kafka's documentation are not here
    )


def _not_described(resource_type: int, name: str, error: KafkaError) -> Values:
    return (error.code, error.message, resource_type, name, ())


def _refused_description(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [_not_described(resource[0], resource[1], error) for resource in asked.values[0]])


APIS: Final = (
    Api(DESCRIBE_CONFIGS, Waits(describe_configs), "DescribeConfigs", _refused_description),
    Api(ALTER_CONFIGS, Waits(alter_wholly), "LegacyAlterConfigs", _refused_change, in_envelopes=True),
    Api(
        INCREMENTAL_ALTER_CONFIGS,
        Waits(alter_incrementally),
        "IncrementalAlterConfigs.many",
        _refused_change,
        in_envelopes=True,
    ),
)
