"""Simulated quorums: the shipped adapter, guard, engine and journal on simulated time, disks and links.

A node is a disk, a store of snapshots, and while it runs a journal, a transport, a log and a listener. The listener
here is `Model`, which counts frames; `World(make_listener=...)` puts another on the same nodes.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from metadata_log.errors import (
    BrokerNotAvailable,
    ChangePending,
    DamagedFile,
    DiskFailed,
    Fault,
    InvalidRequest,
    MetadataError,
    NotController,
    Unavailable,
)
from metadata_log.ids import NO_NODE, NodeId, Uuid
from metadata_log.sliced import Sliced
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.journal import lost
from quorum.raft.journal.format import NodeVote, frames_of_file, identity_of
from quorum.raft.journal.journal import Journal, JournalBatch
from quorum.raft.messages import Entry, Message
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer
from quorum.raft.raft_log import Member, RaftListener, Role, Voters
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.voters import from_command, is_change
from tests.simulation import broad, slowness
from tests.simulation.disk import Rot, SimulatedDisk
from tests.simulation.leadership import Leadership
from tests.simulation.markers import Markers
from tests.simulation.membership import Membership
from tests.simulation.network import LinkFaults, Network, SimulatedTransport
from tests.simulation.quorum_rules import QuorumRules, Reading
from tests.simulation.raft_rules import RaftRules
from tests.simulation.slowness import (
    BYTES_PER_SECOND,
    DOWNLOAD_SECONDS,
    LATENCY_SECONDS,
    SYNC_SECONDS,
    Slow,
)
from tests.simulation.small_limits import small_raft_limits
from tests.simulation.story import Story
from tests.simulation.streams import StreamNetwork, StreamTransport
from tests.simulation.virtual_loop import Processor, VirtualLoop
from tests.simulation.watching import watched
from tests.simulation.weather import Weather, swarm

JOURNAL_FILE_BYTES = 16 * 1024
FRAME_BYTES = 8
SNAPSHOT_FRAMES = 60
STOP_SECONDS_MAX = 10.0
SETTLE_SECONDS = 9.0
"""How long the calm at the end of a life lasts.

A node that was away while all voters changed knows none of them. It believes them after RAFT_STRANGER_TIMEOUTS longest
election timeouts without a leader, which are 6 s. An election and the entries that the node lacks come after that.
"""
CHECK_EVERY = 97
"""So many steps come between two looks at what takes long to look at."""
LAST_WRITE_SECONDS = 1.5
"""So long before the calm's end a frame is written; everybody must have applied it when the calm ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How rough the weather is; times in seconds, mean between events."""

    links: LinkFaults = field(default_factory=LinkFaults)
    crash_every: float | None = None
    partition_every: float | None = None
    flap_every: float | None = None
    slow: Slow = slowness.NOTHING
    """What may be steadily slow: disks, links, downloads."""
    leads_on: bool = False
    """Nothing befalls controllers, links and disks, however slow they are: the first leader must lead on."""
    kill_leader_every: float | None = None
    """The leader's process is killed, or its machine loses power."""
    stalls: float = 0.0
    """Probability that a sync takes seconds, so that a leader gives up."""
    pause_every: float | None = None
    """A process sleeps for up to ten seconds, and finds on waking all that came meanwhile."""
    suspend_every: float | None = None
    """A machine is suspended for up to a minute, as a laptop is: its clock goes on, and nothing else."""
    saturate_every: float | None = None
    """A controller's threads for files, or for reads, are busy for seconds."""
    long_absence_every: float | None = None
    """A node is gone so long that only a snapshot brings it back."""
    transfer_every: float | None = None
    rolling_every: float | None = None
    """Every node in turn hands over, stops and starts."""
    full_disk_every: float | None = None
    failed_sync_every: float | None = None
    rot_every: float | None = None
    """A bit turns in a stopped node's journal, or in a snapshot of any node."""
    wall_clock_every: float | None = None
    """A node's wall clock jumps by up to minutes, either way."""
    broker_every: float | None = None
    """A broker sleeps, dies, restarts in order, is cut off, or reads slowly."""
    has_data: bool | None = None
    """The brokers have a data plane; None: the seed says so."""
    is_heavy: bool = False
    """The cluster is large: see `costs`."""
    change_every: float | None = None
    """A controller becomes a voter, or one no more."""
    hurries_changes: bool = False
    """Another change of voters is sometimes asked for while the one before is under way."""
    wipe_every: float | None = None
    """A controller's disk dies, and it starts on an empty one."""
    lose_journal_every: float | None = None
    """A controller's journal is gone, or as it was at its first start; what lies beside it stays."""
    lose_rack_every: float | None = None
    """All founders that vote no more lose their disks at once, and are cut off from the others when they come back."""
    replaces_in_settings: bool = False
    """Of a disk that was replaced all settings may name the new one. It is mostly formatted to join alone."""
    new_disks_are_slow: bool = False
    """The first sync on a new disk may take long, and its process may not live through it."""
    snapshots_kept: int = 4
    """Where no controller runs beside the log."""
    cut_leader_every: float | None = None
    """A leader is cut off from all others, while clients go on to ask it."""
    cut_new_leaders_every: float | None = None
    """For a while every leader is cut off as soon as it is elected."""
    cut_seconds: tuple[float, float] | None = None
    """Bounds of how long a cut lasts, drawn evenly on a logarithmic scale; each cut heals by itself.
    None: a cut lasts for up to two seconds, and then all links heal.
    """
    retention_bytes: int | None = None
    """Of the committed log; None: all of it is kept."""
    results_kept: int | None = None
    """Answers that are kept for repeated requests; None: the seed says so."""
    repeat_every: float | None = None
    """A client repeats a request that was answered long ago."""
    aimed_read_every: float | None = None
    """A read is sent to each leader that sleeps, or is deposed and does not know it."""
    registration_timeout_ms: int = 60_000
    """For so long a broker waits for the session of its former process to end."""
    unregister_every: float | None = None
    """An operator unregisters a broker."""
    snapshot_bytes: int | None = None
    """A snapshot is due after so many bytes of the log; None: after as many as usual."""
    foreign_snapshots: float = 0.0
    """The share of foreign files among those that are sent as snapshots; some stand in a directory under its name."""
    has_streams: bool = False
    """Controllers are linked by the shipped transport over streams in memory; else messages travel by themselves."""
    has_caches: bool = False
    """Brokers keep the log and snapshots on disks, as shipped; else each start finds the whole image, or none."""
    is_weighty: bool = False
    """Work costs as much as in a heavy life, while all else befalls the cluster."""
    reads_late: bool = False
    """Time passes before a thread reads segments, and not only before it answers."""
    shares_work: bool = True
    """Nodes share what all of them compute alike; else each decodes and applies by itself."""
    topics_per_second: float = 0.5
    writes_per_second: float = 55.0
    reads_per_second: float = 85.0


PROFILES = {
    "calm": Profile(),
    "fifo": Profile(
        crash_every=3.0,
        partition_every=2.5,
        flap_every=4.0,
        pause_every=25.0,
        transfer_every=10.0,
        rolling_every=60.0,
        full_disk_every=60.0,
        failed_sync_every=40.0,
        rot_every=30.0,
        wall_clock_every=30.0,
        long_absence_every=40.0,
        broker_every=4.0,
    ),
    "wild": Profile(
        links=LinkFaults(lost=0.05, duplicated=0.05, late=0.05),
        crash_every=3.0,
        partition_every=2.5,
        flap_every=4.0,
        pause_every=30.0,
        transfer_every=20.0,
        rot_every=40.0,
        long_absence_every=60.0,
        broker_every=4.0,
    ),
    "nasty": Profile(
        links=LinkFaults(lost=0.08, duplicated=0.25, late=0.20),
        crash_every=1.5,
        partition_every=1.5,
        flap_every=3.0,
        stalls=0.002,
        pause_every=10.0,
        transfer_every=10.0,
        full_disk_every=20.0,
        failed_sync_every=15.0,
        rot_every=10.0,
        wall_clock_every=10.0,
        broker_every=3.0,
    ),
    "storm": Profile(
        crash_every=6.0, partition_every=0.35, flap_every=1.0, transfer_every=5.0, broker_every=2.0
    ),
    "brokers": Profile(
        links=LinkFaults(lost=0.02, duplicated=0.05, late=0.05),
        crash_every=8.0,
        partition_every=6.0,
        transfer_every=8.0,
        broker_every=0.6,
        has_data=True,
    ),
    "asleep": Profile(
        crash_every=6.0,
        partition_every=5.0,
        flap_every=4.0,
        pause_every=4.0,
        suspend_every=1.0,
        transfer_every=10.0,
        broker_every=4.0,
    ),
    "returns": Profile(transfer_every=10.0, broker_every=2.0, has_data=True),
    "heavy": Profile(wall_clock_every=20.0, broker_every=2.0, topics_per_second=2.5, is_heavy=True),
    "streams": Profile(
        links=LinkFaults(flipped=0.001),
        crash_every=8.0,
        partition_every=6.0,
        flap_every=4.0,
        pause_every=20.0,
        transfer_every=12.0,
        rolling_every=60.0,
        full_disk_every=40.0,
        failed_sync_every=30.0,
        broker_every=4.0,
        change_every=6.0,
        wipe_every=30.0,
        has_streams=True,
    ),
    "members": Profile(
        links=LinkFaults(lost=0.02, duplicated=0.05, late=0.05),
        crash_every=3.0,
        partition_every=3.0,
        flap_every=4.0,
        pause_every=20.0,
        transfer_every=10.0,
        rot_every=40.0,
        change_every=0.7,
        wipe_every=6.0,
        broker_every=8.0,
    ),
    "deposed": Profile(
        links=LinkFaults(lost=0.1, late=0.2),
        cut_leader_every=0.8,
        cut_seconds=(0.1, 2.0),
        broker_every=8.0,
    ),
    "uncommitted": Profile(
        cut_new_leaders_every=2.0, cut_seconds=(0.1, 2.0), change_every=0.1, broker_every=8.0
    ),
    "losses": Profile(
        links=LinkFaults(lost=0.08, duplicated=0.05, late=0.05),
        crash_every=6.0,
        partition_every=4.0,
        flap_every=6.0,
        stalls=0.001,
        pause_every=20.0,
        transfer_every=10.0,
        change_every=0.5,
        wipe_every=6.0,
        lose_journal_every=6.0,
        lose_rack_every=1.5,
        writes_per_second=100.0,
        replaces_in_settings=True,
        new_disks_are_slow=True,
        snapshots_kept=1,
        cut_leader_every=3.0,
        cut_seconds=(0.1, 3.0),
        broker_every=8.0,
    ),
    "slow": Profile(
        slow=Slow(
            sync_seconds=(SYNC_SECONDS[0], 1.5),
            latency_seconds=LATENCY_SECONDS,
            bytes_per_second=BYTES_PER_SECOND,
            download_seconds=DOWNLOAD_SECONDS,
        ),
        leads_on=True,
    ),
    "slow-disks": Profile(
        slow=Slow(sync_seconds=SYNC_SECONDS),
        kill_leader_every=8.0,
        transfer_every=10.0,
        change_every=12.0,
        partition_every=20.0,
        broker_every=8.0,
    ),
    "slow-links": Profile(
        slow=Slow(
            latency_seconds=LATENCY_SECONDS,
            bytes_per_second=BYTES_PER_SECOND,
            download_seconds=DOWNLOAD_SECONDS,
        ),
        kill_leader_every=8.0,
        long_absence_every=20.0,
        transfer_every=10.0,
        change_every=12.0,
        broker_every=8.0,
    ),
}


def profile_of(name: str, seed: int) -> Profile:
    """Return a profile by name; `swarm` and `broad` are another one for each seed."""
    if name not in ("swarm", broad.NAME):
        return PROFILES[name]
    rng = random.Random(seed ^ 0x11AA)
    stalls = rng.choice((0.0, 0.0005, 0.002))
    links = LinkFaults(
        lost=rng.choice((0.0, 0.0, 0.02, 0.08)),
        duplicated=rng.choice((0.0, 0.0, 0.05, 0.25)),
        late=rng.choice((0.0, 0.0, 0.0, 0.05, 0.2)),
    )
    profile = Profile(links=links, stalls=stalls, slow=slowness.of_swarm(seed))
    profile = replace(profile, **swarm(seed))  # type: ignore[arg-type]  # times, all of them
    if name != broad.NAME:
        return profile
    return replace(
        profile,
        links=replace(links, rotten=broad.rotten(seed)),
        foreign_snapshots=broad.foreign_snapshots(seed),
        **broad.drawn(seed),
    )


class Violation(Exception):
    """A property that must always hold did not."""


class WatchedJournal(Journal):
    """Remembers what the log was when each batch was taken, to know what a disk durably holds."""

    frozen: "Standing"
    parts: int
    """How many files that batch goes to."""

    def take_batch(self) -> JournalBatch | None:
        batch = super().take_batch()
        if batch is not None:
            self.frozen, self.parts = self.standing(), len(batch.placements)
        return batch

    def standing(self) -> "Standing":
        return Standing(list(self), self.getCurrentTerm(), self.getVotedForNodeId())


class Standing(NamedTuple):
    """What a node's promises rest on."""

    entries: list[Entry]
    term: int
    vote: NodeVote
    """Whom it has voted for in this term."""


class WatchedLog(PySyncObjLog):
    """Calls `after_pump` whenever anything may have changed."""

    after_pump: Callable[[], None]

    may_run: Callable[[], bool]
    read_began: Callable[[], Reading | None]
    read_answered: Callable[[Reading], None]

    async def read_index(self) -> None:
        reading = self.read_began()
        await super().read_index()
        if reading is not None:
            self.read_answered(reading)

    def _pump(self) -> None:
        if self.may_run():  # a process that sleeps finds on waking what came meanwhile
            super()._pump()
            self.after_pump()


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
        self.tasks: dict[asyncio.Task[None], None] = {}
        """What runs beside the log, and ends with it."""

    # --- life

    def start(self) -> None:
        """Start, unless the disk says no: then try again when its trouble may be over."""
        world = self.world
        self.incarnation += 1
        self.processor = world.processor(self)
        self.commit_seen, self.applied_seen, self.lead_mark = 0, 0, None
        self.paused_until, self.is_stopping = 0.0, False
        rng = random.Random(world.rng.getrandbits(64))
        if self.rots and not self._try_rotten():
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
            self._stopped_by(fault)
            return
        self._check_recovery()
        self.durable, self.writing = self.journal.standing(), None
        self.transport = self._attach()
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
            run_in_thread=partial(self._begin_in_thread, asyncio.Lock(), self.incarnation),
            others_founded=self.transport.others_founded,
            only_joins=self.only_joins,
        )
        # What a journal was opened with has changed nothing; the pointer is read only now.
        self.rots = [rot for rot in self.rots if not rot.name.endswith(".journal")]
        self.log.after_pump = self._after_pump
        self.log.may_run = partial(self._may_run, self.log)
        self.log.read_began = partial(world.checks.quorum_rules.read_began, self)
        self.log.read_answered = partial(world.checks.read_answered, self)
        self.transport.voters_in_force = partial(getattr, self.log._in_force, "voters")
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
        return self.log is not None and self.log._has_engine

    def has_voters_on_disk(self) -> bool:
        """Answer whether a start would find in the log, or in the pointer, who votes."""
        if self.disk.durable(POINTER_FILE) is not None:
            return True
        return any(is_change(command) for command, _, _ in self.durable.entries)

    def has_founded(self) -> bool:
        """Answer whether the log says who votes."""
        return self.log is not None and self.log._in_force.is_founded

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.directory_id)

    def _begin_disk(self) -> None:
        """Note that a journal was begun on this disk, as the server does once it has opened it."""
        if self.is_fresh and self.world.profile.lose_journal_every is not None:
            self.first_copy = self.disk.copy()
        self.is_fresh = False

    def _end_early(self, incarnation: int) -> None:
        """Lose power before the first sync has ended, and start again."""
        if self.incarnation == incarnation and self.world.is_rough:
            self.crash()
            self.world.loop.call_later(
                self.world.rng.uniform(0.05, 1.0), self._mend_and_start, self.incarnation
            )

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
            self._stopped_by(fault)
        except Violation as violation:
            self.world.violated(str(violation))
        except Exception as error:  # whatever ends a node and is no fault is a finding
            self.world.violated(f"node {self.node_id}: {type(error).__name__}: {error}")

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something that ends with this process."""

        async def guarded() -> None:
            try:
                await work()
            except Fault as fault:
                self._stopped_by(fault)
            except Violation as violation:
                self.world.violated(str(violation))
            except Exception as error:  # as above
                self.world.violated(f"node {self.node_id}: {type(error).__name__}: {error}")

        self._own(self.world.loop.create_task_of(self.processor, guarded()))

    def _own(self, task: asyncio.Task[None]) -> None:
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

    def _stopped_by(self, fault: Fault) -> None:
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
        world.loop.call_later(world.rng.uniform(0.5, 3.0), self._mend_and_start, self.incarnation)

    def _mend_and_start(self, incarnation: int) -> None:
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

    def _try_rotten(self) -> bool:
        """Answer whether this node starts on what rotted: damage is refused, or changes nothing."""
        world, trial = self.world, self.disk.copy()
        rng = random.Random(0)
        try:
            found = WatchedJournal.open(trial, random_bytes=rng.randbytes, file_bytes=self.journal_file_bytes)
        except DamagedFile as fault:
            self._stopped_by(fault)
            return False
        assert isinstance(found, WatchedJournal)
        if self._may_recover(found.standing()):
            world.consequences["rot that changed nothing"] += 1
        else:
            # A rotten last batch cannot be told from a torn one until the mark behind it is written.
            for rot in self.rots:
                if not self._is_unmarked(rot):
                    world.violated(f"node {self.node_id} took {rot} for a torn end, and lost entries")
                self.disk.turn(rot)
            self.rots.clear()
            world.consequences["rot of an unmarked batch"] += 1
            world.sometimes("rot in an unmarked journal batch")
        return True

    def _is_unmarked(self, rot: Rot) -> bool:
        """Answer whether a bit lies in a journal's very last batch, with no idle mark behind it."""
        whole = self.disk.copy()
        whole.turn(rot)
        files = [name for name in whole.names() if name.endswith(".journal")]
        for name in reversed(files):
            content = whole.open(name).read(0, whole.file_size(name))
            identity = identity_of(content, int(name[:20]))
            frames = [] if identity is None else list(frames_of_file(content, identity, after=0))
            if frames:
                return rot.name == name and bool(frames[-1].records) and rot.position >= frames[-1].position
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

    def _check_recovery(self) -> None:
        if self.incarnation == 1 or self.durable is NOTHING:
            return
        found = self.journal.standing()
        if not self._may_recover(found):
            self.world.violated(
                f"node {self.node_id} recovered what it never had made durable: a log up to "
                f"{found.entries[-1][1] if found.entries else 0}, term {found.term}, a vote for {found.vote}"
            )
        # From now on it promises by what it found, though it may have found it in the kernel's cache alone.
        rng, after = random.Random(self.incarnation), self.disk.after_crash(random.Random(self.incarnation))
        again = WatchedJournal.open(after, random_bytes=rng.randbytes, file_bytes=self.journal_file_bytes)
        assert isinstance(again, WatchedJournal)
        if again.standing() != found:
            self.world.violated(f"node {self.node_id} goes on from what the next loss of power would take")

    def _may_recover(self, recovered: Standing) -> bool:
        """Answer whether this is what a crash may leave: as before the batch under way, as after, or after a part of it.

        A batch too large for one file is written in parts, each synced before the next.
        """
        if recovered in (self.durable, self.writing):
            return True
        if self.writing is None or self.parts < 2:
            return False
        before = {index: (command, term) for command, index, term in self.durable.entries}
        after = {index: (command, term) for command, index, term in self.writing.entries}
        kept = max((index for index in before if before[index] == after.get(index)), default=0)
        entries, first = recovered.entries, self.writing.entries[0][1]
        return (
            bool(entries)
            and entries[-1][1] >= kept
            and all(
                (command, term) in (before.get(index) if index < first else None, after.get(index))
                for command, index, term in entries
            )
            and self.durable.term <= recovered.term <= self.writing.term
            and (
                recovered.term != self.durable.term
                or recovered.vote == self.durable.vote
                or self.durable.vote is None
            )
        )

    # --- the worker thread

    def _begin_in_thread(
        self, one_job: asyncio.Lock, incarnation: int, work: Callable[[], None]
    ) -> asyncio.Task[None]:
        job = self.world.loop.create_task_of(None, self._run_in_thread(one_job, incarnation, work))
        self._own(job)
        return job

    async def _run_in_thread(self, one_job: asyncio.Lock, incarnation: int, work: Callable[[], None]) -> None:
        async with one_job:
            writes_journal = isinstance(work, partial) and work.func == self.journal.write
            if writes_journal:
                self.writing, self.writing_since = self.journal.frozen, self.world.loop.time()
                self.parts = self.journal.parts
            before = self.disk.syncs_total
            work()
            await asyncio.sleep(self._sync_seconds() + self._first_sync_seconds(is_journals=writes_journal))
            for _ in range(self.disk.syncs_total - before - 1):
                await self._next_sync()
            await self.awake()
            if incarnation != self.incarnation or self.log is None:
                return
            self.disk.settle()
            if writes_journal:
                assert self.writing is not None
                self.durable, self.writing = self.writing, None

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

    def _first_sync_seconds(self, *, is_journals: bool) -> float:
        """Return how much longer the first sync on a disk takes; the power may go meanwhile."""
        world, rng = self.world, self.world.rng
        if (
            not is_journals
            or self.journal.is_begun
            or not (world.profile.new_disks_are_slow and world.is_rough)
        ):
            return 0.0
        seconds = rng.choice((0.0, 0.0, 1.0, 2.0)) * rng.random()
        if self.wipes and rng.random() < 0.5:
            world.loop.call_later(seconds * rng.random(), self._end_early, self.incarnation)
        return seconds

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


class Model:
    """The simplest state machine: it counts the frames it applied."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.frames = 0
        self.is_leader = False
        self.mine: set[bytes] = set()
        """Frames appended in this leadership and not yet applied."""

    def check(self, frames: bytes) -> None:
        """Do nothing: these frames are numbers."""

    def committing(self, frames: bytes) -> Sliced[None]:
        yield from ()
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

    def on_rest(self) -> None:
        """Do nothing."""

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
        log = self.node.log
        assert log is not None
        if is_leader:
            self.node.world.checks.began_to_append(self.node)
            log.append(self.node.world.next_frame())

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        """Do nothing."""

    def on_voters(self, voters: Voters) -> None:
        """Do nothing: the frames say nothing of voters."""


class Checks:
    """Raft's properties, and durability, after every step of any node."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.rules = RaftRules(world)
        self.quorum_rules = QuorumRules(world)
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, tuple[bytes, int]] = {}
        self.commit_max = 1  # each log begins with the same entry, committed by definition
        self.committed_in: dict[int, int] = {}
        """Term of the leader that committed an entry: it does so first of all, and only later ones must have it."""
        self.history: list[bytes] = []
        self.seen: set[bytes] = set()
        self._voters_set: list[tuple[int, Voters]] = [(0, world.founders)]
        """The voters that each committed entry has set, by index."""
        self._steps = 0

    def began_to_append(self, node: SimulatedNode) -> None:
        if (wrong := self.rules.leads(node)) is not None:
            raise Violation(wrong)

    def started(self, node: SimulatedNode) -> None:
        self.rules.started(node)
        self.quorum_rules.started(node)

    def received(self, node: SimulatedNode, sender: Member, message: Message) -> None:
        self.rules.received(node, sender, message)
        self.quorum_rules.received(node, sender, message)

    def read_answered(self, node: SimulatedNode, reading: Reading) -> None:
        if (wrong := self.quorum_rules.read_answered(node, reading)) is not None:
            self._world.violated(wrong)

    def is_committed(self, voters: Voters) -> bool:
        """Answer whether any committed entry has set these voters, or they found the quorum."""
        return any(voters == each for _, each in reversed(self._voters_set))

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
            self._ask_for_changes(node)
        else:
            node.lead_mark = None
        leader = log._guard.state.leader
        if leader is not None and leader not in self._world.nodes:
            raise Violation(f"a_stranger_leads_nobody: node {node.node_id} follows {leader}")
        commit_index = log._guard.state.commit_index
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
                if (wrong := self.rules.committed(index, command)) is not None:
                    raise Violation(wrong)
                self.commit_max = index
                self.committed_in[index] = engine.term
                self._check_durable(index, term, applied=node.applied_seen)
                if is_change(command):
                    self._voters_set.append((index, from_command(command)[0]))
        node.commit_seen, node.applied_seen = commit_index, log.applied_position()[0]
        if (wrong := self.quorum_rules.stepped(node)) is not None:
            raise Violation(wrong)
        self._steps += 1
        if self._steps % CHECK_EVERY == 0:
            self._check_matching()

    def _check_leader(self, node: SimulatedNode, term: int) -> None:
        if self.leaders.setdefault(term, node.node_id) != node.node_id:
            raise Violation(f"election safety: nodes {self.leaders[term]} and {node.node_id} led term {term}")
        journal = node.journal
        base, last = journal[0][1], journal[-1][1]
        if node.lead_mark is None:
            if (wrong := self.rules.began_to_lead(node, term)) is not None:
                raise Violation(wrong)
            assert node.log is not None
            if len(node.log._guard.state.voters) > 1:
                self._check_vote(node, node.node_id, term)
            self._world.weather.elected(node.node_id)
            for index in range(base + 1, self.commit_max + 1):
                if self.committed_in[index] >= term:
                    break  # votes that came late may still elect a leader of a former term; nobody follows it
                if index > last or journal[index - base][::2] != self.committed[index]:
                    raise Violation(f"leader completeness: node {node.node_id} lacks {index} in term {term}")
        else:
            index, at_term = node.lead_mark
            if last < index or (index >= base and journal[index - base][2] != at_term):
                raise Violation(f"leader append-only: node {node.node_id} lost entry {index} in term {term}")
        node.lead_mark = last, journal[-1][2]

    def _ask_for_changes(self, node: SimulatedNode) -> None:
        """A leader refuses two changes of voters at once, and any before what its log begins with is committed."""
        assert node.log is not None
        log, journal, state = node.log, node.journal, node.log._guard.state
        commit_index = state.commit_index
        newest = journal.voter_changes[-1] if journal.voter_changes else 0
        is_open = (
            newest > max(commit_index, journal[0][1])
            and from_command(journal[newest - journal[0][1]][0])[0] != state.voters
        )
        is_unproved = len(state.voters) > 1 and state.term_at(commit_index) != state.engine.term
        if not is_open and not is_unproved and self._steps % CHECK_EVERY:
            return
        count = 1 if is_open or is_unproved else 2
        strangers = {NodeId(200 + number): directory_of(NodeId(20 + number), 0) for number in range(count)}
        with suppress(ChangePending, InvalidRequest):
            log.check_change(dict(state.voters) | strangers)
            raise Violation(
                f"one_change_at_a_time: node {node.node_id} takes {count} beside what is under way"
            )

    def sent(self, node: SimulatedNode, target: NodeId, message: Message) -> None:
        """Promises rest on what is durable: a vote on the vote, a request and an acknowledgement on the entries.

        A candidate's vote for itself is a promise once it leads: `_check_leader`.
        """
        for rules in (self.rules, self.quorum_rules):
            if (wrong := rules.sent(node, target, message)) is not None:
                raise Violation(wrong)
        kind, term, durable = message["type"], message["term"], node.durable
        if kind == "request_vote" and durable.term <= term:
            index = message["last_log_index"]
            if (
                index > 1
                and index > node.journal[0][1]
                and not _holds(durable.entries, index, message["last_log_term"])
            ):
                raise Violation(
                    f"a promise not kept: node {node.node_id} asks for votes in term {term} for a log up to {index}, "
                    "and its disk lacks that entry"
                )
        elif kind == "response_vote":
            self._check_vote(node, target, term)
        elif kind == "next_node_idx" and message["success"] and durable.term <= term:
            index, journal = message["next_node_idx"] - 1, node.journal
            last = durable.entries[-1][1] if durable.entries else 0
            # What a snapshot covers by now is not compared: it is committed.
            is_held = journal[0][1] <= index <= journal[-1][1]
            if journal.getCurrentTerm() > term:
                # The log may have been cut since, in memory: the disk holds what that term had there, or an older one.
                is_true = any(_holds(durable.entries, index, each) for each in range(term + 1))
            else:
                is_true = not is_held or _holds(durable.entries, index, journal[index - journal[0][1]][2])
            if last < index or not is_true:
                raise Violation(
                    f"a promise not kept: node {node.node_id} acknowledges entry {index} in term {term}, and its disk holds "
                    f"another there, or none: it ends at {last}"
                )

    @staticmethod
    def _check_vote(node: SimulatedNode, promised: NodeId, term: int) -> None:
        durable = node.durable
        if durable.term < term or (durable.term == term and durable.vote != promised):
            raise Violation(
                f"a promise not kept: node {node.node_id} votes for {promised} in term {term}, and its disk knows of a "
                f"vote for {durable.vote} in term {durable.term}"
            )

    def _check_durable(self, index: int, term: int, *, applied: int) -> None:
        """A majority of those who vote holds an entry; those before a change do, where it was not in force yet.

        `applied`: up to where the node that says so had applied the log before this step.
        """
        disks = [(node.member, node.durable.entries) for node in self._world.nodes.values()]
        # What a disk held that is lost by now was acknowledged, perhaps: it is one of the failures that are survived.
        holders = {
            member for member, durable in disks + self._world.lost_disks if _holds(durable, index, term)
        }
        changed, voters = self._voters_set[-1]
        allowed = [voters]
        if changed > applied:
            allowed.append(self._voters_set[-2][1])
        if not any(2 * len(holders & set(each.items())) > len(each) for each in allowed):
            raise Violation(
                f"durable majority: entry {index} of term {term} is committed, but only on "
                f"{sorted(holder.node_id for holder in holders)} of voters {sorted(voters)}"
            )

    def newest_voters(self) -> list[Voters]:
        """Return the voters by the newest two committed changes: some nodes may not know of the last one."""
        return [voters for _, voters in self._voters_set[-2:]]

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


NOTHING: Final = Standing([], 0, None)
"""What an empty disk holds."""


def directory_of(node_id: NodeId, wipes: int) -> Uuid:
    """Return the directory id of a node whose disk was lost so often."""
    return Uuid(bytes([0x40 + node_id, wipes]) * 8)


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
        observers: int = 0,
        settings: RaftSettings | None = None,
        make_listener: ListenerMaker = Model,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile = profile
        self.loop = VirtualLoop()
        self.ids = tuple(NodeId(number) for number in range(1, voters + observers + 1))
        self.founders: Voters = {node_id: directory_of(node_id, 0) for node_id in self.ids[:voters]}
        self.settings_voters: Voters = self.founders
        """Whom the settings of all nodes name as voters, with the directory ids that stand there by now."""
        self.settings = settings or RaftSettings(tail_entries=20)
        self.network: Network
        if profile.has_streams:
            streams = StreamNetwork(self.loop, self.rng, profile.links)
            streams.ids = self.ids
            self.network = streams
        else:
            self.network = Network(self.loop, self.rng, profile.links)
        self.slowness = self.network.slowness = slowness.drawn(seed, self.ids, profile.slow)
        self.network.founders = self.founders
        self.network.has_founded = lambda node_id: self.nodes[node_id].has_founded()
        self.checks = Checks(self)
        self.story = Story(self.loop)
        self.weather = Weather(self)
        self.leadership = Leadership(self)
        self.faults: Counter[str] = Counter()
        """What befell this world, by kind; single messages lost, doubled or late are not counted."""
        self.consequences: Counter[str] = Counter()
        """The consequences of the faults, by kind."""
        self.variations: tuple[tuple[float, int], ...] = ()
        """From each of these times on, in simulated seconds, chance is another, by the number beside it."""
        self.markers = Markers(self.loop.time)
        self.sometimes = self.markers.sometimes
        self.changes_asked = 0
        """Changes of voters that a client waits for; the leader may not have received them yet."""
        self.make_listener = make_listener
        self.nodes = {node_id: self.make_node(node_id) for node_id in self.ids}
        self.lost_disks: list[tuple[Member, list[Entry]]] = []
        """What the disks held that were lost."""
        self.floor = 0
        """No read may see fewer frames: acknowledged or read before it began."""
        self.writes_acknowledged = 0
        self.reads_answered = 0
        self.snapshots_fetched = 0
        self.is_rough = True
        """False in the calm at the end."""
        self._frames = 0
        self.violations: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def make_node(self, node_id: NodeId) -> SimulatedNode:
        return SimulatedNode(self, node_id)

    def replace_disk(self, node: SimulatedNode) -> None:
        """Give a node an empty disk, and do what the runbook of a lost disk says."""
        node.wipe()
        if not self.profile.replaces_in_settings or self.checks.commit_max == 1:
            return  # nobody edits the settings of a quorum that is not founded yet
        # A quorum could be founded again by a majority of empty disks that may found one.
        majority = len(self.founders) // 2 + 1
        may_found = [
            other
            for other in map(self.nodes.__getitem__, self.founders)
            if other is not node and not other.only_joins and not other.has_voters_on_disk()
        ]
        node.only_joins = len(may_found) + 1 >= majority or self.rng.random() < 0.5
        if node.node_id in self.founders and self.rng.random() < 0.8:
            self.settings_voters = {each: self.nodes[each].directory_id for each in self.founders}

    def processor(self, node: SimulatedNode) -> Processor:
        """Return what runs the turns of a node's next process."""
        return Processor(lambda _work: None)

    def violated(self, what: str) -> None:
        self.violations.append(f"{self.loop.time():.3f} s: {what}")
        self.story.tell("VIOLATION", what)

    def tell(self, who: object, what: str) -> None:
        """Add to the story of this world."""
        self.story.tell(f"node {who.node_id}" if isinstance(who, SimulatedNode) else who, what)

    def spawn(
        self, work: Callable[[], Coroutine[Any, Any, None]], processor: Processor | None = None
    ) -> None:
        """Run something of the world's own: clients, brokers, weather; `processor`: whose turns it takes."""

        async def guarded() -> None:
            try:
                await work()
            except Exception as error:  # a task that dies of anything is a finding
                self.violated(f"{type(error).__name__}: {error}")

        task = self.loop.create_task_of(processor, guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def propose(self, leader: SimulatedNode, voters: Voters) -> None:
        """Ask a leader for a change of voters."""
        assert leader.log is not None
        leader.log.append(self.next_frame(), voters)

    def next_frame(self) -> bytes:
        self._frames += 1
        return self._frames.to_bytes(FRAME_BYTES, "big")

    # --- a run

    def run(self, seconds: float, *, settle_seconds: float = SETTLE_SECONDS) -> list[str]:
        """Live through the profile's weather, then through calm; return what was violated."""
        gc.disable()  # a life makes few cycles and many values: walking these would take a tenth of the time
        gc.freeze()  # nor are modules and the world before walked at the end
        try:
            with watched(self.sometimes), self.limits():
                self.loop.run_until_complete(self._live(seconds, settle_seconds))
        except Exception as error:  # a timer's or a link's callback failed
            self.violated(f"{type(error).__name__}: {error}")
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.close()
        self.check_left_over()
        gc.collect()  # a task that died in a TaskGroup of its own is held in a cycle, and says so only when that goes
        gc.unfreeze()
        gc.enable()
        for context in self.loop.failures:
            self.violated(f"asyncio: {context.get('message')}: {context.get('exception')!r}")
        return self.violations

    def limits(self) -> AbstractContextManager[None]:
        """Return the limits of a life; by default those of a quorum alone."""
        return small_raft_limits(self.seed)

    def is_one_frame(self, frames: bytes) -> bool:
        return len(frames) == FRAME_BYTES

    def check_left_over(self) -> None:
        """Check what a life has left in memory, before the cycle collector looks at it."""

    async def _live(self, seconds: float, settle_seconds: float) -> None:
        for at, number in self.variations:
            self.loop.call_later(at, self.rng.seed, self.seed << 20 ^ number)
        if slow := self.slowness.text():
            self.tell("weather", slow)
        for node in self.nodes.values():
            node.start()
        self.spawn(self.leadership.watch)
        profile, end = self.profile, self.loop.time() + seconds
        kinds: list[tuple[float | None, Callable[[], None]]] = [
            (1 / profile.writes_per_second, self._write),
            (1 / profile.reads_per_second, self._read),
            *self.weather.kinds(),
            *Membership(self).kinds(),
            *self.more_weather(),
        ]
        async with asyncio.TaskGroup() as tasks:
            for every, act in kinds:
                if every is not None:
                    tasks.create_task(self._repeat(every, act, end))
        if self.profile.leads_on and len(self.checks.leaders) > 1:
            self.violated(f"nobody_falls_silent: these led, term by term: {self.checks.leaders}")
        if self.violations:
            return
        await self._calm(settle_seconds)

    async def _repeat(self, every: float, act: Callable[[], None], end: float) -> None:
        while not self.violations:
            await asyncio.sleep(min(self.rng.expovariate(1 / every), end - self.loop.time()))
            if self.loop.time() >= end:
                return
            act()

    async def _calm(self, settle_seconds: float) -> None:
        """Liveness and convergence: with all nodes up and no faults, a write commits everywhere."""
        self.is_rough = False
        self.network.faults = LinkFaults()
        self.network.heal()
        self.end_faults()
        await asyncio.sleep(settle_seconds - LAST_WRITE_SECONDS)
        goal = self.floor + 1
        for node in self.nodes.values():
            if node.is_leader():
                assert node.log is not None
                with suppress(NotController):
                    node.log.append(self.next_frame())
        await asyncio.sleep(LAST_WRITE_SECONDS)
        if self.violations:
            return
        leaders = [node.node_id for node in self.nodes.values() if node.is_leader()]
        if len(leaders) != 1:
            self.violated(f"liveness: after {settle_seconds} s of calm these lead: {leaders}")
        frames = {node.node_id: getattr(node.listener, "frames", goal) for node in self.nodes.values()}
        if len(set(frames.values())) != 1 or min(frames.values()) < goal:
            self.violated(f"convergence: applied {frames}, at least {goal} expected")

    def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return further kinds of fault, as `Weather.kinds` does."""
        return []

    async def slow_download(self, node: SimulatedNode, source: SimulatedNode) -> bool:
        """Let the time of a slow download pass, if downloads are slow in this life; answer whether it was not cut off."""
        link, seconds = frozenset((node.node_id, source.node_id)), self.slowness.download()
        is_open = partial(self.network.is_open, source.node_id, node.node_id)
        if not seconds:
            return is_open()
        newest = self.checks.commit_max
        self.network.downloads[link] += 1
        try:
            until = self.loop.time() + seconds
            while is_open() and self.is_rough and (left := until - self.loop.time()) > 0:
                await asyncio.sleep(min(left, 0.25))
        finally:
            self.network.downloads[link] -= 1
        if self.checks.commit_max > newest + self.settings.tail_entries:
            self.sometimes("log outruns the download of a snapshot")
        return is_open()

    def suspend_all(self, seconds: float) -> None:
        """Suspend the machine on which everything runs: CLOCK_BOOTTIME goes on, and all timers stand still."""
        for node in self.nodes.values():
            node.was_suspended(seconds)

    def end_faults(self) -> None:
        """Wake, mend and start every node, and let nothing be slow any more."""
        self.network.end_slowness()
        for node in self.nodes.values():
            node.paused_until = 0.0
            node.wake()
            node.mend()
            if node.log is None:
                node.start()

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
