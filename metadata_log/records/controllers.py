"""Pure: what can happen to the registrations of controllers. Tests: tests/unit/quorum/decide/test_controllers.py."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import NodeId, Uuid
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.declaration import NO_SECRETS, record


@record(type_id=27, secret_fields=NO_SECRETS)
class RegisterControllerRecord(NamedTuple):
    """A controller process registered; `registration_epoch`, which is ours, is the offset of this very record.

    `zk_migration_ready` is false: Kafka's field of a migration that is over. Source: KIP-919.
    """

    controller_id: NodeId
    incarnation_id: Uuid
    registration_epoch: int
    zk_migration_ready: bool
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[FeatureRange, ...]


@record(type_id=1010, secret_fields=NO_SECRETS)
class UnregisterControllerRecord(NamedTuple):
    """An operator removed the registration of a controller that is gone."""

    controller_id: NodeId
    registration_epoch: int


Record: TypeAlias = RegisterControllerRecord | UnregisterControllerRecord
