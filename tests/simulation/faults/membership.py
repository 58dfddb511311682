"""Random changes of voters and lost disks, as an operator causes them, under all other faults.

At most one lost disk at a time belongs to a voter, and none while a change is under way, or asked for: with three voters a
quorum survives no second loss, and with the two that a removal leaves not the first. A voter whose disk was lost is removed
as soon as somebody leads; its successor, which starts as an observer, is made a voter by the next change.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from metadata_log.errors import InvalidRequest, Unavailable
from metadata_log.limits import CONTROLLERS_MAX
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer
from quorum.raft.raft_log import Member, Voters
from quorum.raft.voters import from_command, is_change

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode
    from tests.simulation.world.world import World

TRIES: Final = 25
"""How often to look for a moment at which a disk may be lost."""


class Membership:
    """The operator of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = world.rng
        self._lost: Member | None = None
        """The voter whose disk was lost, until it is removed."""

    def kinds(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return mean seconds between two changes of a kind (None: never), and what to do."""
        profile = self._world.profile
        return [
            (profile.change_every, self._change),
            (profile.wipe_every, self._wipe),
            (profile.lose_journal_every, self._lose_journal),
            (profile.lose_rack_every, self._lose_rack),
        ]

    # --- what is known

    def _newest(self) -> Voters | None:
        """Return the voters if all who run agree on them, no log, of a stopped node either, ends in another change, and all
        voters, and all who would take themselves for voters, would know it if they started anew.
        """
        if self._world.changes_asked:
            return None  # on its way to a leader, who does not know of it yet
        nodes = list(self._world.nodes.values())
        told = [node.log.status() for node in nodes if node.log is not None]
        if any(node.rots for node in nodes):
            return None  # who would vote cannot be read
        if not told or any(status.change_pending or status.voters != told[0].voters for status in told):
            return None
        voters = told[0].voters
        for node in nodes:
            for standing in (node.durable, node.writing or node.durable):
                changes = [command for command, _, _ in standing.entries if is_change(command)]
                if changes and from_command(changes[-1])[0] != voters:
                    return None
            recovered = self._recovered(node)
            if recovered != voters and node.member in (*voters.items(), *recovered.items()):
                return None
        return voters

    def _recovered(self, node: "SimulatedNode") -> Voters:
        """Return who would vote in a node's eyes if it started anew and heard nobody."""
        data = node.disk.read(POINTER_FILE)
        index, voters = 0, self._world.settings_voters
        if data is not None:
            pointer = Pointer.from_bytes(data)
            index, voters = pointer.index, pointer.voters
        changes = [(at, command) for command, at, _ in node.durable.entries if is_change(command)]
        for at, command in changes[:-1]:
            if at > index:
                voters = from_command(command)[0]
        return voters

    def _leader(self) -> "SimulatedNode | None":
        return next((node for node in self._world.nodes.values() if node.is_leader()), None)

    # --- what is done

    def _change(self) -> None:
        node = self._leader()
        if node is None or node.log is None or not node.is_awake():
            return
        voters = dict(node.log.status().voters)
        if self._lost is not None and self._lost not in voters.items():
            self._lost = None
        if self._lost is not None:
            after = {voter: directory for voter, directory in voters.items() if voter != self._lost.node_id}
        else:
            others = [
                other.member
                for other in self._world.nodes.values()
                if other.node_id not in voters and not other.has_lost_journal
            ]
            if others and (len(voters) < 3 or self._rng.random() < 0.5) and len(voters) < CONTROLLERS_MAX:
                after = voters | dict([self._rng.choice(others)])
            elif len(voters) > 1:
                gone = self._rng.choice(sorted(voters))
                after = {voter: directory for voter, directory in voters.items() if voter != gone}
            else:
                return
        with suppress(Unavailable, InvalidRequest):
            self._world.propose(node, after)
            self._world.faults["change of voters"] += 1
            self._world.tell(node, f"is asked to have these vote: {sorted(after)}")
        if self._world.profile.hurries_changes and self._rng.random() < 0.3:
            self._world.loop.call_later(self._rng.uniform(0.0, 0.02), self._change)

    def _wipe(self, tries: int = TRIES) -> None:
        """Lose a disk."""
        self._lose(list(self._world.nodes.values()), self._replace, self._wipe, tries)

    def _lose_journal(self, tries: int = TRIES) -> None:
        """Lose a journal, or set it back to where it began; what lies beside it stays, and gives that away."""
        nodes = [node for node in self._world.nodes.values() if not node.is_fresh]
        self._lose(nodes, self._take_journal, self._lose_journal, tries)

    def _lose(
        self,
        nodes: "list[SimulatedNode]",
        lose: "Callable[[SimulatedNode], None]",
        again: Callable[[int], None],
        tries: int,
    ) -> None:
        """Let one of these nodes lose what it promised, now or as soon as the quorum survives that."""
        voters = self._survivors()
        if voters is None or not self._world.is_rough:
            if tries and self._world.is_rough:
                self._world.loop.call_later(0.2, again, tries - 1)
            return
        if not nodes:
            return
        node = self._rng.choice(nodes)
        if node.member in voters.items():
            if len(voters) < 3:
                return
            self._lost = node.member
        lose(node)

    def _survivors(self) -> Voters | None:
        """Return the voters if one of three or more, and any other node, may lose what it promised; None if not."""
        voters = self._newest()
        # Who was wiped while a change that admits it was under way is a voter that nobody can be any more, too.
        is_one_gone = voters is not None and any(
            self._world.nodes[voter].directory_id != directory for voter, directory in voters.items()
        )
        return None if self._lost is not None or is_one_gone else voters

    def _replace(self, node: "SimulatedNode") -> None:
        self._world.faults["wiped disk"] += 1
        self._world.replace_disk(node)
        self._start_soon(node)

    def _take_journal(self, node: "SimulatedNode") -> None:
        self._world.faults["lost journal"] += 1
        node.crash()
        is_emptied = not node.proves_its_journal() or self._rng.random() < 0.5
        node.lose_journal(is_emptied=is_emptied)
        self._start_soon(node)

    def _lose_rack(self, tries: int = TRIES) -> None:
        """Lose the disks of all founders that vote no more, and cut these off from the others for a while.

        The founders are what new disks would take for the voters; so wait until a majority of them is concerned.
        """
        world, voters = self._world, self._survivors()
        gone = [world.nodes[founder] for founder in world.founders if voters and founder not in voters]
        if 2 * len(gone) <= len(world.founders) or not world.is_rough:
            if tries and world.is_rough:
                world.loop.call_later(0.2, self._lose_rack, tries - 1)
            return
        cut, seconds = world.network.new_cut(), self._rng.uniform(1.0, 4.0)
        world.tell("network", f"cuts {[node.node_id for node in gone]} from all others for {seconds:.1f} s")
        for node in gone:
            world.faults["wiped disk"] += 1
            world.replace_disk(node)
            world.loop.call_later(self._rng.uniform(0.05, 0.5), _start, node)
            for other in world.nodes.values():
                if other not in gone:
                    world.network.block(node.node_id, other.node_id, cut)
                    world.network.block(other.node_id, node.node_id, cut)
        world.loop.call_later(seconds, world.network.unblock, cut)

    def _start_soon(self, node: "SimulatedNode") -> None:
        self._world.loop.call_later(self._rng.uniform(0.05, 2.0), _start, node)


def _start(node: "SimulatedNode") -> None:
    if node.log is None and node.task is None:
        node.start()
