"""Pure: settings in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.configs import ConfigRecord

COUNTERPARTS: Final = (Counterpart("Config", ConfigRecord, ours_alone={"mask_key": None}),)
