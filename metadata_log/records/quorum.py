"""Pure: what can happen to the quorum itself."""

from typing import NamedTuple

from metadata_log.ids import NodeId, Uuid

KRAFT_VERSION_LEVEL = 1


class ControllerClaimRecord(NamedTuple):
    """A controller took over; the first record of its batch, whose frame carries the new epoch. Kafka's LeaderChange."""

    controller_id: NodeId
    controller_epoch: int
    cluster_id: str


class QuorumVersionRecord(NamedTuple):
    """The version of the voters' own protocol. Source: KIP-853."""

    kraft_version: int


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A member of the quorum; the versions of kraft.version it supports are inclusive."""

    node_id: NodeId
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    min_version: int
    max_version: int


class VotersRecord(NamedTuple):
    """The whole set of voters, in order of id; it replaces any earlier one. Source: KIP-853."""

    voters: tuple[Voter, ...]


class NoOpRecord(NamedTuple):
    """Nothing but an offset."""
