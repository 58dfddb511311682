"""Pure: each setting of a topic or a broker with the value that counts, and where that comes from.

The layers, each over the next: the topic's own setting; that of the broker; that of all brokers; the settings file; the
default. Source: Kafka's ConfigHelper, which answers DescribeConfigs.
"""

import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from metadata_log.image.configs import ConfigsImage, type_text
from metadata_log.kafka_settings import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    SYNONYMS,
    TOPIC_SETTINGS,
    Known,
    own_name,
)
from metadata_log.records.configs import BROKER, CLIENT_METRICS, CLUSTER_DEFAULT, GROUP, TOPIC, is_sensitive


class ConfigSource(enum.StrEnum):
    """Kafka's names of the layers."""

    TOPIC = "DYNAMIC_TOPIC_CONFIG"
    BROKER = "DYNAMIC_BROKER_CONFIG"
    CLUSTER = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC = "STATIC_BROKER_CONFIG"
    CLIENT_METRICS = "DYNAMIC_CLIENT_METRICS_CONFIG"
    GROUP = "GROUP_CONFIG"
    DEFAULT = "DEFAULT_CONFIG"


class Synonym(NamedTuple):
    """A value that a layer has; `value` is None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A setting as DescribeConfigs answers it; `synonyms` are all values there are for it, the one that counts first.

    A setting that no running broker takes over is `read_only`.
    """

    resource_type: str
    resource_name: str
    name: str
    value: str | None
    source: ConfigSource
    type: str
    is_sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]


UNKNOWN: Final = Known("UNKNOWN", None)


def describe_topic_configs(
    configs: ConfigsImage, name: str, *, node_id: int, static: Mapping[str, str]
) -> list[DescribedConfig]:
    """Return every setting of a topic, by name, as the node sees it; `static` are the settings of its file."""
    own: Mapping[str, str] = configs.get((TOPIC, name)) or {}
    described = []
    for setting in sorted({*TOPIC_SETTINGS, *own}):
        known = TOPIC_SETTINGS.get(setting, UNKNOWN)
        synonyms = [Synonym(setting, own[setting], ConfigSource.TOPIC)] if setting in own else []
        if setting in SYNONYMS:
            synonyms += _of_broker(configs, SYNONYMS[setting], node_id, static)
        described.append(_described(TOPIC, name, setting, known, synonyms))
    return described


def describe_broker_configs(
    configs: ConfigsImage, node_id: int, *, static: Mapping[str, str]
) -> list[DescribedConfig]:
    """Return every setting that a broker takes over while it runs, by name, and whatever else is set for it."""
    own: Mapping[str, str] = configs.get((BROKER, str(node_id))) or {}
    cluster: Mapping[str, str] = configs.get((BROKER, CLUSTER_DEFAULT)) or {}
    described = []
    for setting in sorted({*BROKER_SETTINGS, *own, *cluster}):
        # What is not set for the listener counts for it, too.
        names = list(dict.fromkeys((setting, own_name(setting))))
        known = BROKER_SETTINGS.get(names[-1], UNKNOWN)
        synonyms = sorted(
            (one for name in names for one in _of_broker(configs, name, node_id, static)),
            key=lambda one: _ORDER.index(one.source),
        )
        described.append(_described(BROKER, str(node_id), setting, known, synonyms))
    return described


def describe_cluster_configs(configs: ConfigsImage) -> list[DescribedConfig]:
    """Return the settings that are set for all brokers, by name."""
    cluster: Mapping[str, str] = configs.get((BROKER, CLUSTER_DEFAULT)) or {}
    return [
        _described(
            BROKER,
            CLUSTER_DEFAULT,
            setting,
            BROKER_SETTINGS.get(setting, UNKNOWN),
            [Synonym(setting, cluster[setting], ConfigSource.CLUSTER)],
        )
        for setting in sorted(cluster)
    ]


def describe_own_configs(configs: ConfigsImage, resource_type: int, name: str) -> list[DescribedConfig]:
    """Return every setting of a group or of a subscription to clients' metrics, by name: its own value, or the default."""
    own: Mapping[str, str] = configs.get((resource_type, name)) or {}
    settings, source = _OF_ONE_LAYER[resource_type]
    return [
        _described(
            resource_type,
            name,
            setting,
            known,
            [
                *([Synonym(setting, own[setting], source)] if setting in own else []),
                Synonym(setting, known.default, ConfigSource.DEFAULT),
            ],
        )
        for setting, known in sorted(settings.items())
    ]


_OF_ONE_LAYER: Final = {
    CLIENT_METRICS: (CLIENT_METRICS_SETTINGS, ConfigSource.CLIENT_METRICS),
    GROUP: (GROUP_SETTINGS, ConfigSource.GROUP),
}
_ORDER: Final = tuple(ConfigSource)


def _of_broker(
    configs: ConfigsImage, name: str, node_id: int, static: Mapping[str, str]
) -> Iterator[Synonym]:
    """Yield the values that the layers of a broker have for its setting, the one that counts first."""
    for resource_name, source in (
        (str(node_id), ConfigSource.BROKER),
        (CLUSTER_DEFAULT, ConfigSource.CLUSTER),
    ):
        settings: Mapping[str, str] = configs.get((BROKER, resource_name)) or {}
        if name in settings:
            yield Synonym(name, settings[name], source)
    default = BROKER_SETTINGS.get(name, UNKNOWN).default
    # A file that names the default cannot be told from one that does not name the setting.
    if static.get(name, default) != default:
        yield Synonym(name, static[name], ConfigSource.STATIC)
    if default is not None:
        yield Synonym(name, default, ConfigSource.DEFAULT)


def _described(
    resource_type: int, resource_name: str, name: str, known: Known, synonyms: list[Synonym]
) -> DescribedConfig:
    sensitive = is_sensitive(resource_type, name)
    value, source = known.default, ConfigSource.DEFAULT
    if synonyms:
        _, value, source = synonyms[0]
    if sensitive:
        value, synonyms = None, [one._replace(value=None) for one in synonyms]
    return DescribedConfig(
        type_text(resource_type),
        resource_name,
        name,
        value,
        source,
        known.type,
        sensitive,
        resource_type == BROKER and known is UNKNOWN,
        tuple(synonyms),
    )
