"""Rules of what a node promises, and of the voters under which it acts, over the messages, answers and logs of all nodes.

Source: Raft thesis 3.3 (terms), 3.5 (replication), 4.1 (changes of voters), 6.4 (reads).
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from metadata_log.ids import NodeId
from quorum.raft.messages import Message
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.term_pace import TERM_JUMP_MAX
from quorum.raft.voters import from_command
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode
    from tests.simulation.world.world import World


ANSWERS: Final = frozenset({"next_node_idx", "response_vote", "read_probe_response", "nack"})
"""What carries its sender's own term, and asks for nothing. The answer to a pre-vote repeats the term that was asked for."""
NEVER: Final = -1


class Reading(NamedTuple):
    """A read that began at a leader."""

    term: int
    voters: Voters
    began: int
    """The number of the message before which it began."""


class QuorumRules:
    """What a node promises, and the voters under which it acts: the messages, answers and logs of all nodes."""

    higher_terms_are_adopted = rule("a node that gets a voter's answer of a higher term acts in that term")
    acknowledged_is_the_leaders = rule("an acknowledged entry is that of the leader's log")
    reads_ask_a_majority = rule("a majority confirms the leader after a read began and before it is answered")
    voters_are_committed = rule("a node acts under voters that a committed entry set, or the founders")
    one_change_behind_at_most = rule(
        "a node that holds a change of voters acts under the one before it at least"
    )

    def __init__(self, world: "World") -> None:
        self._world = world
        self._messages = 0
        """The number of messages sent so far: a message is sent after a read began if its number is higher."""
        self._told: dict[NodeId, tuple[int, Member]] = {}
        """The higher term that each node was told since its last step, and by whom."""
        self._confirming: dict[tuple[NodeId, NodeId, int, int], int] = {}
        """Confirmations of a voter to a leader of a term that are on their way, by the round's id: their numbers."""
        self._confirmed: dict[tuple[NodeId, NodeId, int], int] = defaultdict(lambda: NEVER)
        """The newest that a leader got from a voter in a term."""
        self._known_to_be_set: dict[NodeId, Voters] = {}
        """The voters of each node that were found in the committed log when they were looked at last."""

    def started(self, node: "SimulatedNode") -> None:
        """Forget what the process before was told."""
        self._told.pop(node.node_id, None)

    # --- messages

    def received(self, node: "SimulatedNode", sender: Member, message: Message) -> None:
        log = node.log
        if log is None or not node.has_engine() or sender.node_id not in self._world.nodes:
            return
        kind, term = message["type"], message["term"]
        if kind not in ANSWERS or not log._guard.state.counts(sender):
            return
        if kind == "read_probe_response":
            number = self._confirming.pop((sender.node_id, node.node_id, term, message["read_id"]), NEVER)
            pair = node.node_id, sender.node_id, term
            self._confirmed[pair] = max(self._confirmed[pair], number)
        own = log._node.engine.term
        if own < term <= own + TERM_JUMP_MAX:
            told = self._told.get(node.node_id)
            if told is None or told[0] < term:
                self._told[node.node_id] = term, sender

    def sent(self, node: "SimulatedNode", target: NodeId, message: Message) -> None:
        """Check a message."""
        self._messages += 1
        if message["type"] == "read_probe_response":
            key = node.node_id, target, message["term"], message["read_id"]
            self._confirming.setdefault(key, self._messages)
        if message["type"] == "next_node_idx" and message["success"]:
            self._acknowledges(node, target, message)

    def _acknowledges(self, node: "SimulatedNode", target: NodeId, message: Message) -> None:
        leader, term, index = self._world.nodes.get(target), message["term"], message["next_node_idx"] - 1
        if leader is None or leader.log is None or not leader.has_engine():
            return
        engine = leader.log._node.engine
        # Only while both are in that term: a later one may have cut either log.
        if engine.role is not Role.LEADER or not engine.term == term == node.journal.getCurrentTerm():
            return
        mine, theirs = node.journal, leader.journal
        if index <= max(mine[0][1], theirs[0][1]):
            return  # a snapshot covers it
        here = mine[index - mine[0][1]][2] if index <= mine[-1][1] else None
        there = theirs[index - theirs[0][1]][2] if index <= theirs[-1][1] else None
        if here is None or here != there:
            raise self.acknowledged_is_the_leaders(
                f"node {node.node_id} acknowledges entry {index} of term {here} to "
                f"{target}, which has one of term {there} there"
            )

    # --- reads

    def read_began(self, node: "SimulatedNode") -> Reading | None:
        if node.log is None or not node.has_engine():
            return None
        return Reading(node.log._node.engine.term, node.log._guard.state.voters, self._messages)

    def read_answered(self, node: "SimulatedNode", reading: Reading) -> None:
        """Check the answer of a read that began earlier in the same leadership."""
        if node.log is None:
            return
        # A change of voters may come into force between the answer and this look at it.
        either = reading.voters, node.log._guard.state.voters
        if not any(self._is_confirmed(node.node_id, voters, reading) for voters in either):
            by_itself = f"node {node.node_id} answers a read in term {reading.term} by itself"
            self._world.violated(self.reads_ask_a_majority(by_itself))

    def _is_confirmed(self, leader: NodeId, voters: Mapping[NodeId, object], reading: Reading) -> bool:
        confirmed = 1 + sum(
            self._confirmed[leader, voter, reading.term] > reading.began
            for voter in voters
            if voter != leader
        )
        return 2 * confirmed > len(voters)

    # --- after each step

    def stepped(self, node: "SimulatedNode") -> None:
        """Check a node that has handled all that it got."""
        log = node.log
        if log is None or not node.has_engine():
            return
        state = log._guard.state
        told = self._told.pop(node.node_id, None)
        if told is not None and state.engine.term < told[0] and state.counts(told[1]):
            raise self.higher_terms_are_adopted(
                f"node {node.node_id} is in term {state.engine.term}, and {told[1].node_id} "
                f"answered it in term {told[0]}"
            )
        self._acts_under(node, state.voters)

    def _acts_under(self, node: "SimulatedNode", voters: Voters) -> None:
        assert node.log is not None
        if not node.log._node.in_force.is_founded:
            return  # the settings say who votes
        journal = node.journal
        if len(journal.voter_changes) > 1:
            newest = [self._set_by(node, index) for index in journal.voter_changes[-2:]]
            if voters not in newest:
                raise self.one_change_behind_at_most(
                    f"node {node.node_id} acts under {sorted(voters)}, and its log sets "
                    f"{[sorted(each) for each in newest]} last"
                )
        if self._known_to_be_set.get(node.node_id) is not voters:
            if not self._world.checks.is_committed(voters):
                raise self.voters_are_committed(f"node {node.node_id} acts under {sorted(voters)}")
            self._known_to_be_set[node.node_id] = voters

    @staticmethod
    def _set_by(node: "SimulatedNode", index: int) -> Voters:
        return _voters_in(node.journal[index - node.journal[0][1]][0])


@lru_cache(maxsize=64)
def _voters_in(command: bytes) -> Voters:
    """Return the voters that an entry sets; the newest two are asked for after each step of each node."""
    return from_command(command)[0]
