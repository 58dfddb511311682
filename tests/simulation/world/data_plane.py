"""A data plane over the simulated brokers: the sample host of each, the messages between them, and clients that append.

Messages are lost, late and duplicated as those between controllers, and links between two brokers are cut, also in one
direction. A killed process keeps what it wrote (the kernel has it). A loss of power takes the end of all logs on one broker.

Its rules have two exceptions, both Kafka's. A partition that was elected uncleanly, or whose topic allows that, need not
hold what was acknowledged. That includes the election of the last known leader (KIP-966). And power is lost by one broker
at a time, in runs with eligible leader replicas only, while another member of the ISR, or an eligible one, has all that was
acknowledged: without that feature the last member of an ISR keeps its seat, and leads again with what is left of its log.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.configs import TOPIC
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.partitions import RECOVERING
from metadata_log.wire.commands import Command, ReportedIsr
from quorum.decide.elections import directory_of
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topics import CreateTopic, DeleteTopic
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.data_directories import DataDirectories
from tests.simulation.world.data_host import DataHost
from tests.support.replica_log import Disks, Record
from tests.support.sample_host import Message, Replica

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_broker import SimulatedBroker


LAG_MAX_MS: Final = (1_000, 2_500)
"""replica.lag.time.max.ms, shorter than Kafka's 30 s as sessions are."""
APPENDS_PER_SECOND: Final = 25.0
TOPIC_EVERY_SECONDS: Final = 6.0
TOPICS_KEPT: Final = 3
CLIENTS: Final = "d"
"""So the names of topics begin whose messages are followed."""
PARTITIONS: Final = 2
FAULTS_PER_CUT: Final = 1.5
"""So many faults of brokers befall for each cut between two."""
ROLLED_MAX: Final = 5
"""So many brokers are rolled at the end, in any order."""
ROLL_SECONDS: Final = 10.0
"""A session (3 s) may have to end, and a follower must catch up; where changes have several parts, these come on top."""
EQUAL_SECONDS: Final = 5.0
LOST_MAX: Final = 15
"""So many records of a log a loss of power may take."""
HELD_UP: Final = 0.5
"""The share of reports with a new member that are held up while the member's process ends and another starts."""
HELD_UP_SECONDS: Final = (2.0, 8.0)
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


def draws_data(seed: int) -> bool:
    """Answer whether the run with this seed has a data plane; with eligible leader replicas or without."""
    return seed // 2 % 2 == 1


class Acknowledged(NamedTuple):
    offset: int
    record: Record


class Proposed(NamedTuple):
    """What a leader proposed."""

    leader: BrokerId
    records: list[Record]
    """Its log up to its high watermark then."""
    epochs: dict[BrokerId, int]
    """The broker epochs of the members, as the leader knew them."""


class DataPlane:
    """All hosts of one world, and what they acknowledged."""

    acknowledged_is_on_enough_disks = rule(
        "min.insync.replicas replicas hold a record when it is acknowledged"
    )
    isr_holds_acknowledged = rule("each member of the ISR holds all acknowledged records")
    joined_in_sync = rule("a replica that joins an ISR or leads holds all that its leader proposed it for")
    no_acknowledged_record_is_lost = rule("a replica that begins to lead holds every acknowledged record")
    truncates_nothing_committed = rule("a follower cuts nothing below its high watermark")
    roll_keeps_leaders = rule("no partition of two replicas or more is leaderless during a roll")
    roll_ends_whole = rule(
        "after each broker of the roll every ISR is whole within ROLL_SECONDS and the time of parts"
    )
    directories_are_left = rule("a broker leaves the ISRs of what lay in a directory that failed")
    data_converges = rule("in the calm each partition takes appends, and then all its logs are equal")

    def __init__(self, world: "ClusterWorld") -> None:
        self.world = world
        self.rng = random.Random(world.seed ^ 0xDA7A)
        self.lag_max_ms = self.rng.choice(LAG_MAX_MS)
        self.disks: dict[BrokerId, Disks] = {}
        self.directories = DataDirectories(self)
        self.hosts: dict[BrokerId, DataHost] = {}
        self.cuts: dict[tuple[BrokerId, BrokerId], int] = {}
        """Links on which nothing passes, with the number of the cut."""
        self.inbox: dict[BrokerId, list[Callable[[DataHost], None]]] = {}
        """What came while a broker slept."""
        self.partitions: dict[PartitionKey, PartitionImage] = {}
        """Of the clients' topics, as in the newest image."""
        self.acknowledged: dict[PartitionKey, dict[int, Record]] = {}
        self.uncleans: set[PartitionKey] = set()
        """Partitions that may have lost what was acknowledged."""
        self.cut_logs: dict[tuple[BrokerId, PartitionKey], int] = {}
        """Replicas that lost records with the power, with the broker's epoch then."""
        self.is_rolling = False
        self.is_quiet = False
        self._proposed: dict[tuple[PartitionKey, int], Proposed] = {}
        """By partition and partition epoch."""
        self._values = 0
        self._cuts_made = 0
        self._topics_made = 0

    def host_of(self, broker: "SimulatedBroker") -> DataHost:
        """Return the host of a broker's new process."""
        self.inbox.pop(broker.broker_id, None)
        host = self.hosts[broker.broker_id] = DataHost(self, broker)
        self.world.spawn(host.live, broker.processor)
        return host

    # --- the network

    def send(self, source: BrokerId, target: BrokerId, message: Message) -> None:
        self._carry((source, target), lambda host: host.receive(message))

    def _carry(self, link: tuple[BrokerId, BrokerId], arrived: Callable[[DataHost], None]) -> None:
        faults, rng = self.world.network.faults, self.rng
        if link in self.cuts or rng.random() < faults.lost:
            return
        for _ in range(2 if rng.random() < faults.duplicated else 1):
            delay = rng.uniform(0.0002, 0.004)
            if rng.random() < faults.late:
                delay += rng.uniform(0.0, 2.0)
            self.world.loop.call_outside(delay, self._deliver, link, arrived)

    def _deliver(self, link: tuple[BrokerId, BrokerId], arrived: Callable[[DataHost], None]) -> None:
        host = self.hosts.get(link[1])
        if link in self.cuts or host is None or not host.is_running or self.world.violations:
            return
        if host.broker.is_awake():
            self.guarded(lambda: arrived(host))
        else:
            self.inbox.setdefault(link[1], []).append(arrived)

    def take_inbox(self, host: DataHost) -> list[Callable[[DataHost], None]]:
        return self.inbox.pop(host.broker_id, [])

    def guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Violation as violation:
            self.world.violated(violation)

    # --- clients and operators

    async def append(self) -> None:
        """Append to whichever broker takes itself for a leader, until the end."""
        world, rng = self.world, self.rng
        while not world.violations and not self.is_quiet:
            await asyncio.sleep(rng.expovariate(APPENDS_PER_SECOND))
            if self.partitions:
                key = rng.choice([*self.partitions])
                self._append(key, [host for host in self._running() if _leads(host, key)])

    def _append(self, key: PartitionKey, leaders: list[DataHost]) -> None:
        self._values += 1
        value, all_acks = f"v{self._values}", self.rng.random() < 0.8
        if leaders:
            leader = self.rng.choice(leaders)
            self._carry(
                (BrokerId(0), leader.broker_id),
                lambda host: self._arrived(host, key, value, all_acks=all_acks),
            )

    def _arrived(self, host: DataHost, key: PartitionKey, value: str, *, all_acks: bool) -> None:
        replica = host.replicas.get(key)
        if replica is not None:
            offset, record = replica.log.end_offset, Record(replica.leader_epoch, value)

            def done(error: str | None) -> None:
                if all_acks and error is None:
                    self._acknowledge(host, replica, offset, record)

            host.append(key, value, done, all_acks=all_acks)

    async def keep_topics(self) -> None:
        """Create topics, administrate them and delete them."""
        world, rng = self.world, self.rng
        while not world.is_quiet and not world.violations:
            number = self._topics_made
            name = f"{CLIENTS}{number}"
            is_loose = rng.random() < 0.2
            command = CreateTopic(
                name=name,
                partitions=PARTITIONS,
                replication_factor=min(3, len(world.brokers)),
                assignment=None,
                configs={UNCLEAN: "true"} if is_loose else {MIN_ISR: "2"},
                validate_only=False,
            )
            await world.attempt(command)
            if world.image.topics.named(name) is not None:
                self._topics_made += 1
                if number >= TOPICS_KEPT:
                    await world.attempt(DeleteTopic(name=f"{CLIENTS}{number - TOPICS_KEPT}"))
            if number:
                await world.attempt(
                    self._order(f"{CLIENTS}{number - rng.randrange(min(TOPICS_KEPT, number + 1))}")
                )
            await asyncio.sleep(rng.uniform(0.3, 1.7) * (TOPIC_EVERY_SECONDS if number else 0.3))

    def _order(self, name: str) -> Command:
        """Return what an operator asks for of a topic."""
        rng = self.rng
        brokers = [broker.broker_id for broker in self.world.brokers]
        numbers = range(PARTITIONS)
        some = tuple(rng.sample(brokers, min(rng.choice((1, 2, 2, 3, 3, 3)), len(brokers))))
        orders: list[Command] = [
            AlterPartitionReassignments(
                reassignments=tuple(Reassignment(name, each, some) for each in numbers),
                allow_replication_factor_change=True,
            ),
            AlterPartitionReassignments(
                reassignments=tuple(Reassignment(name, each, None) for each in numbers),
                allow_replication_factor_change=True,
            ),
            ElectLeaders(unclean=False, partitions=tuple((name, each) for each in numbers)),
        ]
        return rng.choice(orders)

    # --- the weather

    def weather(self) -> list[tuple[float | None, Callable[[], None]]]:
        every = self.world.profile.broker_every
        alone = len(self.world.brokers) < 2
        kinds = self.directories.weather(every)
        return [(None if every is None or alone else FAULTS_PER_CUT * every, self._cut), *kinds]

    def _cut(self) -> None:
        rng = self.rng
        one, other = rng.sample([broker.broker_id for broker in self.world.brokers], 2)
        links = [(one, other)] if rng.random() < 0.5 else [(one, other), (other, one)]
        self._cuts_made += 1
        self.world.faults["brokers cut"] += 1
        self.world.tell(f"broker {one}", f"is cut off from broker {other}, in {len(links)} directions")
        for link in links:
            self.cuts[link] = self._cuts_made
            self.world.loop.call_later(rng.uniform(0.2, 5.0), self._heal, link, self._cuts_made)

    def _heal(self, link: tuple[BrokerId, BrokerId], number: int) -> None:
        if self.cuts.get(link) == number:
            del self.cuts[link]

    def may_lose_power(self, broker_id: BrokerId) -> bool:
        """Answer whether whatever was acknowledged would survive the end of a broker's logs."""
        return self.may_lose(
            broker_id, [key for key, one in self.partitions.items() if broker_id in one.replicas]
        )

    def may_lose(self, broker_id: BrokerId, keys: Sequence[PartitionKey]) -> bool:
        """Answer whether whatever was acknowledged would survive the loss of a broker's logs of some partitions."""
        return bool(self.world.image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION)) and all(
            any(
                other != broker_id and not self._may_lack(other, key) and self._holds_all(other, key)
                for other in (*partition.isr, *partition.eligible_leader_replicas)
            )
            for key in keys
            if key not in self.uncleans and (partition := self.partitions.get(key)) is not None
        )

    def lose_power(self, broker_id: BrokerId) -> None:
        """Take what the kernel had not written yet of a broker's logs; its process has ended."""
        image = self.world.image
        if broker_id not in image.brokers:
            return
        for key, log in self.disks[broker_id].logs.items():
            lost = min(self.rng.randint(0, LOST_MAX), log.end_offset)
            if lost:
                log.truncate(log.end_offset - lost)
                self.cut_logs[broker_id, key] = image.brokers[broker_id].broker_epoch
                self.world.consequences["records lost with the power"] += lost

    # --- properties

    def committed(self, image: MetadataImage, delta: Delta) -> None:
        """Check what a batch did to the partitions, when the first controller applies it."""
        for topic_id in delta.topics:
            if topic_id not in image.topics.by_id:
                for key in [key for key in self.partitions if key[0] == topic_id]:
                    del self.partitions[key]
                    self.acknowledged.pop(key, None)
        for key in sorted((topic_id, each) for topic_id, ids in delta.partitions.items() for each in ids):
            topic = image.topics.by_id.get(key[0])
            if topic is None:
                continue
            now = topic.partitions[key[1]]
            if now.partition_epoch == 0:
                self.directories.check_placement(image, topic.name, now.replicas)
            if self.is_rolling and now.leader == NO_LEADER and len(now.replicas) > 1:
                raise self.roll_keeps_leaders(f"{topic.name}-{key[1]} has none at {image.end_offset}")
            if not topic.name.startswith(CLIENTS):
                continue
            before = self.partitions.get(key)
            self.partitions[key] = now
            if now.leader_recovery_state == RECOVERING or self._is_loose(topic.name):
                self.uncleans.add(key)
            if before is not None and key not in self.uncleans:
                self._check_change(key, before, now)

    def _is_loose(self, name: str) -> bool:
        return UNCLEAN in self.world.image.configs.get((TOPIC, name), {})

    def _check_change(self, key: PartitionKey, before: PartitionImage, now: PartitionImage) -> None:
        joined = set(now.isr) - set(before.isr)
        if now.leader_epoch != before.leader_epoch and now.leader != NO_LEADER:
            joined.add(now.leader)
        proposed = self._proposed.pop((key, before.partition_epoch), None)
        for broker_id in sorted(joined):
            if self._may_lack(broker_id, key):
                continue
            self.cut_logs.pop((broker_id, key), None)
            self._check_holds(broker_id, key, self.joined_in_sync)
            if proposed is not None and proposed.leader == now.leader == before.leader:
                broker_epoch = self.world.image.brokers[broker_id].broker_epoch
                if proposed.epochs.get(broker_id, broker_epoch) != broker_epoch:
                    raise self.joined_in_sync(
                        f"{now.leader} proposed {broker_id} for {self._name(key)} by a former process"
                    )
                log = self.disks[broker_id].logs[key]
                if log.records[: len(proposed.records)] != proposed.records:
                    raise self.joined_in_sync(
                        f"{broker_id} has not what {now.leader} had below its high watermark "
                        f"{len(proposed.records)} when it proposed {broker_id} for {self._name(key)}"
                    )
        self.world.consequences["joined in sync"] += len(joined)

    def _may_lack(self, broker_id: BrokerId, key: PartitionKey) -> bool:
        """Answer whether a replica lost records, and the controllers cannot know of that yet, or its disk is still gone."""
        epoch = self.cut_logs.get((broker_id, key))
        broker = self.world.image.brokers.get(broker_id)
        is_known = epoch is None or broker is None or broker.broker_epoch != epoch
        return not is_known or self.directories.has_lost(broker_id, key)

    def _holds_all(self, broker_id: BrokerId, key: PartitionKey) -> bool:
        log = self.disks[broker_id].logs.get(key)
        records = [] if log is None else log.records
        return all(
            offset < len(records) and records[offset] == record
            for offset, record in self.acknowledged.get(key, {}).items()
        )

    def _check_holds(self, broker_id: BrokerId, key: PartitionKey, rule: type[Violation]) -> None:
        if not self._holds_all(broker_id, key):
            raise rule(f"broker {broker_id} lacks acknowledged records of {self._name(key)}")

    def _name(self, key: PartitionKey) -> str:
        topic_id, number = key
        topic = self.world.image.topics.by_id.get(TopicId(topic_id))
        return f"{topic_id.hex() if topic is None else topic.name}-{number}"

    def proposed(self, host: DataHost, replica: Replica, report: ReportedIsr) -> None:
        known = self.partitions.get(replica.key)
        if known is not None and known.leader_epoch == report.leader_epoch:
            records = replica.log.records[: replica.high_watermark]
            epochs = {member.broker_id: member.broker_epoch for member in report.isr}
            self._proposed[replica.key, report.partition_epoch] = Proposed(host.broker_id, records, epochs)
            joining = sorted(set(epochs) - set(known.isr))
            if joining and self.world.is_rough and self.rng.random() < HELD_UP:
                self._hold_up(host.broker, self.world.broker(self.rng.choice(joining)))

    def _hold_up(self, leader: "SimulatedBroker", member: "SimulatedBroker") -> None:
        """Let a report arrive late, and the process that it proposes end meanwhile: another one has the broker's id then."""
        rng, world = self.rng, self.world
        if member.session is None or world.profile.broker_every is None:
            return
        world.faults["report held up"] += 1
        world.tell(leader, f"proposes {member}, whose process ends before that arrives")
        leader.reports_held_until = world.loop.time() + rng.uniform(*HELD_UP_SECONDS)
        if rng.random() < 0.5:
            member.session.want_shut_down = True
            world.loop.call_later(1.0, world.start_broker, member, member.runs)
        else:
            member.crash()
            if self.may_lose_power(member.broker_id):
                self.lose_power(member.broker_id)
            world.loop.call_later(rng.uniform(0.05, 0.5), world.start_broker, member, member.runs)

    def takes_role(self, host: DataHost, key: PartitionKey) -> None:
        """Check a member of the ISR by the newest image that now leads, or follows, by its own image."""
        known, broker_id = self.partitions.get(key), host.broker_id
        if known is None or key in self.uncleans or broker_id not in known.isr:
            return
        if not self._may_lack(broker_id, key):
            is_leader = broker_id == known.leader
            self._check_holds(
                broker_id,
                key,
                self.no_acknowledged_record_is_lost if is_leader else self.isr_holds_acknowledged,
            )

    def truncated(self, host: DataHost, key: PartitionKey, count: int) -> None:
        if key in self.partitions and key not in self.uncleans:
            raise self.truncates_nothing_committed(f"{host.broker} cuts {count} records of {self._name(key)}")

    def _acknowledge(self, host: DataHost, replica: Replica, offset: int, record: Record) -> None:
        key, known = replica.key, self.partitions.get(replica.key)
        self.world.consequences["records acknowledged"] += 1
        self.world.network.note("acknowledged", key, offset, record.value)
        if known is None or key in self.uncleans:
            return
        other = self.acknowledged.setdefault(key, {}).setdefault(offset, record)
        if other != record:
            raise self.no_acknowledged_record_is_lost(f"{other} and {record} at offset {offset} of {key}")
        holders = {
            broker_id
            for broker_id in replica.replicas
            if self._holds(broker_id, key, offset, record)
            or (broker_id, key) in self.cut_logs
            or self.directories.has_lost(broker_id, key)
        }
        enough = min(2, len(replica.replicas))
        if len(holders) < enough:
            raise self.acknowledged_is_on_enough_disks(
                f"{host.broker} acknowledged offset {offset} of {self._name(key)}, "
                f"which {sorted(holders)} of {replica.replicas} hold"
            )
        for broker_id in known.isr:
            if not self._may_lack(broker_id, key) and not self._holds(broker_id, key, offset, record):
                raise self.isr_holds_acknowledged(
                    f"{host.broker} acknowledged offset {offset} of {self._name(key)}, which "
                    f"{broker_id} of the ISR {known.isr} lacks"
                )

    def _holds(self, broker_id: BrokerId, key: PartitionKey, offset: int, record: Record) -> bool:
        log = self.disks[broker_id].logs.get(key)
        return log is not None and offset < log.end_offset and log.records[offset] == record

    # --- the calm at the end

    def _running(self) -> list[DataHost]:
        return [host for host in self.hosts.values() if host.is_running]

    async def end(self) -> Violation | None:
        """Let a directory fail, roll all brokers in order while clients append, and compare the logs."""
        world = self.world
        trouble = await self._within_a_roll(self._not_whole)
        if trouble is None:
            trouble = await self._fail_a_directory()
        before = {key: len(acknowledged) for key, acknowledged in self.acknowledged.items()}
        for broker in self.rng.sample(world.brokers, min(ROLLED_MAX, len(world.brokers))):
            if trouble is not None:
                return self.roll_ends_whole(trouble)
            self.is_rolling = True
            world.tell(broker, "is rolled")
            if broker.session is not None:
                broker.session.want_shut_down = True
            trouble = await self._within_a_roll(partial(_not_stopped, broker, broker.runs))
            if trouble is None:
                await asyncio.sleep(self.rng.uniform(0.0, 1.0))
                if broker.session is None:  # else a timer of the weather has started it again
                    broker.start(keep_cache=True)
                trouble = await self._within_a_roll(self._not_whole)
        self.is_rolling = False
        if trouble is None:
            trouble = await world.within(EQUAL_SECONDS, partial(self._not_written, before))
        self.is_quiet = True
        if trouble is None:
            trouble = await world.within(EQUAL_SECONDS, self._not_equal)
        return None if trouble is None else self.data_converges(trouble)

    async def _within_a_roll(self, trouble: Callable[[], str | None]) -> str | None:
        """Return None as soon as there is no trouble, or what it still is once a broker should be rolled."""
        return await self.world.within(ROLL_SECONDS + self.world.calm.changes_seconds(), trouble)

    async def _fail_a_directory(self) -> str | None:
        """Let a directory fail, see its replicas leave their ISRs, and start the broker on sound disks."""
        world = self.world
        several = [host for host in self._running() if len(host.disks.directories) > 1 and host.replicas]
        if not several:
            return None
        host = self.rng.choice(several)
        directory = self.rng.choice([*host.replicas.values()]).log.directory
        self.directories.fail(host, directory)
        trouble = await self._within_a_roll(partial(self._still_in_sync, host.broker_id, directory))
        if trouble is None:
            host.broker.crash()
            host.broker.start(keep_cache=True)
            trouble = await self._within_a_roll(partial(self._not_back, host.broker))
        if trouble is None:
            await world.calm.elect_stranded()
            trouble = await self._within_a_roll(self._not_whole)
        return trouble

    def _not_back(self, broker: "SimulatedBroker") -> str | None:
        is_back = self.world.image.is_active(broker.broker_id) and broker.may_serve()
        return None if is_back else f"{broker} is not online again"

    def _still_in_sync(self, broker_id: BrokerId, directory: Uuid) -> str | None:
        """Return in which ISRs a broker still is, beside others, with a replica in a directory that failed."""
        left = [
            self._name((topic_id, number))
            for topic_id, number, partition in self.world.image.topics.partitions_on(broker_id)
            if broker_id in partition.replicas
            and directory_of(partition, broker_id) == directory
            and broker_id in partition.isr
            and len(partition.isr) > 1
        ]
        return (
            str(self.directories_are_left(f"broker {broker_id} is still in those of {left}"))
            if left
            else None
        )

    def _not_whole(self) -> str | None:
        # A topic that clients restore may have lost its last replica in sync while it was deleted: then an operator elects.
        stranded = self.world.calm.stranded()
        lacking = [
            f"{topic.name}-{number}"
            for topic in self.world.image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if set(partition.isr) != set(partition.replicas) and (topic.name, number) not in stranded
        ]
        return f"the ISRs of {sorted(lacking)} are not whole" if lacking else None

    def _not_written(self, before: dict[PartitionKey, int]) -> str | None:
        waiting = [
            self._name(key)
            for key in self.partitions
            if key not in self.uncleans and len(self.acknowledged.get(key, {})) <= before.get(key, 0)
        ]
        return f"{waiting} have acknowledged nothing" if waiting else None

    def _not_equal(self) -> str | None:
        for key, partition in self.partitions.items():
            hosts = [self.hosts[broker_id] for broker_id in partition.replicas]
            ends = {
                host.broker_id: (len(host.committed(key)), len(host.replicas[key].log.records))
                for host in hosts
            }
            if len({*ends.values()}) > 1 or any(committed < end for committed, end in ends.values()):
                return f"high watermarks and ends of {self._name(key)}: {ends}"
            lies = tuple(host.replicas[key].log.directory for host in hosts)
            if lies != partition.directories:
                return f"{self._name(key)} lies in {lies}, by the log in {partition.directories}"
            if any(host.replicas[key].log.records != hosts[0].replicas[key].log.records for host in hosts):
                return f"the logs of {self._name(key)} differ"
            if key not in self.uncleans and not self._holds_all(hosts[0].broker_id, key):
                return f"acknowledged records of {self._name(key)} are lost"
        return None


def _leads(host: DataHost, key: PartitionKey) -> bool:
    replica = host.replicas.get(key)
    return replica is not None and replica.leading is not None


def _not_stopped(broker: "SimulatedBroker", run: int) -> str | None:
    return f"{broker} does not stop" if broker.runs == run else None
