"""Pure: what concerns the whole cluster as columns: features, producer ids, the quorum, its controllers.

These are a handful of rows, so one table holds them: each further table costs Spark a job.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from metadata_log.ids import uuid_from_text
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.replay.subjects.subject import ReplaySubject, UuidTexts

_ENDPOINT: Final = pa.struct([("name", pa.string()), ("host", pa.string()), ("port", pa.int32())])
_VOTER: Final = pa.struct(
    [
        ("id", pa.int32()),
        ("directory_id", pa.string()),
        ("endpoints", pa.list_(pa.field("element", _ENDPOINT))),
        ("min", pa.int32()),
        ("max", pa.int32()),
    ]
)


def _voters_column(values: Sequence[tuple[Voter, ...]], texts: UuidTexts) -> list[Any]:
    return [
        [
            {
                "id": voter.node_id,
                "directory_id": texts[voter.directory_id],
                "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
                "min": voter.min_version,
                "max": voter.max_version,
            }
            for voter in voters
        ]
        for voters in values
    ]


def _voters(rows: Sequence[Mapping[str, Any]]) -> tuple[Voter, ...]:
    return tuple(
        Voter(
            row["id"],
            uuid_from_text(row["directory_id"]),
            tuple(VoterEndpoint(**endpoint) for endpoint in row["endpoints"]),
            row["min"],
            row["max"],
        )
        for row in rows
    )


SUBJECT: Final = ReplaySubject(
    fields=(
        ("feature_name", pa.string(), "the feature"),
        ("feature_level", pa.int32(), "its finalized level; 0: none any more"),
        ("next_producer_id", pa.int64(), "the first producer id not yet given out"),
        ("kraft_version", pa.int32(), "the quorum's version"),
        ("cluster_id", pa.string(), "the cluster"),
        ("voters", pa.list_(pa.field("element", _VOTER)), "the controllers that vote"),
        ("node_id", pa.int32(), "the controller that registered"),
        (
            "registration_epoch",
            pa.int64(),
            "the offset of its registration; -1 in Kafka's log, which has none",
        ),
        ("zk_migration_ready", pa.bool_(), "always false"),
    ),
    identity=("type", "feature_name", "node_id"),
    key=(
        "CASE type WHEN 12 THEN 'feature:' || feature_name WHEN 27 THEN 'controller:' || node_id"
        " WHEN 15 THEN 'producer ids' WHEN 1005 THEN 'voters' ELSE 'quorum' END"
    ),
    columns={
        FeatureLevelRecord: ("feature_name", "feature_level"),
        ProducerIdsRecord: ("broker_id", "broker_epoch", "next_producer_id"),
        NoOpRecord: (),
        ControllerClaimRecord: ("controller_id", "controller_epoch", "cluster_id"),
        QuorumVersionRecord: ("kraft_version",),
        VotersRecord: ("voters",),
        RegisterControllerRecord: (
            *("node_id", "incarnation_id", "registration_epoch", "zk_migration_ready"),
            *("endpoints", "features"),
        ),
        UnregisterControllerRecord: ("node_id", "registration_epoch"),
    },
    changes=("feature_changes", "producer_id_changes", "quorum_changes", "controller_changes"),
    to_column={"voters": _voters_column},
    from_column={"voters": _voters},
)
