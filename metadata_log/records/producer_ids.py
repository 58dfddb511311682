"""Pure: what can happen to the producer ids. Tests: tests/unit/quorum/decide/test_producer_ids.py."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import BrokerId
from metadata_log.records.declaration import NO_SECRETS, record


@record(type_id=15, secret_fields=NO_SECRETS)
class ProducerIdsRecord(NamedTuple):
    """A block of producer ids went to a broker; the next one begins at `next_producer_id`."""

    broker_id: BrokerId
    broker_epoch: int
    next_producer_id: int


Record: TypeAlias = ProducerIdsRecord
