"""Pure: what can happen to a broker. Tests: tests/unit/quorum/decide/test_brokers.py."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import BrokerId, Uuid
from metadata_log.records.declaration import NO_SECRETS, json_names, record

SSL_PROTOCOL = 1
"""Kafka's number of TLS without SASL, as an endpoint's security_protocol."""


class BrokerEndpoint(NamedTuple):
    """Where clients reach a broker.

    `security_protocol` is Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int


@json_names(min_version="min", max_version="max")
class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends inclusive."""

    name: str
    min_version: int
    max_version: int


@record(type_id=0, secret_fields=NO_SECRETS)
class RegisterBrokerRecord(NamedTuple):
    """A broker process registered; `broker_epoch` is the offset of this very record.

    `rack` is None or non-empty; `cordoned_log_dirs` is None where the broker did not tell.
    Source: KIP-631; KIP-858 for log_dirs; KIP-1066 for cordoned_log_dirs.
    """

    broker_id: BrokerId
    incarnation_id: Uuid
    broker_epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] | None


@record(type_id=1, secret_fields=NO_SECRETS)
class UnregisterBrokerRecord(NamedTuple):
    broker_id: BrokerId
    broker_epoch: int


@record(type_id=17, secret_fields=NO_SECRETS)
class BrokerRegistrationChangeRecord(NamedTuple):
    """A registered broker was fenced, unfenced, began its controlled shutdown, or lost or cordoned directories.

    `None` means unchanged. `in_controlled_shutdown` is only ever set (a new registration resets it), `log_dirs` is
    never empty: a change of nothing says that the last directory failed, which stays listed. Source: KIP-841; KIP-858.
    """

    broker_id: BrokerId
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[Uuid, ...] | None = None
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


Record: TypeAlias = RegisterBrokerRecord | UnregisterBrokerRecord | BrokerRegistrationChangeRecord
