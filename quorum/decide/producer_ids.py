"""Pure: producer ids, which brokers get in blocks. Source: KIP-730; Kafka's ProducerIdControlManager."""

from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import IdsExhausted
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.wire.commands import AllocateProducerIds
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide.access import BY_BROKER
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.fencing import registered

BLOCK_SIZE: Final = 1_000


class ProducerIdsAllocated(NamedTuple):
    """The first id of the block, and how many it has."""

    first: int
    length: int


def allocate(context: DecideContext, command: AllocateProducerIds) -> Decision:
    """Decide the next block of producer ids.

    Raises:
        StaleBrokerEpoch: the broker is not registered under this epoch.
        IdsExhausted: the end of another block is no signed integer of 64 bits.
    """
    registered(context.image, command.broker_id, command.broker_epoch)
    first = context.image.next_producer_id or 0
    if first > INT64_MAX - BLOCK_SIZE:
        raise IdsExhausted(
            f"all producer ids are exhausted: {first} is the next, and a block of {BLOCK_SIZE} ends beyond {INT64_MAX}"
        )
    record = ProducerIdsRecord(command.broker_id, command.broker_epoch, first + BLOCK_SIZE)
    cause = Cause("PRODUCER_IDS_REQUESTED", command.broker_epoch, {"broker_id": command.broker_id})
    return Decision(records=(record,), outcome=ProducerIdsAllocated(first, BLOCK_SIZE), cause=cause)


DECISIONS: Final = (
    Decides(AllocateProducerIds, "AllocateProducerIds", ProducerIdsAllocated, BY_BROKER, allocate),
)
