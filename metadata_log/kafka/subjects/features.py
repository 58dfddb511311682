"""Pure: finalized features in Kafka's log."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.features import FeatureLevelRecord

COUNTERPARTS: Final = (Counterpart("FeatureLevel", FeatureLevelRecord, renamed={"feature_level": "level"}),)
