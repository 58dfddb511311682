"""Pure: what can happen to a setting of a topic, of a broker, of the whole cluster, of a group or of clients' metrics.
Tests: tests/unit/quorum/decide/test_configs.py.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from metadata_log.kafka_settings import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    INTERNAL_SEGMENT_BYTES,
    TOPIC_SETTINGS,
    is_shown_of_broker,
)
from metadata_log.records.declaration import record

TOPIC = 2
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32
"""Kafka's resource types; the cluster default is a BROKER of the empty name."""
CLUSTER_DEFAULT = ""
MASKED_WITHOUT_KEY = (
    "password",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "secret",
)
"""The names of secrets when records had no mask keys. Digests of logs rest on this list: it does not change."""
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


_SHOWN: Final[Mapping[int, Callable[[str], bool]]] = {
    TOPIC: {*TOPIC_SETTINGS, INTERNAL_SEGMENT_BYTES}.__contains__,
    BROKER: is_shown_of_broker,
    CLIENT_METRICS: CLIENT_METRICS_SETTINGS.__contains__,
    GROUP: GROUP_SETTINGS.__contains__,
}


def is_sensitive(resource_type: int, name: str) -> bool:
    """Answer whether the value of a setting is a secret: written with a mask key, and never shown.

    It is if Kafka knows the setting as a password, or does not know it: a plugin's password may have any name. Source:
    Kafka's KafkaConfigSchema.isSensitive.
    """
    is_shown = _SHOWN.get(resource_type)
    return is_shown is None or not is_shown(name)


def is_masked(config: "ConfigRecord") -> bool:
    """Answer whether digests and exports have a mask instead of a record's value.

    A mask key says that it is a secret. The name alone says so of fewer records than `is_sensitive`: if it said so of more,
    logs that hold such a record without a key would have other digests than before.
    """
    return config.mask_key is not None or config.name.endswith(MASKED_WITHOUT_KEY)


def _is_untold(config: "ConfigRecord") -> bool:
    return is_masked(config) or is_sensitive(config.resource_type, config.name)


MASK_KEY_BYTES = 16


@record(
    type_id=4,
    secret_fields={"value": is_masked},
    untold_fields={"value": _is_untold},
    versions=(4, 5),
    mask_key="mask_key",
)
class ConfigRecord(NamedTuple):
    """A setting got a value; `None` deletes it.

    A topic's setting belongs to the topic of that name living at that offset. A secret has a random key, under which it is
    masked: each has its own, so that neither equal secrets nor guessed ones are found by their masks.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None
    mask_key: bytes | None = None


Record: TypeAlias = ConfigRecord
