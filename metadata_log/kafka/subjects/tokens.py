"""Pure: delegation tokens in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord

COUNTERPARTS: Final = (
    Counterpart(
        "DelegationToken",
        DelegationTokenRecord,
        renamed={
            "issue_timestamp": "issue_timestamp_ms",
            "max_timestamp": "max_timestamp_ms",
            "expiration_timestamp": "expiry_timestamp_ms",
        },
    ),
    Counterpart("RemoveDelegationToken", RemoveDelegationTokenRecord),
)
