"""Pure: what of a state a lower level of a feature could not hold, row by row.

It is what Kafka's image writer loses at that level. The log keeps it all: such a downgrade is refused, as by Kafka 4.3.1.
Source: Kafka's ImageWriterOptions and RegistrationImages. Tests: tests/unit/quorum/views/test_level_losses.py.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.ids import MIGRATING, uuid_text
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import (
    CONTROLLERS_FROM,
    CORDONED_FROM,
    DEPENDS_ON,
    DIRECTORIES_FROM,
    ELIGIBLE_FROM,
    SCRAM_FROM,
    TOKENS_FROM,
)
from metadata_log.node.identity.scram import HASHES
from metadata_log.orders import in_parts
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION


class Loss(NamedTuple):
    """A field that would be lost: the kind of its row, the key (an id, or TOPIC:PARTITION), and its value as a text."""

    kind: str
    key: str
    field: str
    value: str


def losses(image: MetadataImage, feature: str, level: int) -> Iterator[Loss]:
    """Yield what is lost at a level of a feature, in the order of ids and names; nothing at one that is not lower."""
    if feature == ELIGIBLE_LEADER_REPLICAS_VERSION and level < image.features.get(feature, 0):
        yield from _eligible(image)
    if feature != METADATA_VERSION or level >= metadata_level(image.features):
        return
    yield from _features(image, level)
    yield from _brokers(image, level)
    if level < SCRAM_FROM:
        for name, mechanism in in_parts(image.users):
            yield Loss("user", name, HASHES[mechanism], "")
    if level < TOKENS_FROM:
        for token_id in in_parts(image.tokens):
            yield Loss("token", token_id, "owner", image.tokens[token_id].owner)
    if level < CONTROLLERS_FROM:
        for controller_id in sorted(image.controllers):
            yield Loss("controller", str(controller_id), "registration", "")
    if level < DIRECTORIES_FROM:
        yield from _directories(image)
    if level < ELIGIBLE_FROM:
        yield from _eligible(image)


def _features(image: MetadataImage, level: int) -> Iterator[Loss]:
    for name, present in sorted(image.features.items()):
        if level < DEPENDS_ON.get((name, present), 0):
            yield Loss("feature", name, "level", str(present))


def _brokers(image: MetadataImage, level: int) -> Iterator[Loss]:
    for broker_id, broker in sorted(image.brokers.items()):
        if level < CORDONED_FROM and broker.cordoned_log_dirs:
            yield Loss("broker", str(broker_id), "cordoned_log_dirs", _uuids(broker.cordoned_log_dirs))
        if level < DIRECTORIES_FROM and broker.log_dirs:
            yield Loss("broker", str(broker_id), "log_dirs", _uuids(broker.log_dirs))


def _directories(image: MetadataImage) -> Iterator[Loss]:
    for name, topic_id in in_parts(image.topics.ids.items()):
        for number, partition in enumerate(image.topics.by_id[topic_id].partitions):
            if any(each != MIGRATING for each in partition.directories):
                yield Loss("partition", f"{name}:{number}", "directories", _uuids(partition.directories))


def _eligible(image: MetadataImage) -> Iterator[Loss]:
    for name, topic_id in in_parts(image.topics.ids.items()):
        for number, partition in enumerate(image.topics.by_id[topic_id].partitions):
            for field in _ELIGIBLE_FIELDS:
                if brokers := getattr(partition, field):
                    yield Loss("partition", f"{name}:{number}", field, ",".join(map(str, brokers)))


_ELIGIBLE_FIELDS: Final = ("eligible_leader_replicas", "last_known_elr")


def _uuids(uuids: tuple[bytes, ...]) -> str:
    return ",".join(map(uuid_text, uuids))
