"""Pure: what the log means for the replicas on one broker: which to start, lead, follow, stop and delete.

    image before, image after, delta --> Start, Lead, Follow, Wait, Stop, Delete     O(what the delta touches)
    image, replicas on the disks     --> Stray, Start, Lead, Follow, Wait, Stop      once after a start, in slices

Nothing is said of an image that may be old. After a start, and after its image was replaced, a broker first catches up with
the high watermark of an answer to its own registration. Only then is the image compared with the disks: a replica that an
older image does not know is often one that it does not know yet.

Source: Kafka's TopicDelta.localChanges and ReplicaManager.applyDelta; LogManager.isStrayKraftReplica for strays.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.brokers import BrokerEndpoint

VISITS_PER_SLICE: Final = 1_000
"""Replicas compared before others have the loop: some 3 ms."""


class Start(NamedTuple):
    """A replica is new on this broker; what it shall do follows at once.

    `directory` is where its data goes. If it is none of the broker's own, the host chooses one and reports it.
    """

    topic_id: TopicId
    partition_id: int
    topic: str
    directory: Uuid


class Lead(NamedTuple):
    """This broker leads the partition, with the epochs and the ISR in `partition`.

    It is also sent if only the partition epoch is new: the leader learns of an ISR or of replicas that changed.
    """

    topic_id: TopicId
    partition_id: int
    partition: PartitionImage


class Follow(NamedTuple):
    """The broker `partition.leader` leads the partition, and is reached at `endpoint`."""

    topic_id: TopicId
    partition_id: int
    partition: PartitionImage
    endpoint: BrokerEndpoint


class Wait(NamedTuple):
    """The partition has no leader, or its leader has no endpoint of the listener that hosts use."""

    topic_id: TopicId
    partition_id: int
    partition: PartitionImage


class Stop(NamedTuple):
    """Stop fetching, and keep the data: this broker shuts down, and the partition has no leader or goes on without it; or
    the topic was deleted, and can still be restored.
    """

    topic_id: TopicId
    partition_id: int
    partition: PartitionImage


class Delete(NamedTuple):
    """The log removed the topic, or took the replica from this broker: its data is to be deleted."""

    topic_id: TopicId
    partition_id: int
    topic: str
    topic_deleted: bool


class Stray(NamedTuple):
    """A replica lies here after a start although its topic is unknown, or it is assigned to others: the host decides."""

    topic_id: TopicId
    partition_id: int


Role: TypeAlias = Lead | Follow | Wait | Stop
Instruction: TypeAlias = Start | Role | Delete | Stray


class Phase(enum.Enum):
    CATCHING_UP = "CATCHING_UP"
    """The image may be old: nothing is said."""
    STARTING = "STARTING"
    """The image is compared with the disks, slice by slice."""
    FOLLOWING = "FOLLOWING"


class LocalReplicas:
    """Turns the images of one broker into instructions for its host, in an order in which the host can carry them out.

    `listener` names the endpoint at which leaders are reached; None: the first of each broker.
    """

    def __init__(self, broker_id: BrokerId, *, listener: str | None = None) -> None:
        self._broker_id = broker_id
        self._listener = listener
        self.phase = Phase.CATCHING_UP
        self.visited = 0
        """How many replicas were compared since the start began."""
        self._high_watermark: int | None = None
        """Of the newest answer that continues the image; None since the image was replaced."""
        self._known_offset = 0
        """End offset of the newest image from which the host got instructions."""
        self._held: set[PartitionKey] = set()
        """While starting: the replicas that lie on the disks, as far as instructions were carried out."""
        self._unchecked: Iterator[PartitionKey] = iter(())
        self._are_strays_told = False
        self._walked_to: PartitionKey | None = None
        self.strays_withheld = False
        """The image that the controllers have is older than one that the host knows: nothing is called a stray."""

    # --- the image is new enough

    def answered(self, high_watermark: int) -> None:
        """Note the high watermark of a controller's answer that continues the image."""
        self._high_watermark = high_watermark

    def may_start(self, image: MetadataImage, broker_epoch: int | None) -> bool:
        """Answer whether the image may now be compared with the disks.

        It holds this broker's own registration, so it is as new as the start, and all that was committed when the last
        answer was sent.
        """
        broker = image.brokers.get(self._broker_id)
        return (
            self.phase is Phase.CATCHING_UP
            and self._high_watermark is not None
            and image.end_offset >= self._high_watermark
            and broker is not None
            and broker.broker_epoch == broker_epoch
        )

    def start(self, image: MetadataImage, held: Iterable[PartitionKey], *, known_offset: int = 0) -> None:
        """Begin to compare the image with the replicas that the host holds; `next_slice` goes on.

        `known_offset` is the end offset of the newest image that the host remembers, 0 if it remembers none.
        """
        assert self.phase is Phase.CATCHING_UP
        self.phase, self.visited = Phase.STARTING, 0
        self._held = set(held)
        self._unchecked = iter(tuple(self._held))
        self.strays_withheld = image.end_offset < max(known_offset, self._known_offset)
        self._are_strays_told = self.strays_withheld
        self._walked_to = None

    def next_slice(self, image: MetadataImage) -> list[Instruction]:
        """Return what the next VISITS_PER_SLICE replicas are told: strays first, since a new topic may have their name."""
        assert self.phase is Phase.STARTING
        self._known_offset = image.end_offset
        return [*(self._assigned(image) if self._are_strays_told else self._strays(image))]

    def _strays(self, image: MetadataImage) -> Iterator[Instruction]:
        visited = 0
        for key in islice(self._unchecked, VISITS_PER_SLICE):
            visited += 1
            partition = image.topics.partition(key, with_deleted=True)
            if key in self._held and (partition is None or self._broker_id not in partition.replicas):
                self._held.discard(key)
                yield Stray(*key)
        self._are_strays_told = visited < VISITS_PER_SLICE
        self.visited += visited

    def _assigned(self, image: MetadataImage) -> Iterator[Instruction]:
        """Visit some more of the replicas, after those visited; the image may be another one by now."""
        visited, roles = 0, self._roles_in(image)
        behind = image.topics.partitions_on(self._broker_id, after=self._walked_to, with_deleted=True)
        for topic_id, partition_id, partition in islice(behind, VISITS_PER_SLICE):
            visited += 1
            self._walked_to = key = (topic_id, partition_id)
            if self._broker_id in partition.replicas:
                if key not in self._held:
                    yield self._start(image, key, partition)
                yield roles.of(key, partition)
        self.visited += visited
        if visited < VISITS_PER_SLICE:
            self.phase = Phase.FOLLOWING
            self._held = set()

    # --- the image changes

    def on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> list[Instruction]:
        """Return what a batch means for the host's replicas; None: the image was replaced, so all is compared again."""
        if delta is None:
            self.phase, self._high_watermark = Phase.CATCHING_UP, None
            self._held, self._unchecked = set(), iter(())
            return []
        if self.phase is Phase.CATCHING_UP or not (delta.topics or delta.partitions):
            return []
        self._known_offset = after.end_offset
        deletes, assigned = self._changes(before, after, delta)
        if self.phase is Phase.STARTING:
            self._held.difference_update((topic_id, partition_id) for topic_id, partition_id, *_ in deletes)
            # The walk comes to the others, and finds them as they are then.
            walked_to = self._walked_to
            assigned = [one for one in assigned if walked_to is not None and one[0] <= walked_to]
        # Deletions first: a new topic may have the name of one that is deleted.
        roles = self._roles_in(after)
        told: list[Instruction] = [*deletes]
        for key, partition, is_new in assigned:
            if is_new:
                told.append(self._start(after, key, partition))
            told.append(roles.of(key, partition))
        return told

    def _changes(
        self, before: MetadataImage, after: MetadataImage, delta: Delta
    ) -> tuple[list[Delete], list[tuple[PartitionKey, PartitionImage, bool]]]:
        """Return what is deleted here, and what else changed, with whether it is new here; both in order."""
        broker_id = self._broker_id
        deletes: list[Delete] = []
        assigned: list[tuple[PartitionKey, PartitionImage, bool]] = []
        for topic_id in delta.topics:
            topic = before.topics.known(topic_id)
            if topic is not None and after.topics.known(topic_id) is None:
                deletes += (
                    Delete(topic_id, partition_id, topic.name, topic_deleted=True)
                    for partition_id, partition in enumerate(topic.partitions)
                    if broker_id in partition.replicas
                )
        touched: dict[TopicId, Sequence[int]] = {**delta.partitions}
        for topic_id in delta.topics:
            topic = after.topics.known(topic_id)
            if topic is not None and before.topics.known(topic_id) is not None:
                # It was deleted for a time, or restored: the replicas stay, and their roles change.
                touched[topic_id] = range(len(topic.partitions))
        for topic_id, partition_ids in sorted(touched.items(), key=itemgetter(0)):
            # Each topic is looked up once, however many of its partitions changed.
            topic, topic_before = after.topics.known(topic_id), before.topics.known(topic_id)
            partitions = () if topic is None else topic.partitions
            earlier = () if topic_before is None else topic_before.partitions
            for partition_id in partition_ids:
                now = partitions[partition_id] if partition_id < len(partitions) else None
                was = earlier[partition_id] if partition_id < len(earlier) else None
                was_here = was is not None and broker_id in was.replicas
                if now is not None and broker_id in now.replicas:
                    is_other = was is None or was.partition_epoch != now.partition_epoch
                    if is_other or topic_id in delta.topics:
                        assigned.append(((topic_id, partition_id), now, not was_here))
                elif topic is not None and was_here:
                    deletes.append(Delete(topic_id, partition_id, topic.name, topic_deleted=False))
        deletes.sort()
        return deletes, assigned

    def _start(self, image: MetadataImage, key: PartitionKey, partition: PartitionImage) -> Start:
        topic = image.topics.known(key[0])
        assert topic is not None, "the partition is one of its"
        return Start(*key, topic.name, partition.directories[partition.replicas.index(self._broker_id)])

    def _roles_in(self, image: MetadataImage) -> "_Roles":
        return _Roles(image, self._broker_id, self._listener)


class _Roles:
    """The roles that one image gives the replicas of a broker; what many of them need is looked up once."""

    def __init__(self, image: MetadataImage, broker_id: BrokerId, listener: str | None) -> None:
        own = image.brokers.get(broker_id)
        self._image = image
        self._broker_id = broker_id
        self._listener = listener
        self._is_stopping = own is not None and own.in_controlled_shutdown
        self._deleted = image.topics.deleted
        self._endpoints: dict[BrokerId, BrokerEndpoint | None] = {}

    def of(self, key: PartitionKey, partition: PartitionImage) -> Role:
        leader = partition.leader
        if leader == self._broker_id:
            return Lead(*key, partition)
        if key[0] in self._deleted:
            return Stop(*key, partition)
        if self._is_stopping and (leader == NO_LEADER or self._broker_id not in partition.isr):
            return Stop(*key, partition)
        if leader not in self._endpoints:
            self._endpoints[leader] = self._endpoint(leader)
        endpoint = self._endpoints[leader]
        return Wait(*key, partition) if endpoint is None else Follow(*key, partition, endpoint)

    def _endpoint(self, leader: BrokerId) -> BrokerEndpoint | None:
        broker = self._image.brokers.get(leader)
        endpoints = () if broker is None else broker.endpoints
        return next((one for one in endpoints if self._listener in (None, one.name)), None)
