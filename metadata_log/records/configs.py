"""Pure: what can happen to a setting of a topic, of a broker, of the whole cluster, of a group or of clients' metrics.
Tests: tests/unit/quorum/decide/test_configs.py.
"""

from typing import NamedTuple, TypeAlias

from metadata_log.records.declaration import record

TOPIC = 2
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32
"""Kafka's resource types; the cluster default is a BROKER of the empty name."""
CLUSTER_DEFAULT = ""
SECRET_ENDINGS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    ".key",
    "token",
    "credential",
    "credentials",
    "credentials.json",
    "connection.string",
    "user.info",
    "sasl.jaas.config",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)
"""Of Kafka's names of type PASSWORD, and of what other programs call their secrets. No other name of Kafka's ends so."""
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


def is_sensitive(name: str) -> bool:
    """Answer whether a setting of this name, in any letter case, is a secret: written with a mask key, never shown."""
    return name.lower().endswith(SECRET_ENDINGS)


def is_masked(config: "ConfigRecord") -> bool:
    """Answer whether digests and exports have a mask instead of a record's value.

    A mask key says that it is a secret. The name alone says so of fewer records than `is_sensitive`: if it said so of more,
    logs that hold such a record without a key would have other digests than before.
    """
    return config.mask_key is not None or config.name.endswith(MASKED_WITHOUT_KEY)


MASK_KEY_BYTES = 16


@record(
    type_id=4,
    secret_fields={"value": is_masked},
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
