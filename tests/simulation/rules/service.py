"""Rules of the ISRs that brokers out of service are in, by the log alone.

A broker that is fenced leaves every ISR with others in it, and then its registration is written. A topic that is restored
comes back with the ISRs of its deletion. Those of its partitions that the same batch does not elect a leader for are elected
in parts. A broker may be fenced between two of these parts, and its walk may have passed the topic while it was deleted. So
such an ISR may have a fenced broker until the election, which takes the broker out; no message is acknowledged before it.
"""

from collections.abc import Iterable

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.begun import LOG_DIR_OFFLINE
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRestoreRecord
from tests.simulation.rules.rule import rule


class ServiceRules:
    """Holds the batches of one world to the rules, in order."""

    out_of_service_out_of_isr = rule("a broker out of service is in an ISR only with others out of service")
    comes_back_in_service = rule("no fenced broker is in an ISR of a restored topic that somebody leads")

    def __init__(self) -> None:
        self.unelected: set[PartitionKey] = set()
        """Partitions of restored topics that have had no leader since."""

    def check(self, records: Iterable[Record], image: MetadataImage, delta: Delta) -> None:
        """Raise a Violation if a batch leaves a broker in an ISR that it must not be in; `image` and `delta` are its own."""
        for record in records:
            if isinstance(record, TopicRestoreRecord) and record.topic_id in image.topics.by_id:
                partitions = image.topics.by_id[record.topic_id].partitions
                self.unelected |= {(record.topic_id, number) for number in range(len(partitions))}
        for key in sorted(self.unelected):
            self._follow(image, key)
        for broker_id in delta.brokers:
            self._check_fenced(image, broker_id)

    def _follow(self, image: MetadataImage, key: PartitionKey) -> None:
        topic = image.topics.by_id.get(key[0])
        if topic is None:  # it is deleted again
            self.unelected.discard(key)
            return
        partition = topic.partitions[key[1]]
        if partition.leader == NO_LEADER:
            return
        self.unelected.discard(key)
        fenced = [each for each in partition.isr if not image.is_active(each)]
        if fenced:
            raise self.comes_back_in_service(
                f"{fenced} are in the ISR of {topic.name}-{key[1]}, which {partition.leader} leads"
            )

    def _check_fenced(self, image: MetadataImage, broker_id: BrokerId) -> None:
        broker = image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return
        for topic_id, number, partition in image.topics.partitions_on(broker_id):
            if (topic_id, number) in self.unelected:
                continue
            # One that is fenced in parts could not lead any more when the ISR was decided.
            others = [
                each for each in partition.isr if image.is_active(each) and not _is_leaving(image, each)
            ]
            is_last = partition.isr == (broker_id,) or not others
            if broker_id in partition.isr and not (is_last and partition.leader == NO_LEADER):
                name = image.topics.by_id[topic_id].name
                raise self.out_of_service_out_of_isr(f"{broker_id} is in {partition.isr} of {name}-{number}")


def _is_leaving(image: MetadataImage, broker_id: BrokerId) -> bool:
    begun = image.begun.get(broker_id)
    return begun is not None and begun.cause != LOG_DIR_OFFLINE
