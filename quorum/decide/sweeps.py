"""Pure: elections without a request: the controller gives leaderships back to first replicas, and leaders to leaderless
partitions whose topics accept lost messages.

Source: Kafka's ReplicationControlManager; its auto.leader.rebalance and unclean leader election checks.
"""

import enum
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partition_index import PartitionIndex
from metadata_log.image.topics import TopicImage, TopicsImage
from metadata_log.limits import ELECTIONS_PER_SWEEP_MAX
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import Election, Electorate

_VISITS_BETWEEN_LOOKS: Final = 256
"""Partitions of a topic that are looked at between two looks at the clock."""


class SweepKind(enum.Enum):
    BALANCE = "LEADERS_BALANCED"
    """Preferred elections where another than the first replica leads."""
    UNCLEAN = "UNCLEAN_SWEEP"
    """Unclean elections of leaderless partitions whose topics allow them."""

    @property
    def operation(self) -> str:
        """The name of the periodic task in Kafka's QuorumController."""
        return "electPreferred" if self is SweepKind.BALANCE else "electUnclean"


class Imbalance(NamedTuple):
    """How many partitions have a broker as first replica, and how many of these it does not lead."""

    broker_id: BrokerId
    preferred: int
    elsewhere: int

    @property
    def percent(self) -> float:
        return 100 * self.elsewhere / self.preferred

    def exceeds(self, percentage: int) -> bool:
        return self.percent > percentage


def imbalances(index: PartitionIndex) -> list[Imbalance]:
    """Return the imbalance of each broker that is first replica of a partition, in order of id."""
    return [
        Imbalance(broker_id, index.preferred[broker_id], index.preferred_elsewhere.get(broker_id, 0))
        for broker_id in sorted(index.preferred)
    ]


class Sweep:
    """One sweep after the other over the partitions that may need an election, in parts.

    A part is bounded by the elections of one batch and by the time of a turn, and may end inside a topic; topics that come
    to need one after a sweep began are for the next.

    A balancing sweep gives leaderships back to the brokers whose imbalance at its beginning exceeds `imbalance_percentage`.
    Kafka's controller has no leader.imbalance.per.broker.percentage under KRaft; 0, the default, decides as it does.
    """

    def __init__(self, kind: SweepKind, *, imbalance_percentage: int = 0) -> None:
        self._kind = kind
        self.operation = kind.operation
        self._imbalance_percentage = imbalance_percentage
        self._waiting: Iterator[TopicId] | None = None
        self._unfinished: TopicId | None = None
        """The topic in which the part before ended."""
        self._favoured: frozenset[BrokerId] = frozenset()
        """Brokers that get leaderships back."""
        self._next_partition = 0
        """Of the unfinished topic: those before it were looked at."""
        self._held: tuple[TopicId, int, int] | None = None
        """The first election of the part before: its partition, and the leader epoch that it ended."""

    def part(self, context: DecideContext) -> Decision:
        """Return the elections of the next part; with `more` the sweep is not at its end."""
        image = context.image
        electorate = Electorate(context)
        if self._is_refused(image):
            self._waiting, self._unfinished, self._next_partition = None, None, 0
        if self._waiting is None:
            # The map is immutable, so nothing is copied; it holds the topics as they were when the sweep began.
            self._waiting = iter(self._topics(image.topics))
            self._favoured = frozenset(
                one.broker_id
                for one in imbalances(image.topics.index)
                if one.exceeds(self._imbalance_percentage)
            )
        records: list[PartitionChangeRecord] = []
        begun = () if self._unfinished is None else (self._unfinished,)
        for topic_id in chain(begun, self._waiting):
            self._unfinished = None
            topic = image.topics.by_id.get(topic_id)
            if topic is not None and not self._hold(context, electorate, topic, records):
                self._unfinished = topic_id
                return self._decision(records, more=True)
            self._next_partition = 0
            if context.is_turn_over():
                return self._decision(records, more=True)
        self._waiting = None
        return self._decision(records, more=False)

    def _is_refused(self, image: MetadataImage) -> bool:
        """Answer whether the part before could not be appended: its elections were not held, so the sweep begins again."""
        if self._held is None:
            return False
        (topic_id, partition_id, leader_epoch), self._held = self._held, None
        topic = image.topics.by_id.get(topic_id)
        return topic is not None and topic.partitions[partition_id].leader_epoch == leader_epoch

    def _topics(self, topics: TopicsImage) -> Iterable[TopicId]:
        return topics.index.not_preferred if self._kind is SweepKind.BALANCE else topics.index.leaderless

    def _hold(
        self,
        context: DecideContext,
        electorate: Electorate,
        topic: TopicImage,
        records: list[PartitionChangeRecord],
    ) -> bool:
        """Add the elections of one topic, as far as there is room and time; answer whether it was looked at to its end."""
        topic_id, partitions = topic.topic_id, topic.partitions
        is_balance = self._kind is SweepKind.BALANCE
        if not is_balance and not electorate.rules(topic_id).is_unclean:
            return True
        election = Election.PREFERRED if is_balance else Election.UNCLEAN
        for partition_id in range(self._next_partition, len(partitions)):
            partition = partitions[partition_id]
            needs_one = (
                partition.leader != partition.replicas[0] and partition.replicas[0] in self._favoured
                if is_balance
                else partition.leader == NO_LEADER
            )
            change = electorate.elect(topic_id, partition_id, partition, election) if needs_one else None
            if change is not None:
                self._held = self._held or (topic_id, partition_id, partition.leader_epoch)
                records.append(change)
            is_time_to_look = partition_id % _VISITS_BETWEEN_LOOKS == _VISITS_BETWEEN_LOOKS - 1
            if len(records) >= ELECTIONS_PER_SWEEP_MAX or (is_time_to_look and context.is_turn_over()):
                self._next_partition = partition_id + 1
                return False
        return True

    def _decision(self, records: list[PartitionChangeRecord], *, more: bool) -> Decision:
        return Decision(
            records=records, cause=Cause(self._kind.value, None, {}) if records else None, more=more
        )
