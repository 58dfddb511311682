"""Pure: the first and the last record of Kafka's checkpoints. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.snapshots import (
    BegunChangeRecord,
    RequestResultRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)

COUNTERPARTS: Final = (
    Counterpart(
        "SnapshotHeader",
        SnapshotHeaderRecord,
        renamed={"last_contained_log_timestamp": "last_time_ms"},
        # The name of the file says the offset and the epoch.
        ours_alone={
            "cluster_id": "",
            "end_offset": 0,
            "controller_epoch": 0,
            "last_crc": 0,
            "controller_id": None,
        },
        kafka_alone={"version": 0},
    ),
    Counterpart(
        "SnapshotFooter",
        SnapshotFooterRecord,
        ours_alone={"record_count": 0, "digest": ""},
        kafka_alone={"version": 0},
    ),
)
NOT_IN_KAFKA: Final = {
    BegunChangeRecord: "Kafka's controllers make such changes at once",
    RequestResultRecord: "Kafka's requests have no ids, and its controllers keep no answers",
}
