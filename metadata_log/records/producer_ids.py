"""Pure: what can happen to the producer ids."""

from typing import NamedTuple

from metadata_log.ids import BrokerId


class ProducerIdsRecord(NamedTuple):
    """A block of producer ids went to a broker; the next one begins at `next_producer_id`."""

    broker_id: BrokerId
    broker_epoch: int
    next_producer_id: int
