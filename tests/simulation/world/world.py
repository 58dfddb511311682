"""Simulated quorums: the shipped adapter, guard, engine and journal on simulated time, disks and links.

The listener of the log is `Model`, which counts frames; `World(make_listener=...)` puts another on the same nodes.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol

from metadata_log.errors import (
    NotController,
    Unavailable,
)
from metadata_log.ids import NodeId
from quorum.raft.messages import Entry
from quorum.raft.raft_log import Member, RaftListener, Voters
from quorum.raft.raft_settings import RaftSettings
from tests.simulation.faults import slowness
from tests.simulation.faults.membership import Membership
from tests.simulation.faults.profiles import Profile
from tests.simulation.faults.random_faults import Weather
from tests.simulation.rules.calm import Calm
from tests.simulation.rules.checks import Checks
from tests.simulation.rules.leadership import Leadership
from tests.simulation.rules.rule import Violation
from tests.simulation.world.markers import Markers
from tests.simulation.world.model import FRAME_BYTES, Model
from tests.simulation.world.network import LinkFaults, Network
from tests.simulation.world.node import SimulatedNode, directory_of
from tests.simulation.world.small_limits import small_raft_limits
from tests.simulation.world.story import Story
from tests.simulation.world.streams import StreamNetwork
from tests.simulation.world.virtual_loop import Processor, VirtualLoop
from tests.simulation.world.watched_log import WatchedLog
from tests.simulation.world.watching import watched

SETTLE_SECONDS = 9.0
"""How long the calm at the end of a run lasts.

A node that was away while all voters changed knows none of them. It believes them after RAFT_STRANGER_TIMEOUTS longest
election timeouts without a leader, which are 6 s. An election and the entries that the node lacks come after that.
"""
LAST_WRITE_SECONDS = 1.5
"""So long before the calm's end a frame is written; everybody must have applied it when the calm ends."""


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

    def violated(self, what: str | Exception) -> None:
        """Note that a rule is broken, or the error that a task died of."""
        is_rule = isinstance(what, str | Violation)
        text = str(what) if is_rule else f"{type(what).__name__}: {what}"
        self.violations.append(f"{self.loop.time():.3f} s: {text}")
        self.story.tell("VIOLATION", text)

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
                self.violated(error)

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
        """Run the profile's weather, then through calm; return what was violated."""
        gc.disable()  # a run makes few cycles and many values: walking these would take a tenth of the time
        gc.freeze()  # nor are modules and the world before walked at the end
        try:
            with watched(self.sometimes), self.limits():
                self.loop.run_until_complete(self._run(seconds, settle_seconds))
        except Exception as error:  # a timer's or a link's callback failed
            self.violated(error)
        finally:
            # In order of creation: what their ends send is in the trace, too.
            pending = sorted(
                asyncio.all_tasks(self.loop), key=lambda task: (len(name := task.get_name()), name)
            )
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
        """Return the limits of a run; by default those of a quorum alone."""
        return small_raft_limits(self.seed)

    def is_one_frame(self, frames: bytes) -> bool:
        return len(frames) == FRAME_BYTES

    def check_left_over(self) -> None:
        """Check what a run has left in memory, before the cycle collector looks at it."""

    async def _run(self, seconds: float, settle_seconds: float) -> None:
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
        if profile.leads_on and not profile.links.flipped and len(self.checks.leaders) > 1:
            self.violated(Leadership.nobody_falls_silent(f"these led, term by term: {self.checks.leaders}"))
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
            self.violated(Calm.liveness(f"after {settle_seconds} s of calm these lead: {leaders}"))
        frames = {node.node_id: getattr(node.listener, "frames", goal) for node in self.nodes.values()}
        if len(set(frames.values())) != 1 or min(frames.values()) < goal:
            self.violated(Calm.convergence(f"applied {frames}, at least {goal} expected"))

    def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return further kinds of fault, as `Weather.kinds` does."""
        return []

    async def slow_download(self, node: SimulatedNode, source: SimulatedNode) -> bool:
        """Let the time of a slow download pass, if downloads are slow in this run; answer whether it was not cut off."""
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
            self.violated(
                Model.reads_are_fresh(f"node {listener.node.node_id} saw {listener.frames} of {floor} frames")
            )
        self.floor = max(self.floor, listener.frames)
        self.reads_answered += 1
