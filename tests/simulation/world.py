"""Simulated quorums: the shipped adapter, guard, engine and journal on simulated time, disks and links.

A node is a disk, a store of snapshots, and while it runs a journal, a transport, a log and a listener. The listener
here is `Model`, which counts frames; `World(make_listener=...)` puts another on the same nodes.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from metadata_log.errors import BrokerNotAvailable, Fault, NotController, Unavailable
from metadata_log.ids import NodeId
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.guard import RaftSettings
from quorum.raft.journal import Journal, JournalBatch
from quorum.raft.messages import Entry
from quorum.raft.raft_log import RaftListener, Role
from tests.simulation.disk import SimulatedDisk
from tests.simulation.network import LinkFaults, Network, SimulatedTransport
from tests.simulation.virtual_loop import VirtualLoop

JOURNAL_FILE_BYTES = 16 * 1024
FRAME_BYTES = 8
SNAPSHOT_FRAMES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How rough the weather is; times in seconds, mean between events."""

    links: LinkFaults = field(default_factory=LinkFaults)
    crash_every: float | None = None
    partition_every: float | None = None
    flap_every: float | None = None
    stalls: float = 0.0
    """Probability that a sync takes seconds, so that a leader gives up."""
    writes_per_second: float = 55.0
    reads_per_second: float = 85.0


PROFILES = {
    "calm": Profile(),
    "fifo": Profile(crash_every=3.0, partition_every=2.5, flap_every=4.0),
    "wild": Profile(
        links=LinkFaults(lost=0.05, duplicated=0.05, late=0.05),
        crash_every=3.0,
        partition_every=2.5,
        flap_every=4.0,
    ),
    "nasty": Profile(
        links=LinkFaults(lost=0.08, duplicated=0.25, late=0.20),
        crash_every=1.5,
        partition_every=1.5,
        flap_every=3.0,
        stalls=0.002,
    ),
    "storm": Profile(crash_every=6.0, partition_every=0.35, flap_every=1.0),
}


class Violation(Exception):
    """A property that must always hold did not."""


class WatchedJournal(Journal):
    """Remembers what the log was when each batch was taken, to know what a disk durably holds."""

    frozen: list[Entry]

    def take_batch(self) -> JournalBatch | None:
        batch = super().take_batch()
        if batch is not None:
            self.frozen = list(self)
        return batch


class WatchedLog(PySyncObjLog):
    """Calls `after_pump` whenever anything may have changed."""

    after_pump: Callable[[], None]

    def _pump(self) -> None:
        super()._pump()
        self.after_pump()


class SimulatedNode:
    def __init__(self, world: "World", node_id: NodeId) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = SimulatedDisk()
        self.store: dict[str, int] = {}
        """Snapshots held, verified and synced: number of frames by id."""
        self.durable: list[Entry] = []
        """The log as the disk holds it for certain."""
        self.writing: list[Entry] | None = None
        """The log as it will be durable once the sync under way returns."""
        self.clock_rate = world.rng.uniform(0.99, 1.01)
        self.clock_offset = world.rng.uniform(0.0, 1e6)
        self.log: WatchedLog | None = None
        self.listener: RaftListener
        self.journal: WatchedJournal
        self.transport: SimulatedTransport
        self.task: asyncio.Task[None] | None = None
        self.incarnation = 0
        self.commit_seen = 0
        self.lead_mark: tuple[int, int] | None = None

    # --- life

    def start(self) -> None:
        world = self.world
        self.incarnation += 1
        self.commit_seen, self.lead_mark = 0, None
        rng = random.Random(world.rng.getrandbits(64))
        self.journal = WatchedJournal.open(
            self.disk, random_bytes=rng.randbytes, file_bytes=JOURNAL_FILE_BYTES
        )  # type: ignore[assignment]
        self.disk.settle()
        self._check_recovery()
        self.durable, self.writing = list(self.journal), None
        self.transport = world.network.attach(self.node_id)
        self.listener = world.make_listener(self)
        self.log = WatchedLog(
            node_id=self.node_id,
            voters=world.voters,
            journal=self.journal,
            transport=self.transport,
            pointer_disk=self.disk,
            listener=self.listener,
            fetcher=self,
            settings=world.settings,
            now_ms=self.now_ms,
            rng=rng,
            run_in_thread=partial(self._run_in_thread, asyncio.Lock(), self.incarnation),
        )
        self.log.after_pump = partial(world.checks.after_pump, self)
        self.task = world.loop.create_task(self._run(self.log))

    async def _run(self, log: WatchedLog) -> None:
        try:
            await log.run()
        except Fault as fault:
            self.world.violated(f"node {self.node_id} stopped: {type(fault).__name__}: {fault}")
        except Violation as violation:
            self.world.violated(str(violation))

    def crash(self) -> None:
        """End the process and cut the power."""
        if self.task is None:
            return
        self.world.network.note("crash", self.node_id)
        self.world.network.detach(self.node_id)
        self.task.cancel()
        self.task, self.log = None, None
        self.disk.crash(self.world.rng)

    def now_ms(self) -> float:
        return self.world.loop.time() * 1000 * self.clock_rate + self.clock_offset

    def is_leader(self) -> bool:
        return self.log is not None and self.log.status().role is Role.LEADER

    def _check_recovery(self) -> None:
        if self.incarnation == 1:
            return
        recovered = list(self.journal)
        if recovered not in (self.durable, self.writing):
            self.world.violated(f"node {self.node_id} recovered a log that it never had made durable")

    # --- the worker thread

    async def _run_in_thread(self, one_job: asyncio.Lock, incarnation: int, work: Callable[[], None]) -> None:
        async with one_job:
            writes_journal = isinstance(work, partial) and work.func == self.journal.write
            if writes_journal:
                self.writing = self.journal.frozen
            work()
            await asyncio.sleep(self._sync_seconds())
            if incarnation != self.incarnation or self.log is None:
                return
            self.disk.settle()
            if writes_journal:
                assert self.writing is not None
                self.durable, self.writing = self.writing, None

    def _sync_seconds(self) -> float:
        rng, stalls = self.world.rng, self.world.profile.stalls
        if stalls and self.world.is_rough and rng.random() < stalls:
            return rng.uniform(0.5, 5.0)
        if rng.random() < 0.01:
            return rng.uniform(0.0, 0.2)
        return 0.0005 + rng.expovariate(1 / 0.002)

    # --- snapshots

    def take_snapshot(self, frames: int) -> None:
        """Store the state after so many frames, and let the log be trimmed behind it; takes a while."""
        assert self.log is not None
        position = self.log.applied_position()
        snapshot_id = f"{frames:020d}"
        delay = self.world.rng.uniform(0.005, 0.1)
        self.world.loop.call_later(delay, self._stored, self.incarnation, position, snapshot_id, frames)

    def _stored(self, incarnation: int, position: tuple[int, int], snapshot_id: str, frames: int) -> None:
        if incarnation != self.incarnation or self.log is None:
            return
        self.store[snapshot_id] = frames
        self.log.compact(position, snapshot_id)  # type: ignore[arg-type]
        self._retire()

    def _retire(self) -> None:
        for snapshot_id in sorted(self.store)[:-4]:
            del self.store[snapshot_id]

    async def fetch(self, snapshot_id: str, from_node: NodeId) -> None:
        if snapshot_id in self.store:
            return
        await asyncio.sleep(self.world.rng.uniform(0.01, 0.3))
        source = self.world.nodes[from_node]
        reachable = self.world.network.is_open(from_node, self.node_id)
        if source.log is None or not reachable or snapshot_id not in source.store:
            raise BrokerNotAvailable("the snapshot cannot be had now")
        self.store[snapshot_id] = source.store[snapshot_id]
        self.world.snapshots_fetched += 1


class Model:
    """The simplest state machine: it counts the frames it applied."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.frames = 0
        self.is_leader = False
        self.mine: set[bytes] = set()
        """Frames appended in this leadership and not yet applied."""

    def on_commit(self, frames: bytes) -> None:
        world = self.node.world
        for start in range(0, len(frames), FRAME_BYTES):
            frame = frames[start : start + FRAME_BYTES]
            world.checks.applied(self.node, self.frames, frame)
            self.frames += 1
            if frame in self.mine:
                self.mine.discard(frame)
                world.floor = max(world.floor, self.frames)
                world.writes_acknowledged += 1
            if self.frames % SNAPSHOT_FRAMES == 0:
                world.loop.call_soon(self._snapshot, self.node.incarnation)

    def _snapshot(self, incarnation: int) -> None:
        if incarnation == self.node.incarnation and self.node.log is not None:
            self.node.take_snapshot(self.frames)

    def on_restore(self, snapshot_id: str) -> None:
        if snapshot_id not in self.node.store:
            raise Violation(f"node {self.node.node_id} was told of snapshot {snapshot_id}, which it has not")
        self.frames = self.node.store[snapshot_id]
        self.mine.clear()

    def on_leadership(self, *, is_leader: bool) -> None:
        self.is_leader = is_leader
        self.mine.clear()
        assert self.node.log is not None
        if is_leader:
            self.node.log.append(self.node.world.next_frame())

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        """Do nothing."""


class Checks:
    """Raft's properties, and durability, after every step of any node."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, tuple[bytes, int]] = {}
        self.commit_max = 1  # each log begins with the same entry, committed by definition
        self.history: list[bytes] = []
        self.seen: set[bytes] = set()
        self._steps = 0

    def applied(self, node: SimulatedNode, position: int, frame: bytes) -> None:
        """State machine safety, and exactly once."""
        if position < len(self.history):
            if self.history[position] != frame:
                raise Violation(f"state machine safety: node {node.node_id} applied another frame {position}")
        else:
            if position > len(self.history) or frame in self.seen:
                raise Violation(f"exactly once: frame {frame.hex()} at {position} of {len(self.history)}")
            self.history.append(frame)
            self.seen.add(frame)

    def after_pump(self, node: SimulatedNode) -> None:
        log = node.log
        if log is None:
            return
        journal, engine = node.journal, log._engine
        if engine.role is Role.LEADER:
            self._check_leader(node, engine.term)
        else:
            node.lead_mark = None
        commit_index = log.commit_index
        if commit_index < node.commit_seen:
            raise Violation(f"commit index of node {node.node_id}: {node.commit_seen} -> {commit_index}")
        base = journal[0][1]
        # The first entry's command may be blank: a snapshot covers it, and nobody will ask for it.
        for index in range(max(node.commit_seen, base) + 1, commit_index + 1):
            command, _, term = journal[index - base]
            known = self.committed.setdefault(index, (command, term))
            if known != (command, term):
                raise Violation(
                    f"log matching: node {node.node_id} committed another entry {index} of {term}"
                )
            if index > self.commit_max:
                self.commit_max = index
                self._check_durable(index, term)
        node.commit_seen = commit_index
        self._steps += 1
        if self._steps % 97 == 0:
            self._check_matching()

    def _check_leader(self, node: SimulatedNode, term: int) -> None:
        if self.leaders.setdefault(term, node.node_id) != node.node_id:
            raise Violation(f"election safety: nodes {self.leaders[term]} and {node.node_id} led term {term}")
        journal = node.journal
        base, last = journal[0][1], journal[-1][1]
        if node.lead_mark is None:
            for index in range(base + 1, self.commit_max + 1):
                if index > last or journal[index - base][::2] != self.committed[index]:
                    raise Violation(f"leader completeness: node {node.node_id} lacks {index} in term {term}")
        else:
            index, at_term = node.lead_mark
            if last < index or (index >= base and journal[index - base][2] != at_term):
                raise Violation(f"leader append-only: node {node.node_id} lost entry {index} in term {term}")
        node.lead_mark = last, journal[-1][2]

    def _check_durable(self, index: int, term: int) -> None:
        holders = [node.node_id for node in self._world.nodes.values() if _holds(node.durable, index, term)]
        if len(holders) <= len(self._world.voters) // 2:
            raise Violation(
                f"durable majority: entry {index} of term {term} is committed, but only on {holders}"
            )

    def _check_matching(self) -> None:
        running = [node.journal for node in self._world.nodes.values() if node.log is not None]
        for position, one in enumerate(running):
            for other in running[position + 1 :]:
                if not one or not other:
                    continue
                first, last = max(one[0][1], other[0][1]), min(one[-1][1], other[-1][1])
                same = False
                for index in range(last, first - 1, -1):
                    mine, theirs = one[index - one[0][1]], other[index - other[0][1]]
                    if same and index > first and mine != theirs:
                        raise Violation(f"log matching: two logs differ at {index}, below an equal entry")
                    same = same or mine[2] == theirs[2]


def _holds(entries: Sequence[Entry], index: int, term: int) -> bool:
    if not entries:
        return False
    if index < entries[0][1]:
        return True  # a snapshot covers it
    return index <= entries[-1][1] and entries[index - entries[0][1]][2] == term


class ListenerMaker(Protocol):
    def __call__(self, node: SimulatedNode, /) -> RaftListener: ...


class World:
    """One quorum, its weather and its clients, all drawn from one seed."""

    def __init__(
        self,
        *,
        seed: int,
        profile: Profile,
        voters: int = 3,
        settings: RaftSettings | None = None,
        make_listener: ListenerMaker = Model,
    ) -> None:
        self.rng = random.Random(seed)
        self.profile = profile
        self.loop = VirtualLoop()
        self.voters = tuple(NodeId(number) for number in range(1, voters + 1))
        self.settings = settings or RaftSettings(tail_entries=20)
        self.network = Network(self.loop, self.rng, profile.links)
        self.checks = Checks(self)
        self.make_listener = make_listener
        self.nodes = {node_id: SimulatedNode(self, node_id) for node_id in self.voters}
        self.floor = 0
        """No read may see fewer frames: acknowledged or read before it began."""
        self.writes_acknowledged = 0
        self.reads_answered = 0
        self.snapshots_fetched = 0
        self.is_rough = True
        """False in the calm at the end."""
        self._frames = 0
        self.violations: list[str] = []
        self._weather: list[asyncio.Task[None]] = []

    def violated(self, what: str) -> None:
        self.violations.append(f"{self.loop.time():.3f} s: {what}")

    def next_frame(self) -> bytes:
        self._frames += 1
        return self._frames.to_bytes(FRAME_BYTES, "big")

    # --- a run

    def run(self, seconds: float, *, settle_seconds: float = 6.0) -> list[str]:
        """Live through the profile's weather, then through calm; return what was violated."""
        try:
            self.loop.run_until_complete(self._live(seconds, settle_seconds))
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.close()
        return self.violations

    async def _live(self, seconds: float, settle_seconds: float) -> None:
        for node in self.nodes.values():
            node.start()
        profile, end = self.profile, self.loop.time() + seconds
        alone = len(self.voters) == 1
        kinds: list[tuple[float | None, Callable[[], None]]] = [
            (1 / profile.writes_per_second, self._write),
            (1 / profile.reads_per_second, self._read),
            (profile.crash_every, self._crash_one),
            (None if alone else profile.partition_every, self._partition),
            (None if alone else profile.flap_every, self._flap),
        ]
        async with asyncio.TaskGroup() as tasks:
            for every, act in kinds:
                if every is not None:
                    tasks.create_task(self._repeat(every, act, end))
        if self.violations:
            return
        await self._calm(settle_seconds)

    async def _repeat(self, every: float, act: Callable[[], None], end: float) -> None:
        while not self.violations:
            await asyncio.sleep(self.rng.expovariate(1 / every))
            if self.loop.time() >= end:
                return
            act()

    async def _calm(self, settle_seconds: float) -> None:
        """Liveness and convergence: with all nodes up and no faults, a write commits everywhere."""
        self.is_rough = False
        self.network.faults = LinkFaults()
        self.network.heal()
        for node in self.nodes.values():
            if node.log is None:
                node.start()
        await asyncio.sleep(settle_seconds / 2)
        goal = self.floor + 1
        for node in self.nodes.values():
            if node.is_leader():
                assert node.log is not None
                with suppress(NotController):
                    node.log.append(self.next_frame())
        await asyncio.sleep(settle_seconds / 2)
        if self.violations:
            return
        leaders = [node.node_id for node in self.nodes.values() if node.is_leader()]
        if len(leaders) != 1:
            self.violated(f"liveness: after {settle_seconds} s of calm these lead: {leaders}")
        frames = {node.node_id: getattr(node.listener, "frames", goal) for node in self.nodes.values()}
        if len(set(frames.values())) != 1 or min(frames.values()) < goal:
            self.violated(f"convergence: applied {frames}, at least {goal} expected")

    # --- clients

    def _write(self) -> None:
        for node in self.nodes.values():
            if isinstance(node.listener, Model) and node.log is not None and node.listener.is_leader:
                frame = self.next_frame()
                try:
                    node.log.append(frame)
                except Unavailable:
                    continue
                node.listener.mine.add(frame)

    def _read(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.log is not None and isinstance(node.listener, Model):
            self.loop.create_task(self._read_from(node.log, node.listener))

    async def _read_from(self, log: WatchedLog, listener: Model) -> None:
        floor = self.floor
        try:
            await log.read_index()
        except NotController:
            return
        if listener.frames < floor:
            self.violated(f"stale read: node {listener.node.node_id} saw {listener.frames} of {floor} frames")
        self.floor = max(self.floor, listener.frames)
        self.reads_answered += 1

    # --- weather

    def _crash_one(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.log is None:
            return
        node.crash()
        self.loop.call_later(self.rng.uniform(0.01, 2.0), self._restart, node)

    def _restart(self, node: SimulatedNode) -> None:
        if node.log is None:
            node.start()

    def _partition(self) -> None:
        """Cut some voters off from the others, sometimes in one direction only; heal after a while."""
        aside = self.rng.sample(self.voters, self.rng.randint(1, len(self.voters) // 2))
        directions = self.rng.choice(((True, True), (True, False), (False, True)))
        for one in aside:
            for other in self.voters:
                if other not in aside:
                    if directions[0]:
                        self.network.block(one, other)
                    if directions[1]:
                        self.network.block(other, one)
        self.loop.call_later(self.rng.uniform(0.1, 2.0), self.network.heal)

    def _flap(self) -> None:
        one, other = self.rng.sample(self.voters, 2)
        self.network.flap(one, other)
