"""Pure: elections that nobody asks for: the controller gives leaderships back to first replicas, and leaders to
leaderless partitions whose topics accept lost messages.

Source: Kafka's ReplicationControlManager.
"""

from collections.abc import Iterator, Mapping

from metadata_log.batch import Cause
from metadata_log.ids import NO_LEADER, TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import ELECTIONS_PER_SWEEP_MAX
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import AS_IT_IS, Election, Electorate


def balance(context: DecideContext) -> Decision:
    """Decide preferred elections where another than the first replica leads; `more` says that the limit was reached."""
    electorate, index = Electorate(context), context.image.topics.index
    changes = (
        electorate.change_to(AS_IT_IS, topic_id, partition_id, partition, Election.PREFERRED)
        for topic_id, partition_id, partition in _partitions(context, index.not_preferred)
        if partition.leader != partition.replicas[0]
    )
    return _swept(changes, "LEADERS_BALANCED")


def elect_uncleanly(context: DecideContext) -> Decision:
    """Decide unclean elections of leaderless partitions whose topics allow them; `more` says that the limit was reached."""
    electorate, index = Electorate(context), context.image.topics.index
    changes = (
        electorate.change_to(AS_IT_IS, topic_id, partition_id, partition, Election.UNCLEAN)
        for topic_id, partition_id, partition in _partitions(context, index.leaderless)
        if partition.leader == NO_LEADER and electorate.rules(topic_id).is_unclean
    )
    return _swept(changes, "UNCLEAN_SWEEP")


def _partitions(
    context: DecideContext, topics: Mapping[TopicId, int]
) -> Iterator[tuple[TopicId, int, PartitionImage]]:
    by_id = context.image.topics.by_id
    for topic_id in sorted(topics):
        for partition_id, partition in enumerate(by_id[topic_id].partitions):
            yield topic_id, partition_id, partition


def _swept(changes: Iterator[PartitionChangeRecord | None], code: str) -> Decision:
    records: list[PartitionChangeRecord] = []
    for change in changes:
        if change is not None:
            records.append(change)
            if len(records) >= ELECTIONS_PER_SWEEP_MAX:
                break
    return Decision(
        records=records,
        cause=Cause(code, None, {}) if records else None,
        more=len(records) >= ELECTIONS_PER_SWEEP_MAX,
    )
