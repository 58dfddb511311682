"""A client that asks for what must be refused, and judges the answer by the state that it rests on.

Each question is drawn, and made of the newest committed state: another cluster's id, a replaced epoch, brokers and topics
that do not exist, values that no setting has, a used request id with another body. The judge looks at the state at the
offset that the answer names, and knows Kafka's error for it. It says nothing of questions that nobody answered.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.errors import NotController, OutcomeUnknown, Rejected, Unavailable
from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import (
    AllocateProducerIds,
    AlterPartition,
    Command,
    IsrMember,
    RegisterBroker,
    ReportedIsr,
)
from metadata_log.wire.fetch import FetchRequest
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.configs import ConfigChange, ConfigOperation, IncrementalAlterConfigs, ResourceChange
from quorum.decide.features import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.partitions import ElectLeaders
from quorum.decide.placement import Placement
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topics import CreatePartitions, CreateTopic, DeleteTopics, MorePartitions
from tests.simulation.rules.batches import ASSIGNED, settings_of
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster_node import CLUSTER_ID, uuid
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController
    from tests.simulation.world.node import SimulatedNode


PAUSE_SECONDS: Final = 0.12
"""Mean time between two questions."""
PATIENCE_SECONDS: Final = 2.0
STRANGER: Final = BrokerId(900)
"""No broker has this id."""
PARTITIONS_PER_TOPIC_MAX: Final = 64
"""What the policy of the simulated controllers allows."""
CLIENT: Final = 0xD1
"""In place of a client's number."""
OWN: Final = "contrary.own"
OWN_LIST: Final = "cleanup.policy"

Errors = set[str | None]


class Question(NamedTuple):
    command: Command | FetchRequest
    errors: Callable[[MetadataImage], Errors]
    """Which errors are right where it is decided on this state; None: it is not refused."""
    shows: Callable[[MetadataImage, Any], str | None] = lambda _after, _outcome: None
    """What is wrong with the state at the answer's offset, if it was not refused."""
    request_id: Uuid | None = None


def _always(*errors: str | None) -> Callable[[MetadataImage], Errors]:
    return lambda _image: {*errors}


class Contrary:
    """One client of a world; it draws from numbers of its own."""

    refused_by_name = rule("what must be refused is, with this error of Kafka")
    done_as_asked = rule("what is not refused is done: the state at the answer's offset shows it")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._rng = random.Random(world.seed ^ 0xC047)
        self._asked = 0
        self._ids: list[Uuid] = []
        """Request ids that were used."""
        self._kinds: tuple[Callable[[MetadataImage], Question | None], ...] = (
            self._registration,
            self._taken_id,
            self._too_early,
            self._old_epoch,
            self._isr,
            self._isr,
            self._isr,
            self._election,
            self._reassignment,
            self._cancellation,
            self._creation,
            self._assigned,
            self._growth,
            self._deletion,
            self._settings,
            self._setting_again,
            self._list,
            self._all_or_nothing,
            self._producer_ids,
            self._level,
            self._removal,
            self._used_id,
        )

    async def live(self) -> None:
        world, rng = self._world, self._rng
        while not world.violations and not world.is_quiet:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            question = rng.choice(self._kinds)(world.image) if world.image.end_offset else None
            if question is not None and not world.is_quiet:
                await self._judge(question)

    async def _judge(self, question: Question) -> None:
        world = self._world
        answer = await self._ask(question)
        if answer is None:
            return
        world.consequences["contrary questions answered"] += 1
        if isinstance(answer, Rejected):
            errors: list[str | None] = [answer.error]
            at: MetadataImage | None = world.image
        else:
            outcome, base, end = answer
            at = world.properties.images.get(base)
            after = world.properties.images.get(end)
            rows = getattr(outcome, "results", None)
            errors = [None] if rows is None else [row.error for row in rows]
            if at is None or after is None:
                return
            if errors == [None] and (wrong := question.shows(after, outcome)) is not None:
                world.violated(self.done_as_asked(f"{wrong} by {question.command}"))
        assert at is not None
        right = question.errors(at)
        if right and not {*errors} <= right:
            world.violated(self.refused_by_name(f"{errors} and not {right} for {question.command}"))

    async def _ask(self, question: Question) -> "Rejected | tuple[Any, int, int] | None":
        """Return a refusal, or the outcome and its two offsets; None: nobody says."""
        world, command = self._world, question.command
        nodes = [node for node in world.nodes.values() if node.is_leader() and node.is_awake()]
        if not nodes:
            return None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if isinstance(command, FetchRequest):
                    return await self._poll(nodes[0], command)
                written = await world.submit(nodes[0], command, question.request_id)
        except Rejected as refusal:
            return refusal
        except (TimeoutError, ConnectionError, NotController, Unavailable, OutcomeUnknown):
            return None
        if question.request_id is not None:
            self._ids.append(question.request_id)
        return written.outcome, written.base_offset, written.end_offset

    async def _poll(self, node: "SimulatedNode", request: FetchRequest) -> tuple[Any, int, int]:
        async def serve(controller: "SimulatedController") -> int:
            await controller.fetches.fetch(request, anybody())
            return controller.committed.end_offset

        end = await self._world.remote(node, serve, is_poll=True)
        return None, end, end

    # --- what it draws from

    def _brokers(self, image: MetadataImage) -> list[BrokerId]:
        return sorted(image.brokers)

    def _partition(
        self, image: MetadataImage, is_fit: Callable[[PartitionImage], bool] = lambda _: True
    ) -> tuple[TopicImage, int, PartitionImage] | None:
        """Draw a partition that is fit from some topics, in an order that is the same in every process."""
        names = sorted(image.topics.ids)
        for name in self._rng.sample(names, min(len(names), 6)):
            topic = image.topics.named(name)
            assert topic is not None
            number = self._rng.randrange(len(topic.partitions))
            if is_fit(topic.partitions[number]):
                return topic, number, topic.partitions[number]
        return None

    def _unknown_topic(self, image: MetadataImage) -> str:
        """Return a name that no topic has; one that is deleted for a time, if there is one."""
        gone = sorted({each.topic.name for each in image.topics.deleted.values()} - {*image.topics.ids})
        return self._rng.choice(gone) if gone else "contrary.nobody"

    # --- brokers

    def _registration(self, image: MetadataImage) -> Question | None:
        """Register a broker that no rule lets in."""
        known = self._brokers(image)
        if not known:
            return None
        levels = {METADATA_VERSION: image.features.get(METADATA_VERSION, 0), **image.features}
        features = [FeatureRange(name, 0, level) for name, level in sorted(levels.items())]
        directory = uuid(0xD000 + self._asked)
        other = image.brokers[self._rng.choice(known)]
        at_most_now = tuple(features)
        too_new = tuple(
            FeatureRange(each.name, each.max_version + 1, each.max_version + 2) for each in features
        )
        wrongs: list[tuple[str, tuple[FeatureRange, ...], tuple[Uuid, ...], Errors]] = [
            ("F" * 22, at_most_now, (directory,), {"INCONSISTENT_CLUSTER_ID"}),
            (CLUSTER_ID, at_most_now, (), {"INVALID_REGISTRATION"}),
            (CLUSTER_ID, at_most_now, (directory, directory), {"INVALID_REGISTRATION"}),
            (CLUSTER_ID, (), (directory,), {"INVALID_REGISTRATION"}),
            (CLUSTER_ID, too_new, (directory,), {"UNSUPPORTED_VERSION"}),
        ]
        if other.log_dirs and self._world.profile.unregister_every is None:
            # Of a broker that is removed meanwhile the stranger would be given the directory, and that broker be refused.
            wrongs.append((CLUSTER_ID, at_most_now, other.log_dirs[:1], {"INVALID_REGISTRATION", None}))
        cluster_id, ranges, directories, errors = self._rng.choice(wrongs)
        command = self._registers(STRANGER, cluster_id, ranges, directories)

        def right(at: MetadataImage) -> Errors:
            is_taken = any(set(directories) & set(broker.log_dirs) for broker in at.brokers.values())
            return {*errors} - ({None} if is_taken else set())

        return Question(command, right)

    def _registers(
        self,
        broker_id: BrokerId,
        cluster_id: str,
        features: tuple[FeatureRange, ...],
        log_dirs: tuple[Uuid, ...],
    ) -> RegisterBroker:
        self._asked += 1
        return RegisterBroker(
            cluster_id=cluster_id,
            broker_id=broker_id,
            incarnation_id=uuid((CLIENT << 40) + self._asked),
            endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9999, 0),),
            features=features,
            rack=None,
            log_dirs=log_dirs,
            previous_broker_epoch=-1,
        )

    def _taken_id(self, image: MetadataImage) -> Question | None:
        """Register another process under the id of a broker that has just been heard of."""
        world = self._world
        for broker in world.brokers:
            session, known = broker.session, image.brokers.get(broker.broker_id)
            if session is None or known is None or known.fenced or session.deadline_ms is None:
                continue
            if session.deadline_ms - broker.now_ms() > 2_000 and broker.is_awake():
                command = self._registers(broker.broker_id, CLUSTER_ID, (), ())
                return Question(command, _while_it_lasts(known, session.deadline_ms, broker.now_ms))
        return None

    def _too_early(self, image: MetadataImage) -> Question | None:
        """Poll as a fenced broker that has not applied its own registration, and asks to be unfenced."""
        for broker in self._world.brokers:
            known = image.brokers.get(broker.broker_id)
            if known is None or not known.fenced or broker.session is None or not broker.is_awake():
                continue
            if broker.session.broker_epoch == known.broker_epoch:
                poll = self._poll_of(known.broker_id, known.broker_epoch, known.incarnation_id)
                return Question(poll, _always(None, "STALE_BROKER_EPOCH"))
        return None

    def _poll_of(self, broker_id: BrokerId, epoch: int, incarnation_id: Uuid) -> FetchRequest:
        """Return a poll of a broker that has applied nothing, and wants to serve."""
        return FetchRequest(
            cluster_id=CLUSTER_ID,
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=incarnation_id,
            fetch_offset=0,
            last_epoch=-1,
            last_crc=0,
            applied_offset=0,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=(),
            cordoned_log_dirs=None,
            max_bytes=1_000,
            max_wait_ms=0,
        )

    def _old_epoch(self, image: MetadataImage) -> Question | None:
        """Speak as a registration that is none."""
        known = self._brokers(image)
        if not known:
            return None
        broker_id = self._rng.choice(known)
        epoch = image.brokers[broker_id].broker_epoch + self._rng.choice((-1, 10**9))
        if epoch < 0:
            return None
        poll = self._poll_of(broker_id, epoch, image.brokers[broker_id].incarnation_id)
        commands: tuple[Command | FetchRequest, ...] = (
            poll,
            AlterPartition(broker_id=broker_id, broker_epoch=epoch, partitions=()),
            AllocateProducerIds(broker_id=broker_id, broker_epoch=epoch),
        )
        return Question(self._rng.choice(commands), _always("STALE_BROKER_EPOCH"))

    def _removal(self, _image: MetadataImage) -> Question | None:
        return Question(UnregisterBroker(broker_id=STRANGER), _always("BROKER_ID_NOT_REGISTERED"))

    def _producer_ids(self, image: MetadataImage) -> Question | None:
        known = self._brokers(image)
        if not known:
            return None
        broker = image.brokers[self._rng.choice(known)]
        command = AllocateProducerIds(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        return Question(
            command,
            _always(None, "STALE_BROKER_EPOCH"),
            lambda after, ids: (
                None
                if after.next_producer_id == ids.first + ids.length and ids.length > 0
                else f"{ids} are given, and {after.next_producer_id} is next"
            ),
        )

    # --- partitions

    def _isr(self, image: MetadataImage) -> Question | None:
        """Report an ISR as a leader does, with something wrong."""
        found = self._partition(image, lambda each: each.leader in image.brokers)
        if found is None:
            return None
        topic, number, partition = found
        leader = image.brokers[partition.leader]
        members = [IsrMember(broker_id=each, broker_epoch=-1) for each in partition.isr]
        fenced = [each for each in partition.replicas if not image.is_active(each)]
        report = ReportedIsr(
            topic_id=topic.topic_id,
            partition_id=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(members),
            leader_recovery_state=RECOVERED,
        )
        others = [each for each in self._brokers(image) if each != partition.leader]
        kind = self._rng.randrange(8)
        if kind == 0:
            changed: dict[str, Any] = {"leader_epoch": partition.leader_epoch + 1}
        elif kind == 1:
            changed = {"partition_epoch": partition.partition_epoch + 1}
        elif kind == 2:
            changed = {"leader_epoch": partition.leader_epoch - 1}
        elif kind == 3:
            changed = {"partition_epoch": partition.partition_epoch - 1}
        elif kind == 4:
            wrong = self._rng.choice((STRANGER, partition.leader))
            changed = {"isr": (*members, IsrMember(broker_id=wrong, broker_epoch=-1))}
        elif kind == 5:
            changed = {"isr": tuple(each for each in members if each.broker_id != partition.leader)}
        elif kind == 6 and fenced:
            changed = {"isr": (*members, IsrMember(broker_id=fenced[0], broker_epoch=-1))}
        elif kind == 7 and others:
            changed, leader = {}, image.brokers[self._rng.choice(others)]
        else:
            stale = IsrMember(broker_id=partition.leader, broker_epoch=leader.broker_epoch + 1)
            changed = {
                "isr": tuple(stale if each.broker_id == partition.leader else each for each in members)
            }
        fields = {name: getattr(report, name) for name in report.__struct_fields__}
        report = ReportedIsr(**(fields | changed))
        command = AlterPartition(
            broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=(report,)
        )
        return Question(command, lambda at: _isr_errors(at, command, report))

    def _election(self, image: MetadataImage) -> Question | None:
        found = self._partition(image, lambda each: each.leader != NO_LEADER)
        if found is None:
            return None
        topic, number, _ = found
        unclean = self._rng.random() < 0.5
        name = self._unknown_topic(image) if self._rng.random() < 0.2 else topic.name
        command = ElectLeaders(unclean=unclean, partitions=((name, number),))

        def right(at: MetadataImage) -> Errors:
            known = at.topics.named(name)
            if known is None or number >= len(known.partitions):
                return {"UNKNOWN_TOPIC_OR_PARTITION"}
            now = known.partitions[number]
            if now.leader != NO_LEADER if unclean else now.leader == now.replicas[0]:
                return {"ELECTION_NOT_NEEDED"}
            return {None, "ELIGIBLE_LEADERS_NOT_AVAILABLE" if unclean else "PREFERRED_LEADER_NOT_AVAILABLE"}

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            is_any_leaving = any(broker.in_controlled_shutdown for broker in after.brokers.values())
            if is_any_leaving or self._world.properties.rules.ineligible_at(after.end_offset - 1):
                return None  # its leader may be on its way out, and another one is elected, or nobody
            return _not_led_by_first(after, name, number, unclean=unclean)

        return Question(command, right, shows)

    def _reassignment(self, image: MetadataImage) -> Question | None:
        found = self._partition(image)
        if found is None:
            return None
        topic, number, partition = found
        name, replicas, errors = self._rng.choice(
            (
                (topic.name, (*partition.replicas, STRANGER), {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, (partition.replicas[0],) * 2, {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, (), {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, partition.replicas[:-1], {"INVALID_REPLICATION_FACTOR"}),
                (self._unknown_topic(image), partition.replicas, {"UNKNOWN_TOPIC_OR_PARTITION"}),
            )
        )
        moves = partition.adding_replicas or partition.removing_replicas
        if errors == {"INVALID_REPLICATION_FACTOR"} and (moves or not replicas):
            return None  # the factor counts what stays
        command = AlterPartitionReassignments(
            reassignments=(Reassignment(name, number, replicas),), allow_replication_factor_change=False
        )

        def right(at: MetadataImage) -> Errors:
            known = at.topics.named(name)
            if known is None or number >= len(known.partitions):
                return {"UNKNOWN_TOPIC_OR_PARTITION"}
            if any(each not in at.brokers for each in replicas):
                return {"INVALID_REPLICA_ASSIGNMENT"}
            is_as_asked = (
                name == topic.name and known.partitions[number] == partition
            )  # no topic restored meanwhile
            return {*errors} if is_as_asked else set()

        return Question(command, right)

    def _cancellation(self, image: MetadataImage) -> Question | None:
        """Give a reassignment up, where there is one or not."""
        found = self._partition(
            image,
            lambda each: bool(each.adding_replicas or each.removing_replicas) or self._rng.random() < 0.1,
        )
        if found is None:
            return None
        topic, number, _ = found
        command = AlterPartitionReassignments(
            reassignments=(Reassignment(topic.name, number, None),), allow_replication_factor_change=True
        )

        def right(at: MetadataImage) -> Errors:
            known = at.topics.by_id.get(topic.topic_id)
            if known is None:
                return set()
            now = known.partitions[number]
            if not now.adding_replicas and not now.removing_replicas:
                return {"NO_REASSIGNMENT_IN_PROGRESS"}
            return {None, "INVALID_REPLICA_ASSIGNMENT"}

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            known = after.topics.by_id.get(topic.topic_id)
            now = None if known is None else known.partitions[number]
            if now is None or not (now.adding_replicas or now.removing_replicas):
                return None
            return f"its reassignment goes on, {now}"

        return Question(command, right, shows)

    # --- topics

    def _creates(self, name: str, **other: Any) -> CreateTopic:
        usual: dict[str, Any] = {
            "partitions": 1,
            "replication_factor": 1,
            "assignment": None,
            "configs": {},
            "validate_only": False,
        }
        return CreateTopic(name=name, **(usual | other))

    def _creation(self, image: MetadataImage) -> Question | None:
        brokers = self._brokers(image)
        if not brokers:
            return None
        if OWN not in image.topics.ids:
            return Question(
                self._creates(OWN), _always(None, "TOPIC_ALREADY_EXISTS", "INVALID_REPLICATION_FACTOR")
            )
        assigned = {"partitions": -1, "replication_factor": -1}
        command, error = self._rng.choice(
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
            command, _always(error, *(("INVALID_REPLICATION_FACTOR",) if error == "POLICY_VIOLATION" else ()))
        )

    def _assigned(self, image: MetadataImage) -> Question | None:
        """Create a topic on brokers of its own choice, grow it plainly, and delete it, by and by."""
        up = [each for each in self._brokers(image) if image.is_active(each)]
        mine = sorted(name for name in image.topics.ids if name.startswith(ASSIGNED))
        if mine and self._rng.random() < 0.6:
            return self._grows_plainly(image, mine[0])
        if not up:
            return None
        self._asked += 1
        replicas = tuple(self._rng.sample(up, min(2, len(up))))
        command = self._creates(
            f"{ASSIGNED}-{self._asked}", partitions=-1, replication_factor=-1, assignment=(replicas,)
        )

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            topic = after.topics.named(command.name)
            if topic is not None and topic.partitions[0].replicas == replicas:
                return None
            return f"{command.name} is {topic}"

        return Question(command, _always(None, "INVALID_REPLICA_ASSIGNMENT", "TOPIC_ALREADY_EXISTS"), shows)

    def _grows_plainly(self, image: MetadataImage, name: str) -> Question | None:
        topic = image.topics.named(name)
        assert topic is not None
        count = len(topic.partitions)
        if count >= 3:
            both = DeleteTopics(topics=(name, topic.topic_id))
            one = DeleteTopics(topics=(topic.topic_id,))
            return Question(self._rng.choice((both, one)), lambda at: _deletion_errors(at, topic.topic_id))
        command = CreatePartitions(
            topics=(MorePartitions(name, count + 1, placement=Placement.PLAIN),), validate_only=False
        )
        usable = [each for each in self._brokers(image) if image.is_active(each)]

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            grown = after.topics.named(name)
            if grown is None or [each for each in sorted(after.brokers) if after.is_active(each)] != usable:
                return None
            # Whether one that shuts down gets replicas is for its session to say, which began anew with the leader.
            brokers = after.brokers.values()
            if any(each.cordoned_log_dirs or each.in_controlled_shutdown for each in brokers):
                return None
            was_decided_on = after.end_offset - 1  # the batch has one record
            if len(usable) < 3 or self._world.properties.rules.ineligible_at(was_decided_on):
                return None
            first = grown.partitions[count].replicas[0]
            expected = usable[count % len(usable)]
            return None if first == expected else f"partition {count} of {name} is on {first}, not {expected}"

        errors = _always(
            None, "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "UNKNOWN_TOPIC_OR_PARTITION"
        )
        return Question(command, errors, shows if not self._world.profile.is_heavy else lambda *_: None)

    def _growth(self, image: MetadataImage) -> Question | None:
        if OWN not in image.topics.ids:
            return None
        name, count, error = self._rng.choice(
            (
                (self._unknown_topic(image), 4, "UNKNOWN_TOPIC_OR_PARTITION"),
                (OWN, 1, "INVALID_PARTITIONS"),
                (OWN, PARTITIONS_PER_TOPIC_MAX + 1, "POLICY_VIOLATION"),
            )
        )
        command = CreatePartitions(topics=(MorePartitions(name, count),), validate_only=False)
        return Question(command, lambda at: {error} if (name in at.topics.ids) == (name == OWN) else set())

    def _deletion(self, image: MetadataImage) -> Question | None:
        command = DeleteTopics(topics=("contrary.nobody",))
        return Question(command, _always("UNKNOWN_TOPIC_OR_PARTITION"))

    # --- settings and levels

    def _settings(self, image: MetadataImage) -> Question | None:
        if OWN not in image.topics.ids:
            return None
        broker = str(self._rng.choice(self._brokers(image) or [STRANGER]))
        kind, name, setting, value, errors = self._rng.choice(
            (
                (TOPIC, OWN, "retention.ms", "7", {None}),
                (TOPIC, OWN, "retention.ms", "soon", {"INVALID_CONFIG"}),
                (TOPIC, OWN, "no.such.setting", "7", {"INVALID_CONFIG"}),
                (TOPIC, "contrary.nobody", "retention.ms", "7", {"UNKNOWN_TOPIC_OR_PARTITION"}),
                (TOPIC, "a name", "retention.ms", "soon", {"INVALID_TOPIC_EXCEPTION"}),
                (BROKER, str(STRANGER), "contrary", "7", {"BROKER_ID_NOT_REGISTERED"}),
                (BROKER, "", "log.cleaner.threads", "some", {"INVALID_REQUEST"}),
                (BROKER, broker, "min.insync.replicas", "1", set()),
            )
        )
        command = _sets(ResourceChange(kind, name, (ConfigChange(setting, ConfigOperation.SET, value),)))

        def right(at: MetadataImage) -> Errors:
            if setting == "min.insync.replicas":
                return {"INVALID_CONFIG"} if at.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION) else set()
            return {*errors} if OWN in at.topics.ids or name != OWN else set()

        if setting == "min.insync.replicas" and not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
            return None  # it would be set
        return Question(command, right, lambda after, _: _unset(after, kind, name, setting, value))

    def _setting_again(self, image: MetadataImage) -> Question | None:
        """Set what is set already: nothing is written."""
        known = sorted(settings_of(image, TOPIC, OWN).items())
        if not known:
            return None
        setting, value = self._rng.choice(known)
        command = _sets(ResourceChange(TOPIC, OWN, (ConfigChange(setting, ConfigOperation.SET, value),)))
        return Question(command, lambda at: {None} if OWN in at.topics.ids else set())

    def _list(self, image: MetadataImage) -> Question | None:
        """Append to a list, or take something from it."""
        if OWN not in image.topics.ids:
            return None
        before = settings_of(image, TOPIC, OWN).get(OWN_LIST, "delete")
        operation = ConfigOperation.SUBTRACT if "compact" in before else ConfigOperation.APPEND
        expected = {"delete"} if "compact" in before else {"delete", "compact"}
        command = _sets(ResourceChange(TOPIC, OWN, (ConfigChange(OWN_LIST, operation, "compact"),)))

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            now = settings_of(after, TOPIC, OWN).get(OWN_LIST, "delete")
            return None if {*now.split(",")} == expected else f"{OWN_LIST} is {now}"

        return Question(command, _always(None), shows)

    def _all_or_nothing(self, image: MetadataImage) -> Question | None:
        """Ask for two settings at once, one of which is refused."""
        if OWN not in image.topics.ids:
            return None
        self._asked += 1
        good = ResourceChange(TOPIC, OWN, (ConfigChange("flush.ms", ConfigOperation.SET, str(self._asked)),))
        bad = ResourceChange(TOPIC, "contrary.nobody", good.changes)
        command = IncrementalAlterConfigs(resources=(good, bad), validate_only=False, all_or_nothing=True)
        return Question(command, _always("OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"))

    def _level(self, _image: MetadataImage) -> Question | None:
        update = FeatureUpdate(METADATA_VERSION, 99, UpgradeType.UPGRADE)
        command = UpdateFeatures(updates=(update,), validate_only=False)
        return Question(
            command,
            _always(
                "INVALID_UPDATE_VERSION", "INVALID_REQUEST", "UNSUPPORTED_VERSION", "FEATURE_UPDATE_FAILED"
            ),
        )

    def _used_id(self, image: MetadataImage) -> Question | None:
        """Ask for one thing, and then for another under the same id, while the first answer is kept."""
        if OWN not in image.topics.ids:
            return None
        self._asked += 1
        newest = self._ids[-1] if self._ids else None
        command = _sets(
            ResourceChange(
                TOPIC, OWN, (ConfigChange("segment.ms", ConfigOperation.SET, str(10**6 + self._asked)),)
            )
        )
        if newest is not None and self._rng.random() < 0.5:
            self._ids.clear()
            known = self._world.properties.requests.get(newest, ())
            if not known or self._world.properties.may_be_evicted(known[-1] - 100):
                return None
            return Question(command, _always("INVALID_REQUEST"), request_id=newest)
        return Question(command, _always(None), request_id=uuid((CLIENT << 32) + self._asked))


def _sets(change: ResourceChange) -> IncrementalAlterConfigs:
    return IncrementalAlterConfigs(resources=(change,), validate_only=False)


def _unset(image: MetadataImage, kind: int, name: str, setting: str, value: str) -> str | None:
    found = settings_of(image, kind, name).get(setting)
    return None if found == value else f"{setting} of {name} is {found}"


def _not_led_by_first(image: MetadataImage, name: str, number: int, *, unclean: bool) -> str | None:
    topic = image.topics.named(name)
    if unclean or topic is None:
        return None
    partition = topic.partitions[number]
    is_first = partition.leader == partition.replicas[0]
    return None if is_first else f"{partition.leader} leads {name}-{number} of {partition.replicas}"


def _while_it_lasts(
    broker: BrokerImage, deadline_ms: int, now_ms: Callable[[], int]
) -> Callable[[MetadataImage], Errors]:
    """Return what is right for an id whose broker is heard of.

    Nothing is asked if its session is over by the answer: the machine was suspended, with all that runs on it. Nor if the
    broker was unregistered meanwhile: then its id is free.
    """

    def right(at: MetadataImage) -> Errors:
        known = at.brokers.get(broker.broker_id)
        is_registered = known is not None and known.broker_epoch == broker.broker_epoch
        return {"DUPLICATE_BROKER_REGISTRATION"} if is_registered and now_ms() < deadline_ms else set()

    return right


def _deletion_errors(image: MetadataImage, topic_id: TopicId) -> Errors:
    if topic_id in image.topics.by_id:
        return {None, "INVALID_REQUEST"}
    return {"UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"}


def _isr_errors(image: MetadataImage, command: AlterPartition, reported: ReportedIsr) -> Errors:
    """Return which error Kafka's controller finds first."""
    topic = image.topics.by_id.get(reported.topic_id)
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return {"STALE_BROKER_EPOCH"}
    if topic is None:
        return {"UNKNOWN_TOPIC_ID", "STALE_BROKER_EPOCH"}
    partition = topic.partitions[reported.partition_id]
    told = reported.leader_epoch, reported.partition_epoch
    isr = [member.broker_id for member in reported.isr]
    if told[0] > partition.leader_epoch or told[1] > partition.partition_epoch:
        return {"NOT_CONTROLLER", "STALE_BROKER_EPOCH"}
    if told[0] < partition.leader_epoch:
        return {"FENCED_LEADER_EPOCH", "STALE_BROKER_EPOCH"}
    if command.broker_id != partition.leader:
        return {"INVALID_REQUEST", "STALE_BROKER_EPOCH"}
    if told[1] < partition.partition_epoch:
        return {"INVALID_UPDATE_VERSION", "STALE_BROKER_EPOCH"}
    if not set(isr) <= set(partition.replicas) or len(set(isr)) < len(isr) or partition.leader not in isr:
        return {"INVALID_REQUEST", "STALE_BROKER_EPOCH"}
    for member in reported.isr:
        epoch = image.brokers[member.broker_id].broker_epoch if member.broker_id in image.brokers else None
        if not image.is_active(member.broker_id) or member.broker_epoch not in (-1, epoch):
            return {"INELIGIBLE_REPLICA", "STALE_BROKER_EPOCH"}
    return set()
