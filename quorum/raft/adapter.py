"""Edge: PySyncObj behind RaftLog: one pump that receives, ticks, applies, sends, and syncs in a worker thread.

    pump: what came in -> guard -> engine -> journal; apply what is committed; submit what waits; send what may leave
    sync: one journal batch at a time, in a worker thread; when it returns, what waited for it is sent

Everything comes from outside (clock, chance, disk, links, thread), so this very code runs under the
simulator. All of it runs on one event loop; the engine's code never touches a socket, a file, a thread or a
pickle (`engine.py`).
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from metadata_log.errors import (
    ChangePending,
    Fault,
    InvalidRequest,
    InvariantBroken,
    NotController,
    leaves,
    most_telling,
)
from metadata_log.ids import NodeId
from quorum.raft.engine import SyncObjEngine, prepare_library
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.journal_sync import JournalSync
from quorum.raft.log_start import LogStart, PointerDisk
from quorum.raft.messages import NO_OP, Message, RaftTransport, frames_of
from quorum.raft.pointer import Pointer
from quorum.raft.progress import NEVER
from quorum.raft.proposals import EMPTY_PAYLOAD, Proposal, Proposals
from quorum.raft.raft_log import (
    Member,
    PeerStatus,
    RaftListener,
    RaftPosition,
    RaftStatus,
    Role,
    SnapshotFetcher,
    Voters,
)
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.voters import check_one_change, from_command, is_change, to_command
from quorum.raft.voters_in_force import VotersInForce
from quorum.raft.waiting_reads import WaitingReads

log = logging.getLogger(__name__)
IDLE_ENTRY_MS: Final = 1_000
"""An idle leader commits an empty entry this often: it proves disks and majority, and uses no offset."""
APPLY_MS_PER_PUMP: Final = 1.0
"""A long replay yields to messages and requests after this many milliseconds."""


class PySyncObjLog:
    """RaftLog on PySyncObj. `run` is the node; whatever is called before waits for it.

    `voters` found the quorum; as soon as the log has set voters, they count for nothing. `now_ms` is monotonic;
    `run_in_thread` begins its argument at once, off the loop, one at a time, and its future raises what that raised;
    `others_founded` answers whether a linked controller's log says who votes. The journal and the transport belong to the
    caller, who closes them after `run` has ended.
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
        run_in_thread: Callable[[Callable[[], None]], asyncio.Future[None]],
        others_founded: Callable[[], bool] = lambda: False,
    ) -> None:
        prepare_library()
        self._me = member
        self._in_force = VotersInForce(voters, journal)
        self._journal = journal
        self._transport = transport
        self._listener = listener
        self._settings = settings
        self._now_ms = now_ms
        self._others_founded = others_founded
        self._guard = Guard(
            member=member,
            voters=voters,
            log=journal,
            settings=settings,
            rng=rng,
            now_ms=now_ms(),
        )
        self._log_start = LogStart(
            journal=journal,
            guard=self._guard,
            in_force=self._in_force,
            disk=pointer_disk,
            fetcher=fetcher,
            tail_entries=settings.tail_entries,
            run_in_thread=run_in_thread,
        )
        self._engine: SyncObjEngine
        self._tasks: asyncio.TaskGroup
        self._spawned: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        transport.on_connected = self._on_connected
        transport.on_lost = self._on_lost
        self._running = False
        self._takes_part = False
        """Whether there is an engine: a node that still loads its snapshot is asked for its status, too."""
        self._closing = False
        self._ended = asyncio.Event()
        self._events: deque[Callable[[float], None]] = deque()
        """What links and their messages bring, in order, until the pump takes it with the time."""
        self._roles: deque[Role] = deque()
        """Roles the engine took and the listener has not heard of."""
        self._is_leader = False
        self._leads_later = False
        """Elected, with a log to apply first."""
        self._confirms = False
        """Whether this leadership's log is still to say who votes."""
        self._hinted: NodeId | None = None
        self._proposals = Proposals()
        self._reads = WaitingReads(self._guard.reads)
        self._submitted_at = NEVER
        # Applied.
        self._applied = RaftPosition((1, 0))
        self._committed_at = NEVER
        self._committed_term = 0
        self._sync = JournalSync(journal, run_in_thread)
        self._hurried = False
        """Whether the pump before only began a sync."""

    # --- life

    async def run(self) -> None:
        """Be a voter, or an observer, until `close` is called.

        Raises:
            Fault: a violation was proved, the disk failed, or the journal is damaged: nothing further was sent.
        """
        self._running = True
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._start()
                while not self._closing:
                    self._pump()
                    await self._wait()
                    if self._guard.may_find_silence(self._now_ms()):
                        await self._read_sockets()
                self._lead_no_more("this node is stopping")
                while self._sync.since is not None:
                    await self._wait()  # the caller may close the journal's files once we return
                for task in self._spawned:
                    task.cancel()
        except BaseExceptionGroup as group:
            # One cause is enough to stop, and names itself better without the group.
            raise most_telling(leaves(group)) from None
        finally:
            self._running = self._takes_part = False
            self._disarm()
            self._reads.fail("this node has stopped")
            self._ended.set()

    async def _wait(self) -> None:
        if self._wake.is_set():
            await asyncio.sleep(0)  # else nobody but us would ever have a turn: the event does not wait
        await self._wake.wait()
        self._wake.clear()

    async def _read_sockets(self) -> None:
        """Let the loop read all sockets once: if this process stood still, the peers' messages wait there."""
        await asyncio.sleep(0)  # behind us in the loop's next round: what is readable now
        await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def close(self) -> None:
        """End `run`; what waits for the disk is dropped, as in a crash."""
        self._closing = True
        self._wake.set()
        if self._running:
            await self._ended.wait()

    async def _start(self) -> None:
        pointer = self._log_start.stored()
        if pointer is not None:
            if not await self._unless_closed(self._log_start.ensure(pointer.snapshot_id)):
                return
            self._stand_on(pointer)
            self._listener.on_restore(pointer.snapshot_id)
        self._begin()
        self._takes_part = True
        self._transport.on_message = self._on_message

    async def _unless_closed(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do what may take long, until `close` is called; answer whether it was done."""
        task = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._wake.set())
        while not task.done() and not self._closing:
            await self._wait()
        return not task.cancel()

    def _stand_on(self, pointer: Pointer) -> None:
        self._log_start.stand_on(pointer)
        self._applied = RaftPosition((pointer.index, pointer.term))

    def _begin(self) -> None:
        """Take part under the voters in force, with an engine that knows them."""
        self._in_force.begin(self._applied[0])
        self._guard.begin_under(self._in_force.voters, self._make_engine())

    def _make_engine(self) -> "SyncObjEngine":
        self._engine = SyncObjEngine(
            member=self._me,
            voters=self._in_force.voters,
            journal=self._journal,
            guard=self._guard,
            now_ms=self._now_ms,
            on_role=self._roles.append,
        )
        self._engine.syncing = self._sync.since is not None
        return self._engine

    # --- what others call

    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        if not self._is_leader:
            raise NotController("this node does not lead", controller_id=self._guard.state.leader)
        if voters == self._in_force.voters and not self._in_force.is_founded:
            voters = None  # the first entry of each leadership says so
        if voters is not None:
            self.check_change(voters)
        self._proposals.add(Proposal(frames, voters))
        self._wake.set()

    def check_change(self, voters: Voters) -> None:
        """Check that a change of voters may be proposed now; raises as `append`.

        Before this leadership has committed something, another's change may be on its way without its knowledge.
        """
        if self._change_pending() or self._committed_term != self._engine.term:
            raise ChangePending("another change of voters may be in flight; try again shortly")
        check_one_change(self._in_force.voters, voters)

    def _change_pending(self) -> bool:
        last = self._journal[-1][1] if self._takes_part else 0
        return self._in_force.set_up_to(last) != self._in_force.voters or self._proposals.has_change

    def uncommitted(self) -> Sequence[bytes]:
        behind = self._journal[self._applied[0] + 1 - self._journal[0][1] :]
        frames = [frames_of(command) for command, _, _ in behind]
        return [each for each in frames if each] + [proposal.frames for proposal in self._proposals.waiting]

    async def read_index(self) -> None:
        if not self._is_leader:
            raise NotController("this node does not lead", controller_id=self._guard.state.leader)
        answered = self._reads.add()
        self._wake.set()
        await answered

    def transfer_leadership(self, to: NodeId | None) -> None:
        if not self._is_leader:
            raise NotController("this node does not lead", controller_id=self._guard.state.leader)
        target = self._guard.transfer.successor(self._in_force.voters) if to is None else to
        if target is None or not self._guard.transfer.is_linked(self._in_force.voters, target):
            raise InvalidRequest(
                "no other voter is reachable" if to is None else f"{to} is no other voter that is reachable",
                node_id=to,
            )
        self._guard.transfer.begin(target, self._now_ms())
        self._wake.set()

    def applied_position(self) -> RaftPosition:
        return self._applied

    def compact(self, position: RaftPosition, snapshot_id: str) -> None:
        if self._closing or not self._running:
            return  # the snapshot stands in the store; only the journal stays longer than it need
        pointer = self._log_start.pointer_to(position[0], snapshot_id)
        if pointer is not None:
            self._spawn(self._compact(pointer))

    async def _compact(self, pointer: Pointer) -> None:
        if await self._log_start.compact(pointer):
            self._wake.set()

    def pinned_snapshots(self) -> frozenset[str]:
        return frozenset(self._log_start.pinned)

    def status(self) -> RaftStatus:
        now, guard = self._now_ms(), self._guard
        syncing_since = self._sync.since
        voters = [Member(*item) for item in sorted(self._in_force.voters.items())]
        observers = [
            Member(*item) for item in sorted(guard.state.links.items()) if Member(*item) not in voters
        ]
        return RaftStatus(
            role=self._engine.role if self._takes_part else Role.FOLLOWER,
            leader_id=guard.state.leader,
            peers=tuple(self._peer_status(peer, now) for peer in (*voters, *observers) if peer != self._me),
            voters=self._in_force.voters,
            is_voter=guard.state.is_voter,
            change_pending=self._change_pending(),
            elections_total=guard.elections.won_total,
            disk_stalled_ms=0 if syncing_since is None else round(now - syncing_since),
            committed_ms_ago=_ms_ago(self._committed_at, now),
            synced_bytes_total=self._sync.bytes_total,
            syncs_total=self._sync.total,
            snapshot_not_fetched=self._log_start.why_not_fetched(self._applied[0]),
            entries_untrimmed=max(0, self._applied[0] - self._journal.snapshot_index),
            awaits_founded_quorum=guard.elections.awaits_founded_quorum,
        )

    def _peer_status(self, peer: Member, now: float) -> PeerStatus:
        last = self._journal[-1][1] if len(self._journal) else 0
        progress = self._guard.replication.peers.get(peer.node_id)
        if progress is not None and progress.directory_id != peer.directory_id:
            progress = None
        return PeerStatus(
            node_id=peer.node_id,
            directory_id=peer.directory_id,
            is_voter=self._guard.state.counts(peer),
            reachable=self._guard.state.links.get(peer.node_id) == peer.directory_id,
            entries_behind=None if progress is None else last - progress.match,
            forgot=progress is not None and progress.forgot,
            last_caught_up_ms_ago=None if progress is None else _ms_ago(progress.caught_up_at, now),
        )

    # --- what the transport calls

    def _on_message(self, sender: Member, message: Message) -> None:
        self._events.append(partial(self._guard.received, sender, message))
        self._wake.set()

    def _on_connected(self, member: Member) -> None:
        self._events.append(partial(self._guard.connected, member))
        self._wake.set()

    def _on_lost(self, member: Member, by_peer: bool) -> None:
        self._events.append(partial(self._guard.lost, member, by_peer=by_peer))
        self._wake.set()

    # --- the pump

    def _pump(self) -> None:
        now, guard = self._now_ms(), self._guard
        while self._events:
            self._events.popleft()(now)
            if self._in_force.follow(self._applied[0]):
                self._follow_voters(now)
        if self._syncs_first(now):
            return
        self._watch_disk(now)
        guard.elections.awaits_founded_quorum = not self._in_force.is_founded and self._others_founded()
        guard.tick(now)
        self._follow_roles()
        self._apply(now)
        if self._in_force.follow(self._applied[0]):
            self._follow_voters(now)
        if self._leads_later and self._applied[1] == self._engine.term:
            self._lead()
        if self._submit(now):
            guard.tick(now, submitted=True)
            self._follow_roles()
        self._reads.serve(now, self._applied[0])
        guard.replicate(now)
        if guard.follower.offered is not None:
            leader, news = guard.follower.offered
            guard.follower.offered = None
            pointer = self._log_start.accept(leader, news)
            if pointer is not None:
                self._spawn(self._install(leader, pointer))
        if guard.state.leader != self._hinted:
            self._hinted = guard.state.leader
            self._listener.on_leader_hint(self._hinted)
        self._send(guard.outbox.take_at_once())
        self._begin_sync(now)
        self._arm(now)

    def _syncs_first(self, now: float) -> bool:
        """Begin a follower's sync before anything else, because its leader waits for it; answer whether the rest must wait.

        Never twice in a row: the next pump, after the sync or a message, does everything.
        """
        may_wait = not self._hurried and not self._is_leader and self._engine.role is Role.FOLLOWER
        if not may_wait or not self._begin_sync(now):
            self._hurried = False
            return False
        self._hurried = True
        self._send(self._guard.outbox.take_at_once())
        self._arm(now)
        return True

    def _follow_roles(self) -> None:
        while self._roles:
            if self._roles.popleft() is not Role.LEADER:
                self._lead_no_more("this node ceased to lead")
            elif self._has_long_tail():
                # Applying it at once would delay the first heartbeats, and the others would elect another leader.
                self._leads_later = True
            else:
                self._lead()

    def _has_long_tail(self) -> bool:
        """Answer whether much of the log is not applied here yet, as after a start of all."""
        bytes_left = self._settings.claim_tail_bytes
        for position in range(self._applied[0] + 1 - self._journal[0][1], len(self._journal)):
            bytes_left -= len(self._journal[position][0])
            if bytes_left < 0:
                return True
        return False

    def _lead(self) -> None:
        self._leads_later = False
        self._is_leader = self._confirms = True
        self._submitted_at = self._now_ms()
        self._listener.on_leadership(is_leader=True)

    def _lead_no_more(self, why: str) -> None:
        self._leads_later = False
        if not self._is_leader:
            return
        self._is_leader = False
        self._proposals.clear()
        self._reads.fail(why)
        self._listener.on_leadership(is_leader=False)

    @property
    def commit_index(self) -> int:
        """Index up to which entries are committed, as far as this node may act on it."""
        if len(self._guard.state.voters) == 1 and self._guard.state.is_voter:
            # The engine counts its own entries before they are synced, and here nobody's answer comes after that.
            return min(self._engine.commit_index, self._journal.synced_index)
        return self._engine.commit_index

    def _apply(self, now: float) -> None:
        """Hand on what is committed, and synced here: so a log that reaches beyond its journal proves a loss."""
        journal, began = self._journal, self._now_ms()
        until = min(self.commit_index, journal.synced_index)
        while (index := self._applied[0] + 1) <= until:
            if self._now_ms() - began > APPLY_MS_PER_PUMP:
                self._wake.set()
                break
            command, _, term = journal[index - journal[0][1]]
            frames = frames_of(command)
            if frames:
                self._listener.on_commit(frames)
            elif command not in (NO_OP, EMPTY_PAYLOAD) and not is_change(command):
                raise InvariantBroken(f"log entry {index} is neither ours nor the engine's")
            if is_change(command):
                self._listener.on_voters(from_command(command)[0])
            self._applied = RaftPosition((index, term))
            if term == self._engine.term:
                self._committed_at, self._committed_term = now, term
            self._proposals.applied(index)
            if is_change(command):
                self._wake.set()
                break  # what follows is for those who vote from now on
        if self._committed_term != self._engine.term:
            self._committed_at = NEVER

    def _submit(self, now: float) -> bool:
        """Give the engine one entry with all that waits, or an empty one if nothing came for long.

        Not while a sync is under way: what came now could not be written before it returns, and packs better then. Nor
        while no majority is heard: the next tick might not take it.
        """
        if not self._is_leader or self._sync.since is not None or self._guard.transfer.is_under_way:
            return False
        if not self._proposals.waiting and now - self._submitted_at < IDLE_ENTRY_MS:
            return False
        if not self._engine.may_tick() or self._guard.may_find_silence(now):
            return False
        self._submitted_at = now
        proposal = self._proposals.take()
        if proposal is None:
            frames, voters = b"", None
        else:
            frames, voters = proposal
            if voters is None and self.confirms_voters():
                self._confirms = False
                voters = self._in_force.voters
        self._proposals.submitted(self._journal[-1][1] + 1, len(frames))
        command = EMPTY_PAYLOAD + frames if voters is None else to_command(voters, frames)
        self._engine.submit(command)
        return True

    # --- voters

    def confirms_voters(self) -> bool:
        """Answer whether what is submitted now is to say who votes: once in each leadership, if no change is on its way.

        What it says is in force already. In the log it proves that, to those who start anew and know of no commit: without
        it they would ask the majority of older voters, some of whom may be gone for good.
        """
        return self._confirms and not self._change_pending()

    def _follow_voters(self, now: float) -> None:
        """Act under the voters that are in force now, with an engine that knows them."""
        guard, voters = self._guard, self._in_force.voters
        role = self._engine.role
        stays = voters.get(self._me.node_id) == self._me.directory_id
        if role is Role.LEADER:
            guard.replicate(now)
            guard.transfer.leave_to(None if stays else guard.transfer.most_caught_up(voters))
        self._journal.known_commit = self.commit_index
        guard.begin_under(voters, self._make_engine())
        self._roles.append(Role.FOLLOWER)
        self._follow_roles()
        log.info("voters_in_force", extra={"voters": sorted(voters), "index": self._in_force.set_at})
        if stays and role is not Role.FOLLOWER:
            # A candidate was asked to stand by a leader that removed itself: news of the commit and request come together.
            guard.elections.campaign(force=True)

    def _send(self, outbox: list[tuple[NodeId, Message]]) -> None:
        for target, message in outbox:
            self._transport.send(target, message)
        if outbox:
            self._transport.flush()

    def _arm(self, now: float) -> None:
        """Set the timer to what is due next; a timer that rings early costs one idle pump."""
        due = self._guard.deadline()
        if self._sync.since is not None:
            if not self._guard.state.disk_stalled:
                due = min(due, self._sync.since + self._settings.disk_stall_ms)
        else:
            due = min(due, self._sync.idle_at)
            if (
                self._is_leader
                and not self._guard.transfer.is_under_way
                and not self._guard.may_find_silence(now)
            ):
                due = min(due, self._submitted_at + IDLE_ENTRY_MS)
        if self._timer is not None and self._timer_at <= due:
            return
        self._disarm()
        self._timer_at = due
        delay = max(due - now, 0.1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- syncs

    def _watch_disk(self, now: float) -> None:
        since = self._sync.since
        if (
            since is not None
            and now - since > self._settings.disk_stall_ms
            and not self._guard.state.disk_stalled
        ):
            self._guard.state.disk_stalled = True
            log.warning("disk_stalled", extra={"stalled_ms": round(now - since)})
            if (self._is_leader or self._leads_later) and len(self._in_force.voters) > 1:
                self._guard.state.step_down(self._engine.term + 1)

    def _begin_sync(self, now: float) -> bool:
        """Begin to sync what the journal holds, unless a sync is under way; answer whether one began.

        The guard's held messages leave when that sync ends, or now if there is nothing to sync.
        """
        if self._sync.since is not None:
            return False
        held = self._guard.outbox.take_after_sync()
        writing = self._sync.begin(now)
        if writing is not None:
            self._engine.syncing = True
            self._spawn(self._finish_sync(writing, held))
            return True
        self._send(held)
        self._sync.mark_if_idle(now)
        return False

    async def _finish_sync(self, writing: asyncio.Future[None], held: list[tuple[NodeId, Message]]) -> None:
        try:
            await writing
            self._synced(held)
        except Fault:
            self._closing = True  # not one more message leaves
            raise

    def _synced(self, held: list[tuple[NodeId, Message]]) -> None:
        now = self._now_ms()
        self._sync.completed(now)
        self._guard.state.disk_stalled = self._engine.syncing = False
        if self._closing:
            self._wake.set()
            return
        if self._sync.begins_next_file():
            self._spawn(self._make_next_file())
        # Before all else; what belongs to a former term is worth nothing to anyone by now.
        self._send([item for item in held if item[1]["term"] == self._engine.term])
        if self._guard.may_find_silence(now):
            self._wake.set()
        else:
            self._pump()  # at once: what was acknowledged before our own sync counts now

    async def _make_next_file(self) -> None:
        try:
            await self._sync.make_next_file()
        except Fault:
            self._closing = True
            raise

    # --- snapshots

    async def _install(self, leader: NodeId, pointer: Pointer) -> None:
        """Fetch the snapshot that a leader offers, and stand on it, unless the log has caught up meanwhile."""
        if await self._log_start.prepare(leader, pointer):
            self._stand_on(pointer)
            self._begin()
            self._listener.on_restore(pointer.snapshot_id)
            self._guard.follower.acknowledge(leader, pointer.index)
            self._wake.set()


def _ms_ago(then: float, now: float) -> int | None:
    return None if then == NEVER else round(now - then)
