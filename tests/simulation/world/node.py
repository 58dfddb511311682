"""A simulated node: a disk, a store of snapshots, and while it runs a journal, a transport, a log and a listener."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metadata_log.errors import (
    BrokerNotAvailable,
    DamagedFile,
    DiskFailed,
    Fault,
    MetadataError,
)
from metadata_log.ids import NO_NODE, NodeId, Uuid
from quorum.raft.journal import lost
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer
from quorum.raft.raft_log import Member, RaftListener, Role
from quorum.raft.voters import is_change
from tests.simulation.rules.rule import Violation
from tests.simulation.world.disk import Rot, SimulatedDisk
from tests.simulation.world.network import SimulatedTransport
from tests.simulation.world.recovery import Recovery
from tests.simulation.world.streams import StreamNetwork, StreamTransport
from tests.simulation.world.virtual_loop import Processor
from tests.simulation.world.watched_log import NOTHING, Standing, WatchedJournal, WatchedLog
from tests.simulation.world.worker_thread import WorkerThread

if TYPE_CHECKING:
    from tests.simulation.world.world import World

JOURNAL_FILE_BYTES = 16 * 1024
STOP_SECONDS_MAX = 10.0


class SimulatedNode:
    journal_file_bytes = JOURNAL_FILE_BYTES

    def __init__(self, world: "World", node_id: NodeId) -> None:
        self.world = world
        self._loop = world.loop
        self.node_id = node_id
        self.directory_id = directory_of(node_id, 0)
        self.wipes = 0
        self.disk = SimulatedDisk()
        self.store: dict[str, int] = {}
        """Snapshots held, verified and synced: number of frames by id."""
        self.durable = NOTHING
        """What the disk holds for certain."""
        self.writing: Standing | None = None
        """What will be durable once the sync under way returns."""
        self.writing_since = 0.0
        """When that began to be written."""
        self.parts = 0
        """In how many parts that sync writes its batch."""
        self.clock_rate = world.rng.uniform(0.99, 1.01)
        self.clock_offset = world.rng.uniform(0.0, 1e6)
        self.log: WatchedLog | None = None
        self.listener: RaftListener
        self.journal: WatchedJournal
        self.transport: SimulatedTransport | StreamTransport
        self.task: asyncio.Task[None] | None = None
        self.processor = Processor(lambda _work: None)
        """Of the process that runs, or ran last."""
        self.only_joins = False
        """Whether its disk was formatted to join a quorum."""
        self.is_fresh = True
        """Whether no journal was ever begun on its disk."""
        self.first_copy: SimulatedDisk | None = None
        """The disk after its first start, where the weather may put that back."""
        self.has_lost_journal = False
        """Whether the weather took the journal, and nobody has replaced the disk yet."""
        self.incarnation = 0
        self.commit_seen = self.applied_seen = 0
        self.lead_mark: tuple[int, int] | None = None
        self.paused_until = 0.0
        self._woken_at = 0.0
        self.wall_clock_ms = 0
        """How far the wall clock is off."""
        self.rots: list[Rot] = []
        """Bits that turned in the journal since the node last ran well."""
        self.is_stopping = False
        self.recovery = Recovery(self)
        self.tasks: dict[asyncio.Task[None], None] = {}
        """What runs beside the log, and ends with it."""

    # --- start and end

    def start(self) -> None:
        """Start, unless the disk says no: then try again when its trouble may be over."""
        world = self.world
        self.incarnation += 1
        self.processor = world.processor(self)
        self.commit_seen, self.applied_seen, self.lead_mark = 0, 0, None
        self.paused_until, self.is_stopping = 0.0, False
        rng = random.Random(world.rng.getrandbits(64))
        if self.rots and not self.recovery.starts_on_rot():
            return
        try:
            self.journal = WatchedJournal.open(
                self.disk,
                random_bytes=rng.randbytes,
                file_bytes=self.journal_file_bytes,
                may_be_new=self.is_fresh,
            )  # type: ignore[assignment]
            self.disk.settle()
            self._begin_disk()
            self.check_reaches_log()
        except (DiskFailed, DamagedFile) as fault:
            self.disk.settle()
            self.stopped_by(fault)
            return
        self.recovery.check()
        self.durable, self.writing = self.journal.standing(), None
        self.transport = self._attach()
        self.transport.processor = self.processor
        self.transport.on_send = partial(world.checks.sent, self)
        self.transport.on_arrival = partial(world.checks.received, self)
        self.transport.on_end = partial(self._lost, self.incarnation)
        self.transport.on_refusal = partial(world.checks.rules.refused, self)
        world.checks.started(self)
        self.listener = world.make_listener(self)
        self.log = WatchedLog(
            member=self.member,
            voters=world.settings_voters,
            journal=self.journal,
            transport=self.transport,
            pointer_disk=self.disk,
            listener=self.listener,
            fetcher=self,
            settings=world.settings,
            now_ms=self.now_ms,
            rng=rng,
            run_in_thread=partial(WorkerThread(self).begin, self.incarnation),
            others_founded=self.transport.others_founded,
            only_joins=self.only_joins,
        )
        # What a journal was opened with has changed nothing; the pointer is read only now.
        self.rots = [rot for rot in self.rots if not rot.name.endswith(".journal")]
        self.log.after_pump = self._after_pump
        self.log.may_run = partial(self._may_run, self.log)
        self.log.read_began = partial(world.checks.quorum_rules.read_began, self)
        self.log.read_answered = partial(world.checks.read_answered, self)
        self.transport.voters_in_force = partial(getattr, self.log._node.in_force, "voters")
        world.tell(self, "starts")
        self.task = world.loop.create_task_of(self.processor, self._run(self.log))

    def _attach(self) -> "SimulatedTransport | StreamTransport":
        network = self.world.network
        if not isinstance(network, StreamNetwork):
            return network.attach(self.member)
        transport = network.attach_streams(
            self.member, self.world.settings_voters, lambda: int(self.now_ms())
        )
        transport.is_awake, transport.has_founded = self.is_awake, self.has_founded
        transport.sleeps_until = lambda: self.paused_until
        self.spawn(transport.run)
        return transport

    def _lost(self, incarnation: int, peer: NodeId, by_peer: bool) -> None:
        if self.incarnation == incarnation:
            self.world.checks.rules.lost(self, peer, by_peer=by_peer)

    def has_engine(self) -> bool:
        """Answer whether the log runs by now, and does not only make itself ready."""
        return self.log is not None and self.log._node.state.has_engine

    def has_voters_on_disk(self) -> bool:
        """Answer whether a start would find in the log, or in the pointer, who votes."""
        if self.disk.durable(POINTER_FILE) is not None:
            return True
        return any(is_change(command) for command, _, _ in self.durable.entries)

    def has_founded(self) -> bool:
        """Answer whether the log says who votes."""
        return self.log is not None and self.log._node.in_force.is_founded

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.directory_id)

    def _begin_disk(self) -> None:
        """Note that a journal was begun on this disk, as the server does once it has opened it."""
        if self.is_fresh and self.world.profile.lose_journal_every is not None:
            self.first_copy = self.disk.copy()
        self.is_fresh = False

    def check_reaches_log(self) -> None:
        """Check that the journal covers what lies beside it, as the server does.

        Raises:
            DamagedFile: it does not.
        """
        lost.check_reaches_log(
            Path(f"node-{self.node_id}"),
            log_end=0,
            entries=self.journal,
            snapshot_end=int(self.disk.read(POINTER_FILE) is not None),
            has_snapshots=bool(self.store),
            is_begun=self.journal.is_begun,
        )

    def proves_its_journal(self) -> bool:
        """Answer whether anything beside the journal went through it."""
        return bool(self.store)

    def lose_journal(self, *, is_emptied: bool) -> None:
        """Lose the journal of a stopped node, or have it as it was at its first start."""
        self.world.tell(self, "has lost its journal" if is_emptied else "has the journal of its first start")
        self.has_lost_journal = True
        if is_emptied:
            self.disk.lose(".journal")
        else:
            assert self.first_copy is not None
            self.disk.become(self.first_copy)

    def wipe(self) -> None:
        """Lose the disk, and all on it, and start on an empty one, as another member."""
        self.crash()
        self.incarnation += 1  # whatever was to start it again
        self.world.lost_disks.append((self.member, self.durable.entries))
        self.wipes += 1
        self.directory_id = directory_of(self.node_id, self.wipes)
        self.disk = SimulatedDisk()
        self.store, self.durable, self.writing, self.rots = {}, NOTHING, None, []
        self.is_fresh, self.only_joins, self.has_lost_journal = True, False, False
        self.world.tell(self, "has lost its disk")

    def _after_pump(self) -> None:
        self.rots.clear()
        if isinstance(self.transport, StreamTransport):
            self.transport.refresh()
        self.world.checks.after_pump(self)

    async def _run(self, log: WatchedLog) -> None:
        try:
            await log.run()
        except Fault as fault:
            self.stopped_by(fault)
        except Violation as violation:
            self.world.violated(violation)
        except Exception as error:  # whatever ends a node and is no fault is a finding
            self.world.violated(f"node {self.node_id}: {type(error).__name__}: {error}")

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something that ends with this process."""

        async def guarded() -> None:
            try:
                await work()
            except Fault as fault:
                self.stopped_by(fault)
            except Violation as violation:
                self.world.violated(violation)
            except Exception as error:  # as above
                self.world.violated(f"node {self.node_id}: {type(error).__name__}: {error}")

        self.own(self.world.loop.create_task_of(self.processor, guarded()))

    def own(self, task: asyncio.Task[None]) -> None:
        """Let a task end with the process."""
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))

    def crash(self, *, cuts_power: bool = True) -> None:
        """End the process, and with it the machine or not."""
        if self.task is None:
            return
        self.world.tell(self, "crashes" if cuts_power else "is killed")
        self._end()
        if cuts_power:
            self.disk.crash(self.world.rng)
        else:
            self.disk.kill(self.world.rng)

    def answer_waiters(self) -> None:
        """Answer who waits for this process, which ends by itself: in order, or after a fault."""

    def _end(self) -> None:
        """End the process; what it wrote and did not sync is still in the kernel's cache."""
        world = self.world
        world.network.note("end", self.node_id)
        if self.log is not None:
            world.network.detach(self.node_id)
        assert self.task is not None
        self.task.cancel()
        for task in list(self.tasks):
            task.cancel()
        self.task, self.log = None, None
        world.loop.end(self.processor)

    async def stop(self) -> None:
        """Stop in order: hand over, end the log, lose nothing; who takes too long is killed, as service managers do."""
        log, incarnation = self.log, self.incarnation
        if log is None or self.is_stopping:
            return
        self.is_stopping = True
        self.world.tell(self, "is asked to stop")
        if self.is_leader() and len(self.world.ids) > 1:
            with suppress(MetadataError):
                log.transfer_leadership(None)
            until = self.world.loop.time() + 1.0
            while self.log is log and self.is_leader() and self.world.loop.time() < until:
                await asyncio.sleep(0.005)
        closing = self.world.loop.create_task_of(self.processor, log.close())
        until = self.world.loop.time() + STOP_SECONDS_MAX
        while self.incarnation == incarnation and not closing.done() and self.world.loop.time() < until:
            await asyncio.sleep(0.005)
        if self.incarnation != incarnation or self.task is None:
            return
        if closing.done():
            self.world.tell(self, "has stopped")
            self.answer_waiters()
            self._end()
        else:
            self.crash(cuts_power=False)

    def stopped_by(self, fault: Fault) -> None:
        """End after a fault: one that the weather has brought passes, any other is a finding."""
        world = self.world
        known = (isinstance(fault, DiskFailed) and self.disk.has_failed) or (
            isinstance(fault, DamagedFile) and self.is_damaged(fault)
        )
        if not known:
            world.violated(f"node {self.node_id} stopped: {type(fault).__name__}: {fault}")
            return
        world.tell(self, f"stops: {type(fault).__name__}: {fault.message[:90]}")
        world.consequences[f"stopped by {type(fault).__name__}"] += 1
        if isinstance(fault, DamagedFile) and self.rots:
            world.sometimes("rotten journal refused")
        if self.task is not None:
            self.answer_waiters()
            self._end()
        world.loop.call_later(world.rng.uniform(0.5, 3.0), self.mend_and_start, self.incarnation)

    def mend_and_start(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.task is None:
            self.mend()
            self.start()

    def mend(self) -> None:
        """Do what an operator does: free space, put the undamaged copy back."""
        if self.has_lost_journal:
            self.world.replace_disk(self)
        self.disk.is_full = self.disk.has_failed = self.disk.sync_fails_once = False
        for rot in self.rots:
            self.disk.turn(rot)
        self.rots.clear()

    def is_damaged(self, fault: DamagedFile) -> bool:
        """Answer whether the weather did what a fault speaks of."""
        return bool(self.rots) or self.has_lost_journal

    def rot_snapshot(self) -> bool:
        """Turn a bit of a snapshot; answer whether there was one."""
        return False

    # --- sleep

    def _may_run(self, log: WatchedLog) -> bool:
        """Answer whether a log's process runs: what waited for its turn when the process ended does nothing more."""
        return self.log is log and self.is_awake()

    def is_awake(self) -> bool:
        loop = self._loop
        return self.paused_until <= loop._now + loop._worked

    def pause(self, seconds: float) -> None:
        """Let the process stand still, as SIGSTOP or a suspended machine does."""
        if self.log is None:
            return
        self.world.tell(self, f"sleeps for {seconds:.1f} s")
        self.paused_until = max(self.paused_until, self.world.loop.time() + seconds)
        # What others asked of it meanwhile may be served before the log learns what happened.
        self.world.loop.call_at(self.paused_until + self.world.rng.uniform(0.0, 0.005), self.wake)

    def was_suspended(self, seconds: float) -> None:
        """Let the clocks be ahead by so much: all else stood still, here and elsewhere."""
        self.clock_offset += seconds * 1000 * self.clock_rate
        self.wall_clock_ms += int(seconds * 1000)
        self.world.checks.rules.suspended(self, seconds)

    def wake(self) -> None:
        if self.log is not None and self.is_awake():
            self._woken_at = self.world.loop.time()
            self.log._wake.set()

    @property
    def rested_until(self) -> float:
        """Until when this process stood still, the last time that it did."""
        return max(self.paused_until, self._woken_at)

    async def awake(self) -> None:
        """Return once the process runs; at once if it does."""
        while not self.is_awake():
            # In steps, for it may be woken early.
            await asyncio.sleep(min(self.paused_until - self.world.loop.time(), 0.25))

    # --- clocks

    def unix_ms(self) -> int:
        return 1_700_000_000_000 + int(self.world.loop.time() * 1000) + self.wall_clock_ms

    def now_ms(self) -> float:
        loop = self._loop  # not its `time`: half of all calls of that would be made here
        return (loop._now + loop._worked) * 1000 * self.clock_rate + self.clock_offset

    def is_leader(self) -> bool:
        return self.log is not None and self.log.status().role is Role.LEADER

    # --- the disk

    def _sync_seconds(self) -> float:
        """Return how long the next sync takes: on a steadily slow disk at least so long, until the calm."""
        slow = self.world.slowness.syncs.get(self.node_id, 0.0) if self.world.is_rough else 0.0
        return slow + self._usual_sync_seconds()

    async def _next_sync(self) -> None:
        """Let the time of one more sync of the same work pass, on a slow disk; on others one draw stands for all."""
        slow = self.world.slowness.syncs.get(self.node_id, 0.0) if self.world.is_rough else 0.0
        if slow:
            await asyncio.sleep(slow)

    def _usual_sync_seconds(self) -> float:
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
        self.log.compact(position, snapshot_id, b"seal")  # type: ignore[arg-type]
        self._retire(self.log.pinned_snapshots())

    def _retire(self, pinned: frozenset[str]) -> None:
        for snapshot_id in sorted(self.store)[: -self.world.profile.snapshots_kept]:
            if snapshot_id not in pinned:
                del self.store[snapshot_id]
        data = self.disk.durable(POINTER_FILE)
        if data is not None and (named := Pointer.from_bytes(data).snapshot_id) not in self.store:
            self.world.violated(
                f"node {self.node_id} holds snapshot {named} no more, and would need it after a loss of power"
            )

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        if snapshot_id in self.store:
            return
        if from_node == NO_NODE:
            self.world.violated(
                f"node {self.node_id} starts without snapshot {snapshot_id}, on which it stands"
            )
            raise BrokerNotAvailable("the snapshot is gone")
        await asyncio.sleep(self.world.rng.uniform(0.01, 0.3))
        source = self.world.nodes[from_node]
        reachable = await self.world.slow_download(self, source)
        if source.log is None or not reachable or snapshot_id not in source.store:
            raise BrokerNotAvailable("the snapshot cannot be had now")
        self.store[snapshot_id] = source.store[snapshot_id]
        self.world.snapshots_fetched += 1


def directory_of(node_id: NodeId, wipes: int) -> Uuid:
    """Return the directory id of a node whose disk was lost so often."""
    return Uuid(bytes([0x40 + node_id, wipes]) * 8)
