"""Pure: SCRAM credentials in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord

COUNTERPARTS: Final = (
    Counterpart("UserScramCredential", UserScramCredentialRecord, ours_alone={"mask_key": None}),
    Counterpart("RemoveUserScramCredential", RemoveUserScramCredentialRecord),
)
