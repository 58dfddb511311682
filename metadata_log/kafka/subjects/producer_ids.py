"""Pure: producer ids in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.producer_ids import ProducerIdsRecord

COUNTERPARTS: Final = (Counterpart("ProducerIds", ProducerIdsRecord),)
