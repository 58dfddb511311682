"""Questions about topics: created, grown and deleted, most of them as no rule allows."""

from typing import Any

from metadata_log.ids import TopicId
from metadata_log.image.metadata_image import MetadataImage
from quorum.decide.placement import Placement
from quorum.decide.topics import CreatePartitions, CreateTopic, DeleteTopics, MorePartitions
from tests.simulation.rules.batches import ASSIGNED
from tests.simulation.rules.contrary.question import (
    OWN,
    PARTITIONS_PER_TOPIC_MAX,
    STRANGER,
    Drawing,
    Errors,
    Question,
    always,
    brokers_of,
)


class TopicQuestions:
    """About names, numbers of partitions and assignments."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def _creates(self, name: str, **other: Any) -> CreateTopic:
        usual: dict[str, Any] = {
            "partitions": 1,
            "replication_factor": 1,
            "assignment": None,
            "configs": {},
            "validate_only": False,
        }
        return CreateTopic(name=name, **(usual | other))

    def creation(self, image: MetadataImage) -> Question | None:
        brokers = brokers_of(image)
        if not brokers:
            return None
        if OWN not in image.topics.ids:
            return Question(
                self._creates(OWN), always(None, "TOPIC_ALREADY_EXISTS", "INVALID_REPLICATION_FACTOR")
            )
        assigned = {"partitions": -1, "replication_factor": -1}
        command, error = self._draw.rng.choice(
            (
                (self._creates(OWN), "TOPIC_ALREADY_EXISTS"),
                (self._creates(OWN.replace(".", "_")), "INVALID_TOPIC_EXCEPTION"),
                (self._creates("a name"), "INVALID_TOPIC_EXCEPTION"),
                (self._creates("contrary.x", partitions=0), "INVALID_PARTITIONS"),
                (self._creates("contrary.x", configs={"retention.ms": "soon"}), "INVALID_CONFIG"),
                (self._creates("contrary.x", partitions=PARTITIONS_PER_TOPIC_MAX + 1), "POLICY_VIOLATION"),
                (
                    self._creates("contrary.x", assignment=((STRANGER,),), **assigned),
                    "INVALID_REPLICA_ASSIGNMENT",
                ),
                (
                    self._creates("contrary.x", assignment=((brokers[0], brokers[0]),), **assigned),
                    "INVALID_REPLICA_ASSIGNMENT",
                ),
            )
        )
        # Where no broker is up, that is found first.
        return Question(
            command, always(error, *(("INVALID_REPLICATION_FACTOR",) if error == "POLICY_VIOLATION" else ()))
        )

    def assigned(self, image: MetadataImage) -> Question | None:
        """Create a topic on brokers of its own choice, grow it plainly, and delete it, by and by."""
        up = [each for each in brokers_of(image) if image.is_active(each)]
        mine = sorted(name for name in image.topics.ids if name.startswith(ASSIGNED))
        if mine and self._draw.rng.random() < 0.6:
            return self._grows_plainly(image, mine[0])
        if not up:
            return None
        self._draw.asked += 1
        replicas = tuple(self._draw.rng.sample(up, min(2, len(up))))
        command = self._creates(
            f"{ASSIGNED}-{self._draw.asked}", partitions=-1, replication_factor=-1, assignment=(replicas,)
        )

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            topic = after.topics.named(command.name)
            if topic is not None and topic.partitions[0].replicas == replicas:
                return None
            return f"{command.name} is {topic}"

        return Question(command, always(None, "INVALID_REPLICA_ASSIGNMENT", "TOPIC_ALREADY_EXISTS"), shows)

    def _grows_plainly(self, image: MetadataImage, name: str) -> Question | None:
        topic = image.topics.named(name)
        assert topic is not None
        count = len(topic.partitions)
        if count >= 3:
            both = DeleteTopics(topics=(name, topic.topic_id))
            one = DeleteTopics(topics=(topic.topic_id,))
            return Question(
                self._draw.rng.choice((both, one)), lambda at: _deletion_errors(at, topic.topic_id)
            )
        command = CreatePartitions(
            topics=(MorePartitions(name, count + 1, placement=Placement.PLAIN),), validate_only=False
        )
        usable = [each for each in brokers_of(image) if image.is_active(each)]

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            grown = after.topics.named(name)
            if grown is None or [each for each in sorted(after.brokers) if after.is_active(each)] != usable:
                return None
            # Whether one that shuts down gets replicas is for its session to say, which began anew with the leader.
            brokers = after.brokers.values()
            if any(each.cordoned_log_dirs or each.in_controlled_shutdown for each in brokers):
                return None
            was_decided_on = after.end_offset - 1  # the batch has one record
            if len(usable) < 3 or self._draw.world.properties.rules.ineligible_at(was_decided_on):
                return None
            first = grown.partitions[count].replicas[0]
            expected = usable[count % len(usable)]
            return None if first == expected else f"partition {count} of {name} is on {first}, not {expected}"

        errors = always(
            None, "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "UNKNOWN_TOPIC_OR_PARTITION"
        )
        return Question(command, errors, shows if not self._draw.world.profile.is_heavy else lambda *_: None)

    def growth(self, image: MetadataImage) -> Question | None:
        if OWN not in image.topics.ids:
            return None
        name, count, error = self._draw.rng.choice(
            (
                (self._draw.unknown_topic(image), 4, "UNKNOWN_TOPIC_OR_PARTITION"),
                (OWN, 1, "INVALID_PARTITIONS"),
                (OWN, PARTITIONS_PER_TOPIC_MAX + 1, "POLICY_VIOLATION"),
            )
        )
        command = CreatePartitions(topics=(MorePartitions(name, count),), validate_only=False)
        return Question(command, lambda at: {error} if (name in at.topics.ids) == (name == OWN) else set())

    def deletion(self, image: MetadataImage) -> Question | None:
        command = DeleteTopics(topics=("contrary.nobody",))
        return Question(command, always("UNKNOWN_TOPIC_OR_PARTITION"))


def _deletion_errors(image: MetadataImage, topic_id: TopicId) -> Errors:
    if topic_id in image.topics.by_id:
        return {None, "INVALID_REQUEST"}
    return {"UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"}
