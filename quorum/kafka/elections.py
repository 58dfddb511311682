"""Edge: elections of leaders that operators ask for, in Kafka's protocol."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from metadata_log.errors import ElectionNotNeeded, InvalidRequest, MetadataError
from metadata_log.kafka.reading import Values
from metadata_log.node.pace import Pace
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced, at_once
from quorum.decide.partitions import ElectLeaders, partitions_of_concern
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

ELECT_LEADERS: Final = 43
PREFERRED, UNCLEAN = 0, 1
WHOLE_ERROR_FROM: Final = 1
"""The first version with an error of the whole request."""


async def elect_leaders(door: KafkaDoor, asked: Asked) -> Values:
    kind, topics, _ = asked.values
    if kind not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"unknown election type {kind}")
    is_unclean, wants_all = kind == UNCLEAN, topics is None
    parts = await decided_in_parts(
        door,
        asked.caller,
        await _of_concern(door, is_unclean=is_unclean) if wants_all else _named(topics),
        lambda some: ElectLeaders(unclean=is_unclean, partitions=tuple(some)),
    )
    rows = _rows(parts, wants_all=wants_all)
    return (NO_THROTTLE, NONE, await Pace(door.now_ms).made_by(by_topic(rows)))


def _rows(parts: Iterable[Part], *, wants_all: bool) -> Iterator[Values]:
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            yield from ((*partition, *error) for partition in some)
        else:
            for each in outcome.results:
                # Of all partitions, those that need no election are not told of.
                if not (wants_all and each.error == ElectionNotNeeded.error):
                    yield (each.topic, each.partition_id, *item_error(each.error, each.message))


async def _of_concern(door: KafkaDoor, *, is_unclean: bool) -> Sequence[tuple[str, int]]:
    """Return the partitions that may need an election; there may be a million."""
    image = door.controller.committed
    return await door.reads.run(lambda: list(partitions_of_concern(image, is_unclean=is_unclean)))


def _named(topics: Iterable[Values]) -> list[tuple[str, int]]:
    return [(topic, partition_id) for topic, partition_ids in topics for partition_id in partition_ids]


def by_topic(rows: Iterable[Values]) -> Sliced[list[Values]]:
    """Return rows that begin with a topic as topics, each with the rest of its rows that stand side by side."""
    topics: list[tuple[str, list[Values]]] = []
    for taken, row in enumerate(rows, 1):
        if not topics or topics[-1][0] != row[0]:
            topics.append((row[0], []))
        topics[-1][1].append(row[1:])
        if taken % ITEMS_BETWEEN_RESTS == 0:
            yield
    return [*topics]


def _refused(_api: Api, asked: Asked, error: KafkaError) -> Values:
    """Return an error for the whole request, for which the oldest version has no place, and for each partition."""
    rows = [(*partition, *error) for partition in _named(asked.values[1] or ())]
    return (NO_THROTTLE, error.code if asked.version >= WHOLE_ERROR_FROM else NONE, at_once(by_topic(rows)))


APIS: Final = (Api(ELECT_LEADERS, Waits(elect_leaders), "ElectLeaders", _refused, in_envelopes=True),)
