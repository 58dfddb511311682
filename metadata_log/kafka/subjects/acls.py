"""Pure: access control lists in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.acls import AccessControlEntryRecord, RemoveAccessControlEntryRecord

COUNTERPARTS: Final = (
    Counterpart("AccessControlEntry", AccessControlEntryRecord),
    Counterpart("RemoveAccessControlEntry", RemoveAccessControlEntryRecord),
)
