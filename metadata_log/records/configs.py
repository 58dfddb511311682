"""Pure: what can happen to a setting of a topic, of a broker, or of the whole cluster."""

import hashlib
from typing import NamedTuple

TOPIC = 2
BROKER = 4
"""Kafka's resource types; the cluster default is a BROKER of the empty name."""
CLUSTER_DEFAULT = ""


class ConfigRecord(NamedTuple):
    """A setting got a value; `None` deletes it.

    A topic's setting belongs to the topic of that name living at that offset.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


def is_sensitive(name: str) -> bool:
    """Answer whether a setting's value may not be shown: Kafka's settings of type PASSWORD."""
    return name.endswith(
        ("password", "sasl.jaas.config", "ssl.keystore.key", "ssl.truststore.certificates", "secret")
    )


def shown_value(name: str, value: str) -> str:
    """Return the value as digests, exports and readers see it: a sensitive one as `sha256:` and its hex."""
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}" if is_sensitive(name) else value
