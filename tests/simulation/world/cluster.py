"""Simulated clusters: the shipped controller, committed log, snapshot keeper, fetch service, broker session and follower
over the simulated quorum.

Clients write with request ids and read; brokers poll, are cut off, sleep, die and come back.
Half of the runs have a data plane, with rules of its own: see `data_plane`.
"""

import asyncio
import gc
import hashlib
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from broker_agent.follower import ReceivedFrame, read_frames
from metadata_log.codec import read_header
from metadata_log.errors import (
    DamagedFile,
    Fault,
    MetadataError,
    OutcomeUnknown,
    Rejected,
    SnapshotNotFound,
    Unavailable,
)
from metadata_log.ids import NO_NODE, BrokerId, NodeId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.subject import SubjectBuilder
from metadata_log.wire.commands import Command
from metadata_log.wire.fetch import SnapshotOffer
from quorum.controller.written import Written
from quorum.node.config import (
    ControllerSettings,
    LogSettings,
    SnapshotSettings,
    TimingSettings,
    TopicSettings,
    VoterSettings,
)
from quorum.raft.raft_log import Member, Voters
from snapshots.seal import Seal
from tests.simulation.faults import broad
from tests.simulation.faults.between_parts import BetweenParts
from tests.simulation.faults.brokers import BrokerFaults, Cut
from tests.simulation.faults.profiles import Profile
from tests.simulation.rules.answers import Observer
from tests.simulation.rules.availability import Availability
from tests.simulation.rules.calm import Calm
from tests.simulation.rules.cluster import Properties
from tests.simulation.rules.contest import Contest
from tests.simulation.rules.contrary.client import Contrary
from tests.simulation.rules.contrary.question import PARTITIONS_PER_TOPIC_MAX
from tests.simulation.rules.registers import Operation, check
from tests.simulation.rules.rule import rule
from tests.simulation.world.broker_cache import BrokerDisk, small_caches
from tests.simulation.world.cluster_broker import SimulatedBroker
from tests.simulation.world.cluster_client import Repeater, SimulatedClient
from tests.simulation.world.cluster_controller import SimulatedController
from tests.simulation.world.cluster_node import CLUSTER_ID, POOLS, SESSION_TIMEOUT_MS, ClusterNode
from tests.simulation.world.costs import Costs, drawn
from tests.simulation.world.data_plane import DataPlane, draws_data
from tests.simulation.world.files import Volume, in_memory
from tests.simulation.world.jobs import cooperative_locks
from tests.simulation.world.node import SimulatedNode
from tests.simulation.world.operators import Operators
from tests.simulation.world.quorum_views import watch_quorum
from tests.simulation.world.shared_work import shared_work
from tests.simulation.world.small_limits import small_limits
from tests.simulation.world.snapshot_fetch import Forgery
from tests.simulation.world.storage import SnapshotLibrary
from tests.simulation.world.virtual_loop import Processor
from tests.simulation.world.voter_changes import addition, carry_out, removal
from tests.simulation.world.world import SETTLE_SECONDS, World
from tests.support.callers import anybody

T = TypeVar("T")
SNAPSHOT_BYTES = 60_000
UNDELETE_WINDOWS_MS = (4_000, 0, 3_500, 4_500, 0, 14_000)
"""For so long topics can be restored."""
CALL_SECONDS = 0.0005
CONTENDERS = 3
ANSWERS_KEPT = 32
BUILDERS_LEFT_MAX = 64
"""Of batches that processes were applying when they ended."""
LARGE = 100
"""Where a partition stands for so many, a tool plans topics."""
READS_PER_SECOND = 10.0
BLACK_HOLE_SECONDS = 3600.0


class ClusterWorld(World):
    """A quorum of shipped controllers with brokers and clients."""

    nothing_is_left_over = rule("what was applied leaves nothing to the cycle collector")
    one_id_same_bytes = rule("a snapshot has the same bytes on every node, and a rotten one is not loaded")
    linearizable = rule("the history of all clients' reads and writes fits one order (`registers.check`)")

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
        self.library = SnapshotLibrary(random.Random(seed ^ 0x11B))
        self.volumes: dict[str, Volume] = {}
        """What the nodes' disks hold beside their journals, by name."""
        foreign = random.Random(seed ^ 0xF0E)
        self.forgery = Forgery(self.library, foreign, profile.foreign_snapshots)
        super().__init__(
            seed=seed,
            profile=replace(profile, writes_per_second=0.001, reads_per_second=READS_PER_SECOND),
            voters=voters,
            observers=observers,
            make_listener=self._controller,
        )
        has_data = brokers > 0 and (draws_data(seed) if profile.has_data is None else profile.has_data)
        rates = drawn(seed, is_heavy=profile.is_heavy or profile.is_weighty, has_data=has_data)
        if profile.is_weighty:
            rates = replace(rates, partition=broad.WEIGHT)
        self.costs = Costs(self.loop, rates, self.violated)
        self.data = DataPlane(self) if has_data else None
        self.brokers = [SimulatedBroker(self, 11 + number) for number in range(brokers)]
        self.clients = [SimulatedClient(self, 1 + number) for number in range(clients)]
        self.acknowledged: dict[Uuid, int] = {}
        self.history: list[Operation] = []
        self.contest = Contest(self)
        self.properties = Properties(self)
        self.availability = Availability(self)
        self.calm = Calm(self)
        self.between_parts = BetweenParts(self)
        self.is_quiet = False
        self.cuts: dict[tuple[int, NodeId], Cut] = {}
        """Broker and controller -> what is lost between them for now."""
        self.subjects: dict[Uuid, str] = {}
        """Request ids, and the register or topic that each is about."""
        self._read_in: dict[bytes, tuple[ReceivedFrame, ...]] = {}
        """What was read in the frames of the newest answers."""
        self.image = EMPTY
        """The newest one that is committed."""

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
            log=LogSettings(retention_bytes=self.profile.retention_bytes),
            snapshot=SnapshotSettings(bytes=self.profile.snapshot_bytes or SNAPSHOT_BYTES),
            topics=TopicSettings(
                undelete_window_ms=self.undelete_window_ms,
                partitions_per_topic_max=PARTITIONS_PER_TOPIC_MAX,
            ),
        )

    @property
    def undelete_window_ms(self) -> int:
        return UNDELETE_WINDOWS_MS[self.seed % len(UNDELETE_WINDOWS_MS)]

    def propose(self, leader: SimulatedNode, voters: Voters) -> None:
        """Ask as an operator does, of the controller."""
        assert leader.log is not None
        before = leader.log.status().voters
        ((node_id, directory_id),) = before.items() ^ voters.items()
        command = addition(Member(node_id, directory_id)) if node_id in voters else removal(before, node_id)

        async def ask() -> None:
            try:
                await self.remote(leader, partial(carry_out, command))
                self.consequences["changes of voters carried out"] += 1
            except (MetadataError, ConnectionError):
                pass
            finally:
                self.changes_asked -= 1

        self.changes_asked += 1
        self.spawn(ask)

    def controller_of(self, node_id: NodeId) -> SimulatedController | None:
        """Return the controller that runs on a node, if one does."""
        node = self.nodes.get(node_id)
        return node.controller if isinstance(node, ClusterNode) else None

    def broker(self, broker_id: BrokerId) -> SimulatedBroker:
        return self.brokers[broker_id - 11]

    async def submit(self, node: SimulatedNode, command: Command, request_id: Uuid | None) -> Written:
        async def serve(controller: SimulatedController) -> Written:
            return await controller.submit(command, anybody(request_id))

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
        if not node.is_awake():
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
                node.stopped_by(fault)  # as the shipped server does when a request meets one
            raise ConnectionError("the process has ended") from fault
        finally:
            self.loop.leave(before)
            if not node.is_awake():
                await node.awake()
            await asyncio.sleep(rng.uniform(0.5, 2.0) * CALL_SECONDS)
        await self._pass(caller, node, "answer")
        if not controller.is_running or (lost and rng.random() < lost):
            raise ConnectionError("the answer was lost")
        return answer

    async def _pass(self, caller: int, node: SimulatedNode, what: str) -> None:
        cut = self.cuts.get((caller, node.node_id)) if self.cuts else None
        if cut is not None and cut.what == what:
            await asyncio.sleep(BLACK_HOLE_SECONDS)  # whoever asked gives up by itself

    def received(self, frames: bytes) -> tuple[ReceivedFrame, ...]:
        """Return what a broker reads in the frames of an answer; the same for all who get the same bytes."""
        known = self._read_in.get(frames) if self.profile.shares_work else None
        if known is None:
            known = tuple(read_frames(frames))
            self._read_in[frames] = known
            if len(self._read_in) > ANSWERS_KEPT:
                del self._read_in[next(iter(self._read_in))]
        return known

    def check_seal(self, snapshot_id: str, seal: Seal) -> None:
        """Compare what a node announces with the snapshot of this log by that id."""
        found = hashlib.sha256(self.library.content(snapshot_id)).hexdigest()
        if seal != (self.library.image(snapshot_id).last_crc, found):
            self.violated(self.one_id_same_bytes(f"{snapshot_id} is announced as {seal}, and is {found}"))

    async def download(self, offer: SnapshotOffer, disk: BrokerDisk | None = None) -> MetadataImage | None:
        """Return the image of a snapshot from any controller that has it, and keep it on `disk`."""
        cache = None if disk is None else disk.cache
        for node in self.nodes.values():
            await asyncio.sleep(self.rng.uniform(0.001, 0.05))
            if disk is not None and disk.cache is not cache:
                return None  # the process that asked for it has ended, and another has the disk
            assert isinstance(node, ClusterNode)
            if node.log is not None and node.is_awake():
                with suppress(SnapshotNotFound, DamagedFile):
                    node.snapshots.check(offer.id)
                    if node.snapshots.sha256(offer.id) != offer.sha256:
                        continue
                    if disk is None:
                        return self.library.read(node.snapshots.path(offer.id)).without_results()
                    return await disk.install(offer, node.snapshots.content(offer.id))
        return None

    # --- a run

    def run(self, seconds: float, *, settle_seconds: float = SETTLE_SECONDS) -> list[str]:
        with ExitStack() as stack:
            stack.enter_context(in_memory(self.volumes))
            stack.enter_context(cooperative_locks())
            stack.enter_context(self.library.shared())
            stack.enter_context(small_caches())
            stack.enter_context(small_limits(self.seed, results_kept=self.profile.results_kept))
            if self.profile.shares_work:
                stack.enter_context(shared_work())
            stack.enter_context(self.costs.charged())
            return super().run(seconds, settle_seconds=settle_seconds)

    def limits(self) -> AbstractContextManager[None]:
        return nullcontext()  # `run` has set those of a cluster

    def is_one_frame(self, frames: bytes) -> bool:
        return read_header(frames).frame_bytes == len(frames)

    def check_left_over(self) -> None:
        """What was applied leaves nothing that only the cycle collector frees, which is switched off during a run."""
        builders = sum(isinstance(each, SubjectBuilder) for each in gc.get_objects())
        if builders > BUILDERS_LEFT_MAX:
            self.violated(self.nothing_is_left_over(f"{builders} builders of images outlived their batches"))

    async def _run(self, seconds: float, settle_seconds: float) -> None:
        for broker in self.brokers:
            broker.start(keep_cache=False)
        for client in self.clients:
            self.spawn(client.live)
        for number in range(CONTENDERS):
            self.spawn(partial(self.contest.contend, number))
        operators = Operators(self)
        self.spawn(operators.change_topics)
        if self.costs.rates.partition >= LARGE:
            self.spawn(operators.plan_topics)
        self.spawn(partial(watch_quorum, self))
        self.spawn(Contrary(self).live)
        self.spawn(Observer(self).live)
        if self.profile.repeat_every is not None:
            self.spawn(Repeater(self, self.profile.repeat_every).live)
        self.spawn(self.availability.watch)
        if self.data is not None:
            self.spawn(self.data.append)
            self.spawn(self.data.keep_topics)
        await super()._run(seconds, settle_seconds)
        self.spoil_repeated()
        found = check(self.history)
        if found is not None:
            self.violated(self.linearizable(found))
        found = self.contest.contradiction()
        if found is not None:
            self.violated(Contest.contest_is_linearizable(found))
        self.consequences["refusals judged"] = self.contest.refused
        if self.library.differing:
            self.violated(self.one_id_same_bytes(self.library.differing))

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
        kinds = BrokerFaults(self).kinds()
        return kinds if self.data is None else [*kinds, *self.data.weather()]

    def end_faults(self) -> None:
        for node in self.nodes.values():
            assert isinstance(node, ClusterNode)
            node.busy_until = dict.fromkeys(POOLS, 0.0)
        super().end_faults()

    def suspend_all(self, seconds: float) -> None:
        super().suspend_all(seconds)
        for broker in self.brokers:
            broker.clock_offset += seconds * 1000 * broker.clock_rate

    def start_broker(self, broker: SimulatedBroker, run: int) -> None:
        """Start a broker again, or put an end to one whose orderly stop takes too long."""
        if broker.session is not None and broker.runs == run:
            self.sometimes("broker's orderly stop takes too long")
            broker.crash()
        if broker.session is None:
            broker.start(keep_cache=self.rng.random() < 0.7)

    def spoil_repeated(self) -> None:
        """Judge no register that a request changed twice because its first answer was evicted."""
        spoilt = {self.subjects.get(request_id) for request_id in self.properties.carried_out_again}
        self.history = [operation for operation in self.history if operation.key not in spoilt]
        self.contest.history = [done for done in self.contest.history if done.key not in spoilt]

    def _read(self) -> None:
        client = self.rng.choice(self.clients)
        self.spawn(partial(client.read, client.key()))

    # --- the calm at the end

    async def _calm(self, settle_seconds: float) -> None:
        await self.calm.check()

    async def within(self, seconds: float, trouble: Callable[[], str | None]) -> str | None:
        """Return None as soon as there is no trouble, or what it still is after so many seconds."""
        until = self.loop.time() + seconds
        while not self.violations:
            found = trouble()
            if found is None or self.loop.time() >= until:
                return found
            await asyncio.sleep(0.1)
        return None
