"""Edge: PySyncObj behind RaftLog: carries out what `RawNode` plans: tells, sends, syncs, applies, and waits.

    pump: what has arrived -> RawNode -> plan: tell the listener; send; begin a sync; apply committed entries; set the timer
    sync: one journal batch at a time, in a worker thread; when it ends, the messages that rest on it are sent, and the
          pump runs at once

Clock, chance, disk, links and thread are arguments, so this very code runs under the simulator. All of it runs on one event
loop; the engine's code never touches a socket, a file, a thread or a pickle (`engine.py`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from metadata_log.errors import Fault, MetadataError, leaves, most_telling
from metadata_log.ids import NodeId
from metadata_log.node.pace import next_turn
from quorum.raft.journal.journal import Journal
from quorum.raft.journal_sync import JournalSync, RunInThread
from quorum.raft.log_start import LogStart, PointerDisk
from quorum.raft.messages import RaftTransport
from quorum.raft.peer_status import gone_observers, ms_ago, peer_statuses, why_led_below, why_two_quorums
from quorum.raft.pointer import Pointer
from quorum.raft.progress import NEVER
from quorum.raft.raft_log import (
    Member,
    RaftListener,
    RaftPosition,
    RaftStatus,
    Role,
    SnapshotFetcher,
    Voters,
)
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.raw_node import NOTHING, Outgoing, Plan, RawNode
from quorum.raft.waiting_reads import WaitingReads
from quorum.raft.wake import Wake

log = logging.getLogger(__name__)


class PySyncObjLog:
    """RaftLog on PySyncObj. `run` is the node; calls that come before it have their effect once it runs.

    `voters` found the quorum; once the log has set voters, only the log counts. `now_ms` is monotonic;
    `run_in_thread` runs its first argument off the loop, one at a time, and then calls the second one on the loop with the
    MetadataError that was raised, or None;
    `others_founded` answers whether a linked controller's log names the voters. `only_joins`: until the log names the
    voters, this node founds no quorum, whichever nodes are linked. The journal and the transport belong to the caller, who
    closes them after `run` has ended.
    """

    def __init__(
        self,
        *,
        member: Member,
        voters: Voters,
        journal: Journal,
        transport: RaftTransport,
        pointer_disk: PointerDisk,
        listener: RaftListener,
        fetcher: SnapshotFetcher,
        settings: RaftSettings,
        now_ms: Callable[[], float],
        rng: random.Random,
        run_in_thread: RunInThread,
        others_founded: Callable[[], bool] = lambda: False,
        only_joins: bool = False,
    ) -> None:
        self._journal = journal
        self._transport = transport
        self._listener = listener
        self._now_ms = now_ms
        self._sync = JournalSync(journal, run_in_thread, now_ms)
        self._node = RawNode(
            member=member,
            voters=voters,
            journal=journal,
            listener=listener,
            settings=settings,
            now_ms=now_ms,
            rng=rng,
            others_founded=others_founded,
            only_joins=only_joins,
            syncs=self._sync,
        )
        guard, self._applied = self._node.guard, self._node.applied
        self._guard = guard
        self._reads = WaitingReads(guard.reads)
        self._log_start = LogStart(
            journal=journal,
            guard=guard,
            in_force=self._node.in_force,
            disk=pointer_disk,
            fetcher=fetcher,
            tail_entries=settings.tail_entries,
            tail_bytes=settings.tail_bytes,
            run_in_thread=self._sync.beside,
        )
        self._tasks: asyncio.TaskGroup
        self._spawned: set[asyncio.Task[None]] = set()
        self._wake = Wake()
        self._ended = asyncio.Event()
        self._ended.set()  # unless `run` runs
        self._failure: BaseException | None = None
        """What the end of a sync raised; `run` raises it."""
        self._reported_leader: NodeId | None = None
        transport.on_connected = lambda member: self._happened(partial(guard.connected, member))
        transport.on_arriving = lambda member: self._happened(partial(guard.arriving, member))
        transport.on_lost = lambda member, by_peer: self._happened(
            partial(guard.lost, member, by_peer=by_peer)
        )

    # --- life

    async def run(self) -> None:
        """Be a voter, or an observer, until `close` is called.

        Raises:
            Fault: a violation was proved, the disk failed, or the journal is damaged: nothing further was sent.
        """
        self._node.state.started()
        self._ended.clear()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._start()
                while not self._node.state.is_closing:
                    self._pump()
                    await self._wake.wait()
                    if not self._node.state.is_closing and self._guard.may_find_silence(self._now_ms()):
                        await self._read_sockets()
                while self._sync.since is not None and self._failure is None:
                    await self._wake.wait()  # the caller may close the journal's files once we return
                if self._failure is not None:
                    raise self._failure
                for task in self._spawned:
                    task.cancel()
        except BaseExceptionGroup as group:
            # One cause is enough to stop, and is easier to read without the group.
            raise most_telling(leaves(group)) from None
        finally:
            self._node.state.ended()
            self._wake.disarm()
            self._reads.fail("this node has stopped")
            self._ended.set()

    async def _read_sockets(self) -> None:
        """Let the loop read all sockets once: if this process was delayed, the peers' messages wait there."""
        await next_turn()  # sockets that are readable now are read after us, in the loop's next round
        await next_turn()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def close(self) -> None:
        """End `run`; messages and records that wait for the disk are dropped, as in a crash."""
        if self._node.state.closed():
            self._cease_to_lead("this node is stopping")
        self._wake.set()
        await self._ended.wait()

    async def _start(self) -> None:
        pointer = self._log_start.stored()
        if pointer is not None:
            if not await self._unless_closed(self._log_start.ensure(pointer)):
                return
            self._stand_on(pointer)
            self._listener.on_restore(pointer.snapshot_id)
        if not self._node.state.is_closing:
            self._node.begin()
            self._node.state.takes_part()
            self._transport.on_message, self._transport.on_read = self._node.arrived, self._on_read

    async def _unless_closed(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work that may take long, and cancel it if `close` is called; answer whether it was done."""
        task = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._wake.set())
        while not task.done() and not self._node.state.is_closing:
            await self._wake.wait()
        return not task.cancel()

    def _stand_on(self, pointer: Pointer) -> None:
        self._log_start.stand_on(pointer)
        self._applied.stand_on(RaftPosition((pointer.index, pointer.term)))

    # --- what others call

    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        self._node.propose(frames, voters)
        self._look()

    async def read_index(self) -> None:
        self._node.check_leads()
        answered = self._reads.add()
        self._look()
        await answered

    def transfer_leadership(self, to: NodeId | None) -> None:
        self._node.transfer_to(to, self._now_ms())
        self._look()

    def applied_position(self) -> RaftPosition:
        return self._applied.position

    def compact(self, position: RaftPosition, snapshot_id: str, seal: bytes) -> None:
        if not self._node.state.is_running:
            return  # the store has the snapshot; only the journal stays longer than it needs to
        pointer = self._log_start.pointer_to(position[0], snapshot_id, seal)
        if pointer is not None:
            self._spawn(self._compact(pointer))

    async def _compact(self, pointer: Pointer) -> None:
        if await self._log_start.compact(pointer):
            self._look()

    def pinned_snapshots(self) -> frozenset[str]:
        return self._log_start.pinned

    def status(self) -> RaftStatus:
        now, node, guard = self._now_ms(), self._node, self._guard
        has_engine, syncing_since = node.state.has_engine, self._sync.running_since
        role = node.engine.role if has_engine else Role.FOLLOWER
        committed_at = self._applied.committed_at() if has_engine else NEVER
        return RaftStatus(
            role=role,
            leader_id=guard.state.leader,
            peers=peer_statuses(guard, now),
            gone=gone_observers(guard, now),
            voters=node.in_force.voters,
            is_voter=guard.state.is_voter,
            change_pending=node.change_pending(),
            elections_total=guard.elections.won_total,
            elections_ms_total=guard.elections.won_ms_total,
            election_ms_longest=guard.elections.won_ms_longest,
            disk_stalled_ms=0 if syncing_since is None else max(round(now - syncing_since), 0),
            committed_ms_ago=ms_ago(committed_at, now),
            level_ms_ago=ms_ago(committed_at if role is Role.LEADER else self._applied.level_at, now),
            synced_bytes_total=self._sync.bytes_total,
            syncs_total=self._sync.total,
            snapshot_not_fetched=self._log_start.why_not_fetched(self._applied.index),
            entries_untrimmed=max(0, self._applied.index - self._journal.snapshot_index),
            leader_heard_ms_ago=None if role is Role.LEADER else guard.elections.leader_heard_ms_ago(now),
            messages_ignored_total=guard.belief.ignored_total,
            awaits_founded_quorum=guard.elections.awaits_founded_quorum,
            was_asked_to_lead=has_engine and guard.elections.was_asked(),
            only_joins=node.only_joins,
            led_below=why_led_below(guard, now) if has_engine else None,
            two_quorums=why_two_quorums(guard, now) if has_engine else None,
        )

    # --- what the transport calls

    def _on_read(self) -> None:
        if self._node.has_unread:
            self._guarded(self._pump_at_once)

    def _happened(self, event: Callable[[float], None]) -> None:
        self._node.happened(event)
        self._wake.set()

    def _look(self) -> None:
        """Have the next pump look at everything."""
        self._node.has_news = True
        self._wake.set()

    # --- the pump

    def _pump(self) -> None:
        """Carry out what is to be done now, up to the first rest of a long replay."""
        now, node = self._now_ms(), self._node
        plan = node.step(now, timer_is_set=self._wake.is_armed)
        if plan is NOTHING:
            return
        self._carry_out(plan, now)
        if node.only_began_sync:
            return
        plan = node.advance(now)
        if plan is not NOTHING:
            self._carry_out(plan, now)
        self._reads.serve(now, self._applied.index)
        self._carry_out(node.dispatch(now), now)
        self._take_offer()
        if self._guard.state.leader != self._reported_leader:
            self._reported_leader = self._guard.state.leader
            self._listener.on_leader_hint(self._reported_leader)

    def _pump_at_once(self) -> None:
        """Pump in the turn of the loop in which something ended or arrived: a turn and a wake-up more would delay commits.

        If this node is about to find others silent, `run` reads all sockets before that.
        """
        if self._guard.may_find_silence(self._now_ms()):
            self._look()
            return
        was_set = self._wake.clear()
        self._pump()
        if was_set and self._node.only_began_sync:
            self._look()  # the pump began the next sync and left the rest, such as a replay that goes on

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do what `run` does not; it raises what is raised here. A MetadataError is not passed on to asyncio, which would
        only log it.
        """
        try:
            work(*arguments)
        except MetadataError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._node.state.closed()  # no further message may leave
        self._wake.set()

    def _carry_out(self, plan: Plan, now: float) -> None:
        for fact in plan.facts:
            log.log(logging.WARNING if fact.is_warning else logging.INFO, fact.event, extra=fact.extra)
        for member, reason in plan.drop:
            self._transport.drop(member, reason)
        for leads in plan.tell:
            if leads:
                self._listener.on_leadership(is_leader=True)
            else:
                self._cease_to_lead("this node ceased to lead")
        if plan.send:
            self._send(plan.send)
        if plan.sync is not None:
            self._sync.begin(now, partial(self._guarded, self._synced, plan.sync))
        if plan.apply and self._applied.run(now):
            self._look()
        if plan.timer is not None:
            if self._sync.since is None:
                self._sync.mark_if_idle(now)
            self._wake.arm(plan.timer, now)

    def _cease_to_lead(self, why: str) -> None:
        self._reads.fail(why)
        self._listener.on_leadership(is_leader=False)

    def _send(self, outbox: Outgoing) -> None:
        for target, message in outbox:
            self._transport.send(target, message)
        if outbox:
            self._transport.flush()

    # --- syncs

    def _synced(self, held: Outgoing, failure: MetadataError | None) -> None:
        """Resume after a sync, in the turn of the loop that learns of its end.

        Raises:
            MetadataError: what the sync raised.
        """
        if failure is not None:
            raise failure
        now, node = self._now_ms(), self._node
        took_ms = self._sync.completed(now)
        if node.state.is_closing:
            self._wake.set()
            return
        if self._sync.begins_next_file():
            self._spawn(self._make_next_file())
        self._send(node.still_of_use(held))  # first of all
        if node.synced(now, sync_ms=took_ms, timer_is_set=self._wake.is_armed):
            self._pump_at_once()  # acknowledgements that came before our own sync count now

    async def _make_next_file(self) -> None:
        try:
            await self._sync.make_next_file()
        except Fault:
            self._node.state.closed()
            raise

    # --- snapshots

    def _take_offer(self) -> None:
        """Begin to install the snapshot that a leader offered last, unless one is being installed."""
        offered, self._guard.follower.offered = self._guard.follower.offered, None
        if offered is not None:
            leader, offer = offered
            pointer = self._log_start.accept(leader, offer)
            if pointer is not None:
                self._spawn(self._install(leader, pointer))

    async def _install(self, leader: NodeId, pointer: Pointer) -> None:
        """Fetch the snapshot that a leader offers, and begin the log at it, unless the log has caught up meanwhile."""
        if await self._log_start.prepare(leader, pointer):
            self._stand_on(pointer)
            self._node.begin()
            self._listener.on_restore(pointer.snapshot_id)
            self._guard.follower.acknowledge(leader, pointer.index)
            self._look()
