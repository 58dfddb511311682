"""Pure: registrations of controllers in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart, rows_of
from metadata_log.metadata_versions import CONTROLLERS_FROM
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord

NO_REGISTRATION_EPOCH: Final = -1
"""Kafka's controllers have none, in the log or in a checkpoint: one state has one digest, wherever its log begins."""

KNOWN_FROM: Final = {RegisterControllerRecord: CONTROLLERS_FROM}
"""Kafka's controllers do not register below this level; ours do, since features rest on it."""

COUNTERPARTS: Final = (
    Counterpart(
        "RegisterController",
        RegisterControllerRecord,
        renamed={"end_points": "endpoints"},
        conversions={"end_points": rows_of(BrokerEndpoint), "features": rows_of(FeatureRange)},
        ours_alone={"registration_epoch": NO_REGISTRATION_EPOCH},
    ),
    Counterpart(
        "UnregisterController",
        UnregisterControllerRecord,
        ours_alone={"registration_epoch": NO_REGISTRATION_EPOCH},
        is_written=False,
    ),
    # Brokers of 4.3.1 do not know the record, and need to know nothing of it.
    Counterpart(
        "NoOp",
        UnregisterControllerRecord,
        ours_alone=dict.fromkeys(("controller_id", "registration_epoch")),
        is_read=False,
    ),
)
