"""Edge: reassignments of partitions in Kafka's protocol: begun, cancelled and listed.

Tests: tests/unit/quorum/kafka/test_elections.py.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.reading import Values
from metadata_log.node.pace import Pace
from metadata_log.sliced import at_once
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment, ongoing
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.elections import by_topic
from quorum.kafka.errors import NONE, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46


async def alter_reassignments(door: KafkaDoor, asked: Asked) -> Values:
    _, may_change_factor, topics = asked.values
    parts = await decided_in_parts(
        door,
        asked.caller,
        (
            Reassignment(topic, partition_id, None if replicas is None else tuple(map(BrokerId, replicas)))
            for topic, partitions in topics
            for partition_id, replicas in partitions
        ),
        lambda some: AlterPartitionReassignments(
            reassignments=tuple(some), allow_replication_factor_change=may_change_factor
        ),
    )
    told = await Pace(door.now_ms).made_by(by_topic(_rows(parts)))
    return (NO_THROTTLE, may_change_factor, NONE, None, told)


def _rows(parts: Iterable[Part]) -> Iterator[Values]:
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            yield from ((each.topic, each.partition_id, *error) for each in some)
        else:
            for each in outcome.results:
                yield (each.topic, each.partition_id, *item_error(each.error, each.message))


async def list_reassignments(door: KafkaDoor, asked: Asked) -> Values:
    _, topics = asked.values
    image: MetadataImage = await door.controller.read(lambda image: image)
    wanted = None if topics is None else list(dict.fromkeys(_named(topics)))

    def found() -> list[Values]:
        return at_once(by_topic(each for each in ongoing(image.topics, wanted)))

    return (NO_THROTTLE, NONE, None, await door.reads.run(found))


def _named(topics: Iterable[Values]) -> list[tuple[str, int]]:
    return [(topic, partition_id) for topic, partition_ids in topics for partition_id in partition_ids]


APIS: Final = (
    Api(ALTER_REASSIGNMENTS, Waits(alter_reassignments), "AlterPartitionReassignments", in_envelopes=True),
    Api(LIST_REASSIGNMENTS, Waits(list_reassignments), "ListPartitionReassignments", in_envelopes=True),
)
