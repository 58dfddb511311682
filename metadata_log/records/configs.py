"""Pure: what can happen to a setting of a topic, of a broker, or of the whole cluster."""

from typing import NamedTuple, TypeAlias

from metadata_log.records.declaration import record

TOPIC = 2
BROKER = 4
"""Kafka's resource types; the cluster default is a BROKER of the empty name."""
CLUSTER_DEFAULT = ""
SECRET_ENDINGS = (
    "password",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "secret",
)
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"


def is_sensitive(name: str) -> bool:
    """Answer whether a setting's value may not be shown: Kafka's settings of type PASSWORD."""
    return name.endswith(SECRET_ENDINGS)


MASK_KEY_BYTES = 16


@record(
    type_id=4,
    secret_fields={"value": lambda config: is_sensitive(config.name)},
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
