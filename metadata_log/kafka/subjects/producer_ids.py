"""Pure: producer ids in Kafka's log."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.producer_ids import ProducerIdsRecord

COUNTERPARTS: Final = (Counterpart("ProducerIds", ProducerIdsRecord),)
