"""Pure: what a node of Raft does next: what has arrived goes in, and a `Plan` comes out, which the adapter carries out.

    step       takes in what has arrived, and lets the engine count and commit
    advance    acts on what was applied since: other voters are in force, or an elected node has caught up
    dispatch   proposes what waits; says what leaves, what is synced, and when to look again

Nothing here waits, sends, writes or applies. Source: etcd-io/raft, whose RawNode returns what is Ready.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from metadata_log.errors import ChangePending, InvalidRequest, NotController
from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_ENTRY_BYTES_MAX
from quorum.raft.applied_entries import AppliedEntries
from quorum.raft.engine import SyncObjEngine, prepare_library
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.messages import ForeignMessage, Message, frames_of
from quorum.raft.node_state import NodeState, State
from quorum.raft.progress import NEVER
from quorum.raft.proposals import EMPTY_PAYLOAD, Proposal, Proposals
from quorum.raft.raft_log import Member, RaftListener, Role, Voters
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.voters import check_one_change, to_command
from quorum.raft.voters_in_force import VotersInForce

IDLE_ENTRY_MS: Final = 1_000
"""An idle leader commits an empty entry this often: it proves disks and majority, and uses no offset."""
Outgoing = list[tuple[NodeId, Message]]


class Fact(NamedTuple):
    """Something to log."""

    event: str
    extra: dict[str, object]
    is_warning: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """What to do, in the order of the fields."""

    facts: tuple[Fact, ...] = ()
    drop: tuple[tuple[Member, str], ...] = ()
    """Members whose links are closed, each with the reason."""
    tell: tuple[bool, ...] = ()
    """What the listener learns of this node's leadership, in order: whether it leads."""
    send: Outgoing = []
    sync: Outgoing | None = None
    """The messages that leave once the journal is synced, which begins now; None: no sync begins."""
    apply: bool = False
    """Whether entries are committed and synced here that are not applied."""
    timer: float | None = None
    """When to look again, if nothing arrives before; None: the next plan says so, and follows at once."""


NOTHING: Final = Plan()
"""All is as it was: the timer, too."""


class Syncs(Protocol):
    """What is read of the syncs of the journal."""

    since: float | None

    @property
    def running_since(self) -> float | None: ...

    @property
    def idle_at(self) -> float: ...


class RawNode:
    """Guard, engine, journal, voters and proposals of one node, without anything that waits; arguments as of the adapter."""

    def __init__(
        self,
        *,
        member: Member,
        voters: Voters,
        journal: Journal,
        listener: RaftListener,
        settings: RaftSettings,
        now_ms: Callable[[], float],
        rng: random.Random,
        others_founded: Callable[[], bool],
        only_joins: bool,
        syncs: Syncs,
    ) -> None:
        prepare_library()
        self.state = NodeState()
        self.in_force = VotersInForce(voters, journal)
        self.others_founded = others_founded
        self.only_joins = only_joins
        self.guard = Guard(
            member=member, voters=voters, log=journal, settings=settings, rng=rng, now_ms=now_ms()
        )
        self.guard.belief.only_joins = only_joins
        self.guard.belief.newest_voters = lambda: self.in_force.set_up_to(journal[-1][1])
        self.proposals = Proposals()
        self.applied = AppliedEntries(self.guard.state, listener, self.proposals, now_ms)
        self.engine: SyncObjEngine
        """Set by `begin`, and again when the voters change or a snapshot is installed."""
        self._syncs = syncs
        self.has_news = True
        """Whether the next step must look at everything: set by whatever is not the answer of a follower."""
        self._events: deque[Callable[[float], None]] = deque()
        """What happened to links and came over them, in order; each is called with the time of the next step."""
        self.only_began_sync = False
        """Whether the last step did nothing but begin a sync."""
        self._me = member
        self._journal = journal
        self._listener = listener
        self._settings = settings
        self._now_ms = now_ms
        self._roles: deque[Role] = deque()
        """Roles that the engine took since they were last followed."""
        self._facts: tuple[Fact, ...] = ()
        self._drop: tuple[tuple[Member, str], ...] = ()
        self._tell: tuple[bool, ...] = ()
        self._submitted_at = NEVER

    # --- the engine

    def begin(self) -> None:
        """Take part under the voters in force, with an engine that knows them."""
        self.in_force.begin(self.applied.index)
        self.guard.begin_under(self.in_force.voters, self._make_engine())

    def _make_engine(self) -> SyncObjEngine:
        self.engine = SyncObjEngine(
            member=self._me,
            voters=self.in_force.voters,
            journal=self._journal,
            guard=self.guard,
            now_ms=self._now_ms,
            on_role=self._roles.append,
            may_lead=self.in_force.is_founded or not self.only_joins,
        )
        self.engine.syncing = self._syncs.since is not None
        return self.engine

    # --- what the node is asked for; each raises as `RaftLog` says

    def propose(self, frames: bytes, voters: Voters | None) -> None:
        self.check_leads()
        if voters == self.in_force.voters and not self.in_force.is_founded:
            voters = None  # the first entry of each leadership repeats the voters in force
        if voters is not None:
            self.check_change(voters)
        self.proposals.add(Proposal(frames, voters))

    def check_leads(self) -> None:
        if not self.state.leads:
            raise NotController("this node does not lead", controller_id=self.guard.state.leader)

    def check_change(self, voters: Voters) -> None:
        """Check that a change of voters may be proposed now.

        Before this leadership has committed an entry, a former leader's change may be committed without its knowledge.
        """
        if self.change_pending() or self.applied.committed_term != self.engine.term:
            raise ChangePending("another change of voters may be in flight; try again shortly")
        check_one_change(self.in_force.voters, voters)

    def change_pending(self) -> bool:
        last = self._journal[-1][1] if self.state.has_engine else 0
        return self.in_force.set_up_to(last) != self.in_force.voters or self.proposals.has_change

    def transfer_to(self, to: NodeId | None, now: float) -> None:
        self.check_leads()
        transfer, voters = self.guard.transfer, self.in_force.voters
        target = transfer.successor(voters) if to is None else to
        if target is None or not transfer.is_linked(voters, target):
            raise InvalidRequest(
                "no other voter is reachable" if to is None else f"{to} is no other voter that is reachable",
                node_id=to,
            )
        transfer.begin(target, now)

    # --- what arrives

    def happened(self, event: Callable[[float], None]) -> None:
        """Let the next step handle what happened to a link."""
        self._events.append(event)
        self.has_news = True

    @property
    def has_unread(self) -> bool:
        """Whether something has arrived for the next step of a node that takes part."""
        return bool(self._events) and self.state.has_engine

    def arrived(self, sender: Member, message: Message) -> None:
        """Let the next step handle a message."""
        self._events.append(partial(self._receive, sender, message))
        if message["type"] != "next_node_idx":
            self.has_news = True

    def _receive(self, sender: Member, message: Message, now: float) -> None:
        try:
            self.check_payloads(message)
            self.guard.received(sender, message, now)
        except ForeignMessage as error:
            self._drop += ((sender, str(error)),)
            self.has_news = True

    def check_payloads(self, message: Message) -> None:
        """Check the frames of entries before they are journalled: once committed, damage would stop every node, for good."""
        for command, index, _ in message.get("entries", ()):
            try:
                self._listener.check(frames_of(command))
            except ValueError as error:
                raise ForeignMessage(f"entry {index}: {error}") from error

    def still_of_use(self, held: Outgoing) -> Outgoing:
        """Return those messages that waited for a sync which are of the present term: others are of no use any more."""
        return [item for item in held if item[1]["term"] == self.engine.term]

    def synced(self, now: float, *, sync_ms: float, timer_is_set: bool = False) -> bool:
        """Resume what waited for a sync, which has ended; answer whether the next step has anything to do.

        Mostly a leader's own sync is over before a follower has answered. The timer that is set is early enough for that.
        """
        state, replication = self.guard.state, self.guard.replication
        is_due = self._events or state.disk_stalled or self._journal.dirty
        may_be_nothing = timer_is_set and bool(state.others) and not is_due
        has_nothing = may_be_nothing and self.is_all_as_it_was() and not replication.may_count_more()
        state.disk_stalled = self.engine.syncing = False
        self.guard.synced(now, sync_ms=sync_ms)
        self.has_news = not has_nothing
        return self.has_news

    # --- plans

    def step(self, now: float, *, timer_is_set: bool = False) -> Plan:
        """Take in what has arrived; NOTHING: no more is to be done, and the timer that is set is early enough."""
        guard, may_be_nothing = self.guard, timer_is_set and bool(self._events)
        while self._events:
            self._events.popleft()(now)
            if self.in_force.follow(self.applied.index):
                self._change_voters(now)
        if may_be_nothing and self.is_all_as_it_was():
            return NOTHING
        self.has_news = False
        self.only_began_sync = self.syncs_first()
        if self.only_began_sync:
            return self._sending(now)
        self._watch_disk(now)
        guard.elections.awaits_founded_quorum = not self.in_force.is_founded and (
            self.only_joins or self.others_founded()
        )
        guard.tick(now)
        self._follow_roles()
        return self._plan(apply=self.applied.is_behind())

    def is_all_as_it_was(self) -> bool:
        """Answer whether a leader's followers answered, and nothing follows from that: the second one of three voters
        mostly acknowledges what is committed already.
        """
        guard, outbox = self.guard, self.guard.outbox
        return (
            self.state.leads
            and not self.has_news
            and not (self._roles or self.proposals.waiting or outbox.at_once or outbox.after_sync)
            and not (guard.replication.may_commit_more or guard.replication.may_lack)
            and not guard.transfer.is_under_way
        )

    def advance(self, now: float) -> Plan:
        self.applied.note_level()
        if self.in_force.follow(self.applied.index):
            self._change_voters(now)
        if self.state.now is State.CATCHING_UP and self.applied.position[1] == self.engine.term:
            self.state.caught_up()
            self._begin_to_lead()
        return self._plan() if self._tell or self._facts else NOTHING

    def dispatch(self, now: float) -> Plan:
        guard = self.guard
        if self._submit(now):
            guard.tick(now, submitted=True)
            self._follow_roles()
        guard.replicate(now)
        return self._sending(now)

    def _sending(self, now: float) -> Plan:
        """Return the plan that ends a step: what leaves, what of that after a sync, and when to look again."""
        outbox = self.guard.outbox
        send, sync = outbox.take_at_once(), None
        if self._syncs.since is None:
            held = outbox.take_after_sync()
            if self._journal.dirty:
                sync, self.engine.syncing = held, True
            else:
                send += held
        timer = self._due(now, begins_sync=sync is not None)
        return self._plan(send=send, sync=sync, timer=timer)

    def _plan(self, **what: Any) -> Plan:
        facts, drop, tell = self._facts, self._drop, self._tell
        self._facts, self._drop, self._tell = (), (), ()
        return Plan(facts=facts, drop=drop, tell=tell, **what)

    def _due(self, now: float, *, begins_sync: bool) -> float:
        """Return when to look again, if nothing arrives before."""
        due = self.guard.deadline()
        since = now if begins_sync else self._syncs.running_since
        if since is not None:
            if not self.guard.state.disk_stalled:
                due = min(due, since + self._settings.disk_stall_ms)
        else:
            if self._syncs.idle_at > now:  # else the journal is marked as idle now
                due = min(due, self._syncs.idle_at)
            if (
                self.state.leads
                and not self.guard.transfer.is_under_way
                and not self.guard.may_find_silence(now)
            ):
                due = min(due, self._submitted_at + IDLE_ENTRY_MS)
        return due

    def syncs_first(self) -> bool:
        """Answer whether a follower's sync begins before all else, because its leader waits for it.

        Never twice in a row: the next step, after the sync or a message, does everything.
        """
        may_wait = not self.only_began_sync and not self.state.leads and self.engine.role is Role.FOLLOWER
        return may_wait and self._syncs.since is None and self._journal.dirty

    def _watch_disk(self, now: float) -> None:
        since, state = self._syncs.running_since, self.guard.state
        if since is not None and now - since > self._settings.disk_stall_ms and not state.disk_stalled:
            state.disk_stalled = True
            self._facts += (Fact("disk_stalled", {"stalled_ms": round(now - since)}, is_warning=True),)
            if self.state.now is not State.FOLLOWS and len(self.in_force.voters) > 1:
                state.step_down(self.engine.term + 1)

    # --- leadership

    def _follow_roles(self) -> None:
        while self._roles:
            if self._roles.popleft() is not Role.LEADER:
                if self.state.ceased():
                    self._cease_to_lead()
            elif self.applied.has_tail():
                # In slices, once it is committed: at once it would delay the first heartbeats, and the others would elect
                # another leader.
                self.state.elected_behind()
            else:
                self.state.elected()
                self._begin_to_lead()

    def _begin_to_lead(self) -> None:
        self._submitted_at = self._now_ms()
        self._tell += (True,)

    def _cease_to_lead(self) -> None:
        self.proposals.clear()
        if self._tell and self._tell[-1]:
            self._tell = self._tell[:-1]  # the listener has not learned of this leadership
        else:
            self._tell += (False,)

    def _submit(self, now: float) -> bool:
        """Give the engine entries with the proposals that wait, or an empty one if none came for long.

        Not while a sync is under way: the entries could not be written before that ends, and more share one then. Not while
        a majority may be silent either: the engine might give up leading in its next tick.
        """
        if not self.state.leads or self._syncs.since is not None or self.guard.transfer.is_under_way:
            return False
        if not self.proposals.waiting and now - self._submitted_at < IDLE_ENTRY_MS:
            return False
        if not self.engine.may_tick() or self.guard.may_find_silence(now):
            return False
        self._submitted_at = now
        index, bytes_left = self._journal[-1][1], RAFT_ENTRY_BYTES_MAX
        proposal: Proposal | None = self.proposals.take() or Proposal(b"", None)
        while proposal is not None:
            frames, voters = proposal
            if voters is None and frames and self._may_confirm_voters():
                self.state.confirmed()
                voters = self.in_force.voters
            index += 1
            bytes_left -= len(frames)
            self.proposals.submitted(index, len(frames))
            self.engine.submit(EMPTY_PAYLOAD + frames if voters is None else to_command(voters, frames))
            # A change of voters is the last of its step: what comes after it may have to wait for it.
            proposal = self.proposals.take() if voters is None and bytes_left > 0 else None
        return True

    # --- voters

    def _may_confirm_voters(self) -> bool:
        """Answer whether the next entry repeats the voters in force: once in each leadership, if no change is pending.

        In the log it proves that these were in force, to nodes that have just started and know of no commit. Without it
        they would ask a majority of older voters, some of which may be gone for good.
        """
        return self.state.now is State.LEADS_UNCONFIRMED and not self.change_pending()

    def _change_voters(self, now: float) -> None:
        """Act under the voters that are in force now, with an engine that knows them."""
        guard, voters = self.guard, self.in_force.voters
        role = self.engine.role
        is_voter = voters.get(self._me.node_id) == self._me.directory_id
        if role is Role.LEADER:
            guard.replicate(now)
            guard.transfer.leave_to(None if is_voter else guard.transfer.most_caught_up(voters))
        self._journal.known_commit = guard.state.commit_index
        guard.begin_under(voters, self._make_engine())
        self._roles.append(Role.FOLLOWER)
        self._follow_roles()
        self._facts += (Fact("voters_in_force", {"voters": sorted(voters), "index": self.in_force.set_at}),)
        if is_voter and (role is Role.LEADER or (role is Role.CANDIDATE and guard.elections.was_asked())):
            # A leader that removed itself asked this candidate to campaign: commit and request arrive together. Any other
            # candidate may apply a change late, while others follow another leader: it asks them again, by a pre-vote.
            guard.elections.campaign(force=True)
