"""Pure: what can happen to the quorum itself. Tests: tests/unit/metadata_log/test_apply.py."""

from typing import Final, NamedTuple, TypeAlias

from metadata_log.ids import NodeId, Uuid
from metadata_log.records.declaration import NO_SECRETS, json_names, record

KRAFT_VERSION_LEVEL = 1
RAFT_ENDPOINT: Final = "CONTROLLER"
"""The name of the endpoint at which the other voters reach a controller. Digests of existing logs rest on it."""
KAFKA_ENDPOINT: Final = "KAFKA"
"""The name of the endpoint for Kafka's brokers and tools; they are told the name that the settings give the listener."""


@record(type_id=1000, secret_fields=NO_SECRETS)
class ControllerClaimRecord(NamedTuple):
    """A controller took over; the first record of its batch, whose frame carries the new epoch. Kafka's LeaderChange."""

    controller_id: NodeId
    controller_epoch: int
    cluster_id: str


@record(type_id=1004, secret_fields=NO_SECRETS)
class QuorumVersionRecord(NamedTuple):
    """The version of the voters' own protocol. Source: KIP-853."""

    kraft_version: int


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@json_names(node_id="id", min_version="min", max_version="max")
class Voter(NamedTuple):
    """A member of the quorum; the versions of kraft.version it supports are inclusive."""

    node_id: NodeId
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    min_version: int
    max_version: int

    def address(self, name: str) -> tuple[str, int] | None:
        """Return host and port of the endpoint with a name; None if the voter has none."""
        return next((endpoint.address for endpoint in self.endpoints if endpoint.name == name), None)


@record(type_id=1005, secret_fields=NO_SECRETS)
class VotersRecord(NamedTuple):
    """The whole set of voters, in order of id; it replaces any earlier one. Source: KIP-853."""

    voters: tuple[Voter, ...]


@record(type_id=20, secret_fields=NO_SECRETS)
class NoOpRecord(NamedTuple):
    """Nothing but an offset."""


WRITE_NO_OP: Final = "writeNoOpRecord"
"""The operation of a batch by which the active controller marks that it is there although nothing happens."""


Record: TypeAlias = ControllerClaimRecord | QuorumVersionRecord | VotersRecord | NoOpRecord
