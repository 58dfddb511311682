"""Edge: blocks of producer ids in Kafka's protocol."""

from typing import Final

from metadata_log.ids import BrokerId
from metadata_log.kafka.reading import Values
from metadata_log.wire.commands import AllocateProducerIds
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE

ALLOCATE_PRODUCER_IDS: Final = 67


async def allocate(door: KafkaDoor, asked: Asked) -> Values:
    broker_id, broker_epoch = asked.values
    command = AllocateProducerIds(broker_id=BrokerId(broker_id), broker_epoch=broker_epoch)
    first, length = (await door.controller.submit(command, asked.caller)).outcome
    return (NO_THROTTLE, NONE, first, length)


APIS: Final = (Api(ALLOCATE_PRODUCER_IDS, Waits(allocate), "AllocateProducerIds"),)
