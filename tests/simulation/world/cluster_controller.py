"""The shipped controller with all that runs beside it, on a simulated node."""

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from metadata_log import limits
from metadata_log.batch import Envelope, RecordBatch
from metadata_log.errors import DamagedFile, NotController
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid, random_uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.topics import TopicsImage
from metadata_log.limits import FETCH_WINDOW_BYTES, SESSION_CHECK_AGAIN_MS
from metadata_log.sliced import Sliced
from metadata_log.wire.commands import BrokerHeartbeat, Command, RegisterController
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.callers import Caller
from quorum.controller.controller import Controller, _Begun
from quorum.controller.reign import Reign
from quorum.controller.upkeep import Sweeping
from quorum.decide.canonical import IdempotencyKey
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, Elected, Walk, Walked
from quorum.decide.deleted_topics import Expiry
from quorum.decide.elections import directory_of, has_online_directory
from quorum.decide.quiet import QuietMark
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.fetch.service import FetchService
from quorum.log.committed_log import CommittedLog
from quorum.log.fetch_window import FetchWindow
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.log.topic_feeds import TopicFeeds
from quorum.node.periodic import SessionChecks
from quorum.node.registration import Registration, registration_of
from quorum.pace.turns import Turns
from snapshots.seal import Seal
from snapshots.snapshot_file import snapshot_id
from tests.simulation.rules.answers import watch_polls
from tests.simulation.rules.overtaking import Overtaking
from tests.simulation.rules.rule import rule
from tests.simulation.rules.sessions import HeardOf
from tests.simulation.rules.sweeps import SweepRule
from tests.simulation.world.cluster_node import READS, SESSION_TIMEOUT_MS, ClusterNode
from tests.simulation.world.quorum_views import status_of
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld


T = TypeVar("T")

DEAF_SHARE = 0.2
"""The share of registrations after which a controller hears nothing from the leader for a while."""
DEAF_SECONDS = (0.1, 1.0)
LATE_READS = 0.1
"""The share of reads before which time passes; more would keep brokers with small answers from ever catching up."""
SEGMENT_SYNC_SECONDS = 1.0
SWEEP_SECONDS = 2.0
WALK_SECONDS = 4.0
"""Within so long a walk over a broker's partitions is at its end, if it has not rested for WALK_RESTS_SECONDS meanwhile. It
has more time where it has several parts in its run, by as long as they take while as many of each other change and as many
writes of each client come between.
"""
WALK_SECONDS_BUSY = 15.0
"""Where there are many topics, or a partition stands for many: a stop goes on with each heartbeat, and all brokers may be
down at once.
"""
WALK_RESTS_SECONDS = 0.5
WINDOW_BYTES = (4_000, 40_000, FETCH_WINDOW_BYTES)
"""What a controller holds in memory; behind it brokers are served from its segments."""


class SimulatedKeeper(SnapshotKeeper):
    """The shipped keeper, on a simulated directory."""

    entries_max = 100

    def __init__(self, controller: "SimulatedController", committed_log: CommittedLog) -> None:
        super().__init__(
            settings=controller.settings,
            controller=controller,
            committed_log=committed_log,
            store=controller.node.snapshots,
            run_in_thread=controller.node.in_thread,
            unix_ms=controller.node.unix_ms,
        )
        self._simulated = controller
        self._stopping.set()  # no thread rests in real time

    async def _write(self, image: MetadataImage) -> Seal:
        node = self._simulated.node
        name = snapshot_id(image.end_offset, image.controller_epoch)
        foreign = node.world.forgery.found(name)
        if foreign is not None:
            node.world.tell(node, f"has a foreign file under the name of its snapshot {name}")
            node.tampering.plant(name, foreign)
        seal = await super()._write(image)
        node.world.tell(node, f"has the snapshot at {image.end_offset}")
        if foreign is not None:
            node.world.sometimes("foreign snapshot not announced")
        if name not in node.tampering.rotten:  # a bit may turn before the file is hashed
            node.world.check_seal(name, seal)
        return seal


class _SweepInOrder(Sweep):
    """The shipped sweep, in an order that is the same in every process: that of a hash map is not."""

    def _topics(self, topics: TopicsImage) -> Iterable[TopicId]:
        return sorted(super()._topics(topics))


class _TurnsOfAProcess(Turns):
    """The shipped turns; a request that an ended process was serving goes no further."""

    def __init__(self, controller: "SimulatedController") -> None:
        super().__init__(lambda: int(controller.node.now_ms()))
        self._controller = controller

    async def wait_for_turn(self) -> None:
        await super().wait_for_turn()
        if not self._controller.is_running:
            raise ConnectionError("the process has ended")


class SimulatedController(Controller):
    """The shipped controller on a simulated node, watched after every batch."""

    offsets_never_regress = rule("no controller's and no broker's end offset goes back while it runs")
    walks_end = rule("a change of many partitions in parts comes to its end soon")
    who_may_lead_leads = rule("no partition waits for a leader while a broker in sync may lead it")

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
        self.turns = _TurnsOfAProcess(self)
        self._walking: dict[Walk | None, tuple[float, float, float]] = {}
        """When each walk under way began, when its last part was made, and within how long it must be at its end."""
        self._sweep_rules: dict[str, SweepRule] = {}
        self.incarnation = node.incarnation
        self.stands_on = 0
        """The end offset of the snapshot that this process last began with or took."""
        self.overtaking = Overtaking(self)
        self.heard_of = HeardOf(self)
        self.led_until = 0.0
        """When this controller last ceased to lead."""
        self.committed_log = CommittedLog(node.segments, read_in_thread=self._read_in_thread)
        self._reading_batch_at = self.committed_log.reading_batch_at
        self.committed_log._window = FetchWindow(bytes_max=world.rng.choice(WINDOW_BYTES))
        self.keeper = SimulatedKeeper(self, self.committed_log)
        node.snapshots.on_damage = self._snapshot_damaged
        self.fetches = FetchService(
            settings=self.settings,
            controller=self,
            committed_log=self.committed_log,
            newest_snapshot=self.keeper.newest,
            now_ms=lambda: int(node.now_ms()),
        )
        self.status = status_of(self)
        self.feeds = TopicFeeds()
        self._session_checks = SessionChecks(session_timeout_ms=SESSION_TIMEOUT_MS)
        rng = random.Random(world.rng.getrandbits(64))
        self.registration = Registration(
            registration_of(self.settings, random_uuid(rng)),
            controller=self,
            url_of=lambda node_id: f"http://{node_id}",
            send=self._send_registration,
            rng=rng,
        )
        world.loop.call_soon(self._attach)

    def _snapshot_damaged(self, _id: str, _error: DamagedFile) -> None:
        """Let the keeper know in a turn of the loop: this is called in a thread."""
        self.world.loop.call_soon(lambda: self.keeper.lost() if self.is_running else None)

    def _attach(self) -> None:
        if self.is_running:
            assert self.node.log is not None
            self.attach(
                self.node.log,
                [
                    self.committed_log,
                    self.feeds,
                    self.keeper,
                    self.fetches,
                    self.registration,
                    self._session_checks,
                    _Watcher(self),
                ],
            )
            self.node.spawn(self.registration.run)
            self.node.spawn(self.fetches.polls.run)
            self.node.spawn(self.fetches.cold.run)
            self.node.spawn(self.keeper.run)
            self.node.spawn(self.keeper.count)
            self.node.spawn(self._check_sessions)
            self.node.spawn(self._keep_changing)
            self.node.spawn(partial(watch_polls, self))
            sweeps: tuple[Sweeping, ...] = (*map(_SweepInOrder, SweepKind), Expiry(), QuietMark())
            for sweep in sweeps:
                self.node.spawn(partial(self._keep_sweeping, sweep))
            self.node.spawn(self._sync_segments)

    async def _send_registration(self, url: str, command: RegisterController, request_id: Uuid) -> int:
        async def serve(controller: SimulatedController) -> int:
            written = await controller.submit(command, anybody(request_id))
            return written.end_offset

        try:
            async with asyncio.timeout(2.0):
                target = self.world.nodes[NodeId(int(url.removeprefix("http://")))]
                is_deaf = self._is_deaf_to(target.node_id)
                end_offset = await self.world.remote(target, serve, caller=self.node.node_id)
                if is_deaf:
                    raise ConnectionError("the answer was lost")
                return end_offset
        except (TimeoutError, ConnectionError) as error:
            raise NotController(f"{url} does not answer") from error

    def _is_deaf_to(self, leader: NodeId) -> bool:
        """Answer whether the answer to a registration is lost, and what the leader replicates here for a while."""
        world, rng = self.world, self.world.rng
        every = world.profile.partition_every
        if every is None or not world.is_rough or rng.random() >= DEAF_SHARE:
            return False
        world.tell(self.node, f"hears nothing from {leader} after it sent its registration")
        world.faults["registration unheard"] += 1
        cut, seconds = world.network.new_cut(), rng.uniform(*DEAF_SECONDS)
        world.network.block(leader, self.node.node_id, cut)
        world.loop.call_later(seconds, world.network.unblock, cut)
        return True

    @property
    def epoch(self) -> int:
        """The epoch of the reign; -1 while there is none."""
        return -1 if self.reign is None else self.reign.epoch

    @property
    def is_running(self) -> bool:
        return self.node.log is not None and self.incarnation == self.node.incarnation

    def on_leadership(self, *, is_leader: bool) -> None:
        self.world.tell(self.node, "leads" if is_leader else "leads no more")
        if is_leader:
            self.world.checks.began_to_append(self.node)
        else:
            self.led_until = self.world.loop.time()
        super().on_leadership(is_leader=is_leader)

    def on_restore(self, snapshot_id: str) -> None:
        self.world.tell(self.node, f"stands on snapshot {snapshot_id}")
        super().on_restore(snapshot_id)
        self.stands_on = self.committed.end_offset

    def _on_claim(self, batch: RecordBatch) -> None:
        was_active = self.is_active
        super()._on_claim(batch)
        if self.is_active and not was_active:
            self.heard_of.claimed()
            self._walking.clear()  # those of the reign before begin at the first partition

    def plain_contact(self, command: BrokerHeartbeat, caller: Caller) -> tuple[Decision, int | None] | None:
        self.world.properties.sessions.heard(command)
        contact = super().plain_contact(command, caller)
        if contact is not None:
            self.heard_of.contact(command.broker_id)
        return contact

    def heartbeat(
        self, command: BrokerHeartbeat, caller: Caller, *, is_contact: bool = False
    ) -> tuple[Decision, int | None]:
        if command.want_shut_down and not command.want_fence:
            self.world.properties.rules.stopping(command.broker_id, self.tip.end_offset)
        self.world.properties.sessions.heard(command)
        answer = super().heartbeat(command, caller, is_contact=is_contact)
        self.heard_of.contact(command.broker_id)
        if self.tip.topics.counts.leaderless:
            with self.world.loop.unpaid():
                self._check_leads(command.broker_id)
        return answer

    def _check_leads(self, broker_id: BrokerId) -> None:
        """Whose elections are over leads whatever waits for a leader and has it in sync."""
        tip, changes = self.tip, self.active_reign.changes
        broker, living = tip.brokers[broker_id], self.world.broker(broker_id).session
        if (
            living is None
            or living.broker_epoch != broker.broker_epoch
            or not broker.is_active
            or changes.is_electing
            or broker_id in changes.leaving()
        ):
            return
        committed, placed = self.committed.topics.by_id, self.world.properties.placed
        for topic_id, number, partition in tip.topics.leaderless():
            topic = committed.get(topic_id)
            if (
                topic is not None
                and topic.partitions[number : number + 1] == (partition,)
                and (topic_id, number) not in placed
                and broker_id in (partition.isr or partition.eligible_leader_replicas)
                and has_online_directory(tip, broker_id, partition)
                # Where it failed, the partitions in it lose their leaders before the registration lists it no more.
                and directory_of(partition, broker_id) not in living.offline_log_dirs
            ):
                self.world.violated(
                    self.who_may_lead_leads(f"{topic.name}-{number} waits, and broker {broker_id} is in sync")
                )
                return

    def check_sessions(self) -> int:
        self.heard_of.looks()
        again_ms = super().check_sessions()
        self.heard_of.looked()
        return again_ms

    def make_part(self) -> bool:
        made = super().make_part()
        for watched in self._sweep_rules.values():
            watched.part_made()
        return made

    def _fence(self, reign: Reign, broker_id: BrokerId, broker_epoch: int, silent_ms: int) -> None:
        self.heard_of.fences(broker_id)
        super()._fence(reign, broker_id, broker_epoch, silent_ms)

    def _extending(self, reign: Reign, decision: Decision, envelope: Envelope) -> Sliced[RecordBatch]:
        batch = yield from super()._extending(reign, decision, envelope)
        self.heard_of.appended()
        return batch

    async def _begin(self, command: Command, caller: Caller) -> _Begun:
        with self.overtaking.asked():
            return await super()._begin(command, caller)

    def _writing(
        self,
        command: Command,
        actor: str | None,
        operation: str,
        key: IdempotencyKey | None,
        caller: Caller,
    ) -> Sliced[tuple[Decision, Envelope, RecordBatch | None]]:
        self.overtaking.begins(command)
        return super()._writing(command, actor, operation, key, caller)

    def _context(self) -> DecideContext:
        context = super()._context()
        self.heard_of.decides(context)
        self.world.properties.rules.deciding(context)
        return context

    def _change_sessions(self, decision: Decision) -> None:
        super()._change_sessions(decision)
        for change in decision.session_changes:
            if isinstance(change, Walked):
                self._watch_walk(change.walk, is_over=change.visited is None)
                self.heard_of.walked(change)
                if change.visited is not None:
                    self.world.between_parts.decided(change.walk.broker_id)
            elif isinstance(change, Elected):
                self._watch_walk(None, is_over=not change.more)
                if change.more and self.tip.brokers:
                    up = filter(self.tip.is_active, self.tip.brokers)
                    self.world.between_parts.decided(min(up, default=min(self.tip.brokers)))

    def _watch_walk(self, walk: Walk | None, *, is_over: bool) -> None:
        """Note a part of a walk, or of that of the elections (None)."""
        now = self.world.loop.time()
        before = self._walking.pop(walk, None)
        if is_over:
            return
        if before is None or now - before[1] > WALK_RESTS_SECONDS:
            began, most = now, self._walk_seconds(walk)
        else:
            began, _, most = before
        self._walking[walk] = began, now, most
        if now - began > most:
            self.world.violated(self.walks_end(f"after {most:.0f} s this one has not: {walk or 'elections'}"))

    def _walk_seconds(self, walk: Walk | None) -> float:
        """Return within how long a walk that begins now must be at its end."""
        profile = self.world.profile
        most = WALK_SECONDS_BUSY if profile.is_heavy or profile.is_weighty else WALK_SECONDS
        topics = self.tip.topics
        with self.world.loop.unpaid():
            partitions = (
                topics.counts.partitions
                if walk is None
                else sum(1 for _ in topics.partitions_on(walk.broker_id))
            )
        per_part = max(self.records_per_part_max - 1, 1)  # the last place is that of the fencing itself
        # A change of each broker, the elections, and a write of each client, which may change as many partitions as a part.
        in_turn = len(self.world.brokers) + 1 + len(self.world.clients)
        return most + in_turn * self.world.costs.rates.change_seconds(partitions, per_part=per_part)

    async def _read_in_thread(self, work: Callable[..., T], *args: object) -> T:
        await self.node.free(READS)
        if self.world.profile.reads_late and self.world.rng.random() < LATE_READS:
            await asyncio.sleep(self.world.rng.uniform(0.0, 0.1))
            await self.node.awake()
        with self.world.loop.unpaid():
            found = work(*args)
        await asyncio.sleep(self.world.rng.uniform(0.0001, 0.005))
        await self.node.awake()
        return found

    async def _check_sessions(self) -> None:
        while True:
            await self.node.awake()
            await self._session_checks.rest(self.check_sessions())

    async def _keep_sweeping(self, sweep: Sweeping) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.node.awake()
            watched = self._sweep_rules[sweep.operation] = SweepRule(self, sweep)
            while not self.sweep(sweep):
                await asyncio.sleep(SESSION_CHECK_AGAIN_MS / 1000)
            watched.part_made()
            while self.is_active and self.active_reign.changes.under_way(sweep.operation) is not None:
                await asyncio.sleep(SESSION_CHECK_AGAIN_MS / 1000)
            watched.ended()

    async def _keep_changing(self) -> None:
        while True:
            await self.parts_due.wait()
            await self.node.awake()
            is_resting, since = self.overtaking.is_resting(), self.world.loop.time()
            await self.until_part_is_due()
            if is_resting:
                self.overtaking.part_waited(self.world.loop.time() - since)
            if self.make_part():
                await asyncio.sleep(limits.PART_AGAIN_MS / 1000)
            else:
                self.parts_due.clear()

    async def _sync_segments(self) -> None:
        while True:
            await asyncio.sleep(SEGMENT_SYNC_SECONDS)
            await self.node.in_thread(self.node.segments.sync)

    def reset_calls(self) -> None:
        """Let everybody who waits for an answer of this process read the end of the connection."""
        reset = ConnectionError("reset")
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(reset)
                waiter.future.exception()  # whoever waits may be called off in the same moment
        for poll in self.fetches.polls.under_way:
            poll.finish(reset)  # type: ignore[arg-type]  # not from the controller: its process is gone


class _Watcher(AppliedListener):
    """Checks every batch that a controller applies."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller
        self._who = f"controller {controller.node.node_id}"
        self._end_offset = 0

    def on_restored(self, image: MetadataImage) -> None:
        if image.end_offset < self._end_offset:
            raise SimulatedController.offsets_never_regress(
                f"{self._who} {self._end_offset} -> {image.end_offset}"
            )
        self._end_offset = image.end_offset

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        world = self._controller.world
        with world.loop.unpaid():
            self.on_restored(image)
            world.properties.applied(self._who, batch, image)
            world.properties.committed(batch, image, delta)
