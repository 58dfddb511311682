"""Edge: PySyncObj behind RaftLog: one pump that receives, ticks, applies, sends, and syncs in a worker thread.

    pump: received messages -> guard -> engine -> journal; apply committed entries; submit proposals; send messages
    sync: one journal batch at a time, in a worker thread; when it ends, the messages that rest on it are sent

Clock, chance, disk, links and thread are arguments, so this very code runs under the simulator. All of it runs on one event
loop; the engine's code never touches a socket, a file, a thread or a pickle (`engine.py`).
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from metadata_log.errors import (
    ChangePending,
    Fault,
    InvalidRequest,
    NotController,
    leaves,
    most_telling,
)
from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_ENTRY_BYTES_MAX
from quorum.raft.applied_entries import AppliedEntries
from quorum.raft.engine import SyncObjEngine, prepare_library
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.journal_sync import JournalSync
from quorum.raft.log_start import LogStart, PointerDisk
from quorum.raft.messages import ForeignMessage, Message, RaftTransport, frames_of
from quorum.raft.peer_status import ms_ago, peer_statuses, why_led_below
from quorum.raft.pointer import Pointer
from quorum.raft.progress import NEVER
from quorum.raft.proposals import EMPTY_PAYLOAD, Proposal, Proposals
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
from quorum.raft.voters import check_one_change, to_command
from quorum.raft.voters_in_force import VotersInForce
from quorum.raft.waiting_reads import WaitingReads
from quorum.raft.wake import Wake

log = logging.getLogger(__name__)
IDLE_ENTRY_MS: Final = 1_000
"""An idle leader commits an empty entry this often: it proves disks and majority, and uses no offset."""


class PySyncObjLog:
    """RaftLog on PySyncObj. `run` is the node; calls that come before it have their effect once it runs.

    `voters` found the quorum; once the log has set voters, only the log counts. `now_ms` is monotonic;
    `run_in_thread` runs its argument off the loop, one at a time, and its future raises the exception of that;
    `others_founded` answers whether a linked controller's log says who votes. `only_joins`: until the log says who
    votes, this node founds no quorum, whoever is linked. The journal and the transport belong to the caller, who closes
    them after `run` has ended.
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
        only_joins: bool = False,
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
        self._only_joins = only_joins
        self._guard = Guard(
            member=member,
            voters=voters,
            log=journal,
            settings=settings,
            rng=rng,
            now_ms=now_ms(),
        )
        self._guard.belief.only_joins = only_joins
        self._guard.belief.newest_voters = lambda: self._in_force.set_up_to(journal[-1][1])
        self._sync = JournalSync(journal, run_in_thread, now_ms)
        self._log_start = LogStart(
            journal=journal,
            guard=self._guard,
            in_force=self._in_force,
            disk=pointer_disk,
            fetcher=fetcher,
            tail_entries=settings.tail_entries,
            tail_bytes=settings.tail_bytes,
            run_in_thread=self._sync.beside,
        )
        self._engine: SyncObjEngine
        self._tasks: asyncio.TaskGroup
        self._spawned: set[asyncio.Task[None]] = set()
        self._wake = Wake()
        transport.on_connected = self._on_connected
        transport.on_lost = self._on_lost
        transport.on_arriving = self._on_arriving
        self._running = False
        self._has_engine = False
        """False while a node loads its snapshot at the start; even then its status may be asked for."""
        self._closing = False
        self._ended = asyncio.Event()
        self._events: deque[Callable[[float], None]] = deque()
        """Events of links and their messages, in order; the pump calls each with the time."""
        self._roles: deque[Role] = deque()
        """Roles that the engine took since the last pump."""
        self._is_leader = False
        self._applies_before_leading = False
        """Whether this node was elected, and applies what its log holds before it reports its leadership."""
        self._must_confirm_voters = False
        """Whether no entry of this leadership has repeated the voters in force yet."""
        self._reported_leader: NodeId | None = None
        self._proposals = Proposals()
        self._reads = WaitingReads(self._guard.reads)
        self._applied = AppliedEntries(self._guard.state, listener, self._proposals, now_ms)
        self._submitted_at = NEVER
        self._only_began_sync = False
        """Whether the last pump did nothing but begin a sync."""

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
                    await self._wake.wait()
                    if self._guard.may_find_silence(self._now_ms()):
                        await self._read_sockets()
                self._cease_to_lead("this node is stopping")
                while self._sync.since is not None:
                    await self._wake.wait()  # the caller may close the journal's files once we return
                for task in self._spawned:
                    task.cancel()
        except BaseExceptionGroup as group:
            # One cause is enough to stop, and is easier to read without the group.
            raise most_telling(leaves(group)) from None
        finally:
            self._running = self._has_engine = False
            self._wake.disarm()
            self._reads.fail("this node has stopped")
            self._ended.set()

    async def _read_sockets(self) -> None:
        """Let the loop read all sockets once: if this process was delayed, the peers' messages wait there."""
        await asyncio.sleep(0)  # sockets that are readable now are read after us, in the loop's next round
        await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def close(self) -> None:
        """End `run`; messages and records that wait for the disk are dropped, as in a crash."""
        self._closing = True
        self._wake.set()
        if self._running:
            await self._ended.wait()

    async def _start(self) -> None:
        pointer = self._log_start.stored()
        if pointer is not None:
            if not await self._unless_closed(self._log_start.ensure(pointer)):
                return
            self._stand_on(pointer)
            self._listener.on_restore(pointer.snapshot_id)
        self._begin()
        self._has_engine = True
        self._transport.on_message = self._on_message

    async def _unless_closed(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work that may take long, and cancel it if `close` is called; answer whether it was done."""
        task = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._wake.set())
        while not task.done() and not self._closing:
            await self._wake.wait()
        return not task.cancel()

    def _stand_on(self, pointer: Pointer) -> None:
        self._log_start.stand_on(pointer)
        self._applied.stand_on(RaftPosition((pointer.index, pointer.term)))

    def _begin(self) -> None:
        """Take part under the voters in force, with an engine that knows them."""
        self._in_force.begin(self._applied.index)
        self._guard.begin_under(self._in_force.voters, self._make_engine())

    def _make_engine(self) -> "SyncObjEngine":
        self._engine = SyncObjEngine(
            member=self._me,
            voters=self._in_force.voters,
            journal=self._journal,
            guard=self._guard,
            now_ms=self._now_ms,
            on_role=self._roles.append,
            may_lead=self._in_force.is_founded or not self._only_joins,
        )
        self._engine.syncing = self._sync.since is not None
        return self._engine

    # --- what others call

    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        if not self._is_leader:
            raise NotController("this node does not lead", controller_id=self._guard.state.leader)
        if voters == self._in_force.voters and not self._in_force.is_founded:
            voters = None  # the first entry of each leadership repeats the voters in force
        if voters is not None:
            self.check_change(voters)
        self._proposals.add(Proposal(frames, voters))
        self._wake.set()

    def check_change(self, voters: Voters) -> None:
        """Check that a change of voters may be proposed now; raises as `append`.

        Before this leadership has committed an entry, a former leader's change may be committed without its knowledge.
        """
        if self._change_pending() or self._applied.committed_term != self._engine.term:
            raise ChangePending("another change of voters may be in flight; try again shortly")
        check_one_change(self._in_force.voters, voters)

    def _change_pending(self) -> bool:
        last = self._journal[-1][1] if self._has_engine else 0
        return self._in_force.set_up_to(last) != self._in_force.voters or self._proposals.has_change

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
        return self._applied.position

    def compact(self, position: RaftPosition, snapshot_id: str, seal: bytes) -> None:
        if self._closing or not self._running:
            return  # the store has the snapshot; only the journal stays longer than it needs to
        pointer = self._log_start.pointer_to(position[0], snapshot_id, seal)
        if pointer is not None:
            self._spawn(self._compact(pointer))

    async def _compact(self, pointer: Pointer) -> None:
        if await self._log_start.compact(pointer):
            self._wake.set()

    def pinned_snapshots(self) -> frozenset[str]:
        return self._log_start.pinned

    def status(self) -> RaftStatus:
        now, guard = self._now_ms(), self._guard
        syncing_since = self._sync.running_since
        role = self._engine.role if self._has_engine else Role.FOLLOWER
        return RaftStatus(
            role=role,
            leader_id=guard.state.leader,
            peers=peer_statuses(guard, now),
            voters=self._in_force.voters,
            is_voter=guard.state.is_voter,
            change_pending=self._change_pending(),
            elections_total=guard.elections.won_total,
            disk_stalled_ms=0 if syncing_since is None else max(round(now - syncing_since), 0),
            committed_ms_ago=ms_ago(self._applied.committed_at, now),
            level_ms_ago=ms_ago(
                self._applied.committed_at if role is Role.LEADER else self._applied.level_at, now
            ),
            synced_bytes_total=self._sync.bytes_total,
            syncs_total=self._sync.total,
            snapshot_not_fetched=self._log_start.why_not_fetched(self._applied.index),
            entries_untrimmed=max(0, self._applied.index - self._journal.snapshot_index),
            leader_heard_ms_ago=None if role is Role.LEADER else guard.elections.leader_heard_ms_ago(now),
            messages_ignored_total=guard.belief.ignored_total,
            awaits_founded_quorum=guard.elections.awaits_founded_quorum,
            only_joins=self._only_joins,
            led_below=why_led_below(guard, now) if self._has_engine else None,
        )

    # --- what the transport calls

    def _on_message(self, sender: Member, message: Message) -> None:
        self._events.append(partial(self._receive, sender, message))
        self._wake.set()

    def _receive(self, sender: Member, message: Message, now: float) -> None:
        try:
            self._check_payloads(message)
            self._guard.received(sender, message, now)
        except ForeignMessage as error:
            self._transport.drop(sender, str(error))

    def _check_payloads(self, message: Message) -> None:
        """Check the frames of entries before they are journalled: once committed, damage would stop every node, for good."""
        for command, index, _ in message.get("entries", ()):
            try:
                self._listener.check(frames_of(command))
            except ValueError as error:
                raise ForeignMessage(f"entry {index}: {error}") from error

    def _on_connected(self, member: Member) -> None:
        self._events.append(partial(self._guard.connected, member))
        self._wake.set()

    def _on_arriving(self, member: Member) -> None:
        self._events.append(partial(self._guard.arriving, member))
        self._wake.set()

    def _on_lost(self, member: Member, by_peer: bool) -> None:
        self._events.append(partial(self._guard.lost, member, by_peer=by_peer))
        self._wake.set()

    # --- the pump

    def _pump(self) -> None:
        now, guard = self._now_ms(), self._guard
        while self._events:
            self._events.popleft()(now)
            if self._in_force.follow(self._applied.index):
                self._change_voters(now)
        if self._syncs_first(now):
            return
        self._watch_disk(now)
        guard.elections.awaits_founded_quorum = not self._in_force.is_founded and (
            self._only_joins or self._others_founded()
        )
        guard.tick(now)
        self._follow_roles()
        if self._applied.run(now):
            self._wake.set()
        if self._in_force.follow(self._applied.index):
            self._change_voters(now)
        if self._applies_before_leading and self._applied.position[1] == self._engine.term:
            self._lead()
        if self._submit(now):
            guard.tick(now, submitted=True)
            self._follow_roles()
        self._reads.serve(now, self._applied.index)
        guard.replicate(now)
        if guard.follower.offered is not None:
            leader, offer = guard.follower.offered
            guard.follower.offered = None
            pointer = self._log_start.accept(leader, offer)
            if pointer is not None:
                self._spawn(self._install(leader, pointer))
        if guard.state.leader != self._reported_leader:
            self._reported_leader = guard.state.leader
            self._listener.on_leader_hint(self._reported_leader)
        self._send(guard.outbox.take_at_once())
        self._begin_sync(now)
        self._arm(now)

    def _syncs_first(self, now: float) -> bool:
        """Begin a follower's sync before all else, because its leader waits for it; answer whether the pump ends with that.

        Never twice in a row: the next pump, after the sync or a message, does everything.
        """
        may_wait = not self._only_began_sync and not self._is_leader and self._engine.role is Role.FOLLOWER
        if not may_wait or not self._begin_sync(now):
            self._only_began_sync = False
            return False
        self._only_began_sync = True
        self._send(self._guard.outbox.take_at_once())
        self._arm(now)
        return True

    def _follow_roles(self) -> None:
        while self._roles:
            if self._roles.popleft() is not Role.LEADER:
                self._cease_to_lead("this node ceased to lead")
            elif self._applied.has_tail():
                # In slices, once it is committed: at once it would delay the first heartbeats, and the others would elect
                # another leader.
                self._applies_before_leading = True
            else:
                self._lead()

    def _lead(self) -> None:
        self._applies_before_leading = False
        self._is_leader = self._must_confirm_voters = True
        self._submitted_at = self._now_ms()
        self._listener.on_leadership(is_leader=True)

    def _cease_to_lead(self, why: str) -> None:
        self._applies_before_leading = False
        if not self._is_leader:
            return
        self._is_leader = False
        self._proposals.clear()
        self._reads.fail(why)
        self._listener.on_leadership(is_leader=False)

    def _submit(self, now: float) -> bool:
        """Give the engine entries with the proposals that wait, or an empty one if none came for long.

        Not while a sync is under way: the entries could not be written before that ends, and more share one then. Not while
        a majority may be silent either: the engine might give up leading in its next tick.
        """
        if not self._is_leader or self._sync.since is not None or self._guard.transfer.is_under_way:
            return False
        if not self._proposals.waiting and now - self._submitted_at < IDLE_ENTRY_MS:
            return False
        if not self._engine.may_tick() or self._guard.may_find_silence(now):
            return False
        self._submitted_at = now
        index, bytes_left = self._journal[-1][1], RAFT_ENTRY_BYTES_MAX
        proposal: Proposal | None = self._proposals.take() or Proposal(b"", None)
        while proposal is not None:
            frames, voters = proposal
            if voters is None and frames and self._may_confirm_voters():
                self._must_confirm_voters = False
                voters = self._in_force.voters
            index += 1
            bytes_left -= len(frames)
            self._proposals.submitted(index, len(frames))
            self._engine.submit(EMPTY_PAYLOAD + frames if voters is None else to_command(voters, frames))
            # A change of voters is the last of its pump: what comes behind it may have to wait for it.
            proposal = self._proposals.take() if voters is None and bytes_left > 0 else None
        return True

    # --- voters

    def _may_confirm_voters(self) -> bool:
        """Answer whether the next entry repeats the voters in force: once in each leadership, if no change is pending.

        In the log it proves that these were in force, to nodes that start anew and know of no commit. Without it they would
        ask a majority of older voters, some of which may be gone for good.
        """
        return self._must_confirm_voters and not self._change_pending()

    def _change_voters(self, now: float) -> None:
        """Act under the voters that are in force now, with an engine that knows them."""
        guard, voters = self._guard, self._in_force.voters
        role = self._engine.role
        is_voter = voters.get(self._me.node_id) == self._me.directory_id
        if role is Role.LEADER:
            guard.replicate(now)
            guard.transfer.leave_to(None if is_voter else guard.transfer.most_caught_up(voters))
        self._journal.known_commit = guard.state.commit_index
        guard.begin_under(voters, self._make_engine())
        self._roles.append(Role.FOLLOWER)
        self._follow_roles()
        log.info("voters_in_force", extra={"voters": sorted(voters), "index": self._in_force.set_at})
        if is_voter and (role is Role.LEADER or (role is Role.CANDIDATE and guard.elections.was_asked())):
            # A leader that removed itself asked this candidate to campaign: commit and request arrive together. Any other
            # candidate may apply a change late, while others follow another leader: it asks them again, by a pre-vote.
            guard.elections.campaign(force=True)

    def _send(self, outbox: list[tuple[NodeId, Message]]) -> None:
        for target, message in outbox:
            self._transport.send(target, message)
        if outbox:
            self._transport.flush()

    def _arm(self, now: float) -> None:
        """Set the timer to what is due next."""
        due = self._guard.deadline()
        if (since := self._sync.running_since) is not None:
            if not self._guard.state.disk_stalled:
                due = min(due, since + self._settings.disk_stall_ms)
        else:
            due = min(due, self._sync.idle_at)
            if (
                self._is_leader
                and not self._guard.transfer.is_under_way
                and not self._guard.may_find_silence(now)
            ):
                due = min(due, self._submitted_at + IDLE_ENTRY_MS)
        self._wake.arm(due, now)

    # --- syncs

    def _watch_disk(self, now: float) -> None:
        since = self._sync.running_since
        if (
            since is not None
            and now - since > self._settings.disk_stall_ms
            and not self._guard.state.disk_stalled
        ):
            self._guard.state.disk_stalled = True
            log.warning("disk_stalled", extra={"stalled_ms": round(now - since)})
            if (self._is_leader or self._applies_before_leading) and len(self._in_force.voters) > 1:
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
            self._closing = True  # no further message may leave
            raise

    def _synced(self, held: list[tuple[NodeId, Message]]) -> None:
        now = self._now_ms()
        took_ms = self._sync.completed(now)
        self._guard.state.disk_stalled = self._engine.syncing = False
        if self._closing:
            self._wake.set()
            return
        if self._sync.begins_next_file():
            self._spawn(self._make_next_file())
        # First of all; a message of a former term is of no use to its receiver any more.
        self._send([item for item in held if item[1]["term"] == self._engine.term])
        self._guard.synced(now, sync_ms=took_ms)
        if self._guard.may_find_silence(now):
            self._wake.set()
        else:
            was_set = self._wake.clear()
            self._pump()  # at once: acknowledgements that came before our own sync count now
            if was_set and self._only_began_sync:
                self._wake.set()  # the pump began the next sync and left the rest, such as a replay that goes on

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
