"""Pure: finalized features in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.features import FeatureLevelRecord

COUNTERPARTS: Final = (Counterpart("FeatureLevel", FeatureLevelRecord, renamed={"feature_level": "level"}),)
