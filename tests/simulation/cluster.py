"""Simulated clusters: the shipped controller, committed log, snapshot keeper, fetch service, broker session and follower
over the simulated quorum.

Clients write with request ids and read; brokers poll, are cut off, sleep, die and come back. Checked all the time:

    offsets_never_regress       no controller's and no broker's end offset goes back while it runs
    same_offset_same_digest     whoever has applied up to an offset has the same state there
    one_claim_per_epoch         an epoch belongs to one controller
    applied_once                a request id stands at one offset
    acknowledged_is_durable     what was answered is in the log, at the offset that was answered
    linearizable                the history of all clients' reads and writes (`registers.check`)
    no_fenced_leader            no fenced broker leads
    leads_from_an_online_directory  nobody leads from a log directory that its registration does not list
    silent_brokers_serve_nobody a broker fenced for silence serves nobody from the commit of its fencing, or of the first
                                part of it, on, until it has read of it
    contest_is_linearizable     who creates, deletes and reads the same topics hears what fits one order (`contest`)
    turns_are_short             no turn of a controller's loop takes longer than its bound (`costs`)
    walks_end                   a change of many partitions in parts comes to its end soon
    nobody_falls_silent         where nothing befalls controllers, links and disks, the first leader leads on
    available                   while a majority runs, is linked and has sound disks, commits go on
    deltas_have_no_gap          a broker's follower takes every batch it is sent
    one_id_same_bytes           a snapshot has the same bytes on every node; one that rotted is never loaded
    liveness                    within LIVENESS_SECONDS of the last fault one controller is active, every broker is online,
                                every client was answered and no change of voters is left pending; another is carried out
    convergence                 once the clients rest, all controllers and brokers stand at the same offset

Half of the lives have a data plane, with properties of its own: see `data_plane`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from broker_agent.config import BrokerSettings
from broker_agent.dataless_host import DatalessHost
from broker_agent.follower import Follower, read_frames
from broker_agent.replicas import LocalReplicas, Phase
from broker_agent.session import Call, Fetched, Refused, Session, WaitUntil
from metadata_log.batch import RecordBatch
from metadata_log.digest import Buckets
from metadata_log.errors import (
    BrokerNotAvailable,
    DamagedFile,
    DuplicateBrokerRegistration,
    Fault,
    MetadataError,
    NotController,
    OutcomeUnknown,
    Rejected,
    SnapshotNotFound,
    Unavailable,
)
from metadata_log.ids import NO_LEADER, NO_NODE, BrokerId, NodeId, TopicId, Uuid, is_reserved, random_uuid
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey, TopicsImage
from metadata_log.limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_WINDOW_BYTES,
    REASSIGNMENTS_MAX,
    SESSION_CHECK_AGAIN_MS,
    SESSION_CHECKS_PER_TIMEOUT,
)
from metadata_log.records.brokers import BrokerEndpoint, BrokerRegistrationChangeRecord
from metadata_log.records.configs import BROKER, TOPIC
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.topics import TopicRecord
from metadata_log.wire.commands import (
    AddVoter,
    AlterConfigs,
    AlteredPartition,
    AlterPartition,
    AlterPartitionReassignments,
    AssignReplicasToDirs,
    Command,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FeatureUpdate,
    IncrementalAlterConfigs,
    MorePartitions,
    Reassignment,
    RegisterController,
    Registered,
    RemoveVoter,
    ReplicaDirectory,
    ReplicaPlaced,
    ReportedIsr,
    ResourceChange,
    UndeleteTopics,
    UpdateFeatures,
    UpgradeType,
)
from metadata_log.wire.fetch import FetchKind, FetchRequest, SnapshotOffer, decode_fetch_body
from quorum.applied_listener import AppliedListener
from quorum.config import ControllerSettings, SnapshotSettings, TimingSettings, TopicSettings, VoterSettings
from quorum.controller import Controller, Written
from quorum.decide.brokers import BrokerRegistered
from quorum.decide.decision import Decision, Walk, Walked
from quorum.decide.deleted_topics import Expiry
from quorum.decide.directories import ReplicasAssigned
from quorum.decide.partitions import PartitionsAltered
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.fetch.service import FetchService
from quorum.log.committed_log import CommittedLog
from quorum.log.completion import covered_offset
from quorum.log.fetch_window import FetchWindow
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.raft.journal.lost import check_reaches_log
from quorum.raft.raft_log import Member, Voters
from quorum.registration import Registration, registration_of
from snapshots.seal import Seal
from snapshots.snapshot_file import SUFFIX, snapshot_id
from tests.simulation.contest import SETTING, Contest
from tests.simulation.costs import Costs, drawn
from tests.simulation.data_plane import DataHost, DataPlane, draws_data
from tests.simulation.registers import NEVER_WRITTEN, Operation, check
from tests.simulation.shared_work import shared_work
from tests.simulation.small_limits import small_limits
from tests.simulation.storage import SimulatedSegments, SimulatedStore, SnapshotDirectory, SnapshotLibrary
from tests.simulation.virtual_loop import Processor
from tests.simulation.world import Profile, SimulatedNode, Violation, World

T = TypeVar("T")
CLUSTER_ID = "S" * 22
SESSION_TIMEOUT_MS = 3_000
SNAPSHOT_BYTES = 60_000
SEGMENT_SYNC_SECONDS = 1.0
SWEEP_SECONDS = 2.0
UNDELETE_WINDOW_MS = 4_000
"""For so long topics can be restored in every third life."""
CALL_SECONDS = 0.0005
LIVENESS_SECONDS = 15.0
"""After the last fault: a sync under way may take 5 s more, then a broker's session must run out (3 s) before another
incarnation may have its id, and a client may sit out a timeout (2 s) at each node.
"""
CONVERGENCE_SECONDS = 5.0
CHANGE_SECONDS = 5.0
"""Within so long the quorum, at rest, changes its voters."""
UNAVAILABLE_SECONDS = 6.0
"""So long a majority that could commit may commit nothing, where links lose no message."""
UNAVAILABLE_LOSSY_SECONDS = 30.0
"""Where each of the four messages of an election may be lost or late, one in four comes through, and but one voter may be
electable.
"""
WALK_SECONDS = 4.0
"""Within so long a walk over a broker's partitions is at its end, if it has not rested for WALK_RESTS_SECONDS meanwhile."""
WALK_RESTS_SECONDS = 0.5
WATCH_SECONDS = 0.1
CONTENDERS = 3
KEY_SECONDS = 20.0
"""After this time clients use other keys, so that the history of each key stays short."""
TOPICS_KEPT = 20
WRITES_PER_SECOND = 44.0
BURSTS = (1, 1, 4, 8, 16)
"""How many writes a client sends at once."""
READS_PER_SECOND = 10.0
CLOCK_RATES = (0.9951, 1.0049)
"""Any two clocks differ by less than 1 %, the bound that a broker's session reckons with."""
BLACK_HOLE_SECONDS = 3600.0
ANSWER_BYTES = (2_000, 20_000, FETCH_BYTES_DEFAULT)
"""At most so much is in one answer to a broker, or one batch: some catch up in many steps."""
WINDOW_BYTES = (4_000, 40_000, FETCH_WINDOW_BYTES)
"""What a controller holds in memory; behind it brokers are served from its segments."""


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "little"))  # as drawn ones, they differ in their first bytes


def _addition(member: Member) -> AddVoter:
    return AddVoter(
        voter_id=member.node_id,
        directory_id=member.directory_id,
        host="127.0.0.1",
        port=9000 + member.node_id,
        validate_only=False,
    )


def _removal(voters: Voters, node_id: NodeId) -> RemoveVoter:
    return RemoveVoter(voter_id=node_id, directory_id=voters[node_id], validate_only=False)


async def _carry_out(command: AddVoter | RemoveVoter, controller: "SimulatedController") -> Written:
    return await controller.change_voters(command, actor=None, request_id=None)


class ClusterNode(SimulatedNode):
    """A node that keeps snapshots and segments beside its journal."""

    world: "ClusterWorld"
    journal_file_bytes = 256 * 1024  # a burst of writes is one entry, and must fit

    def __init__(self, world: "ClusterWorld", node_id: NodeId) -> None:
        super().__init__(world, node_id)
        self.clock_rate = world.rng.uniform(*CLOCK_RATES)
        self.snapshot_directory = SnapshotDirectory()
        self.open_snapshots()
        self.segments = SimulatedSegments(self.disk)
        self.loaded: dict[str, MetadataImage] = {}

    @property
    def controller(self) -> "SimulatedController | None":
        return self.listener if self.log is not None else None  # type: ignore[return-value]  # made by this world

    def crash(self, *, cuts_power: bool = True) -> None:
        if self.task is not None:
            self._reset_calls()
            super().crash(cuts_power=cuts_power)
            self.segments.crash(self.world.rng)
            if cuts_power:
                self.snapshot_directory.crash(self.world.rng)

    def _end(self) -> None:
        self._reset_calls()
        super()._end()

    def open_snapshots(self) -> None:
        """Do as a start does: a store that knows nothing but its directory."""
        self.snapshots = SimulatedStore(self.world.library, self.disk, self.snapshot_directory)

    def _reset_calls(self) -> None:
        """End the connections of those who wait for this process; half of the crashes are not even noticed."""
        controller = self.controller
        if controller is not None and self.world.rng.random() < 0.5:
            controller.reset_calls()

    def wipe(self) -> None:
        super().wipe()
        self.snapshot_directory = SnapshotDirectory()
        self.open_snapshots()
        self.segments = SimulatedSegments(self.disk)
        self.loaded = {}

    def is_damaged(self, fault: DamagedFile) -> bool:
        if not fault.message.startswith("snapshot "):
            return super().is_damaged(fault)
        return any(name.removesuffix(SUFFIX) in fault.message for name in self.snapshot_directory.rotted)

    def mend(self) -> None:
        super().mend()
        self.disk.no_appends = False
        self.snapshot_directory.mend()

    def rot_snapshot(self) -> bool:
        name = self.snapshot_directory.rot(self.world.rng)
        if name is not None:
            self.world.tell(self, f"rots: snapshot {name}")
        return name is not None

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        """Bring a snapshot here as the shipped server does: its own copy, else from the leader, else from whoever has it."""
        await asyncio.sleep(self.world.rng.uniform(0.001, 0.02))
        await self.awake()
        try:
            image = self.snapshots.load(snapshot_id)
        except (SnapshotNotFound, DamagedFile) as error:
            if isinstance(error, DamagedFile):
                self.world.consequences["damaged snapshot quarantined"] += 1
                self.world.tell(self, f"finds snapshot {snapshot_id} damaged")
            image = await self._download(snapshot_id, from_node)
        sealed = Seal.from_bytes(seal)
        if sealed is None or sealed.last_crc != image.last_crc:
            self.world.violated(
                f"snapshot {snapshot_id} of node {self.node_id} is none of the log's: {sealed}"
            )
        self.loaded = {snapshot_id: image}

    async def _download(self, snapshot_id: str, from_node: NodeId) -> MetadataImage:
        world = self.world
        for source in sorted(
            world.nodes.values(), key=lambda node: (node.node_id != from_node, node.node_id)
        ):
            assert isinstance(source, ClusterNode)
            await asyncio.sleep(world.rng.uniform(0.005, 0.1))
            await self.awake()
            reachable = world.network.is_open(source.node_id, self.node_id) and source.is_awake()
            if source is self or source.log is None or not reachable:
                continue
            try:
                source.snapshots.check(snapshot_id)
                self.snapshots.download(snapshot_id, source.snapshots.content(snapshot_id))
            except (SnapshotNotFound, DamagedFile):
                continue
            world.snapshots_fetched += 1
            image = self.snapshots.load(snapshot_id)
            await asyncio.sleep(world.rng.uniform(0.001, 0.02))
            await self.awake()
            self.snapshots.synced()
            return image
        raise BrokerNotAvailable("no other controller has the snapshot now")

    def take_loaded(self, snapshot_id: str) -> MetadataImage:
        return self.loaded.pop(snapshot_id, None) or self.snapshots.load(snapshot_id)


class SimulatedKeeper(SnapshotKeeper):
    """The shipped keeper, on a simulated directory."""

    entries_max = 100

    def __init__(self, controller: "SimulatedController", committed_log: CommittedLog) -> None:
        super().__init__(
            settings=controller.settings,
            controller=controller,
            committed_log=committed_log,
            store=controller.node.snapshots,
            run_in_thread=controller.in_thread,
            unix_ms=controller.node.unix_ms,
        )
        self._simulated = controller

    async def _write(self, image: MetadataImage) -> Seal:
        node = self._simulated.node
        if snapshot_id(image.end_offset, image.controller_epoch) not in node.snapshots.ids():
            afresh = node.world.rng.random() < 0.1
            await self._run_in_thread(lambda: node.snapshots.write(image, afresh=afresh))
            await self._run_in_thread(node.snapshots.synced)
            node.world.tell(node, f"has written the snapshot at {image.end_offset}")
        return Seal(image.last_crc, 64 * "0")


class _SweepInOrder(Sweep):
    """The shipped sweep, in an order that is the same in every process: that of a hash map is not."""

    def _topics(self, topics: TopicsImage) -> Iterable[TopicId]:
        return sorted(super()._topics(topics))


class SimulatedController(Controller):
    """The shipped controller on a simulated node, watched after every batch."""

    def __init__(self, world: "ClusterWorld", node: ClusterNode) -> None:
        self.settings = world.controller_settings(node.node_id)
        super().__init__(
            settings=self.settings,
            now_ms=lambda: int(node.now_ms()),
            unix_ms=node.unix_ms,
            rng=random.Random(world.rng.getrandbits(64)),
            load_snapshot=node.take_loaded,
            http_url=lambda node_id: f"http://{node_id}",
        )
        self.world = world
        self.node = node
        node.open_snapshots()
        self._walking: dict[Walk, tuple[float, float]] = {}
        """When each walk under way began, and when its last part was made."""
        self.incarnation = node.incarnation
        self.committed_log = CommittedLog(node.segments, read_in_thread=self._read_in_thread)  # type: ignore[arg-type]  # its methods, in memory
        self._batch_at = self.committed_log.batch_at
        self.committed_log._window = FetchWindow(bytes_max=world.rng.choice(WINDOW_BYTES))
        try:
            check_reaches_log(
                Path(f"node-{node.node_id}"),
                log_end=node.segments.end_offset,
                entries=node.journal,
                snapshot_end=covered_offset(node.disk),
                has_snapshots=node.snapshots.latest() is not None,
                is_begun=node.journal.is_begun,
            )
        except DamagedFile as error:
            world.violated(f"node {node.node_id} applied what its journal does not hold: {error.message}")
        self.keeper = SimulatedKeeper(self, self.committed_log)
        node.snapshots.on_damage = lambda _id, _error: self.keeper.lost()
        self.fetches = FetchService(
            settings=self.settings,
            controller=self,
            committed_log=self.committed_log,
            newest_snapshot=self.keeper.newest,
            now_ms=lambda: int(node.now_ms()),
        )
        rng = random.Random(world.rng.getrandbits(64))
        self.registration = Registration(
            registration_of(self.settings, random_uuid(rng)),
            controller=self,
            url_of=lambda node_id: f"http://{node_id}",
            send=self._send_registration,
            rng=rng,
        )
        world.loop.call_soon(self._attach)

    def _attach(self) -> None:
        if self.is_running:
            assert self.node.log is not None
            self.attach(
                self.node.log,
                [self.committed_log, self.keeper, self.fetches, self.registration, _Watcher(self)],
            )
            self.node.spawn(self.registration.run)
            self.node.spawn(self.fetches.run)
            self.node.spawn(self.fetches.read_cold)
            self.node.spawn(self.keeper.run)
            self.node.spawn(self.keeper.count)
            self.node.spawn(self._check_sessions)
            sweeps: tuple[Sweep | Expiry, ...] = (*map(_SweepInOrder, SweepKind), Expiry())
            for sweep in sweeps:
                self.node.spawn(partial(self._keep_sweeping, sweep))
            self.node.spawn(self._sync_segments)

    async def _send_registration(self, url: str, command: RegisterController, request_id: Uuid) -> int:
        async def serve(controller: SimulatedController) -> int:
            written = await controller.submit(
                command, actor=f"Controller:{command.controller_id}", request_id=request_id
            )
            return written.end_offset

        try:
            async with asyncio.timeout(2.0):
                target = self.world.nodes[NodeId(int(url.removeprefix("http://")))]
                return await self.world.remote(target, serve, caller=self.node.node_id)
        except (TimeoutError, ConnectionError) as error:
            raise NotController(f"{url} does not answer") from error

    @property
    def is_running(self) -> bool:
        return self.node.log is not None and self.incarnation == self.node.incarnation

    def on_leadership(self, *, is_leader: bool) -> None:
        self.world.tell(self.node, "leads" if is_leader else "leads no more")
        super().on_leadership(is_leader=is_leader)

    def on_restore(self, snapshot_id: str) -> None:
        self.world.tell(self.node, f"stands on snapshot {snapshot_id}")
        super().on_restore(snapshot_id)

    def _change_sessions(self, decision: Decision) -> None:
        super()._change_sessions(decision)
        for change in decision.session_changes:
            if isinstance(change, Walked):
                self._watch_walk(change, self.world.loop.time())

    def _watch_walk(self, walked: Walked, now: float) -> None:
        began, last = self._walking.pop(walked.walk, (now, now))
        if walked.visited is None:
            return
        began = now if now - last > WALK_RESTS_SECONDS else began
        self._walking[walked.walk] = began, now
        if now - began > WALK_SECONDS:
            self.world.violated(f"walks_end: after {WALK_SECONDS:.0f} s this one has not: {walked.walk}")

    async def in_thread(self, work: Callable[[], object]) -> object:
        await asyncio.sleep(self.world.rng.uniform(0.001, 0.05))
        await self.node.awake()
        with self.world.loop.unpaid():
            return work()

    async def _read_in_thread(self, work: Callable[..., T], *args: object) -> T:
        with self.world.loop.unpaid():
            found = work(*args)
        await asyncio.sleep(self.world.rng.uniform(0.0001, 0.005))
        await self.node.awake()
        return found

    async def _check_sessions(self) -> None:
        while True:
            await self.node.awake()
            again_ms = self.check_sessions()
            await asyncio.sleep((again_ms or SESSION_TIMEOUT_MS / SESSION_CHECKS_PER_TIMEOUT) / 1000)

    async def _keep_sweeping(self, sweep: Sweep | Expiry) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.node.awake()
            while self.sweep(sweep):
                await asyncio.sleep(SESSION_CHECK_AGAIN_MS / 1000)

    async def _sync_segments(self) -> None:
        while True:
            await asyncio.sleep(SEGMENT_SYNC_SECONDS)
            await self.in_thread(self.node.segments.sync)

    def reset_calls(self) -> None:
        """Let everybody who waits for an answer of this process read the end of the connection."""
        reset = ConnectionError("reset")
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(reset)
                waiter.future.exception()  # whoever waits may be called off in the same moment
        for poll in self.fetches.under_way:
            poll.finish(reset)  # type: ignore[arg-type]  # not from the controller: its process is gone


class _Watcher(AppliedListener):
    """Checks every batch that a controller applies."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller
        self._who = f"controller {controller.node.node_id}"
        self._end_offset = 0

    def on_restored(self, image: MetadataImage) -> None:
        if image.end_offset < self._end_offset:
            raise Violation(f"offsets_never_regress: {self._who} {self._end_offset} -> {image.end_offset}")
        self._end_offset = image.end_offset

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        world = self._controller.world
        with world.loop.unpaid():
            self.on_restored(image)
            world.applied(self._who, batch, image)
            world.committed(batch, image, delta)


class _RunIsOver(Exception):
    """The broker's process has ended since."""


class _Reporter:
    """What a host sees of its broker while one run lasts."""

    def __init__(self, broker: "SimulatedBroker", run: int) -> None:
        self._broker = broker
        self._run = run

    def may_serve(self) -> bool:
        if self._run != self._broker.runs:
            raise _RunIsOver
        return self._broker.may_serve()

    @property
    def image(self) -> MetadataImage:
        return self._broker.follower.image

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        return await self._broker.alter_partitions(self._run, isrs)

    async def place_replicas(self, replicas: Sequence[ReplicaDirectory]) -> tuple[ReplicaPlaced, ...]:
        if self._run != self._broker.runs:
            raise _RunIsOver
        return await self._broker.place_replicas(self._run, replicas)


class SimulatedBroker:
    """The shipped session and follower, polling over a wire that loses requests and answers."""

    def __init__(self, world: "ClusterWorld", broker_id: int) -> None:
        self.world = world
        self.broker_id = BrokerId(broker_id)
        self.runs = 0
        self.asleep_until = 0.0
        self.slow_until = 0.0
        self.reports_held_until = 0.0
        """Until then its reports are on their way, and do not arrive."""
        self.clock_rate = world.rng.uniform(*CLOCK_RATES)
        self.clock_offset = world.rng.uniform(0.0, 1e6)
        self.answer_bytes = world.rng.choice(ANSWER_BYTES)
        self.follower = Follower()
        self.session: Session | None = None
        self.processor = Processor(lambda _work: None)
        self.previous_epoch = -1
        self._who = f"broker {broker_id}"

    def __str__(self) -> str:
        return self._who

    def start(self, *, keep_cache: bool) -> None:
        self.runs += 1
        self.processor = Processor(lambda _work: None)
        self.asleep_until = self.slow_until = self.reports_held_until = 0.0
        self.follower = Follower(self.follower.image) if keep_cache else Follower()
        data = self.world.data
        log_dirs = (uuid(900 + self.broker_id),) if data is None else data.directories.open(self)
        self.session = Session(
            BrokerSettings(
                cluster_id=CLUSTER_ID,
                broker_id=self.broker_id,
                data_dir=Path("/nowhere"),
                rack=None,
                controllers=tuple(f"http://{node_id}" for node_id in self.world.ids),
                registration_timeout_ms=60_000,
                shutdown_timeout_ms=10_000,
                listen_http=("127.0.0.1", 1),
            ),
            incarnation_id=uuid(10_000 * self.runs + self.broker_id),
            log_dirs=log_dirs,
            endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + self.broker_id, 0),),
            previous_broker_epoch=self.previous_epoch,
            rng=random.Random(self.world.rng.getrandbits(64)),
        )
        self.previous_epoch = -1
        self.host: DatalessHost | DataHost
        if data is None:
            self.host = DatalessHost(self.broker_id)
        else:
            self.host = data.host_of(self)
            self.session.cordoned_log_dirs = data.directories.cordoned(self.broker_id)
        self.replicas = LocalReplicas(self.broker_id)
        self.session.want_fence = True
        self.world.tell(self, "starts")
        self.world.spawn(partial(self._live, self.runs, self.session), self.processor)
        self.world.spawn(partial(self._report_isrs, self.runs, self.host), self.processor)

    def crash(self) -> None:
        self.world.tell(self, "crashes")
        self.runs += 1
        self.session = None
        self.world.loop.end(self.processor)

    def now_ms(self) -> int:
        return int(self.world.loop.time() * 1000 * self.clock_rate + self.clock_offset)

    def may_serve(self) -> bool:
        return self.session is not None and self.session.may_serve(self.now_ms(), self.follower.image)

    async def _report_isrs(self, run: int, host: DatalessHost | DataHost) -> None:
        try:
            await host.run(_Reporter(self, run))
        except* _RunIsOver:
            pass

    async def alter_partitions(self, run: int, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        session = self.registered()
        assert session.broker_epoch is not None
        report = AlterPartition(
            broker_id=self.broker_id, broker_epoch=session.broker_epoch, partitions=tuple(isrs)
        )
        outcome = await self._report(run, session, report)
        assert isinstance(outcome, PartitionsAltered)
        self.world.consequences["isrs reported"] += len(outcome.results)
        return tuple(AlteredPartition(**altered._asdict()) for altered in outcome.results)

    async def place_replicas(
        self, run: int, replicas: Sequence[ReplicaDirectory]
    ) -> tuple[ReplicaPlaced, ...]:
        session = self.registered()
        assert session.broker_epoch is not None
        report = AssignReplicasToDirs(
            broker_id=self.broker_id, broker_epoch=session.broker_epoch, replicas=tuple(replicas)
        )
        outcome = await self._report(run, session, report)
        assert isinstance(outcome, ReplicasAssigned)
        self.world.consequences["directories reported"] += len(outcome.results)
        return tuple(ReplicaPlaced(**placed._asdict()) for placed in outcome.results)

    def registered(self) -> Session:
        if self.session is None or self.session.broker_epoch is None:
            raise BrokerNotAvailable("not registered")
        return self.session

    async def _report(self, run: int, session: Session, report: Command) -> object:
        """Report as the shipped agent does; whatever happens on the way, it learns in time that nobody answered."""

        async def serve(controller: SimulatedController) -> object:
            written = await controller.submit(report, actor=f"Broker:{self.broker_id}", request_id=None)
            return written.outcome

        node = self.world.nodes[NodeId(int(session.controller_url.removeprefix("http://")))]
        while (left := self.reports_held_until - self.world.loop.time()) > 0:
            await asyncio.sleep(left)
        try:
            async with asyncio.timeout(2.0):
                outcome = await self.world.remote(node, serve, caller=self.broker_id)
        except (TimeoutError, ConnectionError) as error:
            raise BrokerNotAvailable("no answer") from error
        finally:
            await self.awake()
        if run != self.runs:
            raise _RunIsOver
        return outcome

    def is_awake(self) -> bool:
        return self.asleep_until <= self.world.loop.time()

    async def awake(self) -> None:
        while not self.is_awake():
            await asyncio.sleep(min(self.asleep_until - self.world.loop.time(), 0.25))

    async def _live(self, run: int, session: Session) -> None:
        while run == self.runs and not self.world.violations:
            await self.awake()
            if self.slow_until > self.world.loop.time():
                await asyncio.sleep(self.world.rng.uniform(0.1, 0.8))
            step = session.next_step(self.now_ms(), self.follower.position)
            if isinstance(step, WaitUntil):
                await asyncio.sleep(max(step.at_ms - self.now_ms(), 1) / 1000)
                continue
            try:
                async with asyncio.timeout(step.silence_max_ms / 1000):
                    answer = await self._call(step)
            except (TimeoutError, ConnectionError):
                await self.awake()
                if run == self.runs:
                    session.on_unreachable(self.now_ms())
                continue
            except MetadataError as error:
                await self.awake()
                if run == self.runs:
                    self._refused(session, error)
                continue
            await self.awake()
            if run == self.runs:
                await self._take(session, step, answer)

    def _refused(self, session: Session, error: MetadataError) -> None:
        url = error.context.get("controller_url")
        refused = Refused(error=error, controller_url=None if url is None else str(url))
        try:
            session.on_refused(self.now_ms(), refused)
        except DuplicateBrokerRegistration:
            # Each new controller gives the process before this one a whole session, and in rough weather none may last
            # for as long. So this one ends, as it should, and is started again; liveness asks for the rest.
            self.world.consequences["broker gave up registering"] += 1
            self.crash()
            self.world.loop.call_later(1.0, self.world.start_broker, self, self.runs)

    async def _call(self, step: Call) -> Registered | Fetched:
        node = self.world.nodes[NodeId(int(step.url.removeprefix("http://")))]
        request = step.request

        async def serve(controller: SimulatedController) -> Registered | Fetched:
            if isinstance(request, FetchRequest):
                asked = structs.replace(request, max_bytes=self.answer_bytes)
                answer, frames = decode_fetch_body(await controller.fetches.fetch(asked))
                return Fetched(answer=answer, frames=frames)
            written = await controller.submit(request, actor=f"Broker:{request.broker_id}", request_id=None)
            assert isinstance(written.outcome, BrokerRegistered)
            timing = self.world.timing
            return Registered(
                broker_epoch=written.outcome.broker_epoch,
                controller_id=node.node_id,
                controller_epoch=controller.committed.controller_epoch,
                high_watermark=controller.committed.end_offset,
                session_timeout_ms=timing.session_timeout_ms,
                max_wait_ms=timing.max_wait_ms,
            )

        is_poll = isinstance(request, FetchRequest)
        return await self.world.remote(node, serve, caller=self.broker_id, is_poll=is_poll)

    async def _take(self, session: Session, step: Call, answer: Registered | Fetched) -> None:
        if isinstance(answer, Registered):
            session.on_registered(answer)
            return
        session.on_fetched(self.now_ms(), step, answer)
        run, before = self.runs, self.follower.image.end_offset
        match answer.answer.kind:
            case FetchKind.DELTA:
                self.replicas.answered(answer.answer.high_watermark)
                for batch in self.world.batches(answer.frames):
                    before_batch = self.follower.image
                    applied = self.follower.take(batch)
                    self._changed(before_batch, *applied)
                    self.world.applied(self._who, batch, applied.image)
            case FetchKind.IMAGE:
                assert answer.answer.snapshot is not None
                image = await self._download(answer.answer.snapshot)
                if image is None or run != self.runs:
                    return
                self.world.tell(self, f"takes the snapshot at {image.end_offset}")
                before_image = self.follower.image
                self.follower.replace(image)
                self._changed(before_image, image, None)
            case FetchKind.DIVERGING:
                self.world.violated(f"broker {self.broker_id} was told that its history diverges")
        if self.follower.image.end_offset < before:
            self.world.violated(f"broker {self.broker_id} went back from offset {before}")
        await self._start_replicas(run, session)
        if run != self.runs:
            return
        self.world.check_silent(self)
        if answer.answer.should_shut_down and session.want_shut_down:
            self.world.tell(self, "may go, and stops")
            self.previous_epoch = session.broker_epoch if session.broker_epoch is not None else -1
            self.crash()

    def _changed(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Tell the host of a batch, or that the image was replaced, as the shipped agent does."""
        instructions = self.replicas.on_delta(before, after, delta)
        if self.replicas.phase is not Phase.CATCHING_UP:
            self.host.carry_out(instructions, after)
        self.host.on_delta(before, after, delta)

    async def _start_replicas(self, run: int, session: Session) -> None:
        """Tell the host of all its replicas, if the image has just caught up; then the broker may be unfenced."""
        if self.replicas.may_start(self.follower.image, session.broker_epoch):
            self.replicas.start(self.follower.image, self.host.held(), known_offset=self.host.known_offset)
        while self.replicas.phase is Phase.STARTING and run == self.runs:
            self.host.carry_out(self.replicas.next_slice(self.follower.image), self.follower.image)
            await asyncio.sleep(0)
            await self.awake()
        if self.replicas.phase is Phase.FOLLOWING:
            session.want_fence = False

    async def _download(self, offer: SnapshotOffer) -> MetadataImage | None:
        """Return the image of a snapshot from any controller that has it."""
        for node in self.world.nodes.values():
            await asyncio.sleep(self.world.rng.uniform(0.001, 0.05))
            assert isinstance(node, ClusterNode)
            if node.log is not None and node.is_awake():
                with suppress(SnapshotNotFound, DamagedFile):
                    node.snapshots.check(offer.id)
                    if node.snapshots.sha256(offer.id) == offer.sha256:
                        return self.world.library.decode(offer.id, node.snapshots.content(offer.id))
        return None


class SimulatedClient:
    """Reads and writes registers that it shares with others; a write goes under one request id until it is answered."""

    def __init__(self, world: "ClusterWorld", number: int) -> None:
        self.world = world
        self.number = number
        self.acknowledged = 0
        self._node = world.rng.choice(list(world.nodes.values()))

    def key(self) -> str:
        window = int(self.world.loop.time() / KEY_SECONDS)
        return f"k{window}-{self.world.rng.randrange(3)}"

    async def live(self) -> None:
        """Write at a steady mean rate, in bursts; what an outage held up is made up for after it."""
        world, rng, written = self.world, self.world.rng, 0
        bursts_per_second = WRITES_PER_SECOND / len(world.clients) * len(BURSTS) / sum(BURSTS)
        due = world.loop.time()
        while not world.violations and not world.is_quiet:
            due += rng.expovariate(bursts_per_second)
            await asyncio.sleep(max(due - world.loop.time(), rng.uniform(0.001, 0.01)))
            burst = rng.choice(BURSTS)
            if burst == 1:
                await self._write(written + 1)
            else:
                await asyncio.gather(*(self._write(written + 1 + number) for number in range(burst)))
            written += burst

    async def _write(self, value: int) -> None:
        world, rng, key = self.world, self.world.rng, self.key()
        request_id = uuid((self.number << 32) + value)
        text = f"{self.number}.{value}"
        command = AlterConfigs(resource_type=BROKER, resource_name="", set={key: text}, unset=())
        operation = Operation(key=key, value=text, is_write=True, began=world.loop.time())
        world.history.append(operation)
        while not world.violations:
            try:
                async with asyncio.timeout(2.0):
                    written = await world.submit(self._node, command, request_id)
            except NotController as error:
                self._go_on(error)
                if error.context.get("controller_url") is not None:
                    continue
            except Unavailable:
                pass
            except (TimeoutError, ConnectionError, OutcomeUnknown):
                self._go_on(None)
                if rng.random() < 0.1:
                    return  # nobody will ever know
            else:
                operation.ended = world.loop.time()
                world.acknowledged[request_id] = written.base_offset
                self.acknowledged += 1
                return
            await asyncio.sleep(rng.uniform(0.005, 0.05))

    def _go_on(self, error: NotController | None) -> None:
        """Ask another node: the one that was named, else any."""
        url = None if error is None else error.context.get("controller_url")
        nodes = self.world.nodes
        self._node = (
            self.world.rng.choice(list(nodes.values()))
            if url is None
            else nodes[NodeId(int(str(url).removeprefix("http://")))]
        )

    async def read(self, key: str) -> None:
        world = self.world

        def value(image: MetadataImage) -> str:
            settings = image.configs.get((BROKER, ""))
            return NEVER_WRITTEN if settings is None else settings.get(key, NEVER_WRITTEN)

        node = self._node if world.rng.random() < 0.5 else world.rng.choice(list(world.nodes.values()))
        began = world.loop.time()
        with suppress(TimeoutError, ConnectionError, NotController):
            async with asyncio.timeout(2.0):
                found = await world.remote(node, lambda controller: controller.read(value))
            world.reads_answered += 1
            world.history.append(
                Operation(key=key, value=found, is_write=False, began=began, ended=world.loop.time())
            )


class ClusterWorld(World):
    """A quorum of shipped controllers with brokers and clients."""

    def __init__(
        self,
        *,
        seed: int,
        profile: Profile,
        voters: int = 3,
        observers: int = 0,
        brokers: int = 3,
        clients: int = 5,
    ) -> None:
        self.timing = TimingSettings(session_timeout_ms=SESSION_TIMEOUT_MS, commit_timeout_ms=1_500)
        self.library = SnapshotLibrary()
        super().__init__(
            seed=seed,
            profile=replace(profile, writes_per_second=0.001, reads_per_second=READS_PER_SECOND),
            voters=voters,
            observers=observers,
            make_listener=self._controller,
        )
        has_data = brokers > 0 and (draws_data(seed) if profile.has_data is None else profile.has_data)
        rates = drawn(seed, is_heavy=profile.is_heavy, has_data=has_data)
        self.costs = Costs(self.loop, rates, self.violated)
        self.data = DataPlane(self) if has_data else None
        self.brokers = [SimulatedBroker(self, 11 + number) for number in range(brokers)]
        self.clients = [SimulatedClient(self, 1 + number) for number in range(clients)]
        self.acknowledged: dict[Uuid, int] = {}
        self.history: list[Operation] = []
        self.contest = Contest(self)
        self.longest_standstill = 0.0
        """The longest that a majority which could commit committed nothing, in seconds."""
        self.is_quiet = False
        self.fencings = 0
        self.recovered_after: float | None = None
        """Seconds from the last fault until all was well."""
        self.cuts: dict[tuple[int, NodeId], str] = {}
        """Broker and controller -> what is lost between them for now: `request` or `answer`."""
        self._read_last: tuple[bytes, tuple[RecordBatch, ...]] = (b"", ())
        self._states: dict[int, tuple[int, Buckets]] = {}
        self._claims: dict[int, int] = {}
        self._requests: dict[Uuid, int] = {}
        self._registered: set[tuple[NodeId, Uuid]] = set()
        """Controllers' registrations: each incarnation has one record."""
        self._newest = 0
        self.image = EMPTY
        """The newest one that is committed."""
        self._isrs: dict[PartitionKey, tuple[BrokerId, ...]] = {}
        """Of each partition as the newest batch left it."""
        self._silent: dict[BrokerId, tuple[int, int]] = {}
        """Brokers that were fenced for silence: their epoch then, and the end offset of the newest fencing."""

    def make_node(self, node_id: NodeId) -> SimulatedNode:
        return ClusterNode(self, node_id)

    def processor(self, node: SimulatedNode) -> Processor:
        return self.costs.processor(f"node {node.node_id}")

    def _controller(self, node: SimulatedNode) -> SimulatedController:
        assert isinstance(node, ClusterNode)
        return SimulatedController(self, node)

    def controller_settings(self, node_id: NodeId) -> ControllerSettings:
        return ControllerSettings(
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            data_dir=Path("/nowhere"),
            listen_http=("127.0.0.1", 1),
            listen_raft=("127.0.0.1", 1),
            voters=tuple(
                VoterSettings(
                    id=voter,
                    raft=("127.0.0.1", 9000 + voter),
                    http=f"http://node-{voter}:80",
                    directory_id=self.founders[voter],
                )
                for voter in self.founders
            ),
            timing=self.timing,
            snapshot=SnapshotSettings(bytes=SNAPSHOT_BYTES),
            topics=TopicSettings(undelete_window_ms=UNDELETE_WINDOW_MS if self.seed % 3 == 0 else 0),
        )

    def propose(self, leader: SimulatedNode, voters: Voters) -> None:
        """Ask as an operator does, of the controller."""
        assert leader.log is not None
        before = leader.log.status().voters
        ((node_id, directory_id),) = before.items() ^ voters.items()
        command = _addition(Member(node_id, directory_id)) if node_id in voters else _removal(before, node_id)

        async def ask() -> None:
            try:
                await self.remote(leader, partial(_carry_out, command))
                self.consequences["changes of voters carried out"] += 1
            except (MetadataError, ConnectionError):
                pass
            finally:
                self.changes_asked -= 1

        self.changes_asked += 1
        self.spawn(ask)

    async def submit(self, node: SimulatedNode, command: Command, request_id: Uuid | None) -> Written:
        async def serve(controller: SimulatedController) -> Written:
            return await controller.submit(command, actor=None, request_id=request_id)

        return await self.remote(node, serve)

    async def remote(
        self,
        node: SimulatedNode,
        serve: Callable[[SimulatedController], Awaitable[T]],
        *,
        caller: int = NO_NODE,
        is_poll: bool = False,
    ) -> T:
        """Ask a node over a wire: it takes a while, and loses the request or the answer at times."""
        rng, lost = self.rng, self.network.faults.lost
        await asyncio.sleep(rng.uniform(0.5, 2.0) * CALL_SECONDS)
        await self._pass(caller, node, "request")
        await node.awake()
        assert isinstance(node, ClusterNode)
        before = await self.loop.enter(node.processor)
        controller = node.controller
        if controller is None or (lost and rng.random() < lost) or not hasattr(controller, "raft"):
            self.loop.leave(before)
            raise ConnectionError("refused")
        if not is_poll:
            self.costs.request()
        try:
            answer = await serve(controller)
        except Fault as fault:
            if controller.is_running:
                node._stopped_by(fault)  # as the shipped server does when a request meets one
            raise ConnectionError("the process has ended") from fault
        finally:
            self.loop.leave(before)
            await node.awake()
            await asyncio.sleep(rng.uniform(0.5, 2.0) * CALL_SECONDS)
        await self._pass(caller, node, "answer")
        if not controller.is_running or (lost and rng.random() < lost):
            raise ConnectionError("the answer was lost")
        return answer

    async def _pass(self, caller: int, node: SimulatedNode, what: str) -> None:
        if self.cuts and self.cuts.get((caller, node.node_id)) == what:
            await asyncio.sleep(BLACK_HOLE_SECONDS)  # whoever asked gives up by itself

    def batches(self, frames: bytes) -> tuple[RecordBatch, ...]:
        """Return what a broker reads in the frames of an answer; the same for all who get the same bytes."""
        if self._read_last[0] != frames:
            self._read_last = (frames, tuple(received.batch for received in read_frames(frames)))
        return self._read_last[1]

    # --- properties

    def applied(self, who: str, batch: RecordBatch, image: MetadataImage) -> None:
        """Check a state that a controller or broker has reached."""
        state = (batch.crc, image.digest_buckets)
        known = self._states.setdefault(image.end_offset, state)
        if known is not state and known != state:
            raise Violation(f"same_offset_same_digest: {who} at offset {image.end_offset}")

    def committed(self, batch: RecordBatch, image: MetadataImage, delta: Delta) -> None:
        """Check what a batch did, when the first controller applies it."""
        if image.end_offset <= self._newest:
            return
        self._newest = image.end_offset
        self.image = image
        self.network.note("commit", image.end_offset, batch.crc)
        if batch.claim is not None:
            claimed = batch.claim
            self.tell(
                f"node {claimed.controller_id}",
                f"has epoch {batch.controller_epoch} from offset {batch.base_offset} on",
            )
            holder = self._claims.setdefault(batch.controller_epoch, claimed.controller_id)
            if holder != claimed.controller_id:
                raise Violation(f"one_claim_per_epoch: epoch {batch.controller_epoch}")
        for record in batch.records:
            if isinstance(record, RegisterControllerRecord):
                incarnation = (record.controller_id, record.incarnation_id)
                if incarnation in self._registered:
                    raise Violation(f"one_registration_per_incarnation: controller {record.controller_id}")
                self._registered.add(incarnation)
            if isinstance(record, TopicRecord):
                settings = image.configs.get((TOPIC, record.name))
                if settings is not None and SETTING in settings:
                    self.contest.created(record.topic_id, settings[SETTING])
        request_id = batch.envelope.request_id
        if request_id is not None:
            if request_id in self._requests:
                raise Violation(f"applied_once: request {request_id.hex()} at {batch.base_offset}")
            self._requests[request_id] = batch.base_offset
            self.story.chat("log", f"offset {batch.base_offset} holds request {request_id.hex()[-12:]}")
        self._check_leaders(image, delta)
        if self.data is not None:
            self.data.committed(image, delta)
        cause = batch.envelope.cause
        if cause is not None and cause.code == "SESSION_EXPIRED":
            # From the first part on its leaderships move, though its registration changes with the last alone.
            silent, epoch = cause.detail["broker_id"], cause.ref_offset
            assert isinstance(silent, int)
            assert epoch is not None
            self._silent[BrokerId(silent)] = epoch, image.end_offset
            self.consequences["fencings, or parts of one"] += 1
        for record in batch.records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced is not None:
                self._fenced(record, "" if cause is None else cause.code)
        for broker_id in self._silent:
            self.check_silent(self.broker(broker_id))

    def _check_leaders(self, image: MetadataImage, delta: Delta) -> None:
        changed = {
            (topic_id, number) for topic_id, number in delta.partitions if topic_id in image.topics.by_id
        }
        for broker_id in delta.brokers:
            changed.update(
                (topic_id, number) for topic_id, number, _ in image.topics.partitions_on(broker_id)
            )
        for topic_id, number in changed:
            partition = image.topics.by_id[topic_id].partitions[number]
            joined = set(partition.isr) - set(self._isrs.get((topic_id, number), ()))
            self._isrs[topic_id, number] = partition.isr
            if not all(map(image.is_active, joined)):
                raise Violation(
                    f"who_joins_an_isr_is_active: {sorted(joined)} joined that of partition {number} at {image.end_offset}"
                )
            leader = partition.leader
            if leader >= 0 and (leader not in image.brokers or image.brokers[BrokerId(leader)].fenced):
                raise Violation(f"no_fenced_leader: {leader} leads a partition at {image.end_offset}")
            if leader >= 0:
                self._check_directory(image, BrokerId(leader), partition)

    def _check_directory(self, image: MetadataImage, leader: BrokerId, partition: PartitionImage) -> None:
        directory = partition.directories[partition.replicas.index(leader)]
        if not is_reserved(directory) and directory not in image.brokers[leader].log_dirs:
            raise Violation(
                f"leads_from_an_online_directory: {leader} leads from {directory.hex()} at {image.end_offset}"
            )

    def _fenced(self, record: BrokerRegistrationChangeRecord, why: str) -> None:
        self.tell(f"broker {record.broker_id}", f"is {'fenced' if record.fenced else 'online'} {why}")
        if record.fenced:
            self.fencings += 1

    def broker(self, broker_id: BrokerId) -> SimulatedBroker:
        return self.brokers[broker_id - 11]

    def check_silent(self, broker: SimulatedBroker) -> None:
        epoch, fenced_end = self._silent.get(broker.broker_id, (None, 0))
        session, read_end = broker.session, broker.follower.image.end_offset
        if session is None or session.broker_epoch != epoch or read_end >= fenced_end:
            return
        # This also holds if the broker is unfenced by now: its leaderships moved, and it has not read that yet.
        if broker.may_serve():
            raise Violation(
                f"silent_brokers_serve_nobody: {broker.broker_id} serves from offset {read_end}, and was fenced below "
                f"{fenced_end}"
            )

    # --- a run

    def run(self, seconds: float, *, settle_seconds: float = 6.0) -> list[str]:
        with small_limits(self.seed), shared_work(), self.costs.charged():
            return super().run(seconds, settle_seconds=settle_seconds)

    async def _live(self, seconds: float, settle_seconds: float) -> None:
        for broker in self.brokers:
            broker.start(keep_cache=False)
        for client in self.clients:
            self.spawn(client.live)
        for number in range(CONTENDERS):
            self.spawn(partial(self.contest.contend, number))
        self.spawn(self._change_topics)
        self.spawn(self._watch_availability)
        if self.data is not None:
            self.spawn(self.data.append)
            self.spawn(self.data.keep_topics)
        await super()._live(seconds, settle_seconds)
        found = check(self.history)
        if found is not None:
            self.violated(f"linearizable: {found}")
        found = self.contest.contradiction()
        if found is not None:
            self.violated(f"contest_is_linearizable: {found}")
        self.consequences["refusals judged"] = self.contest.refused
        if self.library.differing:
            self.violated(f"one_id_same_bytes: {self.library.differing}")

    async def _change_topics(self) -> None:
        if self.seed % 2:
            # From the beginning and for good: if it changed, or min.insync.replicas did, while a partition has no leader,
            # its last known leader would be forgotten, as in Kafka, and only an unclean election would help.
            elr = FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1, UpgradeType.UPGRADE)
            command: Command = UpdateFeatures(updates=(elr,), validate_only=False)
            while not (await self.attempt(command) or self.is_quiet or self.violations):
                await asyncio.sleep(0.05)  # there is no leader yet, or not every controller is registered
        for number in range(100_000):
            await asyncio.sleep(self.rng.expovariate(self.profile.topics_per_second))
            if self.is_quiet or self.violations:
                return
            command = CreateTopic(
                name=f"t{number}",
                partitions=3,
                replication_factor=min(2, len(self.brokers)),
                assignment=None,
                configs={},
                validate_only=False,
            )
            await self.attempt(command)
            await self._administrate(f"t{max(number - self.rng.randrange(TOPICS_KEPT), 0)}")
            if number >= TOPICS_KEPT:
                await self.attempt(DeleteTopic(name=f"t{number - TOPICS_KEPT}"))
                if self.seed % 3 == 0:
                    await self.attempt(UndeleteTopics(topics=(f"t{number - TOPICS_KEPT}",)))
                    await self.attempt(DeleteTopic(name=f"t{number - TOPICS_KEPT}"))

    async def _administrate(self, name: str) -> None:
        """Let an operator ask for something of a topic, or of all partitions."""
        rng, brokers = self.rng, [broker.broker_id for broker in self.brokers]
        if not brokers:
            return
        some = tuple(rng.sample(brokers, rng.randint(1, min(3, len(brokers)))))
        several = min(3, max(REASSIGNMENTS_MAX // self.costs.rates.partition, 1))
        commands: list[Command] = [
            AlterPartitionReassignments(
                reassignments=tuple(
                    Reassignment(name, each, some) for each in range(rng.randint(1, several))
                ),
                allow_replication_factor_change=True,
            ),
            AlterPartitionReassignments(
                reassignments=tuple(Reassignment(name, each, None) for each in range(min(2, several))),
                allow_replication_factor_change=True,
            ),
            CreatePartitions(topics=(MorePartitions(name, 4),), validate_only=False),
            ElectLeaders(unclean=False, partitions=tuple((name, each) for each in range(several))),
        ]
        if not self.seed % 2:
            min_isr = ConfigChange("min.insync.replicas", ConfigOperation.SET, str(rng.randint(1, 2)))
            changed = (ResourceChange(TOPIC, name, (min_isr,)),)
            commands.append(IncrementalAlterConfigs(resources=changed, validate_only=False))
        await self.attempt(rng.choice(commands))

    async def attempt(self, command: Command) -> bool:
        """Ask for a change once; answer whether it was made, as far as is known."""
        node = self.clients[0]._node
        with suppress(TimeoutError, ConnectionError, Unavailable, OutcomeUnknown, Rejected):
            async with asyncio.timeout(2.0):
                await self.submit(node, command, None)
                return True
        return False

    # --- brokers' weather

    def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
        every = self.profile.broker_every
        kinds = [(None if every is None or not self.brokers else every, self._trouble_broker)]
        return kinds if self.data is None else [*kinds, *self.data.weather()]

    def _trouble_broker(self) -> None:
        broker, rng = self.rng.choice(self.brokers), self.rng
        kinds = ["sleep", "crash", "stop", "cut", "slow"]
        kinds += [] if self.profile.is_heavy else ["stranded"]
        kinds += [] if self.data is None else ["power"]
        kind = rng.choice(kinds)
        seconds = rng.choice((0.5, 2.0, 6.0)) * rng.uniform(0.3, 1.0)
        self.faults[f"broker: {kind}"] += 1
        if kind == "sleep":
            self.tell(broker, f"sleeps for {seconds:.1f} s")
            broker.asleep_until = self.loop.time() + seconds
        elif kind == "slow":
            self.tell(broker, f"reads slowly for {seconds:.1f} s")
            broker.slow_until = self.loop.time() + seconds
        elif kind == "cut":
            nodes = rng.sample(self.ids, rng.randint(1, len(self.ids)))
            what = rng.choice(("request", "answer"))
            self.tell(broker, f"is cut off from {nodes}: {what}s are lost for {seconds:.1f} s")
            self._cut(broker, nodes, what, seconds)
        elif kind == "stranded":
            self._strand(broker)
        elif kind == "stop" and broker.session is not None:
            self.tell(broker, "is asked to stop")
            broker.session.want_shut_down = True
            self.loop.call_later(3.0, self.start_broker, broker, broker.runs)
        elif kind in ("crash", "power") and broker.session is not None:
            broker.crash()
            if kind == "power" and self.data is not None and self.data.may_lose_power(broker.broker_id):
                self.data.lose_power(broker.broker_id)
            self.loop.call_later(seconds, self.start_broker, broker, broker.runs)

    def _cut(self, broker: SimulatedBroker, nodes: Sequence[NodeId], what: str, seconds: float) -> None:
        for node_id in nodes:
            self.cuts[broker.broker_id, node_id] = what
            self.loop.call_later(seconds, self.cuts.pop, (broker.broker_id, node_id), None)

    def _strand(self, broker: SimulatedBroker) -> None:
        """Let the leader sleep, and leave a broker nobody else to ask: the leader that wakes may no longer be one."""
        for node in self.nodes.values():
            if node.is_leader():
                others = [voter for voter in self.ids if voter != node.node_id]
                self.tell(broker, f"reaches {node.node_id} alone, of {self.ids}")
                self._cut(broker, others, "request", 8.0)
                node.pause(self.rng.uniform(2.0, 6.0))
                return

    def start_broker(self, broker: SimulatedBroker, run: int) -> None:
        """Start a broker again, or put an end to one whose orderly stop takes too long."""
        if broker.session is not None and broker.runs == run:
            broker.crash()
        if broker.session is None:
            broker.start(keep_cache=self.rng.random() < 0.7)

    def _read(self) -> None:
        client = self.rng.choice(self.clients)
        self.spawn(partial(client.read, client.key()))

    # --- the calm at the end

    async def _calm(self, settle_seconds: float) -> None:
        """Liveness and convergence."""
        if self.profile.is_heavy and len(self.checks.leaders) > 1:
            self.violated(f"nobody_falls_silent: these led, term by term: {self.checks.leaders}")
        self.is_rough = False
        self.network.faults = type(self.network.faults)()
        self.network.heal()
        self.cuts.clear()
        if self.data is not None:
            self.data.cuts.clear()
            self.data.directories.end_faults()
        self.end_faults()
        for broker in self.brokers:
            broker.asleep_until = broker.slow_until = 0.0
            if broker.session is not None and broker.session.want_shut_down:
                broker.crash()
            if broker.session is None:
                broker.start(keep_cache=True)
        self.tell("weather", "is calm from now on")
        acknowledged = [client.acknowledged for client in self.clients]
        began = self.loop.time()
        trouble = await self.within(LIVENESS_SECONDS, lambda: self._not_live(acknowledged))
        if trouble is not None:
            self.violated(f"liveness: {LIVENESS_SECONDS:.0f} s after the last fault {trouble}")
            return
        self.recovered_after = self.loop.time() - began
        self.is_quiet = True
        await self.elect_stranded()
        if self.data is not None:
            trouble = await self.data.end()
            if trouble is not None:
                self.violated(trouble)
                return
        if len(self.ids) > 1 and not await self._change_voters_at_rest():
            return
        for key in sorted({operation.key for operation in self.history[-300:]}):
            await self.clients[0].read(key)
        trouble = await self.within(CONVERGENCE_SECONDS, self._not_converged)
        if trouble is not None:
            self.violated(f"convergence: {CONVERGENCE_SECONDS:.0f} s after the last write {trouble}")
            return
        self._check_acknowledged()
        self.writes_acknowledged = len(self.acknowledged)

    async def elect_stranded(self) -> None:
        """Do what `docs/limits.md` asks of an operator where nobody can be elected cleanly any more."""
        until = self.loop.time() + CHANGE_SECONDS
        while (stranded := self._stranded()) and not self.violations and self.loop.time() < until:
            await self.attempt(ElectLeaders(unclean=True, partitions=tuple(stranded)))
            self.consequences["unclean elections by an operator"] += 1
            await asyncio.sleep(0.1)

    def _stranded(self) -> list[tuple[str, int]]:
        """Return the partitions without a leader whose ISR is empty, and no replica of which is eligible.

        Every broker is online: nothing is to be waited for.
        """
        return sorted(
            (topic.name, number)
            for topic in self.image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == NO_LEADER
            and not partition.isr
            and not set(partition.eligible_leader_replicas) & set(partition.replicas)
        )

    async def _change_voters_at_rest(self) -> bool:
        """Let one controller vote more, or one less: whatever was interrupted before, a change can be made."""
        until = self.loop.time() + CHANGE_SECONDS
        refused = "nobody leads"
        while self.loop.time() < until and not self.violations:
            leader = next((node for node in self.nodes.values() if node.is_leader()), None)
            if leader is not None:
                assert leader.log is not None
                before = leader.log.status().voters
                fresh = [n.member for n in self.nodes.values() if n.member not in before.items()]
                gone = [voter for voter, disk in before.items() if self.nodes[voter].directory_id != disk]
                others = [voter for voter in before if voter != leader.node_id]
                command = _removal(before, (gone or others)[0]) if gone or not fresh else _addition(fresh[0])
                try:
                    await self.remote(leader, partial(_carry_out, command))
                except (MetadataError, ConnectionError) as error:
                    refused = str(error)
                else:
                    return True
            await asyncio.sleep(0.1)
        self.violated(f"liveness: no change of voters within {CHANGE_SECONDS:.0f} s at rest: {refused}")
        return False

    async def _watch_availability(self) -> None:
        """Commits go on wherever a majority can make them."""
        links = self.profile.links
        most = UNAVAILABLE_LOSSY_SECONDS if links.lost or links.late else UNAVAILABLE_SECONDS
        since, newest = self.loop.time(), self._newest
        able: set[frozenset[NodeId]] = set()
        writing: dict[NodeId, object] = {}
        while not self.violations and not self.is_quiet:
            await asyncio.sleep(WATCH_SECONDS)
            now = self.loop.time()
            able &= (found := self._able_majorities(writing))
            writing = {node.node_id: node.writing for node in self.nodes.values()}
            if newest != self._newest or not able:
                since, newest, able = now, self._newest, found
            self.longest_standstill = max(self.longest_standstill, now - since)
            if now - since > most:
                majority = sorted(min(able, key=sorted))
                self.violated(f"available: {majority} could have committed for {now - since:.1f} s")

    def _able_majorities(self, writing: dict[NodeId, object]) -> set[frozenset[NodeId]]:
        """Return the majorities that run, are awake and linked with each other, and whose disks do what they are asked.

        `writing`: what each was making durable a while ago; a sync that lasts for so long is a stalled disk.
        """
        able = [
            node
            for node in self.nodes.values()
            if node.log is not None
            and node.is_awake()
            and not node.is_stopping
            and not node.disk.is_full
            and (node.writing is None or node.writing is not writing.get(node.node_id))
        ]
        found: set[frozenset[NodeId]] = set()
        for size in range(1, len(able) + 1):
            for some in combinations(able, size):
                members = {node.member for node in some}
                if all(
                    2 * len(members & set(voters.items())) > len(voters)
                    for voters in self.checks.newest_voters()
                ) and all(self._are_linked(one, other) for one, other in combinations(some, 2)):
                    found.add(frozenset(node.node_id for node in some))
        return found

    def _are_linked(self, one: SimulatedNode, other: SimulatedNode) -> bool:
        network, (a, b) = self.network, (one.node_id, other.node_id)
        return (
            network.is_open(a, b)
            and network.is_open(b, a)
            and b in one.transport.links
            and a in other.transport.links
        )

    async def within(self, seconds: float, trouble: Callable[[], str | None]) -> str | None:
        """Return None as soon as there is no trouble, or what it still is after so many seconds."""
        until = self.loop.time() + seconds
        while not self.violations:
            found = trouble()
            if found is None or self.loop.time() >= until:
                return found
            await asyncio.sleep(0.1)
        return None

    def _not_live(self, acknowledged: list[int]) -> str | None:
        active = [controller for controller in self._controllers() if controller.is_active]
        if len(active) != 1 or len(self._controllers()) != len(self.nodes):
            return f"{len(active)} controllers are active, {len(self._controllers())} run"
        image = active[0].committed
        offline = [b.broker_id for b in self.brokers if not image.is_active(b.broker_id) or not b.may_serve()]
        if offline:
            return f"brokers {offline} are not online"
        pending = [
            node.node_id
            for node in self.nodes.values()
            if node.log is not None and node.log.status().change_pending
        ]
        if pending:
            return f"a change of voters is pending on {pending}"
        waiting = [
            client.number
            for client, before in zip(self.clients, acknowledged, strict=True)
            if client.acknowledged <= before
        ]
        return f"clients {waiting} have found no answer" if waiting else None

    def _not_converged(self) -> str | None:
        ends = {f"controller {c.node.node_id}": c.committed.end_offset for c in self._controllers()}
        ends |= {str(broker): broker.follower.image.end_offset for broker in self.brokers}
        if len(set(ends.values())) == 1 and min(ends.values()) >= self._newest:
            return self._lacking_a_member()
        return f"these offsets were reached: {ends}, and {self._newest} by somebody"

    def _lacking_a_member(self) -> str | None:
        """Return which ISRs are not whole, though every broker is online and none has data."""
        image = self.brokers[0].follower.image if self.brokers else EMPTY
        lacking = [
            f"{topic.name}-{number}"
            for topic in image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if set(partition.isr) != set(partition.replicas)
        ]
        return f"the ISRs of {lacking} are not whole" if lacking else None

    def _check_acknowledged(self) -> None:
        for request_id, base_offset in self.acknowledged.items():
            if self._requests.get(request_id) != base_offset:
                self.violated(f"acknowledged_is_durable: {request_id.hex()} was answered at {base_offset}")

    def _controllers(self) -> list[SimulatedController]:
        return [
            n.listener
            for n in self.nodes.values()
            if n.log is not None and isinstance(n.listener, SimulatedController)
        ]
