"""Pure: the quorum in Kafka's log: the records of control batches, and NoOp.
Tests: tests/unit/metadata_log/kafka/test_translation.py.
"""

from collections.abc import Sequence
from typing import Any, Final

from metadata_log.ids import NodeId, Uuid
from metadata_log.kafka.counterpart import Conversion, Counterpart
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)


def _voters(rows: Sequence[tuple[Any, ...]]) -> tuple[Voter, ...]:
    return tuple(
        Voter(
            NodeId(node_id),
            Uuid(directory_id),
            tuple(map(VoterEndpoint._make, endpoints)),
            *supported_versions,
        )
        for node_id, directory_id, endpoints, supported_versions in rows
    )


def _voter_rows(voters: Sequence[Voter]) -> tuple[tuple[Any, ...], ...]:
    return tuple((*voter[:3], voter[3:]) for voter in voters)


COUNTERPARTS: Final = (
    Counterpart(
        "LeaderChange",
        ControllerClaimRecord,
        renamed={"leader_id": "controller_id"},
        # Of the batch's epoch, and of the cluster, where the record is read.
        ours_alone={"controller_epoch": 0, "cluster_id": ""},
        # The voters in force at its offset, which is what the writer knows beside the claim.
        kafka_alone={"version": 0, "voters": (), "granting_voters": ()},
        versions={7: 0},
    ),
    Counterpart("KRaftVersion", QuorumVersionRecord, kafka_alone={"version": 0}),
    Counterpart(
        "KRaftVoters",
        VotersRecord,
        conversions={"voters": Conversion(_voters, _voter_rows)},
        kafka_alone={"version": 0},
    ),
    Counterpart("NoOp", NoOpRecord),
)
