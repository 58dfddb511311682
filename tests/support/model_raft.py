"""Pure: a model of Raft for tests of the controller: the second implementation of RaftLog.

One shared log of payloads; the test says who leads, what is committed, and who hears of it.
"""

import asyncio
from collections.abc import Sequence

from metadata_log.errors import ChangePending, NotController
from metadata_log.ids import NodeId
from metadata_log.sliced import at_once
from quorum.raft.raft_log import PeerStatus, RaftListener, RaftPosition, RaftStatus, Role, Voters


class ModelQuorum:
    """The agreed log, and the nodes that follow it."""

    def __init__(self, voters: Voters | None = None) -> None:
        self.voters: Voters = voters or {}
        self.changes: dict[int, Voters] = {}
        """By the place in the log of what changes them."""
        self.observers: list[PeerStatus] = []
        self.gone: Sequence[PeerStatus] = ()
        self.caught_up_ms_ago: dict[NodeId, int | None] = {}
        self.snapshot_not_fetched: str | None = None
        """Of the voters that are not at the leader's heels; None: not reachable."""
        self.leader_heard_ms_ago: int | None = 0
        """By every follower."""
        self.log: list[bytes] = []
        self.committed = 0
        self.leader: ModelRaft | None = None
        self.nodes: dict[NodeId, ModelRaft] = {}

    def node(self, node_id: int, listener: RaftListener) -> "ModelRaft":
        node = self.nodes[NodeId(node_id)] = ModelRaft(self, NodeId(node_id), listener)
        return node

    def elect(self, node_id: int, *, keep: int | None = None) -> None:
        """Let a node lead; of the uncommitted tail only `keep` payloads survive (None: all), and it applies these first."""
        self.depose()
        if keep is not None:
            del self.log[self.committed + keep :]
            self.changes = {at: voters for at, voters in self.changes.items() if at < len(self.log)}
        self.leader = self.nodes[NodeId(node_id)]
        for node in self.nodes.values():
            node.listener.on_leader_hint(NodeId(node_id))
        self.committed = len(self.log)
        self.leader.catch_up()
        self.leader.listener.on_leadership(is_leader=True)

    def depose(self) -> None:
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.fail_reads()
            leader.listener.on_leadership(is_leader=False)

    def commit(self, count: int | None = None) -> None:
        """Commit the next `count` payloads (None: all) and let every node apply them."""
        self.committed = len(self.log) if count is None else self.committed + count
        for node in self.nodes.values():
            node.catch_up()


class ModelRaft:
    def __init__(self, quorum: ModelQuorum, node_id: NodeId, listener: RaftListener) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.listener = listener
        self.directory_id = quorum.voters.get(node_id)
        self.applied = 0
        self.hold_reads = False
        self._reads: list[asyncio.Future[None]] = []

    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        if self.quorum.leader is not self:
            raise NotController("does not lead")
        if voters is not None:
            if self.change_pending:
                raise ChangePending("one at a time")
            self.quorum.changes[len(self.quorum.log)] = voters
        self.quorum.log.append(frames)

    @property
    def change_pending(self) -> bool:
        return any(at >= self.applied for at in self.quorum.changes)

    def catch_up(self) -> None:
        while self.applied < self.quorum.committed:
            payload = self.quorum.log[self.applied]
            at_once(self.listener.committing(payload))
            self.listener.on_rest()
            self.applied += 1
            changed = self.quorum.changes.get(self.applied - 1)
            if changed is not None:
                self.quorum.voters = changed
                self.listener.on_voters(changed)

    async def read_index(self) -> None:
        if self.quorum.leader is not self:
            raise NotController("does not lead")
        if self.hold_reads:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reads.append(future)
            await future

    def answer_reads(self) -> None:
        for future in self._reads:
            if not future.done():
                future.set_result(None)
        self._reads.clear()

    def fail_reads(self) -> None:
        for future in self._reads:
            if not future.done():
                future.set_exception(NotController("deposed"))
        self._reads.clear()

    def _leader_hint(self) -> NodeId | None:
        return None if self.quorum.leader is None else self.quorum.leader.node_id

    def transfer_leadership(self, to: NodeId | None) -> None:
        raise NotController("the model transfers nothing")

    def applied_position(self) -> RaftPosition:
        return RaftPosition((self.applied, 0))

    def compact(self, position: RaftPosition, snapshot_id: str, seal: bytes) -> None:
        pass

    def pinned_snapshots(self) -> frozenset[str]:
        return frozenset()

    def status(self) -> RaftStatus:
        return RaftStatus(
            role=Role.LEADER if self.quorum.leader is self else Role.FOLLOWER,
            leader_id=self._leader_hint(),
            voters=self.quorum.voters,
            is_voter=self.quorum.voters.get(self.node_id, b"") == self.directory_id,
            change_pending=self.change_pending,
            peers=(*self._other_voters(), *self.quorum.observers),
            gone=self.quorum.gone,
            leader_heard_ms_ago=self.quorum.leader_heard_ms_ago,
            elections_total=0,
            disk_stalled_ms=0,
            committed_ms_ago=0,
            level_ms_ago=0,
            synced_bytes_total=0,
            syncs_total=0,
            snapshot_not_fetched=self.quorum.snapshot_not_fetched,
        )

    def _other_voters(self) -> Sequence[PeerStatus]:
        return [
            PeerStatus(
                node_id=node_id,
                directory_id=directory_id,
                is_voter=True,
                reachable=(ago := self.quorum.caught_up_ms_ago.get(node_id, 0)) is not None,
                entries_behind=0 if ago == 0 else 7,
                last_caught_up_ms_ago=ago,
                last_fetch_ms_ago=ago,
            )
            for node_id, directory_id in sorted(self.quorum.voters.items())
            if node_id != self.node_id
        ]
