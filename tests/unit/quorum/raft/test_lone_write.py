"""What one write costs by itself, over real sockets and disks: turns of each node's event loop, counted and not timed."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from metadata_log.ids import NodeId
from metadata_log.node.clock import monotonic_ms
from metadata_log.sliced import Sliced
from quorum.pace.loop_turns import TimedSelector
from quorum.raft import raw_node
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.handshake import Hello, founding_sha256
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.journal.thread import JournalThread
from quorum.raft.raft_log import Member, Voters
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.transport import TcpTransport
from tests.support.processes import free_ports
from tests.unit.quorum.raft.test_transport import CLUSTER, directory

WRITES = 9
ATTEMPTS = 4
QUIET_S = 0.08
"""Longer than the idle mark of a journal and the news of a commit take."""
DEADLINE_S = 60.0
SETTINGS = RaftSettings(
    heartbeat_ms=5_000, election_timeout_min_ms=10_000, election_timeout_max_ms=20_000, disk_stall_ms=60_000
)
"""Heartbeats are so seldom that hardly a write meets one."""


class Listener:
    """Counts the payloads that were applied."""

    def __init__(self) -> None:
        self.applied = 0
        self.leads = False

    def check(self, frames: bytes) -> None: ...
    def committing(self, frames: bytes) -> Sliced[None]:
        yield from ()
        self.applied += 1

    def on_rest(self) -> None: ...
    def on_restore(self, snapshot_id: str) -> None: ...
    def on_voters(self, voters: Voters) -> None: ...
    def on_leadership(self, *, is_leader: bool) -> None:
        self.leads = is_leader

    def on_leader_hint(self, leader_id: NodeId | None) -> None: ...


class NoSnapshots:
    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        raise AssertionError(f"nobody has snapshot {snapshot_id}")


class Node:
    """One voter on an event loop of its own, in a thread."""

    def __init__(self, node_id: int, ports: dict[int, int], path: Path) -> None:
        self.member = Member(NodeId(node_id), directory(node_id))
        self.listener = Listener()
        self.selector = TimedSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self._ports = ports
        self._path = path
        self._ended = asyncio.Event()
        self.log: PySyncObjLog | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def turns(self) -> int:
        return self.selector.short + sum(self.selector.longer)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        node_id, voters = self.member.node_id, {NodeId(each): directory(each) for each in self._ports}
        transport = TcpTransport(
            node_id=node_id,
            listen=("127.0.0.1", self._ports[node_id]),
            addresses={NodeId(peer): ("127.0.0.1", port) for peer, port in self._ports.items()},
            hello=Hello(
                cluster_id=CLUSTER,
                node_id=node_id,
                directory_id=self.member.directory_id,
                http="http://127.0.0.1:1",
                raft=f"127.0.0.1:{self._ports[node_id]}",
                founding=founding_sha256(voters),
            ),
            voters=voters,
            now_ms=lambda: int(monotonic_ms()),
        )
        self._path.mkdir()
        disk = OsDisk(self._path)
        journal = Journal.open(disk, random_bytes=random.randbytes)
        with JournalThread() as journal_thread:
            self.log = log = PySyncObjLog(
                member=self.member,
                voters=voters,
                journal=journal,
                transport=transport,
                pointer_disk=disk,
                listener=self.listener,
                fetcher=NoSnapshots(),
                settings=SETTINGS,
                now_ms=monotonic_ms,
                rng=random.Random(node_id),
                run_in_thread=journal_thread.run,
            )
            await transport.listen()
            links, raft = asyncio.create_task(transport.run()), asyncio.create_task(log.run())
            if node_id == 1:
                self.loop.call_later(0.5, self._campaign)
            await self._ended.wait()
            await log.close()
            await raft
            links.cancel()
            await asyncio.wait([links])
        journal.close()

    def _campaign(self) -> None:
        """Lead without a wait for the long election timeout, as soon as the others are linked."""
        assert self.log is not None
        if not self.listener.leads:
            self.log._guard.elections.due_at = 0.0
            self.log._wake.set()
            self.loop.call_later(0.3, self._campaign)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def three_voters(directory: Path) -> Iterator[list[Node]]:
    ports = dict(enumerate(free_ports(3), start=1))
    nodes = [Node(node_id, ports, directory / str(node_id)) for node_id in ports]
    for node in nodes:
        node.start()
    try:
        until(lambda: any(node.listener.leads for node in nodes))
        yield sorted(nodes, key=lambda node: not node.listener.leads)
    finally:
        for node in nodes:
            node.end()


def have_applied(nodes: list[Node], goal: int) -> bool:
    return all(node.listener.applied >= goal for node in nodes)


def settled(nodes: list[Node]) -> list[int]:
    """Return how many turns each node has taken, once none takes any."""
    while True:
        before = [node.turns for node in nodes]
        time.sleep(QUIET_S)
        if before == (now := [node.turns for node in nodes]):
            return now


def least_turns(directory: Path) -> list[int]:
    """Return the least of several writes, the leader's first: one write at a time, until all is quiet again."""
    directory.mkdir()
    with three_voters(directory) as nodes:
        leader = nodes[0]
        assert leader.log is not None
        took: list[list[int]] = []
        before = settled(nodes)
        for _ in range(WRITES):
            goal = leader.listener.applied + 1
            leader.loop.call_soon_threadsafe(leader.log.append, b"a payload")
            until(partial(have_applied, nodes, goal))
            after = settled(nodes)
            took.append([turns - was for turns, was in zip(after, before, strict=True)])
            before = after
    return [min(each) for each in zip(*took, strict=True)]


@pytest.mark.slow
def test_the_turns_of_a_lone_write_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a write that shares its batch with no other costs few turns of each loop: those and the wake-ups before them
    cost more than the write. Method: the news of its commit, which the next entries carry under load, and the idle marks of
    the journals are counted, too. On a busy machine a timer rings late, and takes a turn of its own: then it is tried
    again.
    """
    monkeypatch.setattr(raw_node, "IDLE_ENTRY_MS", 3_600_000)
    for attempt in range(ATTEMPTS):
        of_leader, *of_followers = least_turns(tmp_path / str(attempt))
        # Mostly 9. There are runs in which each write has a wake-up more.
        if of_leader <= 10 and max(of_followers) <= 5:
            return
    pytest.fail(
        f"in the last of {ATTEMPTS} runs a write took {of_leader} turns of the leader, {of_followers} of the others"
    )
