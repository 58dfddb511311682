"""Properties of the committed log and of the brokers that follow it."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import metadata_log.image.results
from metadata_log.batch import RecordBatch
from metadata_log.digest import Buckets, DigestBuilder, digest_of_buckets
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, Uuid, is_reserved
from metadata_log.image.metadata_image import SUBJECT_BUILDERS, Delta, MetadataImage
from metadata_log.image.metadata_image import _Uncounted as Uncounted
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from metadata_log.records.configs import TOPIC
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.topics import TopicRecord
from quorum.decide.reassignments import AlterPartitionReassignments
from tests.simulation.rules.batches import BatchRules
from tests.simulation.rules.contest import SETTING
from tests.simulation.rules.rule import rule
from tests.simulation.rules.sessions import SessionRules

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_broker import SimulatedBroker


IMAGES_KEPT: Final = 2_000
"""Some 30 s of a run."""
COUNTED_KEPT: Final = 256
"""Processes share images: the first one that reaches a state has its digest counted."""


class Properties:
    """What must hold of every batch that anybody applies."""

    one_registration_per_incarnation = rule("a controller's process registers once, however often it asks")
    who_joins_an_isr_is_active = rule("a broker that joins an ISR is neither fenced nor shutting down")
    same_offset_same_digest = rule("all processes have the same state at an offset")
    one_claim_per_epoch = rule("an epoch belongs to one controller")
    applied_once = rule("a request id stands at one offset")
    no_fenced_leader = rule("no fenced broker leads")
    leads_from_an_online_directory = rule("a leader's log directory is in its registration")
    silent_brokers_serve_nobody = rule(
        "a silent broker does not serve once its fencing has begun, until it has read of it"
    )

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.sessions = SessionRules(world)
        self.rules = BatchRules(world)
        self.images: dict[int, MetadataImage] = {}
        """The newest states, by their end offsets."""
        self.newest = 0
        """The highest end offset that is committed."""
        self.fencings = 0
        self.claims: dict[int, int] = {}
        """Controller epochs, and who holds each."""
        self.requests: dict[Uuid, tuple[int, ...]] = {}
        """Where each request was carried out; again only once its first answer is evicted."""
        self.carried_out_again: set[Uuid] = set()
        self._results: list[int] = []
        """The base offset of each batch whose answer is kept."""
        self._states: dict[int, tuple[int, Buckets]] = {}
        self._registered: dict[tuple[NodeId, Uuid], Uuid | None] = {}
        """The request that registered a controller's process."""
        """Controllers' registrations: each incarnation has one record."""
        self._isrs: dict[PartitionKey, tuple[BrokerId, ...]] = {}
        """Of each partition as the newest batch left it."""
        self.placed: set[PartitionKey] = set()
        """Partitions that nobody leads, and of which a replica was reported in another directory since: as in Kafka, that
        elects nobody.
        """
        self._silent: dict[BrokerId, tuple[int, int]] = {}
        """Brokers that were fenced for silence: their epoch then, and the end offset of the newest fencing."""
        self._counted: dict[int, tuple[MetadataImage, Buckets]] = {}
        """By identity: the newest images whose digests were counted here, and not in any process."""
        self._reached: dict[str, tuple[MetadataImage, Buckets]] = {}
        """The same of the newest image of each process."""

    def applied(self, who: str, batch: RecordBatch, image: MetadataImage) -> None:
        """Check a state that a controller or broker has reached."""
        state = (batch.crc, self._buckets(who, image))
        known = self._states.setdefault(image.end_offset, state)
        if known is not state and known != state:
            raise self.same_offset_same_digest(f"{who} at offset {image.end_offset}")

    def _buckets(self, who: str, image: MetadataImage) -> Buckets:
        """Return what the state digest of an image that `who` has reached is made of, and leave uncounted what its process
        has not counted.
        """
        last, buckets = self._reached.get(who, (None, ()))
        if image is not last:
            known = self._counted.get(id(image))
            buckets = self._count(image, last, buckets) if known is None else known[1]
            self._reached[who] = image, buckets
        return buckets

    def _count(self, image: MetadataImage, last: MetadataImage | None, buckets: Buckets) -> Buckets:
        """Count on from the nearest state before an image that is counted; `last` has these buckets."""
        steps: list[tuple[Uncounted, MetadataImage]] = []
        at, counted = image, self._counted
        while at is not last:
            if (known := counted.get(id(at))) is not None:
                buckets = known[1]
                break
            state = at.state_digest.state
            if not isinstance(state, Uncounted):
                buckets = state
                break
            steps.append((state, at))
            at = state.before
        for state, after in reversed(steps):
            digest = DigestBuilder(buckets)
            for builder in SUBJECT_BUILDERS:
                digest.remove_all(builder.touched_lines(getattr(state.before, builder.FIELD), state.touched))
                digest.add_all(builder.touched_lines(getattr(after, builder.FIELD), state.touched))
            buckets = digest.buckets()
            counted[id(after)] = after, buckets
            if len(counted) > COUNTED_KEPT:
                del counted[next(iter(counted))]
        return buckets

    def check_digest(self, end_offset: int, value: str) -> None:
        """Check the digest that a controller reports of a committed state."""
        known = self._states.get(end_offset)
        if known is not None and digest_of_buckets(known[1]) != value:
            raise self.same_offset_same_digest(f"a controller reports another at offset {end_offset}")

    def found(self, who: str, image: MetadataImage) -> None:
        """Check a state that a process goes on from."""
        known = self._states.get(image.end_offset)
        if image.end_offset and known != (image.last_crc, self._buckets(who, image)):
            self._world.violated(self.same_offset_same_digest(f"{who} at offset {image.end_offset}"))

    def committed(self, batch: RecordBatch, image: MetadataImage, delta: Delta) -> None:
        """Check what a batch did, when the first controller applies it."""
        if image.end_offset <= self.newest:
            return
        self.newest = image.end_offset
        before, self._world.image = self._world.image, image
        self.images[image.end_offset] = image
        if len(self.images) > IMAGES_KEPT:
            del self.images[next(iter(self.images))]
        self._world.network.note("commit", image.end_offset, batch.crc)
        if batch.claim is not None:
            claimed = batch.claim
            self._world.tell(
                f"node {claimed.controller_id}",
                f"has epoch {batch.controller_epoch} from offset {batch.base_offset} on",
            )
            holder = self.claims.setdefault(batch.controller_epoch, claimed.controller_id)
            if holder != claimed.controller_id:
                raise self.one_claim_per_epoch(f"epoch {batch.controller_epoch}")
        for record in batch.records:
            if isinstance(record, RegisterControllerRecord):
                incarnation = (record.controller_id, record.incarnation_id)
                request_id = batch.envelope.request_id
                is_repeated = self._registered.get(incarnation) == request_id
                is_kept = request_id is not None and before.results.get(request_id) is not None
                # A request whose result is kept no longer is carried out again.
                if incarnation in self._registered and (is_kept or not is_repeated):
                    raise self.one_registration_per_incarnation(f"controller {record.controller_id}")
                self._registered[incarnation] = request_id
            if isinstance(record, TopicRecord):
                settings = image.configs.get((TOPIC, record.name))
                if settings is not None and SETTING in settings:
                    self._world.contest.created(record.topic_id, settings[SETTING])
            if isinstance(record, PartitionChangeRecord):
                self._placed(record, image)
        request_id = batch.envelope.request_id
        if request_id is not None:
            former = self.requests.get(request_id, ())
            if former:
                if not self.may_be_evicted(former[-1]):
                    raise self.applied_once(f"request {request_id.hex()} at {batch.base_offset}")
                self.carried_out_again.add(request_id)
            self.requests[request_id] = (*former, batch.base_offset)
            self._results.append(batch.base_offset)
            self._world.story.chat(
                "log", f"offset {batch.base_offset} holds request {request_id.hex()[-12:]}"
            )
        self.rules.check(before, batch, image, delta)
        self.sessions.check(before, batch, image)
        self._check_leaders(image, delta, batch.envelope.operation)
        if self._world.data is not None:
            self._world.data.committed(image, delta)
        cause = batch.envelope.cause
        self._mark(batch, "" if cause is None else cause.code)
        if cause is not None and cause.code == "SESSION_EXPIRED":
            # From the first part on its leaderships move, though its registration changes with the last alone.
            silent, epoch = cause.detail["broker_id"], cause.ref_offset
            assert isinstance(silent, int)
            assert epoch is not None
            self._silent[BrokerId(silent)] = epoch, image.end_offset
            self._world.consequences["fencings, or parts of one"] += 1
        for record in batch.records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced is not None:
                self._fenced(record, "" if cause is None else cause.code)
        for broker_id in self._silent:
            self.check_silent(self._world.broker(broker_id))

    def _placed(self, record: PartitionChangeRecord, image: MetadataImage) -> None:
        key, topic = (record.topic_id, record.partition_id), image.topics.by_id.get(record.topic_id)
        if topic is None or topic.partitions[record.partition_id].leader != NO_LEADER:
            self.placed.discard(key)
        elif record.directories is not None:
            self.placed.add(key)

    def may_be_evicted(self, base_offset: int) -> bool:
        """Answer whether so many newer answers are kept that the one at `base_offset` is not."""
        newer = len(self._results) - bisect_right(self._results, base_offset)
        return newer >= int(vars(metadata_log.image.results)["REQUEST_RESULTS_MAX"])

    def _mark(self, batch: RecordBatch, cause: str) -> None:
        sometimes = self._world.sometimes
        if cause == "SESSION_EXPIRED" and not isinstance(batch.records[-1], BrokerRegistrationChangeRecord):
            sometimes("broker fenced in parts")
        elif cause == "LOG_DIR_OFFLINE" and any(
            isinstance(one, PartitionChangeRecord) for one in batch.records
        ):
            sometimes("directory failure moves leaderships")
        elif isinstance(batch.records[-1], UnregisterBrokerRecord):
            sometimes("broker unregistered")

    def _check_leaders(self, image: MetadataImage, delta: Delta, operation: str | None) -> None:
        changed = {
            (topic_id, number)
            for topic_id, numbers in delta.partitions.items()
            if topic_id in image.topics.by_id
            for number in numbers
        }
        for broker_id in delta.brokers:
            changed.update(
                (topic_id, number) for topic_id, number, _ in image.topics.partitions_on(broker_id)
            )
        for topic_id, number in changed:
            partition = image.topics.by_id[topic_id].partitions[number]
            joined = set(partition.isr) - set(self._isrs.get((topic_id, number), ()))
            self._isrs[topic_id, number] = partition.isr
            # A reassignment that is given up uncleanly leaves the first of the old replicas in the ISR, as in Kafka,
            # even if it is fenced: then nobody leads.
            is_given_up = (
                operation == AlterPartitionReassignments.__name__ and partition.isr == partition.replicas[:1]
            )
            if not all(map(image.is_active, joined)) and not (is_given_up and partition.leader == NO_LEADER):
                raise self.who_joins_an_isr_is_active(
                    f"{sorted(joined)} joined that of partition {number} at {image.end_offset}"
                )
            leader = partition.leader
            if leader >= 0 and (leader not in image.brokers or image.brokers[BrokerId(leader)].fenced):
                raise self.no_fenced_leader(f"{leader} leads a partition at {image.end_offset}")
            if leader >= 0:
                self._check_directory(image, BrokerId(leader), partition)

    def _check_directory(self, image: MetadataImage, leader: BrokerId, partition: PartitionImage) -> None:
        directory = partition.directories[partition.replicas.index(leader)]
        if not is_reserved(directory) and directory not in image.brokers[leader].log_dirs:
            raise self.leads_from_an_online_directory(
                f"{leader} leads from {directory.hex()} at {image.end_offset}"
            )

    def _fenced(self, record: BrokerRegistrationChangeRecord, why: str) -> None:
        self._world.tell(f"broker {record.broker_id}", f"is {'fenced' if record.fenced else 'online'} {why}")
        if record.fenced:
            self.fencings += 1

    def check_silent(self, broker: "SimulatedBroker") -> None:
        epoch, fenced_end = self._silent.get(broker.broker_id, (None, 0))
        session, read_end = broker.session, broker.follower.image.end_offset
        if session is None or session.broker_epoch != epoch or read_end >= fenced_end:
            return
        # This also holds if the broker is unfenced by now: its leaderships moved, and it has not read that yet.
        if broker.may_serve():
            raise self.silent_brokers_serve_nobody(
                f"{broker.broker_id} serves from offset {read_end}, and was fenced below {fenced_end}"
            )
