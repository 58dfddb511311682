"""A quorum that the test steps by hand: guard, engine and journal, without an event loop and the adapter's pump.

Messages wait in `mail` until the test delivers, takes away, repeats or drops them. Syncs happen at once, or, with
`syncs = False`, only when the test says so.
"""

import random
from collections.abc import Iterable

from metadata_log.ids import NodeId
from quorum.raft.engine import SyncObjEngine, prepare_library
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.messages import Message
from quorum.raft.raft_log import Member, Role
from quorum.raft.raft_settings import RaftSettings
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.node import directory_of

Letter = tuple[NodeId, NodeId, Message]
A, B, C, D, E = (NodeId(number) for number in range(1, 6))


class HandNode:
    def __init__(self, quorum: "HandQuorum", node_id: NodeId) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.disk = SimulatedDisk()
        self.held: list[tuple[NodeId, Message]] = []
        self.open()

    def open(self) -> None:
        """Start, or start again after a crash, from what the disk holds."""
        quorum = self.quorum
        rng = random.Random(self.node_id)
        self.journal = Journal.open(self.disk, random_bytes=rng.randbytes, file_bytes=1 << 16)
        self.disk.settle()
        self.roles: list[Role] = []
        me, voters = quorum.member(self.node_id), dict(map(quorum.member, quorum.voters))
        self.guard = Guard(
            member=me,
            voters=voters,
            log=self.journal,
            settings=RaftSettings(),
            rng=rng,
            now_ms=quorum.now,
        )
        self.engine = SyncObjEngine(
            member=me,
            voters=voters,
            journal=self.journal,
            guard=self.guard,
            now_ms=lambda: quorum.now,
            on_role=self.roles.append,
        )
        self.guard.begin_under(voters, self.engine)
        self.held.clear()
        self.sync()
        for peer in quorum.voters:
            if peer != self.node_id:
                self.guard.connected(quorum.member(peer), quorum.now)

    def pump(self, *, submitted: bool = False) -> None:
        self.guard.tick(self.quorum.now, submitted=submitted)
        self.flush()

    def flush(self) -> None:
        self.guard.replicate(self.quorum.now)
        if self.quorum.syncs:
            self.sync()
            self.guard.replicate(self.quorum.now)
        self._post(self.guard.outbox.take_at_once())

    def sync(self, *, took_ms: float = 0.0) -> None:
        """Make durable what the journal holds; then what waited for it leaves."""
        self.held += self.guard.outbox.take_after_sync()
        batch = self.journal.take_batch()
        if batch is not None:
            self.journal.write(batch)
            self.disk.settle()
            self.journal.completed(batch)
        self._post(self.held)
        self.held = []
        self.guard.synced(self.quorum.now, sync_ms=took_ms)

    def _post(self, letters: Iterable[tuple[NodeId, Message]]) -> None:
        self.quorum.mail += [(self.node_id, target, message) for target, message in letters]

    def submit(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.engine.submit(b"\x10" + payload)
            self.pump(submitted=True)

    @property
    def text(self) -> str:
        """The log as `index@term` words."""
        return " ".join(f"{index}@{term}" for _, index, term in self.journal)


class HandQuorum:
    def __init__(self, voters: int = 3) -> None:
        prepare_library()
        self.now = 1_000.0
        self.syncs = True
        self.mail: list[Letter] = []
        self.voters = (A, B, C, D, E)[:voters]
        self.nodes = {voter: HandNode(self, voter) for voter in self.voters}

    def member(self, node_id: NodeId) -> Member:
        return Member(node_id, directory_of(node_id, 0))

    def __getitem__(self, node_id: NodeId) -> HandNode:
        return self.nodes[node_id]

    # --- mail

    def take(
        self, source: NodeId | None = None, target: NodeId | None = None, kind: str | None = None
    ) -> list[Letter]:
        """Take letters that match out of the mail."""
        taken = [
            letter
            for letter in self.mail
            if source in (None, letter[0])
            and target in (None, letter[1])
            and kind in (None, letter[2]["type"])
        ]
        self.mail = [letter for letter in self.mail if not any(letter is other for other in taken)]
        return taken

    def deliver(
        self, source: NodeId | None = None, target: NodeId | None = None, kind: str | None = None
    ) -> int:
        """Deliver the letters that match and wait now; return how many."""
        letters = self.take(source, target, kind)
        for letter in letters:
            self.hand_over(letter)
        return len(letters)

    def hand_over(self, letter: Letter) -> None:
        """Deliver one letter, which may have been delivered before."""
        source, target, message = letter
        node = self.nodes[target]
        node.guard.received(self.member(source), dict(message), self.now)
        node.pump()

    def settle(self, *among: NodeId) -> None:
        """Deliver among some nodes (all) until nothing is left; letters to others are lost."""
        group = set(among or self.voters)
        for _ in range(1_000):
            self.mail = [letter for letter in self.mail if letter[0] in group and letter[1] in group]
            if not self.mail:
                return
            source, target, _message = self.mail[0]
            letter = self.mail.pop(0)
            assert letter[:2] == (source, target)
            self.hand_over(letter)
        raise AssertionError("the quorum never came to rest")

    # --- time

    def wait(self, ms: float, *nodes: NodeId) -> None:
        """Let time pass, and pump those nodes (all)."""
        self.now += ms
        for node_id in nodes or self.voters:
            self.nodes[node_id].pump()

    def elect(self, node_id: NodeId, *among: NodeId) -> None:
        """Let every loyalty run out, then let one node stand; only those `among` hear of it."""
        self.now += 700.0
        self.mail.clear()
        node = self.nodes[node_id]
        node.guard.elections.campaign()
        node.flush()
        self.settle(node_id, *(among or self.voters))
        assert node.engine.role is Role.LEADER, f"node {node_id} was not elected"

    def beat(self, node_id: NodeId) -> None:
        """Let a leader's heartbeat fall due."""
        self.wait(51.0, node_id)
