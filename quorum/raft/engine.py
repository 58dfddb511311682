"""Edge: PySyncObj as the engine: one SyncObj on a journal, steered from outside, without a socket, a file or a thread.

This is the only file that imports pysyncobj. `prepare_library` refuses any source but the one that the guard is proved
against. Tests: tests/unit/quorum/raft/test_adapter.py.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from pysyncobj import SyncObj, SyncObjConf, serializer, syncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from metadata_log.errors import (
    InvalidSettings,
)
from metadata_log.ids import NO_NODE, NodeId
from quorum.raft.guard import Guard
from quorum.raft.journal.journal import Journal
from quorum.raft.messages import Message
from quorum.raft.raft_log import (
    Member,
    Role,
    Voters,
)

ENGINE_AGE_S: Final = 1.0
"""Backdate each engine by this much, so that its first election deadline has already passed."""
PROVED_SOURCES: Final = {
    syncobj: "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    serializer: "4d39fde2f15000ad8f507ec229ebd4f6a86371b6f84d4dc1439a9cccd52857ee",
}
"""The library's two files that hold its Raft, by SHA-256: the guard knows these line by line, and no others."""


class _EngineClock:
    """The engine's clock is a global of its module: this one, set before each call to the node that is called."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


_CLOCK: Final = _EngineClock()


@cache
def prepare_library() -> None:
    """Check that PySyncObj is the one the guard was proved against, and set the globals it is steered by.

    Raises:
        InvalidSettings: another version is installed, or this one was changed.
    """
    for module, proved in PROVED_SOURCES.items():
        path = Path(module.__file__)
        if hashlib.sha256(path.read_bytes()).hexdigest() != proved:
            raise InvalidSettings(
                f"{path} is not the source that this quorum's safety was proved with; "
                "install it again: pip install --force-reinstall pysyncobj==0.3.17"
            )
    syncobj.monotonicTime = _CLOCK
    syncobj.createJournal = lambda journal: journal
    syncobj.PIPE_NOTIFIER_ENABLED = False
    syncobj.createPoller = lambda _kind: _NoPoller()


class _NoPoller:
    """The engine has no socket; its own poller would ask the system in each tick."""

    def poll(self, timeout: float) -> None: ...


class _Links(Transport):  # type: ignore[misc]  # the library has no types
    """The transport that the engine sees: it hands all that is sent to the guard, and knows no socket."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(None, None, None)
        self._guard = guard

    def send(self, node: Node, message: Message) -> bool:
        self._guard.sent_by_engine(node.id, message)
        return True


class SyncObjEngine:
    """One SyncObj on a journal, among fixed voters, reduced to what the guard needs.

    It sees no connected peer except in the one tick in which it must stand for election: so it campaigns only then, and its
    own send loop never runs. It has no dump file and never compacts; snapshots bypass it. After a snapshot is installed,
    and when the voters change, a new engine takes over on the journal, which holds term and vote.
    """

    def __init__(
        self,
        *,
        member: Member,
        voters: Voters,
        journal: Journal,
        guard: Guard,
        now_ms: Callable[[], float],
        on_role: Callable[[Role], None],
        may_lead: bool = True,
    ) -> None:
        self._now_ms = now_ms
        self._guard = guard
        self._on_role = on_role
        self._journal = journal
        may_lead = may_lead and voters.get(member.node_id) == member.directory_id
        others = voters.keys() - {member.node_id}
        # The engine of a node that may not lead has one in any case: an engine without other nodes elects itself.
        self._others = [Node(other) for other in sorted(others if may_lead else others | {NO_NODE})]
        self._nodes = {node.id: node for node in self._others}
        self._alone = not self._others
        self.syncing = False
        self.role = Role.FOLLOWER
        self._links = _Links(guard)
        _CLOCK.seconds = now_ms() / 1000 - ENGINE_AGE_S
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            commandsWaitLeader=False,
            commandsQueueSize=0,
            dynamicMembershipChange=False,
            journalFile=journal,
            onStateChanged=self._state_changed,
            leaderFallbackTimeout=guard.replication.check_quorum_seconds(),
            logCompactionMinEntries=2**62,
            logCompactionMinTime=2**62,
            useFork=False,
            # The library refuses timeouts this short only beside a longer period.
            appendEntriesPeriod=1e-6,
            raftMinTimeout=1e-5,
            raftMaxTimeout=2e-5,
        )
        self._raft = SyncObj(Node(member.node_id), self._others, conf=conf, transport=self._links)
        # The guard alone decides when to campaign: the engine's own deadline has always passed.
        conf.raftMinTimeout = conf.raftMaxTimeout = -1.0

    @property
    def term(self) -> int:
        return int(self._raft.raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        return int(self._raft.raftCommitIndex)

    def deliver(self, source: NodeId, message: Message, heard_at: float | None = None) -> None:
        _CLOCK.seconds = (self._now_ms() if heard_at is None else heard_at) / 1000
        node = self._nodes.get(source) or Node(source)  # the same object each time is compared by identity
        self._links._onMessageReceived(node, message)  # noqa: SLF001 - the base class's way in

    def tick(self) -> None:
        if not self.may_tick():
            return
        self._set_clock()
        self._raft.doTick(0.0)

    def may_tick(self) -> bool:
        """Answer whether a tick is safe: a voter that is alone would count its own entry before it is synced."""
        return not (self._alone and (self.syncing or self._journal.dirty))

    def campaign(self) -> None:
        for node in self._others:
            self._links._onNodeConnected(node)  # noqa: SLF001 - the base class's way in
        self.tick()
        for node in self._others:
            self._links._onNodeDisconnected(node)  # noqa: SLF001 - the base class's way in

    def submit(self, command: bytes) -> None:
        """Queue one of our entries; the next tick takes it, if we still lead then."""
        self._raft._applyCommand(command, None)  # noqa: SLF001 - the type byte is our own, so no public call fits

    def _set_clock(self) -> None:
        _CLOCK.seconds = self._now_ms() / 1000

    def _state_changed(self, _old: int, new: int) -> None:
        self.role = _ROLES[new]
        self._guard.role_changed(self.role)
        self._on_role(self.role)


_ROLES: Final = {0: Role.FOLLOWER, 1: Role.CANDIDATE, 2: Role.LEADER}
"""The library's numbers."""
