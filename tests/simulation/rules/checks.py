"""Raft's properties and durability, checked after every step of any node."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from metadata_log.errors import (
    ChangePending,
    InvalidRequest,
)
from metadata_log.ids import NodeId
from quorum.raft.messages import Entry, Message
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.voters import from_command, is_change
from tests.simulation.rules.quorum import QuorumRules, Reading
from tests.simulation.rules.raft import RaftRules
from tests.simulation.rules.rule import rule
from tests.simulation.world.node import SimulatedNode, directory_of

if TYPE_CHECKING:
    from tests.simulation.world.world import World


CHECK_EVERY = 97
"""So many steps come between two looks at what takes long to look at."""


class Checks:
    """Raft's properties, and durability, after every step of any node."""

    one_change_at_a_time = rule("a leader takes no change of voters beside another, nor two voters at once")
    a_stranger_leads_nobody = rule("a node follows controllers of its cluster alone")
    state_machine_safety = rule("all nodes apply the same frames at the same positions")
    exactly_once = rule("a frame is applied at one position")
    log_matching = rule("all nodes commit the same entries")
    election_safety = rule("a term has one leader at most")
    leader_completeness = rule("a leader holds every entry that was committed before its term")
    promises_are_kept = rule("a vote, a request for votes and an acknowledgement rest on what is on the disk")
    durable_majority = rule("an entry is committed once a majority of the voters has it on their disks")
    commit_index_never_regresses = rule("the commit index of a node does not go back while it runs")
    leader_append_only = rule("a leader loses no entry of its log")

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
        self.rules.leads(node)

    def started(self, node: SimulatedNode) -> None:
        self.rules.started(node)
        self.quorum_rules.started(node)

    def received(self, node: SimulatedNode, sender: Member, message: Message) -> None:
        self.rules.received(node, sender, message)
        self.quorum_rules.received(node, sender, message)

    def read_answered(self, node: SimulatedNode, reading: Reading) -> None:
        self.quorum_rules.read_answered(node, reading)

    def is_committed(self, voters: Voters) -> bool:
        """Answer whether any committed entry has set these voters, or they found the quorum."""
        return any(voters == each for _, each in reversed(self._voters_set))

    def applied(self, node: SimulatedNode, position: int, frame: bytes) -> None:
        """State machine safety, and exactly once."""
        if position < len(self.history):
            if self.history[position] != frame:
                raise self.state_machine_safety(f"node {node.node_id} applied another frame {position}")
        else:
            if position > len(self.history) or frame in self.seen:
                raise self.exactly_once(f"frame {frame.hex()} at {position} of {len(self.history)}")
            self.history.append(frame)
            self.seen.add(frame)

    def after_pump(self, node: SimulatedNode) -> None:
        log = node.log
        if log is None:
            return
        journal, engine = node.journal, log._node.engine
        if engine.role is Role.LEADER:
            self._check_leader(node, engine.term)
            self._ask_for_changes(node)
        else:
            node.lead_mark = None
        leader = log._guard.state.leader
        if leader is not None and leader not in self._world.nodes:
            raise self.a_stranger_leads_nobody(f"node {node.node_id} follows {leader}")
        commit_index = log._guard.state.commit_index
        if commit_index < node.commit_seen:
            raise self.commit_index_never_regresses(
                f"node {node.node_id}: {node.commit_seen} -> {commit_index}"
            )
        base = journal[0][1]
        # The first entry's command may be blank: a snapshot covers it, and nobody will ask for it.
        for index in range(max(node.commit_seen, base) + 1, commit_index + 1):
            command, _, term = journal[index - base]
            known = self.committed.setdefault(index, (command, term))
            if known != (command, term):
                raise self.log_matching(f"node {node.node_id} committed another entry {index} of {term}")
            if index > self.commit_max:
                self.rules.committed(index, command)
                self.commit_max = index
                self.committed_in[index] = engine.term
                self._check_durable(index, term, applied=node.applied_seen)
                if is_change(command):
                    self._voters_set.append((index, from_command(command)[0]))
        node.commit_seen, node.applied_seen = commit_index, log.applied_position()[0]
        self.quorum_rules.stepped(node)
        self._steps += 1
        if self._steps % CHECK_EVERY == 0:
            self._check_matching()

    def _check_leader(self, node: SimulatedNode, term: int) -> None:
        if self.leaders.setdefault(term, node.node_id) != node.node_id:
            raise self.election_safety(f"nodes {self.leaders[term]} and {node.node_id} led term {term}")
        journal = node.journal
        base, last = journal[0][1], journal[-1][1]
        if node.lead_mark is None:
            self.rules.began_to_lead(node, term)
            assert node.log is not None
            if len(node.log._guard.state.voters) > 1:
                self._check_vote(node, node.node_id, term)
            self._world.weather.elected(node.node_id)
            for index in range(base + 1, self.commit_max + 1):
                if self.committed_in[index] >= term:
                    break  # votes that came late may still elect a leader of a former term; nobody follows it
                if index > last or journal[index - base][::2] != self.committed[index]:
                    raise self.leader_completeness(f"node {node.node_id} lacks {index} in term {term}")
        else:
            index, at_term = node.lead_mark
            if last < index or (index >= base and journal[index - base][2] != at_term):
                raise self.leader_append_only(f"node {node.node_id} lost entry {index} in term {term}")
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
            log._node.check_change(dict(state.voters) | strangers)
            raise self.one_change_at_a_time(f"node {node.node_id} takes {count} beside what is under way")

    def sent(self, node: SimulatedNode, target: NodeId, message: Message) -> None:
        """Promises rest on what is durable: a vote on the vote, a request and an acknowledgement on the entries.

        A candidate's vote for itself is a promise once it leads: `_check_leader`.
        """
        for rules in (self.rules, self.quorum_rules):
            rules.sent(node, target, message)
        kind, term, durable = message["type"], message["term"], node.durable
        if kind == "request_vote" and durable.term <= term:
            index = message["last_log_index"]
            if (
                index > 1
                and index > node.journal[0][1]
                and not _holds(durable.entries, index, message["last_log_term"])
            ):
                raise self.promises_are_kept(
                    f"node {node.node_id} asks for votes in term {term} for a log up to {index}, "
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
                raise self.promises_are_kept(
                    f"node {node.node_id} acknowledges entry {index} in term {term}, and its disk holds "
                    f"another there, or none: it ends at {last}"
                )

    @staticmethod
    def _check_vote(node: SimulatedNode, promised: NodeId, term: int) -> None:
        durable = node.durable
        if durable.term < term or (durable.term == term and durable.vote != promised):
            raise Checks.promises_are_kept(
                f"node {node.node_id} votes for {promised} in term {term}, and its disk knows of a "
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
            raise self.durable_majority(
                f"entry {index} of term {term} is committed, but only on "
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
                        raise self.log_matching(f"two logs differ at {index}, below an equal entry")
                    same = same or mine[2] == theirs[2]


def _holds(entries: Sequence[Entry], index: int, term: int) -> bool:
    if not entries:
        return False
    if index < entries[0][1]:
        return True  # a snapshot covers it
    return index <= entries[-1][1] and entries[index - entries[0][1]][2] == term
