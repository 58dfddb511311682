"""A question that must be refused, or shows what it led to; and what all questions of a run are drawn from."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.wire.commands import (
    Command,
)
from metadata_log.wire.fetch import FetchRequest

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld

STRANGER: Final = BrokerId(900)
"""No broker has this id."""
PARTITIONS_PER_TOPIC_MAX: Final = 64
"""What the policy of the simulated controllers allows."""
CLIENT: Final = 0xD1
"""In place of a client's number."""
OWN: Final = "contrary.own"

Errors = set[str | None]


class Question(NamedTuple):
    command: Command | FetchRequest
    errors: Callable[[MetadataImage], Errors]
    """Which errors are right where it is decided on this state; None: it is not refused."""
    shows: Callable[[MetadataImage, Any], str | None] = lambda _after, _outcome: None
    """What is wrong with the state at the answer's offset, if it was not refused."""
    request_id: Uuid | None = None


def always(*errors: str | None) -> Callable[[MetadataImage], Errors]:
    return lambda _image: {*errors}


class Drawing:
    """What the questions of one world are drawn from, by numbers of their own."""

    def __init__(self, world: "ClusterWorld") -> None:
        self.world = world
        self.rng = random.Random(world.seed ^ 0xC047)
        self.asked = 0
        self.ids: list[Uuid] = []
        """Request ids that were used."""

    def partition(
        self, image: MetadataImage, is_fit: Callable[[PartitionImage], bool] = lambda _: True
    ) -> tuple[TopicImage, int, PartitionImage] | None:
        """Draw a partition that is fit from some topics, in an order that is the same in every process."""
        names = sorted(image.topics.ids)
        for name in self.rng.sample(names, min(len(names), 6)):
            topic = image.topics.named(name)
            assert topic is not None
            number = self.rng.randrange(len(topic.partitions))
            if is_fit(topic.partitions[number]):
                return topic, number, topic.partitions[number]
        return None

    def unknown_topic(self, image: MetadataImage) -> str:
        """Return a name that no topic has; one that is deleted for a time, if there is one."""
        gone = sorted({each.topic.name for each in image.topics.deleted.values()} - {*image.topics.ids})
        return self.rng.choice(gone) if gone else "contrary.nobody"


def brokers_of(image: MetadataImage) -> list[BrokerId]:
    return sorted(image.brokers)
