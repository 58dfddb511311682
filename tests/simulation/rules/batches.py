"""Rules of Kafka that every batch of a simulated run is held to, whatever decided it: by the state before it, its records,
and the state after it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import metadata_log.image.metadata_image
from metadata_log.batch import RecordBatch
from metadata_log.ids import NO_LEADER, UNASSIGNED, BrokerId, TopicId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey, TopicImage
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, ConfigRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicTombstoneRecord,
)
from quorum.controller.controller import Controller
from quorum.decide.context import DecideContext
from quorum.decide.deleted_topics import Expiry
from quorum.decide.elections import has_online_directory
from quorum.decide.sweeps import SweepKind
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.rules.service import ServiceRules

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld


ASSIGNED: Final = "assigned"
"""So the names of topics begin whose replicas a client names."""
PREFERRED: Final = ("PREFERRED_ELECTION_REQUESTED", SweepKind.BALANCE.value)
UNCLEAN: Final = ("UNCLEAN_ELECTION_REQUESTED", SweepKind.UNCLEAN.value)
UNCLEAN_SETTING: Final = "unclean.leader.election.enable"
EARLY_MS: Final = 300


class BatchRules:
    """Holds the batches of one world to the rules, in order."""

    records_come_in_order = rule(
        "leaving is partitions first, then the broker; coming back is the broker first"
    )
    a_record_changes_something = rule("a partition or a topic's setting is not written once more as it is")
    who_leads_may = rule("a leader is active, in an online directory, and in the ISR")
    a_valid_leader_stays = rule(
        "a leader that may lead on is replaced by a first replica alone, where that is asked for"
    )
    who_returns_leads = rule(
        "a broker that is unfenced leads what no other can, unless it is elected in parts"
    )
    what_is_lost_is_known = rule("a leader from outside the ISR is RECOVERING, and losses are accepted there")
    who_left_is_eligible = rule("a replica that leaves an ISR empty is eligible, unless it crashed")
    eligible_by_what_is_set = rule("a change of min.insync.replicas leaves nobody eligible by the one before")
    nothing_lost_is_relied_on = rule(
        "a deleted topic relies on no broker that was removed or ended uncleanly"
    )
    no_directory_no_isr = rule("a replica in a failed directory leaves its ISR, unless it is the last")
    old_replicas_wait = rule("replicas go once those that come are in sync, or are given up")
    a_lost_replica_is_an_election = rule("where a replica goes, the leader epoch grows")
    replicas_have_places = rule("each replica has a directory: the only one its broker has, if that has one")
    a_stop_hands_over = rule("a broker that asks to stop is let go once it leads nothing")
    the_fenced_come_last = rule("replicas are placed on fenced brokers where too few others are up")
    names_differ = rule("no two topics have one name in metrics")
    settings_have_owners = rule("settings belong to topics, brokers and controllers that exist")
    levels_are_supported = rule("each registered broker and controller supports each finalized level")
    deleted_for_their_time = rule("a deleted topic can be restored for its time, whatever clocks do")
    ids_are_given_once = rule("a block of producer ids begins where the last one ended")
    out_in_parts_gets_nothing = rule(
        "a broker that a change in parts takes out of service gets nothing, under the next controller too"
    )

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._ineligible: dict[int, frozenset[BrokerId]] = {}
        """Who was on its way out where something was decided, by the offset of the batch."""
        self._amid_elections: set[int] = set()
        """The offsets at which something was decided while elections in parts were under way."""
        self._isr_before: dict[PartitionKey, tuple[BrokerId, ...]] = {}
        self._deleted_at: dict[TopicId, tuple[float, int]] = {}
        """When each topic was deleted for a time, in simulated seconds, and how often clocks may have leapt before."""
        self._decided_at: dict[int, tuple[float, int]] = {}
        """The same of the first decision at each offset: its batch may be committed much later."""
        self._stopping: set[tuple[BrokerId, int]] = set()
        """Brokers that asked to stop, and where the tip ended then."""
        self._deleted_offset: dict[TopicId, int] = {}
        """Where each topic was deleted for a time."""
        self._removals: dict[BrokerId, int] = {}
        """Where the removal of each broker began that goes on."""
        self._log_time_ms = 0
        """The log's time, reckoned here from the times that the batches bear."""
        self._deleted_at_ms: dict[TopicId, int] = {}
        """When each topic was deleted for a time, in the log's time."""
        self._service = ServiceRules()

    def check(self, before: MetadataImage, batch: RecordBatch, image: MetadataImage, delta: Delta) -> None:
        """Raise a Violation where a batch breaks a rule; `before` is the state that it continues."""
        try:
            self._check(before, batch, image, delta)
        except Violation as broken:
            cause = batch.envelope.cause
            where = f"offset {batch.base_offset}, {batch.envelope.operation}, {None if cause is None else cause.code}"
            raise broken.beside(where) from None

    def _check(self, before: MetadataImage, batch: RecordBatch, image: MetadataImage, delta: Delta) -> None:
        _out_of_order(batch)
        # Each leader stamps with its own clock, which may leap.
        step_ms: int = vars(metadata_log.image.metadata_image)["LOG_TIME_STEP_MS"]
        self._log_time_ms += min(max(0, batch.appended_at_ms - before.last_time_ms), step_ms)
        self._isr_before = {
            (record.topic_id, record.partition_id): was.isr
            for record in batch.records
            if isinstance(record, PartitionChangeRecord)
            and (was := before.topics.partition((record.topic_id, record.partition_id))) is not None
        }
        cause = batch.envelope.cause
        if cause is not None and cause.code == "BROKER_UNREGISTERED":
            self._removals.setdefault(BrokerId(int(str(cause.detail["broker_id"]))), batch.base_offset)
        self._half_out(batch)
        self._lets_go(before, batch)
        now: dict[PartitionKey, PartitionImage] = {}
        out: set[BrokerId] = set()
        for record in batch.records:
            match record:
                case (
                    BrokerRegistrationChangeRecord(fenced=True)
                    | UnregisterBrokerRecord()
                    | RegisterBrokerRecord()
                ):
                    out.add(record.broker_id)
                case PartitionChangeRecord():
                    key = record.topic_id, record.partition_id
                    was = now.get(key) or before.topics.partition(key)
                    if was is None:
                        continue  # a topic that is restored: its partitions come with it
                    if not out.isdisjoint((was.leader, *was.isr)):
                        raise self.records_come_in_order(
                            f"a partition of {out} comes behind the broker that it leaves"
                        )
                    now[key] = after = was.changed_by(record)
                    topic = image.topics.known(record.topic_id)
                    assert topic is not None
                    end = topic.partitions[record.partition_id]
                    first = before.topics.partition(key) or was
                    _check_change(batch, image, topic, first, was, after, end)
                    self._left_for_nothing(batch, image, was, after)
                case PartitionRecord():
                    _check_creation(image, record)
                    ineligible = self._ineligible.get(batch.base_offset, frozenset())
                    _check_placement(image, record, ineligible)
                case ConfigRecord():
                    _check_setting(before, image, record)
                    _eligible_by_the_old(before, image, record)
                case BrokerRegistrationChangeRecord(fenced=False):
                    self._waits_in_vain(batch, image, record.broker_id)
                case FeatureLevelRecord():
                    _check_level(image, record)
                case TopicRecord():
                    names = [
                        each for each in image.topics.ids if _in_metrics(each) == _in_metrics(record.name)
                    ]
                    if len(names) > 1:
                        raise self.names_differ(f"{sorted(names)}")
                case ProducerIdsRecord():
                    if record.next_producer_id <= (before.next_producer_id or 0):
                        raise self.ids_are_given_once(
                            f"{record.next_producer_id} behind {before.next_producer_id}"
                        )
                case TopicTombstoneRecord():
                    now_and_leaps = self._world.loop.time(), self._leaps()
                    decided = self._decided_at.get(batch.base_offset, now_and_leaps)
                    self._deleted_at[record.topic_id] = decided
                    self._deleted_offset[record.topic_id] = batch.base_offset
                    self._deleted_at_ms[record.topic_id] = self._log_time_ms
                case RemoveTopicRecord() if record.topic_id in before.topics.deleted:
                    self._gone_early(before, batch, record.topic_id)
        self._service.check(batch.records, image, delta)
        for record in batch.records:
            if isinstance(record, RegisterBrokerRecord | UnregisterBrokerRecord):
                began = self._removals.pop(record.broker_id, batch.base_offset)
                late = {topic_id for topic_id, offset in self._deleted_offset.items() if offset > began}
                _relied_on(batch, before, image, record.broker_id, but=late)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.log_dirs is not None:
                _in_isr_without_a_directory(before, image, record.broker_id)

    def deciding(self, context: DecideContext) -> None:
        """Note who is on its way out, though its registration does not say so, where something is decided."""
        at = context.image.end_offset
        self._decided_at.setdefault(at, (self._world.loop.time(), self._leaps()))
        self._ineligible[at] = self._ineligible.get(at, frozenset()) | context.ineligible
        if context.changes.elected_to is not None:
            self._amid_elections.add(at)

    def ineligible_at(self, base_offset: int) -> frozenset[BrokerId]:
        """Return who was on its way out where a batch was decided, though its registration did not say so."""
        return self._ineligible.get(base_offset, frozenset())

    def stopping(self, broker_id: BrokerId, end_offset: int) -> None:
        """Note that a broker asks to stop, and does not ask to be fenced, where the tip ends at an offset."""
        self._stopping.add((broker_id, end_offset))

    def _lets_go(self, before: MetadataImage, batch: RecordBatch) -> None:
        """Raise if a broker that asked to stop in order may go while it leads partitions."""
        cause = batch.envelope.cause
        if cause is None or cause.code != "SHUTDOWN_GRANTED":
            return
        broker_id = BrokerId(int(str(cause.detail["broker_id"])))
        asked = (broker_id, batch.base_offset) in self._stopping
        if asked and not before.brokers[broker_id].fenced and before.topics.leads_any(broker_id):
            raise self.a_stop_hands_over(f"{broker_id} may go, and leads partitions")

    def _half_out(self, batch: RecordBatch) -> None:
        """Raise if a broker gets something back that a change in parts is taking out of service."""
        leaving = self._world.properties.sessions.parts.known
        for record in batch.records if leaving else ():
            if not isinstance(record, PartitionChangeRecord | PartitionRecord):
                continue
            gets = {each for each in (record.leader, *(record.isr or ())) if each in leaving}
            was = self._isr_before.get((record.topic_id, record.partition_id), ())
            if not was and isinstance(record, PartitionChangeRecord):
                continue  # of a topic that is deleted for a time, whose ISRs shrink
            if _is_reverted_unclean(record, was):
                continue  # Kafka takes the first replica there, whatever becomes of its broker
            if gets - {*was}:
                raise self.out_in_parts_gets_nothing(f"{gets - {*was}} are being taken out of service")

    def _waits_in_vain(self, batch: RecordBatch, image: MetadataImage, broker_id: BrokerId) -> None:
        """Raise if a broker comes back, and what it alone can lead has no leader, though the batch had room."""
        has_room = len(batch.records) < Controller.records_per_part_max - 1
        if not has_room or self._world.costs.rates.partition > 1:
            return  # there may be another part, for want of room or of time
        if batch.base_offset in self._amid_elections:
            return  # its own come behind those
        if broker_id in self._ineligible.get(batch.base_offset, ()):
            return  # its removal is under way, and it gets nothing
        has_eligible = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
        for topic_id, number, partition in image.topics.partitions_on(broker_id):
            valid = partition.isr or partition.eligible_leader_replicas
            is_last_known = has_eligible and not valid and partition.last_known_elr == (broker_id,)
            is_unclean = setting_of(image, image.topics.by_id[topic_id], UNCLEAN_SETTING) == "true"
            is_fit = broker_id in partition.replicas and (broker_id in valid or is_last_known or is_unclean)
            if partition.leader == NO_LEADER and is_fit and _may_lead(image, broker_id, partition):
                name = image.topics.by_id[topic_id].name
                raise self.who_returns_leads(
                    f"{broker_id} is back, and nobody leads {name}-{number}: {partition}"
                )

    def _left_for_nothing(
        self, batch: RecordBatch, image: MetadataImage, was: PartitionImage, now: PartitionImage
    ) -> None:
        """Raise if a leader lost its leadership that may lead on."""
        cause = batch.envelope.cause
        if now.leader == was.leader or was.leader not in now.isr or not _may_lead(image, was.leader, now):
            return
        if was.leader in self._ineligible.get(batch.base_offset, ()):
            return
        if cause is not None and cause.detail.get("broker_id") == was.leader and cause.code != "ISR_REPORTED":
            return
        if cause is None or cause.code not in PREFERRED or now.leader != now.replicas[0]:
            raise self.a_valid_leader_stays(f"{was.leader} led {was.replicas}, and {now.leader} does now")

    def _leaps(self) -> int:
        """Return how often the clock that stamps batches may have leapt: with each leap, and then with each leader."""
        leaps = self._world.faults["wall clock jump"] + self._world.faults["all suspended"]
        return leaps + len(self._world.checks.leaders) if leaps else 0

    def _gone_early(self, before: MetadataImage, batch: RecordBatch, topic_id: TopicId) -> None:
        if batch.envelope.operation != Expiry.operation:
            return  # somebody asked for it
        window_ms = before.topics.deleted[topic_id].grace_ms
        deleted_at, leaps = self._deleted_at[topic_id]
        since_ms = 1000 * (self._world.loop.time() - deleted_at)
        in_log_ms = self._log_time_ms - self._deleted_at_ms[topic_id]
        if in_log_ms < window_ms:
            raise self.deleted_for_their_time(
                f"a topic is gone after {in_log_ms} of {window_ms} ms of the log's time"
            )
        # A leap, or another leader's clock that leapt, moves the log's time on by a step at most.
        step_ms: int = vars(metadata_log.image.metadata_image)["LOG_TIME_STEP_MS"]
        if since_ms < window_ms - EARLY_MS - step_ms * (self._leaps() - leaps):
            raise self.deleted_for_their_time(f"a topic is gone after {since_ms:.0f} of {window_ms} ms")


def _in_metrics(name: str) -> str:
    return name.replace(".", "_")


def _out_of_order(batch: RecordBatch) -> None:
    """Raise where a reader of the log would see a fenced broker lead, or one that stops get something back."""
    seen_partition = False
    for record in batch.records:
        match record:
            case PartitionChangeRecord():
                seen_partition = True
            case BrokerRegistrationChangeRecord(fenced=False) if seen_partition:
                raise BatchRules.records_come_in_order("a broker comes behind the partitions that it leads")
            case BrokerRegistrationChangeRecord(in_controlled_shutdown=True) if seen_partition:
                raise BatchRules.records_come_in_order("a broker that stops comes behind its partitions")


def _may_lead(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage) -> bool:
    return image.is_active(broker_id) and has_online_directory(image, broker_id, partition)


def settings_of(image: MetadataImage, kind: int, name: str) -> Mapping[str, str]:
    settings: Mapping[str, str] | None = image.configs.get((kind, name))
    return settings or {}


def setting_of(image: MetadataImage, topic: TopicImage, name: str) -> str | None:
    own = settings_of(image, TOPIC, topic.name).get(name)
    return own or settings_of(image, BROKER, CLUSTER_DEFAULT).get(name)


def _fails_directories(batch: RecordBatch) -> bool:
    """Answer whether a heartbeat fails directories. What else it asks for may change their partitions, too, as in Kafka."""
    changes = (record for record in batch.records if isinstance(record, BrokerRegistrationChangeRecord))
    return any(change.log_dirs is not None for change in changes)


def _check_change(
    batch: RecordBatch,
    image: MetadataImage,
    topic: TopicImage,
    first: PartitionImage,
    was: PartitionImage,
    now: PartitionImage,
    end: PartitionImage,
) -> None:
    """Check one change of a partition; all of the batch was decided from `first`, and makes `end` of it."""
    cause = batch.envelope.cause
    code = "" if cause is None else cause.code
    # A replica in a failed directory means two records, both decided on one state, as in Kafka: each may end a reassignment.
    is_second = code == "DIRECTORIES_REPORTED" and was != first
    is_as_it_was = now == was._replace(partition_epoch=was.partition_epoch + 1)
    if is_as_it_was and not is_second and not _fails_directories(batch):
        raise BatchRules.a_record_changes_something(f"a partition of {topic.name} stays {was}")
    if not set(now.isr) <= set(now.replicas) or len(set(now.isr)) != len(now.isr):
        raise BatchRules.who_leads_may(f"the ISR {now.isr} of {topic.name} is none of {now.replicas}")
    has_eligible = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
    # Where a directory is lost, another record of the batch may elect again, as in Kafka: the last leader counts.
    is_for_good = now.leader == end.leader or not (
        code == "DIRECTORIES_REPORTED" or _fails_directories(batch)
    )
    if now.leader != was.leader and is_for_good:
        _check_election(image, topic, was, now, code, has_eligible=has_eligible)
    if set(was.replicas) - set(now.replicas):
        _check_departure(topic, was, now)
    if len(now.directories) != len(now.replicas):
        raise BatchRules.replicas_have_places(f"{len(now.directories)} directories of {now.replicas}")
    for place, broker_id in enumerate(now.replicas[: len(now.directories)]):
        if broker_id not in was.replicas:
            _misplaced(image, broker_id, now.directories[place])
    if has_eligible and not now.isr and was.isr:
        crashed = set()
        if cause is not None and code == "BROKER_REGISTERED" and not cause.detail["clean"]:
            crashed = {cause.detail["broker_id"]}
        eligible = {*first.isr, *first.eligible_leader_replicas} - crashed
        if set(now.eligible_leader_replicas) != eligible:
            raise BatchRules.who_left_is_eligible(
                f"{now.eligible_leader_replicas} of {topic.name}, and not {sorted(eligible)}"
            )
        if now.leader == NO_LEADER and was.leader != NO_LEADER and not now.last_known_elr:
            raise BatchRules.who_left_is_eligible(f"{was.leader} led {topic.name} last, and is forgotten")


def _check_election(
    image: MetadataImage,
    topic: TopicImage,
    was: PartitionImage,
    now: PartitionImage,
    code: str,
    *,
    has_eligible: bool,
) -> None:
    leader = now.leader
    if leader == NO_LEADER:
        return
    # A late heartbeat of before its shutdown may unfence a broker: it is elected although it shuts down, as in Kafka.
    is_back = code == "BROKER_UNFENCED" and leader in image.brokers and not image.brokers[leader].fenced
    if not (_may_lead(image, leader, now) or (is_back and has_online_directory(image, leader, now))):
        raise BatchRules.who_leads_may(f"{leader} leads {topic.name}, and must not")
    reported = now.isr if code in ("ISR_REPORTED", "REASSIGNMENT_REQUESTED") else ()
    if leader in (*was.isr, *was.eligible_leader_replicas, *reported):
        return
    if now.leader_recovery_state != RECOVERING:
        raise BatchRules.what_is_lost_is_known(
            f"{leader} leads {topic.name} and was not in sync; it has nothing to recover"
        )
    is_last_known = has_eligible and was.last_known_elr == (leader,)
    if not is_last_known and code not in UNCLEAN and setting_of(image, topic, UNCLEAN_SETTING) != "true":
        raise BatchRules.what_is_lost_is_known(
            f"{leader} leads {topic.name} and was not in sync; nobody accepts that"
        )


def _check_departure(topic: TopicImage, was: PartitionImage, now: PartitionImage) -> None:
    gone = set(was.replicas) - set(now.replicas)
    if now.leader_epoch <= was.leader_epoch:
        raise BatchRules.a_lost_replica_is_an_election(f"{sorted(gone)} left {topic.name}")
    if gone <= set(was.adding_replicas):
        return  # it is given up
    came = set(now.replicas) - (set(was.replicas) - set(was.adding_replicas))
    is_smaller = len(came) < len(gone)
    if not came <= set(now.isr) or (is_smaller and set(now.replicas) != set(now.isr)):
        raise BatchRules.old_replicas_wait(
            f"{sorted(gone)} left {topic.name} before {now.replicas} were in sync: {now.isr}"
        )


def _misplaced(image: MetadataImage, broker_id: BrokerId, directory: bytes) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.log_dirs:
        return
    expected = broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED
    if directory != expected:
        raise BatchRules.replicas_have_places(
            f"the replica on {broker_id} is in {directory.hex()}, not in {expected.hex()}"
        )


def _check_creation(image: MetadataImage, record: PartitionRecord) -> None:
    topic = image.topics.known(record.topic_id)
    assert topic is not None
    if record.leader != record.isr[0] or not all(map(image.is_active, record.isr)):
        raise BatchRules.who_leads_may(f"the new {topic.name} is led by {record.leader} of {record.isr}")
    for broker_id, directory in zip(record.replicas, record.directories, strict=True):
        _misplaced(image, broker_id, directory)


def _check_placement(image: MetadataImage, record: PartitionRecord, ineligible: frozenset[BrokerId]) -> None:
    topic = image.topics.known(record.topic_id)
    assert topic is not None
    if topic.name.startswith(ASSIGNED):
        return
    fenced = {each for each in record.replicas if image.brokers[each].fenced}
    left_out = [
        broker_id
        for broker_id, broker in image.brokers.items()
        if broker_id not in {*record.replicas, *ineligible}
        and broker.is_active
        and not broker.cordoned_log_dirs
    ]
    if fenced and left_out:
        raise BatchRules.the_fenced_come_last(
            f"{topic.name} is placed on fenced {sorted(fenced)} and not on {sorted(left_out)}"
        )


def _check_setting(before: MetadataImage, image: MetadataImage, record: ConfigRecord) -> None:
    if record.resource_type == TOPIC:
        if record.resource_name not in image.topics.ids:
            raise BatchRules.settings_have_owners(
                f"{record.name} of topic {record.resource_name}, which is none"
            )
        known = settings_of(before, TOPIC, record.resource_name).get(record.name)
        if record.mask_key is None and known == record.value and record.resource_name in before.topics.ids:
            raise BatchRules.a_record_changes_something(
                f"{record.name} of {record.resource_name} is {known} already"
            )
    elif record.resource_name != CLUSTER_DEFAULT:
        nodes = {*map(int, image.brokers), *(int(voter.node_id) for voter in image.quorum.voters or ())}
        if int(record.resource_name) not in nodes | {*map(int, image.controllers)}:
            raise BatchRules.settings_have_owners(
                f"{record.name} of node {record.resource_name}, which is none"
            )


def _check_level(image: MetadataImage, record: FeatureLevelRecord) -> None:
    registered = [*image.brokers.items(), *image.controllers.items()]
    for node_id, node in registered:
        supported = {feature.name: feature.max_version for feature in node.features}
        if record.level > supported.get(record.name, record.level if record.level == 0 else -1):
            raise BatchRules.levels_are_supported(
                f"{record.name} at {record.level}, and node {node_id} knows {supported}"
            )


def _eligible_by_the_old(before: MetadataImage, image: MetadataImage, record: ConfigRecord) -> None:
    """Raise if somebody stays eligible by another min.insync.replicas than the one in force."""
    if record.name != "min.insync.replicas" or not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return
    topic = image.topics.named(record.resource_name) if record.resource_type == TOPIC else None
    if topic is None or record.resource_name not in before.topics.ids:
        return
    if any(each.eligible_leader_replicas or each.last_known_elr for each in topic.partitions):
        raise BatchRules.eligible_by_what_is_set(
            f"{topic.name} has another {record.name}, and {topic.partitions}"
        )


def _relied_on(
    batch: RecordBatch,
    before: MetadataImage,
    image: MetadataImage,
    broker_id: BrokerId,
    *,
    but: Collection[TopicId],
) -> None:
    """Raise if a deleted topic relies on a broker that may have lost messages: it was removed, or ended uncleanly.

    Those in `but` were deleted meanwhile: they rely on it as the topics do that were not, until it registers anew.
    """
    cause = batch.envelope.cause
    if cause is not None and cause.code == "BROKER_REGISTERED":
        registered = image.brokers[broker_id]
        is_another = registered.broker_epoch == batch.end_offset - 1
        known = before.brokers.get(broker_id)
        if known is not None and known.incarnation_id == registered.incarnation_id:
            return  # it did not end, but did not hear that it is registered
        if cause.detail["clean"] or not is_another:
            return
    for topic_id, number, partition in image.topics.partitions_on(broker_id, with_deleted=True):
        is_among_others = broker_id in partition.isr and len(partition.isr) > 1
        is_eligible = broker_id in partition.eligible_leader_replicas
        is_deleted = topic_id in image.topics.deleted and topic_id not in but
        if is_deleted and (is_among_others or is_eligible):
            raise BatchRules.nothing_lost_is_relied_on(
                f"partition {number} of a deleted topic relies on {broker_id}: {partition}"
            )


def _is_reverted_unclean(record: PartitionChangeRecord | PartitionRecord, was: Sequence[BrokerId]) -> bool:
    """Answer whether a reassignment was cancelled of which only what it added was in sync, and nobody leads by that.

    Source: Kafka's PartitionReassignmentRevert.
    """
    return (
        isinstance(record, PartitionChangeRecord)
        and record.leader in (None, NO_LEADER)
        and not (record.adding_replicas or record.removing_replicas)
        and record.replicas is not None
        and record.isr == record.replicas[:1]
        and not {*was} & {*record.replicas}
    )


def _in_isr_without_a_directory(before: MetadataImage, image: MetadataImage, broker_id: BrokerId) -> None:
    """Say in which ISRs a broker is, beside others, with a replica in a directory that has just failed."""
    for topic_id, number, partition in image.topics.partitions_on(broker_id):
        is_among_others = broker_id in partition.isr and len(partition.isr) > 1
        has_failed = has_online_directory(before, broker_id, partition) and not has_online_directory(
            image, broker_id, partition
        )
        if is_among_others and has_failed:
            name = image.topics.by_id[topic_id].name
            raise BatchRules.no_directory_no_isr(
                f"{broker_id} is in {partition.isr} of {name}-{number}, and its directory failed"
            )
