"""Pure: quotas of clients in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart, rows_of
from metadata_log.records.quotas import ClientQuotaRecord, QuotaEntity

COUNTERPARTS: Final = (
    Counterpart("ClientQuota", ClientQuotaRecord, conversions={"entity": rows_of(QuotaEntity)}),
)
