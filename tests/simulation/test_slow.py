"""Slow disks, slow links and narrow ones: what a run draws, what the rule of leadership finds, and large entries."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Final

import pytest

from metadata_log.ids import NodeId
from metadata_log.limits import (
    DISK_STALL_MS,
    JOURNAL_FILE_BYTES,
    MIB,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_IN_FLIGHT_BYTES,
)
from metadata_log.sliced import Sliced
from quorum.raft.journal.journal import FILE_SYNCS, Journal
from quorum.raft.journal_sync import Ended, JournalSync
from quorum.raft.messages import Message
from tests.simulation.faults import slowness
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.model import Model
from tests.simulation.world.node import SimulatedNode
from tests.simulation.world.stepped import Quorum
from tests.simulation.world.world import World

MBIT: Final = 125_000
"""Bytes per second."""


class Bulk(Model):
    """Counts entries, however large these are."""

    def committing(self, frames: bytes) -> Sliced[None]:
        yield from ()
        self.frames += bool(frames)


class BulkWorld(World):
    def is_one_frame(self, frames: bytes) -> bool:
        return True


class Narrow(Quorum):
    """A quorum over the shipped links, whose bandwidth is bounded."""

    def __init__(self, rate: float, *, observers: int = 0, has_streams: bool = True) -> None:
        profile = replace(PROFILES["calm"], has_streams=has_streams)
        self.world = BulkWorld(seed=1, profile=profile, observers=observers, make_listener=Bulk)
        self.loop = self.world.loop
        self.rate = rate

    def bound(self) -> None:
        """Let the links be narrow from now on."""
        links = map(frozenset, combinations(self.world.ids, 2))
        self.world.slowness.bandwidths.update(dict.fromkeys(links, self.rate))

    def entries(self, node: SimulatedNode) -> int:
        assert isinstance(node.listener, Bulk)
        return node.listener.frames

    def has_applied(self, node: SimulatedNode, goal: int) -> bool:
        return self.entries(node) >= goal

    def append(self, count: int, size: int) -> int:
        """Append large frames at the leader, each of which has an entry alone; return how many frames there are then."""
        leader = self.leader()
        assert leader.log is not None
        for _ in range(count):
            leader.log.append(self.world.next_frame().ljust(size, b"\1"))
        return self.entries(leader) + count

    def terms(self) -> list[int]:
        return [node.log._node.engine.term for node in self.nodes if node.log is not None]


@pytest.fixture
def large_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedNode, "journal_file_bytes", JOURNAL_FILE_BYTES)


@pytest.mark.slow
@pytest.mark.usefixtures("large_journals")
@pytest.mark.parametrize("has_streams", [True, False])
@pytest.mark.parametrize(("rate", "count"), [(100 * MBIT, 4), (10 * MBIT, 2)])
def test_a_leader_is_not_deposed_by_its_own_entries(rate: float, count: int, has_streams: bool) -> None:
    """An entry of 4 MiB takes 335 ms at 100 Mbit/s, and heartbeats wait behind it; at 10 Mbit/s it takes 3.4 s."""
    quorum = Narrow(rate, has_streams=has_streams)
    quorum.start()
    leader, before = quorum.leader(), quorum.terms()
    quorum.bound()
    goal = quorum.append(count, RAFT_ENTRY_BYTES_MAX - 1024)
    quorum.until(lambda: all(quorum.entries(node) >= goal for node in quorum.nodes), 30.0)
    assert quorum.terms() == before and leader.is_leader()
    quorum.end()
    assert quorum.world.violations == []


@pytest.mark.slow
@pytest.mark.usefixtures("large_journals")
def test_what_an_observer_is_sent_deposes_nobody() -> None:
    quorum = Narrow(10 * MBIT, observers=1)
    quorum.start()
    leader, before = quorum.leader(), quorum.terms()
    observer = quorum.nodes[-1]
    observer.crash()
    for _ in range(4):
        quorum.until(partial(quorum.has_applied, leader, quorum.append(2, MIB)))
    quorum.bound()
    observer.start()
    quorum.until(lambda: quorum.entries(observer) == quorum.entries(leader), 60.0)
    assert max(quorum.terms()) == max(before) and leader.is_leader()
    quorum.end()
    assert quorum.world.violations == []


@pytest.mark.slow
@pytest.mark.usefixtures("large_journals")
def test_a_leader_that_dies_amid_a_large_entry_is_replaced() -> None:
    """What its kernel still sends is taken for a sign of life; that is little, and ends."""
    quorum = Narrow(10 * MBIT)
    quorum.start()
    leader = quorum.leader()
    quorum.bound()
    quorum.append(1, RAFT_ENTRY_BYTES_MAX - 1024)
    quorum.wait(1.0)
    leader.crash()
    quorum.until(lambda: sum(node.is_leader() for node in quorum.nodes) == 1, 6.0)
    quorum.end()


@pytest.mark.slow
@pytest.mark.usefixtures("large_journals")
def test_entries_share_messages_of_a_bounded_size_and_large_ones_fill_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: with 24 MiB to send, the window of 16 MiB is used, by an entry in each message."""
    monkeypatch.setattr("tests.simulation.rules.raft.RaftRules._check_size", lambda *_: None)
    quorum = Narrow(1000 * MBIT)
    quorum.start()
    leader = quorum.leader()
    assert leader.log is not None
    sent: list[int] = []
    shipped = leader.transport.on_send

    def on_send(target: NodeId, message: Message) -> None:
        sent.append(len(message.get("entries", ())))
        shipped(target, message)

    leader.transport.on_send = on_send
    goal = quorum.append(24, MIB)
    progress = leader.log._guard.replication.peers[NodeId(1 if leader.node_id != 1 else 2)]
    most = 0

    def is_done() -> bool:
        nonlocal most
        most = max(most, progress.in_flight_bytes)
        return all(quorum.entries(node) >= goal for node in quorum.nodes)

    quorum.until(is_done, 20.0)
    assert max(sent) == 1
    assert 3 * MIB < most <= RAFT_IN_FLIGHT_BYTES
    quorum.end()


# --- what a run draws


def test_runs_differ_in_what_is_slow() -> None:
    ids = tuple(map(NodeId, range(1, 4)))
    slow = slowness.Slow(sync_seconds=slowness.SYNC_SECONDS, bytes_per_second=slowness.BYTES_PER_SECOND)
    drawn = [slowness.drawn(seed, ids, slow) for seed in range(60)]
    assert {len(each.syncs) for each in drawn} == {1, 2, 3}
    syncs = [seconds for each in drawn for seconds in each.syncs.values()]
    assert min(syncs) < 0.001 and 1.0 < max(syncs) <= slowness.SYNC_SECONDS[1]
    assert {len(each.bandwidths) for each in drawn} >= {0, 3}
    assert drawn[7].text() == slowness.drawn(7, ids, slow).text()


def test_the_runs_of_other_tests_have_nothing_slow_and_a_share_of_the_others_has() -> None:
    kept = (*range(1, 16), 102, 201, 202, 203, 207, 400, 408, 412, 503, 515, 600, 603, 605)
    assert {slowness.of_swarm(seed) for seed in kept} == {slowness.NOTHING}
    slow = sum(slowness.of_swarm(seed) != slowness.NOTHING for seed in range(1000, 2000))
    assert 150 < slow < 300
    assert slowness.drawn(1, (NodeId(1), NodeId(2)), slowness.NOTHING).text() == ""


# --- a disk whose syncs take long


@pytest.fixture
def slow() -> Iterator[Quorum]:
    """A quorum that leads on disks whose syncs take 1.5 s each."""
    quorum = Quorum()
    quorum.start()
    quorum.write(1)
    quorum.world.slowness.syncs.update(dict.fromkeys(quorum.world.ids, 1.5))
    yield quorum
    quorum.end()


@pytest.mark.slow
def test_a_leader_on_slow_disks_leads_on_while_snapshots_are_named_and_files_are_begun(slow: Quorum) -> None:
    """Goal: no work of several syncs is taken for one that hangs. Method: 120 frames each second fill files of 16 KiB, and
    are covered by snapshots, whose pointers are written in the journal's thread.
    """
    leader, terms = slow.leader(), [node.log._node.engine.term for node in slow.nodes if node.log is not None]
    assert leader.log is not None
    for _ in range(80):
        for _ in range(60):
            leader.log.append(slow.world.next_frame())
        slow.wait(0.5)
    assert leader.journal.snapshot_index > 1
    assert leader.journal._file_number > 2
    assert [node.log._node.engine.term for node in slow.nodes if node.log is not None] == terms
    assert slow.world.violations == []


def test_followers_on_slow_disks_keep_their_leader_under_writes() -> None:
    """Goal: a leader on a fast disk hears its followers while these sync for 1.5 s. Method: it sends entries every 33 ms,
    more often than heartbeats, and each is answered after its sync.
    """
    quorum = Quorum()
    quorum.start()
    quorum.write(1)
    leader, term = quorum.leader(), quorum.leader().log._node.engine.term  # type: ignore[union-attr]
    assert leader.log is not None
    others = [node.node_id for node in quorum.nodes if node is not leader]
    quorum.world.slowness.syncs.update(dict.fromkeys(others, 1.5))
    for _ in range(300):
        leader.log.append(quorum.world.next_frame())
        quorum.wait(1 / 30)
    assert leader.is_leader() and leader.log._node.engine.term == term
    assert quorum.world.violations == []
    quorum.end()


class _Thread:
    """Runs work when a test says that its time has come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: list[tuple[Callable[[], None], Ended]] = []

    def run(self, work: Callable[[], None], ended: Ended) -> None:
        self.jobs.append((work, ended))

    def end(self, at: float) -> None:
        """End the first piece of work."""
        self.now = at
        work, ended = self.jobs.pop(0)
        work()
        ended(None)


def test_a_sync_counts_from_when_the_disk_was_free_for_it() -> None:
    """Goal: what hangs is found, and what only waits is not."""

    async def test() -> None:
        thread = _Thread()
        journal = Journal.open(SimulatedDisk(), random_bytes=random.Random(1).randbytes)
        sync = JournalSync(journal, thread.run, lambda: thread.now)
        ended: list[object] = []
        for _ in range(2):
            sync.beside(lambda: None)  # the pointer to a snapshot, a part of the next file
        thread.now = 100.0
        journal.setCurrentTerm(1, None)
        sync.begin(thread.now, ended.append)
        first = sync._batch
        assert first is not None and first.syncs == 1 + FILE_SYNCS, "it is the first of its file"
        assert sync.running_since == DISK_STALL_MS, (
            "the first of two syncs of the work before it may take as long"
        )
        thread.end(1_900.0)
        assert sync.running_since == 1_900.0 + DISK_STALL_MS
        thread.end(3_700.0)
        assert sync.running_since == 3_700.0 + FILE_SYNCS * DISK_STALL_MS
        sync.beside(lambda: None)
        assert sync.running_since == 3_700.0 + FILE_SYNCS * DISK_STALL_MS, (
            "what comes behind it delays it not"
        )
        thread.end(9_000.0)
        sync.completed(thread.now)
        journal.setCurrentTerm(2, None)
        sync.begin(9_500.0, ended.append)
        assert sync.running_since == 9_000.0 + DISK_STALL_MS, "the other work began when the batch had ended"
        thread.end(9_800.0)
        assert sync._batch is not None and sync._batch.syncs == 1
        assert sync.running_since == 9_800.0

    asyncio.run(test())
