"""The adapter through RaftLog, on simulated time, disks and links."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from pysyncobj import syncobj

from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    Fault,
    InvalidRequest,
    InvalidSettings,
    InvariantBroken,
    NotController,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import NodeId
from metadata_log.sliced import Sliced
from quorum.raft import adapter, applied_entries, engine, messages, proposals
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.guard import Guard
from quorum.raft.pointer import FILE_NAME, Pointer
from quorum.raft.progress import NEVER, Progress
from quorum.raft.raft_log import Member, Role
from tests.simulation.world.model import SNAPSHOT_FRAMES, Model
from tests.simulation.world.node import SimulatedNode, directory_of
from tests.simulation.world.stepped import Quorum, frames_of, is_settled


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    made = Quorum()
    made.start()
    yield made
    made.end()
    assert made.world.violations == []


def test_what_is_appended_is_applied_everywhere_in_order(quorum: Quorum) -> None:
    quorum.write(50)
    assert len({frames_of(node) for node in quorum.nodes}) == 1


def test_frames_that_wait_share_one_entry(quorum: Quorum) -> None:
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    before = len(leader.journal)
    for _ in range(40):
        leader.log.append(quorum.world.next_frame())
    quorum.until(lambda: is_settled(leader))
    assert len(leader.journal) == before + 1


def test_the_claim_leaves_with_the_elections_own_entry() -> None:
    """One round: the first append_entries that holds the engine's no-op holds the claim as well."""
    quorum = Quorum()
    seen: list[int] = []
    carry = quorum.world.network.carry

    def watch(sender: Any, target: NodeId, message: Any) -> None:
        if message["type"] == "append_entries" and message["entries"]:
            seen.append(len(message["entries"]))
        carry(sender, target, message)

    quorum.world.network.carry = watch  # type: ignore[method-assign]
    quorum.start()
    quorum.leader()
    quorum.until(lambda: bool(seen))
    assert seen[0] == 2
    quorum.end()


def test_a_stranger_on_a_link_stops_nobody_and_loses_it(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a forged append, acknowledgement and term cost a link, and never a process or a write."""
    quorum.write()
    dropped: list[tuple[NodeId, str]] = []
    stranger = Member(NodeId(9), directory_of(NodeId(9), 0))
    terms = [node.journal.getCurrentTerm() for node in quorum.nodes]
    for node in quorum.nodes:
        assert node.log is not None
        monkeypatch.setattr(node.transport, "drop", lambda member, reason: dropped.append((*member, reason)))
        for forged in (
            messages.append_entries(term=terms[0], commit_index=1, previous=(1, 0), entries=[]),
            messages.next_node_idx(term=terms[0], next_index=10_000, success=True),
            {"type": "nack", "term": 2**40},
            {"type": "nack", "term": terms[0] + 1},
        ):
            node.transport.on_connected(stranger)
            node.transport.on_message(stranger, forged)
            node.log._wake.set()
    quorum.wait(1.0)
    # The leader: all but the last. A follower ignores an acknowledgement as well.
    assert len(dropped) == 3 + 2 + 2
    quorum.write(5)
    assert [node.journal.getCurrentTerm() for node in quorum.nodes] == terms
    assert all(
        node.log is not None and node.log.status().messages_ignored_total == 1 for node in quorum.nodes
    )


def test_entries_damaged_on_their_way_are_fetched_again_and_never_journalled(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one flipped bit of a payload costs a link. Method: one entry in ten is damaged on its way to a follower."""
    quorum.write()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes if node is not leader)
    assert isinstance(follower.listener, Model)
    sound, damaged, chance = set[bytes](), list[int](), random.Random(1)
    append = leader.log.append  # type: ignore[union-attr]

    def appended(frames: bytes, voters: Any = None) -> None:
        sound.add(frames)
        append(frames, voters)

    def check(frames: bytes) -> None:
        size = len(next(iter(sound), b"?"))
        if not sound.issuperset(frames[at : at + size] for at in range(0, len(frames), size)):
            raise ValueError("its crc is wrong")

    carry = quorum.world.network.carry

    def flip(sender: Any, target: NodeId, message: Any) -> None:
        if target == follower.node_id and message.get("entries") and chance.random() < 0.1:
            command, index, term = message["entries"][-1]
            if len(command) > 1:
                damaged.append(index)
                other = command[:1] + bytes([command[1] ^ 128]) + command[2:]
                message = message | {"entries": [*message["entries"][:-1], (other, index, term)]}
        carry(sender, target, message)

    monkeypatch.setattr(leader.log, "append", appended)
    monkeypatch.setattr(follower.listener, "check", check)
    monkeypatch.setattr(quorum.world.network, "carry", flip)
    for _ in range(100):
        quorum.write()
    assert len(damaged) >= 5
    assert follower.journal[-1][0] == leader.journal[-1][0]
    assert frames_of(follower) == frames_of(leader)


def test_a_follower_accepts_nothing(quorum: Quorum) -> None:
    leader = quorum.leader()
    quorum.write()
    follower = next(node for node in quorum.nodes if node is not leader)
    assert follower.log is not None
    with pytest.raises(NotController):
        follower.log.append(b"12345678")
    with pytest.raises(NotController):
        quorum.run(follower.log.read_index())
    with pytest.raises(NotController):
        follower.log.transfer_leadership(None)
    assert follower.log.status().leader_id == leader.node_id


def test_what_is_in_flight_is_bounded(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "RAFT_UNCOMMITTED_BYTES_MAX", 20)
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    for _ in range(2):
        leader.log.append(quorum.world.next_frame())
    with pytest.raises(ThrottlingQuotaExceeded):
        leader.log.append(quorum.world.next_frame())
    quorum.until(lambda: is_settled(leader))
    leader.log.append(quorum.world.next_frame())
    quorum.until(lambda: is_settled(leader))


def test_a_follower_puts_off_applying_for_a_sync_but_not_for_ever(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a leader's wait is short, and images keep up. Method: each sync, as it returns, finds more to be synced."""
    quorum.write()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes if node is not leader)
    assert leader.log is not None and follower.log is not None
    log = follower.log
    hurries, synced, deliver = log._node.syncs_first, log._synced, log._node.arrived
    put_off: list[bool] = []
    mail: list[tuple[Member, Any]] = []

    def watch() -> bool:
        put_off.append(hurries())
        return put_off[-1]

    def arrives(sender: Member, message: Any) -> None:
        if log._sync.since is None:
            deliver(sender, message)
        else:
            mail.append((sender, message))

    def returns(held: Any, failure: Any) -> None:
        for letter in mail:
            log._node.arrived(*letter)
        mail.clear()
        synced(held, failure)

    monkeypatch.setattr(log._node, "syncs_first", watch)
    monkeypatch.setattr(log, "_synced", returns)
    monkeypatch.setattr(follower.transport, "on_message", arrives)
    before = frames_of(follower)
    for _ in range(300):
        leader.log.append(quorum.world.next_frame())
        quorum.wait(0.002)
    assert put_off.count(True) > 20
    assert not any(one and next_one for one, next_one in pairwise(put_off))
    assert frames_of(follower) > before + 200


def test_a_long_replay_lets_others_have_their_turn(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a node that starts with much to apply answers meanwhile. Method: each entry takes longer than one turn may."""
    for _ in range(20):
        quorum.write()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes if node is not leader)
    follower.crash()
    committing, turns = Model.committing, 0
    in_which_turn: list[int] = []
    rested_in: list[int] = []

    def rest(self: Model) -> None:
        if self is follower.listener:
            rested_in.append(turns)

    def commit(self: Model, frames: bytes) -> Sliced[None]:
        if self is follower.listener:
            in_which_turn.append(turns)
            quorum.loop._now += 2 * applied_entries.APPLY_MS_PER_PUMP / 1000
        yield from committing(self, frames)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0 if in_which_turn and len(in_which_turn) < 20 else 0.001)

    async def restart() -> "asyncio.Task[None]":
        follower.start()
        return asyncio.create_task(others())

    monkeypatch.setattr(Model, "committing", commit)
    monkeypatch.setattr(Model, "on_rest", rest)
    beside = quorum.run(restart())
    quorum.until(lambda: frames_of(follower) == frames_of(leader))
    assert len(in_which_turn) >= 20
    assert len(set(in_which_turn)) >= 15
    assert set(rested_in) == set(in_which_turn), "the listener learns of each rest, and of no other pump"
    assert not beside.done()


@pytest.mark.parametrize("puts_off", [False, True])
def test_a_pump_that_only_begins_a_sync_forgets_nothing_that_is_due(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, puts_off: bool
) -> None:
    """Goal: a replay goes on while the next sync runs. Method: a sync ends just as the next pump is due."""
    quorum.write()
    follower = next(node for node in quorum.nodes if node is not quorum.leader())
    log = follower.log
    assert log is not None
    quorum.until(lambda: log._sync.since is None)

    def pump() -> None:
        log._node.only_began_sync = puts_off

    monkeypatch.setattr(log, "_pump", pump)
    monkeypatch.setattr(log._sync, "completed", lambda _now: 0.0)
    for due in (True, False):
        log._wake._event.clear()
        if due:
            log._wake.set()
        log._synced([], None)
        assert log._wake._event.is_set() == (due and puts_off)


def test_a_lone_write_takes_two_pumps_of_a_voter_that_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a pump wakes no other that finds nothing to do. Method: something arrives in the turn in which a sync ends."""
    quorum = Quorum(voters=1)
    quorum.start()
    quorum.write()
    node = quorum.leader()
    log = node.log
    assert log is not None
    pump, completed, pumps = log._pump, log._sync.completed, 0

    def counted() -> None:
        nonlocal pumps
        pumps += 1
        pump()

    def arrives(now: float) -> float:
        log._wake.set()
        return completed(now)

    monkeypatch.setattr(log, "_pump", counted)
    monkeypatch.setattr(log._sync, "completed", arrives)
    took = []
    for _ in range(5):
        quorum.wait(0.2)
        pumps = 0
        quorum.write()
        quorum.wait(0.002)
        took.append(pumps)
    assert took.count(2) >= 4, f"{took}: one may meet a timer"
    quorum.end()
    assert quorum.world.violations == []


def test_a_node_that_is_closed_sends_nothing_more(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: `close` is like a crash. Method: it comes during the sync that an acknowledgement waits for."""
    quorum.write()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes if node is not leader)
    assert leader.log is not None and follower.log is not None
    monkeypatch.setattr(follower, "_sync_seconds", lambda: 0.1)
    leader.log.append(quorum.world.next_frame())
    log = follower.log
    quorum.until(lambda: log._sync.since is not None)
    closing = quorum.loop.create_task(log.close())
    quorum.wait(0.001)
    sent: list[Any] = []
    monkeypatch.setattr(follower.transport, "send", lambda *letter: sent.append(letter))
    quorum.until(closing.done, seconds=0.2)
    assert sent == []


def test_a_read_waits_for_a_majority(quorum: Quorum) -> None:
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    quorum.run(leader.log.read_index())
    for node in quorum.nodes:
        if node is not leader:
            quorum.world.network.block(node.node_id, leader.node_id)
    with pytest.raises(NotController):
        quorum.run(leader.log.read_index())
    quorum.world.network.heal()


def test_a_leader_alone_refuses_reads_within_an_election_timeout(quorum: Quorum) -> None:
    """A93: with two of three down nothing is read, and nothing written."""
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    quorum.world.network.carry = lambda *_: None  # type: ignore[method-assign]
    cut_at = quorum.loop.time()
    for read in [quorum.loop.create_task(leader.log.read_index()), leader.log.read_index()]:
        with pytest.raises(NotController, match="no majority"):
            quorum.run(read)
    assert leader.is_leader()
    assert quorum.loop.time() - cut_at < 0.3


def test_leadership_is_handed_over(quorum: Quorum) -> None:
    """B6"""
    quorum.write()
    old = quorum.leader()
    assert old.log is not None
    target = next(node for node in quorum.nodes if node is not old)
    with pytest.raises(InvalidRequest):
        old.log.transfer_leadership(old.node_id)
    with pytest.raises(InvalidRequest):
        old.log.transfer_leadership(NodeId(77))
    asked_at = quorum.loop.time()
    old.log.transfer_leadership(target.node_id)
    quorum.until(target.is_leader)
    assert quorum.loop.time() - asked_at < 0.3, "simulated time: no election timeout passed"
    assert [node for node in quorum.nodes if node.log.status().was_asked_to_lead] == [target]  # type: ignore[union-attr]
    quorum.write()


@pytest.mark.slow
def test_a_lost_leader_is_followed_without_a_timeout() -> None:
    """Simulated time from the crash to the next leader, over many seeds: most need no election timeout."""
    gaps = []
    for seed in range(12):
        quorum = Quorum(seed=seed)
        quorum.start()
        quorum.write(3)
        leader = quorum.leader()
        crashed_at = quorum.loop.time()
        leader.crash()
        quorum.until(lambda quorum=quorum: any(node.is_leader() for node in quorum.nodes))  # type: ignore[misc]
        assert not quorum.leader().log.status().was_asked_to_lead  # type: ignore[union-attr]
        gaps.append(quorum.loop.time() - crashed_at)
        quorum.end()
    assert sorted(gaps)[6] < 0.05


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("deaf", ["leader", "follower"])
def test_nobody_is_judged_by_words_that_wait_to_be_read(
    monkeypatch: pytest.MonkeyPatch, deaf: str, *, rule: bool
) -> None:
    """Goal: a process that stood still reads its sockets before it takes the others for silent. Method: what comes for one
    node stays unread until it is about to judge; asyncio brings what is readable then in its next round, behind the
    tasks that are ready.
    """

    async def judge_at_once(_log: Any) -> None:
        pass

    if not rule:
        monkeypatch.setattr(adapter.PySyncObjLog, "_read_sockets", judge_at_once)
    quorum = Quorum()
    quorum.start()
    quorum.write()
    leader = quorum.leader()
    first_behind = next(node for node in quorum.nodes if node is not leader)
    node = leader if deaf == "leader" else first_behind
    assert node.log is not None
    unread: list[tuple[Member, Any]] = []
    asked: list[NodeId] = []
    carry, judges, deliver = quorum.world.network.carry, Guard.may_find_silence, node.log._node.arrived

    def hold(sender: Any, target: NodeId, message: Any) -> None:
        if message["type"] == "pre_vote":
            asked.append(target)
        if target == node.node_id:
            unread.append((sender.member, message))
        else:
            carry(sender, target, message)

    def read() -> None:
        while unread:
            sender, message = unread.pop(0)
            node.transport.on_arrival(sender, message)
            deliver(sender, message)
            node.log._wake.set()  # type: ignore[union-attr]

    def judge(guard: Guard, now_ms: float) -> bool:
        about_to_judge = judges(guard, now_ms)
        if about_to_judge and guard is node.log._guard:  # type: ignore[union-attr]
            quorum.loop.call_soon(quorum.loop.call_soon, read)
        return about_to_judge

    quorum.world.network.carry = hold  # type: ignore[method-assign]
    monkeypatch.setattr(Guard, "may_find_silence", judge)
    quorum.wait(1.5)
    assert (asked == []) is rule
    assert leader.is_leader() is (rule or deaf == "follower")
    quorum.end()


def test_an_idle_leader_proves_disk_and_majority(quorum: Quorum) -> None:
    """C7"""
    quorum.write()
    frames = [frames_of(node) for node in quorum.nodes]
    quorum.wait(5.0)
    for node in quorum.nodes:
        assert node.log is not None
        status = node.log.status()
        for age in (status.committed_ms_ago, status.level_ms_ago):
            assert age is not None and age < 1_500
    assert [frames_of(node) for node in quorum.nodes] == frames, "an empty entry reaches no listener"


def test_a_follower_that_catches_up_does_not_take_what_it_applies_for_the_present(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an export of it is observed up to when its log was whole. Method: it applies one entry a second for a while,
    and the leader is written to all along.
    """
    quorum.write()
    leader = quorum.leader()
    follower = next(node for node in quorum.nodes if node is not leader)
    assert leader.log is not None and follower.log is not None
    applied, state = follower.log._applied, follower.log._guard.state
    real: Any = vars(type(state))["commit_index"]
    allowed = applied.index
    monkeypatch.setattr(
        type(state),
        "commit_index",
        property(lambda self: min(real.fget(self), allowed) if self is state else real.fget(self)),
    )
    for _ in range(16):
        for _ in range(3):
            leader.log.append(quorum.world.next_frame())
        quorum.wait(1.0)
        allowed += 1
    status = follower.log.status()
    assert status.committed_ms_ago is not None and status.committed_ms_ago < 2_000
    assert status.level_ms_ago is not None and status.level_ms_ago > 5_000
    monkeypatch.undo()
    quorum.wait(2.0)
    after = follower.log.status().level_ms_ago
    assert after is not None and after < 1_500


def test_status_knows_the_followers(quorum: Quorum) -> None:
    quorum.write(5)
    leader = quorum.leader()
    assert leader.log is not None
    quorum.wait(0.2)
    status = leader.log.status()
    assert status.role is Role.LEADER and status.leader_id == leader.node_id
    assert [peer.node_id for peer in status.peers] == [n.node_id for n in quorum.nodes if n is not leader]
    assert all(peer.reachable and peer.entries_behind == 0 for peer in status.peers)
    assert status.syncs_total > 0 and status.synced_bytes_total > 0 and status.elections_total == 1
    assert 0 < status.elections_ms_total == status.election_ms_longest < 10_000, "from its candidacy on"


@pytest.mark.slow
def test_followers_that_keep_up_are_known_to_under_load(quorum: Quorum) -> None:
    """Something waits all the time, so that no acknowledgement ever speaks of the log's very end."""
    quorum.write()
    leader = quorum.leader()
    until = quorum.loop.time() + 3.0

    def feed() -> None:
        assert leader.log is not None
        if not leader.log._node.proposals.waiting:
            leader.log.append(quorum.world.next_frame())
        if quorum.loop.time() < until:
            quorum.loop.call_later(0.0002, feed)

    feed()
    while quorum.loop.time() < until:
        quorum.wait(0.1)
        assert leader.log is not None
        for peer in leader.log.status().peers:
            assert peer.last_caught_up_ms_ago is not None
            assert peer.last_caught_up_ms_ago < 700


def test_a_follower_that_lags_is_not_caught_up() -> None:
    """It holds what our log held when it was last asked, or it is as late as that."""
    progress = Progress(directory_of(NodeId(2), 0), probe=1, next=2)
    progress.reached(5, 9, 100.0)
    assert progress.caught_up_at == NEVER  # nothing is known of the end before
    progress.reached(8, 20, 110.0)
    assert progress.caught_up_at == NEVER
    progress.reached(9, 30, 120.0)
    assert progress.caught_up_at == 100.0
    progress.reached(29, 40, 130.0)
    assert progress.caught_up_at == 100.0
    progress.reached(40, 40, 140.0)
    assert progress.caught_up_at == 140.0
    progress.reached(39, 41, 150.0)
    assert progress.caught_up_at == 140.0


def test_a_failing_sync_ends_the_node_and_nothing_leaves_after_it(quorum: Quorum) -> None:
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    leader.disk.fails = True
    leader.log.append(quorum.world.next_frame())
    sent: list[Any] = []
    quorum.until(lambda: leader.journal.dirty or leader.log._sync.since is not None)  # type: ignore[union-attr]
    leader.transport.send = lambda *letter: sent.append(letter)  # type: ignore[method-assign]
    quorum.until(lambda: bool(quorum.world.violations))
    assert "DiskFailed" in quorum.world.violations.pop()
    assert not any(message.get("entries") for _, message in sent)


def test_the_journals_next_file_is_made_while_nothing_is_to_be_written(quorum: Quorum) -> None:
    node = quorum.leader()
    quorum.until(lambda: all(each.journal.is_prepared for each in quorum.nodes))
    node.journal._capacity = 0  # full: the next batch enters the next file
    quorum.write()
    assert not node.journal.is_prepared, "the batch has not waited for it"
    quorum.write(5)
    assert not node.journal.is_prepared, "nor those behind it"
    quorum.until(lambda: node.journal.is_prepared, seconds=5.0)


def test_a_next_file_that_cannot_be_made_ends_the_node(quorum: Quorum) -> None:
    node = quorum.leader()
    quorum.until(lambda: all(each.journal.is_prepared for each in quorum.nodes))
    node.journal._capacity = 0
    quorum.write()
    node.disk.is_full = True
    quorum.until(lambda: node.log is None)
    assert quorum.world.consequences["stopped by DiskFailed"] == 1
    node.mend()
    quorum.run(_start(node))
    quorum.write()


def test_a_stalled_disk_deposes_the_leader(quorum: Quorum) -> None:
    quorum.write()
    leader = quorum.leader()
    assert leader.log is not None
    leader._sync_seconds = lambda: 30.0  # type: ignore[method-assign]
    leader.log.append(quorum.world.next_frame())
    quorum.until(lambda: not leader.is_leader())
    quorum.until(lambda: any(node.is_leader() for node in quorum.nodes if node is not leader))
    assert leader.log.status().disk_stalled_ms > 2_000
    assert not leader.is_leader()


def test_a_slow_sync_deposes_nobody(quorum: Quorum) -> None:
    """Heartbeats and their answers do not wait for the disk."""
    quorum.write()
    leader = quorum.leader()
    elections = [node.log.status().elections_total for node in quorum.nodes if node.log is not None]
    for node in quorum.nodes:
        node._sync_seconds = lambda: 1.5  # type: ignore[method-assign]
    quorum.write()
    assert leader.is_leader()
    assert elections == [node.log.status().elections_total for node in quorum.nodes if node.log is not None]


def _crashed_and_left_behind(quorum: Quorum) -> SimulatedNode:
    """Return a node that is down, and needs the leader's snapshot when it is back."""
    quorum.write()
    late = next(node for node in quorum.nodes if not node.is_leader())
    late.crash()
    for _ in range(4 * SNAPSHOT_FRAMES):
        quorum.write()
    leader = quorum.leader()
    quorum.until(lambda: leader.journal[0][1] > 100)
    return late


def test_the_journal_is_trimmed_behind_a_snapshot_and_a_late_node_fetches_it(quorum: Quorum) -> None:
    """B8"""
    late = _crashed_and_left_behind(quorum)
    leader = quorum.leader()
    quorum.run(_start(late))
    quorum.until(lambda: frames_of(late) == frames_of(leader))
    fetched = quorum.world.snapshots_fetched
    assert fetched >= 1
    assert late.journal[0][1] > 100
    # And it stands on it after a restart.
    late.crash()
    quorum.run(_start(late))
    quorum.until(lambda: frames_of(late) >= SNAPSHOT_FRAMES)
    assert quorum.world.snapshots_fetched == fetched
    quorum.write()


@pytest.mark.slow
def test_a_snapshot_that_was_damaged_on_its_way_is_asked_for_again(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = _crashed_and_left_behind(quorum)

    async def fetch(snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        raise DamagedFile(f"{snapshot_id}: its SHA-256 is another than the sender's")

    def told() -> str | None:
        assert late.log is not None
        return late.log.status().snapshot_not_fetched

    with monkeypatch.context() as damaging:
        damaging.setattr(late, "fetch", fetch)
        quorum.run(_start(late))
        quorum.until(lambda: told() is not None)
        assert "its SHA-256 is another" in str(told())
    quorum.until(lambda: frames_of(late) == frames_of(quorum.leader()))
    assert told() is None


@pytest.mark.parametrize("fault", [DiskFailed, InvariantBroken])
def test_any_other_fault_of_a_download_stops_the_node(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, fault: type[Fault]
) -> None:
    late = _crashed_and_left_behind(quorum)

    async def fetch(snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        raise fault(f"{snapshot_id} from {from_node}")

    monkeypatch.setattr(late, "fetch", fetch)
    quorum.run(_start(late))
    quorum.until(lambda: bool(quorum.world.violations))
    assert fault.__name__ in quorum.world.violations.pop()
    late.log = None


@pytest.mark.slow
def test_no_snapshot_is_installed_beside_a_journal_that_was_never_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a crash leaves nothing there that proves a loss. Method: on a new disk the first sync takes long."""
    quorum = Quorum()
    new, *others = quorum.nodes
    for node in others:
        quorum.run(_start(node))
    for _ in range(2 * SNAPSHOT_FRAMES):
        quorum.write()
    leader = quorum.leader()
    quorum.until(lambda: leader.journal[0][1] > 1)
    with monkeypatch.context() as slowly:
        slowly.setattr(new, "_sync_seconds", lambda: 60.0)
        quorum.run(_start(new))
        quorum.wait(5.0)
    assert not new.journal.is_begun
    assert quorum.world.snapshots_fetched == 0
    new.crash()
    quorum.run(_start(new))
    quorum.until(lambda: frames_of(new) == frames_of(leader))
    assert quorum.world.snapshots_fetched == 1
    quorum.end()
    assert quorum.world.violations == []


async def _start(node: SimulatedNode) -> None:
    node.start()
    await asyncio.sleep(0)


def test_a_voter_that_is_alone_acknowledges_only_what_is_synced() -> None:
    quorum = Quorum(voters=1)
    quorum.start()
    quorum.write(10)
    node = quorum.nodes[0]
    quorum.write(10)
    frames = frames_of(node)
    node.crash()
    quorum.run(_start(node))
    quorum.leader()
    quorum.until(lambda: frames_of(node) >= frames)
    quorum.end()
    assert quorum.world.violations == []


def test_a_voter_that_is_alone_waits_quietly_for_a_stalled_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads on, and has nothing to tell its observer meanwhile."""
    quorum = Quorum(voters=1, observers=1)
    quorum.start()
    quorum.write()
    leader = quorum.leader()
    quorum.wait(0.5)
    monkeypatch.setattr(leader, "_sync_seconds", lambda: 5.0)
    assert leader.log is not None
    leader.log.append(quorum.world.next_frame())
    quorum.wait(3.0)
    assert leader.log._guard.state.disk_stalled
    pumps: list[float] = []
    monkeypatch.setattr(leader.log, "after_pump", lambda: pumps.append(quorum.loop.time()))
    quorum.wait(1.0)
    assert leader.is_leader()
    assert len(pumps) < 50
    quorum.end()


def test_close_ends_the_node_and_fails_its_reads(quorum: Quorum) -> None:
    quorum.write()
    leader = quorum.leader()
    log = leader.log
    assert log is not None and leader.task is not None

    async def read_while_closing() -> None:
        for node in quorum.nodes:
            if node is not leader:
                quorum.world.network.block(node.node_id, leader.node_id)
        read = asyncio.ensure_future(log.read_index())
        await asyncio.sleep(0.001)
        await log.close()
        with pytest.raises(NotController):
            await read

    quorum.run(read_while_closing())
    quorum.until(leader.task.done)
    assert not leader.listener.is_leader  # type: ignore[attr-defined]
    quorum.run(log.close())


def test_close_does_not_wait_for_a_snapshot_that_nobody_gives(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all who have it are behind a cut that swallows what is asked of them."""
    node = next(node for node in quorum.nodes if not node.is_leader())
    for _ in range(2 * SNAPSHOT_FRAMES):
        quorum.write()
    quorum.until(lambda: node.journal[0][1] > 1)
    quorum.wait(0.5)
    node.crash()
    cancelled: list[str] = []

    async def fetch(snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            cancelled.append(snapshot_id)

    monkeypatch.setattr(node, "fetch", fetch)
    quorum.run(_start(node))
    quorum.wait(1.0)
    assert node.log is not None and node.task is not None
    assert cancelled == [] and not node.task.done()
    closing = quorum.loop.create_task(node.log.close())
    quorum.until(closing.done, seconds=1.0)
    assert len(cancelled) == 1
    quorum.until(node.task.done)


# --- what stands on disk


def _pointer() -> Pointer:
    voters = {NodeId(1): directory_of(NodeId(1), 0), NodeId(4): directory_of(NodeId(4), 2)}
    before, last = (b"\x10before", 7, 2), (b"\x10last", 8, 3)
    return Pointer.to("00000000000000000060", b"seal", before=before, last=last, voters=voters)


def test_a_pointer_survives_its_bytes() -> None:
    pointer = _pointer()
    assert Pointer.from_bytes(pointer.to_bytes()) == pointer
    assert (pointer.index, pointer.term) == (8, 3)


def test_any_flipped_bit_of_a_pointer_is_noticed() -> None:
    data = _pointer().to_bytes()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(ValueError, match=r"its|it "):
                Pointer.from_bytes(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"its|it "):
            Pointer.from_bytes(data[:length])


@pytest.mark.parametrize("change", [b"rubbish", b""])
def test_a_damaged_pointer_stops_the_node(change: bytes) -> None:
    quorum = Quorum()
    node = quorum.nodes[0]
    node.disk.replace(FILE_NAME, change)
    node.disk.settle()
    quorum.run(_start(node))
    assert quorum.world.violations and DamagedFile.__name__ in quorum.world.violations[0]
    quorum.end()


def test_a_trimmed_journal_without_its_pointer_stops_the_node(quorum: Quorum) -> None:
    for _ in range(2 * SNAPSHOT_FRAMES):
        quorum.write()
    node = quorum.nodes[0]
    quorum.until(lambda: node.journal[0][1] > 1)
    quorum.wait(0.5)
    node.crash()
    node.disk.remove(FILE_NAME)
    node.disk.settle()
    quorum.run(_start(node))
    assert DamagedFile.__name__ in quorum.world.violations.pop()
    node.log = None


def test_a_disk_that_was_set_back_is_told_of() -> None:
    quorum = Quorum()
    quorum.start()
    quorum.write(3)
    quorum.wait(0.5)
    leader = quorum.leader()
    node = next(node for node in quorum.nodes if node is not leader)
    older = node.disk.copy()
    quorum.write(3)
    quorum.wait(0.5)

    def told() -> list[NodeId]:
        assert leader.log is not None
        return [peer.node_id for peer in leader.log.status().peers if peer.forgot]

    assert told() == []
    node.crash()
    node.disk = older
    quorum.run(_start(node))
    quorum.until(lambda: told() == [node.node_id])
    # It is asked at each heartbeat whether it has found again what it lost, not as fast as the link can.
    sent: list[NodeId] = []
    leader.transport.on_send = lambda target, _message: sent.append(target)
    quorum.wait(1.0)
    assert sent.count(node.node_id) <= 30
    assert told() == [node.node_id]
    quorum.world.violations.clear()  # the world, too, sees that a promise was broken
    quorum.end()


@pytest.mark.slow
@pytest.mark.parametrize("tail_bytes", [0, 500, 10**9])
def test_the_tail_behind_a_snapshot_is_bounded_in_entries_and_in_bytes(tail_bytes: int) -> None:
    quorum = Quorum()
    quorum.world.settings = settings = replace(quorum.world.settings, tail_bytes=tail_bytes)
    quorum.start()
    journal = quorum.nodes[0].journal
    for _ in range(2 * SNAPSHOT_FRAMES):
        quorum.write()
    quorum.until(lambda: journal.snapshot_index > settings.tail_entries + 2)
    sizes = [len(command) for command, index, _ in journal if index < journal.snapshot_index - 1]
    assert sum(sizes) <= tail_bytes
    assert len(sizes) <= settings.tail_entries
    if tail_bytes:
        assert len(sizes) == settings.tail_entries or sum(sizes) + max(sizes) > tail_bytes, (
            "no more is trimmed"
        )
    quorum.end()
    assert quorum.world.violations == []


def test_a_quiet_log_is_trimmed_behind_a_snapshot_that_it_stands_on_already() -> None:
    quorum = Quorum()
    quorum.start()
    quorum.write(SNAPSHOT_FRAMES)
    quorum.until(lambda: all(node.journal.snapshot_index > 1 for node in quorum.nodes))
    quorum.wait(40)
    node = quorum.nodes[0]
    assert node.log is not None and isinstance(node.listener, Model)
    frames, before = node.listener.frames, node.log.status().entries_untrimmed
    assert before >= 38, "each second has left an entry"
    node.take_snapshot(frames)
    quorum.until(lambda: node.log is not None and node.log.status().entries_untrimmed <= 2)
    assert len(node.journal) <= quorum.world.settings.tail_entries + 4
    node.crash()
    quorum.run(_start(node))
    quorum.write(2)
    assert frames_of(node) == frames + 2
    quorum.end()


def test_the_snapshot_that_the_pointer_names_is_pinned() -> None:
    quorum = Quorum()
    quorum.start()
    quorum.write(SNAPSHOT_FRAMES)
    quorum.until(lambda: all(node.journal.snapshot_index > 1 for node in quorum.nodes))
    for node in quorum.nodes:
        pointer = node.disk.durable(FILE_NAME)
        assert node.log is not None and pointer is not None
        assert Pointer.from_bytes(pointer).snapshot_id in node.log.pinned_snapshots()
    quorum.end()


def test_a_new_leader_with_a_log_to_apply_leads_once_it_is_applied() -> None:
    """Goal: the first heartbeats leave at once. Method: all lose their power, so that nobody knows what is committed."""
    quorum = Quorum()
    quorum.start()
    quorum.write(40)
    for node in quorum.nodes:
        node.crash()
        quorum.run(_start(node))
    told: list[int] = []
    for node in quorum.nodes:
        listener = node.listener
        assert isinstance(listener, Model)

        def on_leadership(
            *, is_leader: bool, listener: Model = listener, tell: Any = listener.on_leadership
        ) -> None:
            if is_leader:
                told.append(listener.frames)
            tell(is_leader=is_leader)

        listener.on_leadership = on_leadership  # type: ignore[method-assign]
    quorum.until(lambda: any(node.is_leader() for node in quorum.nodes))
    assert told == [], "it leads by its term, and has not applied its log"
    leader = next(node for node in quorum.nodes if node.is_leader())
    assert leader.log is not None
    with pytest.raises(NotController):
        leader.log.append(b"")
    quorum.write()
    assert told[0] >= 40
    quorum.end()


def test_a_new_leader_with_nothing_to_apply_leads_at_once(quorum: Quorum) -> None:
    """Goal: what it appends then leaves with the election's entry. Method: idle entries alone may be unapplied."""
    quorum.write()
    quorum.wait(3.0)
    old = quorum.leader()
    told: list[bool] = []
    for node in quorum.nodes:
        log, tell = node.log, node.listener.on_leadership
        assert log is not None

        def on_leadership(*, is_leader: bool, log: PySyncObjLog = log, tell: Any = tell) -> None:
            if is_leader:
                told.append(log.applied_position()[1] < log._node.engine.term)
            tell(is_leader=is_leader)

        node.listener.on_leadership = on_leadership  # type: ignore[method-assign]
    old.crash()
    quorum.until(lambda: bool(told))
    assert told == [True], "its own entry is not applied yet"


def test_a_node_with_an_empty_log_founds_no_second_quorum() -> None:
    quorum = Quorum()
    quorum.start()
    ignorant, *others = quorum.nodes  # it has no link to the one who has a log, and gets no vote
    for node in others:
        assert node.log is not None
        node.log._node.others_founded = lambda: True
    quorum.wait(5)
    for node in quorum.nodes:
        assert node.log is not None
        told = node.log.status()
        assert (told.awaits_founded_quorum, told.elections_total, told.leader_id) == (
            node is not ignorant,
            0,
            None,
        )
    # The link to that one is gone: a log of which nobody knows is not waited for.
    for node in quorum.nodes:
        assert node.log is not None
        node.log._node.others_founded = lambda: False
    quorum.write()
    # With a log, nobody is held back by the others' logs.
    leader = quorum.leader()
    for node in quorum.nodes:
        assert node.log is not None
        node.log._node.others_founded = lambda: True
    leader.crash()
    quorum.until(
        lambda: any(
            node.log and node.log.status().role is Role.LEADER for node in quorum.nodes if node is not leader
        )
    )
    leader.log = None
    quorum.end()


def test_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine.prepare_library.cache_clear()
    monkeypatch.setattr(engine, "PROVED_SOURCES", {syncobj: "0" * 64})
    with pytest.raises(InvalidSettings, match=r"pysyncobj==0\.3\.17"):
        engine.prepare_library()
    engine.prepare_library.cache_clear()
    monkeypatch.undo()
    engine.prepare_library()


@pytest.mark.parametrize("only_join", [False, True], ids=["formatted", "formatted to join"])
def test_two_new_disks_without_the_third_voter_found_a_quorum_unless_they_only_join(only_join: bool) -> None:
    """The third may be the survivor of a quorum, or a voter that was never started: nothing that the two see tells."""
    quorum = Quorum()
    new = quorum.nodes[:2]

    async def start() -> None:
        for node in new:
            node.only_joins = only_join
            node.start()

    quorum.run(start())
    if only_join:
        quorum.wait(30)
        assert [node.log and node.log.status().elections_total for node in new] == [0, 0]
        assert [node.log and node.log.status().awaits_founded_quorum for node in new] == [True, True]
    else:
        quorum.until(lambda: any(node.is_leader() for node in new))
    quorum.end()


def test_a_disk_that_only_joins_votes_for_nobody_whose_log_is_empty() -> None:
    """Nor does it where the candidacy is forced, and so needs no pre-vote; a candidate that has a log gets its vote."""
    quorum = Quorum()
    joining, candidate, other = quorum.nodes
    joining.only_joins = True

    async def start() -> None:
        for node in (joining, candidate):
            node.start()

    quorum.run(start())
    quorum.wait(30)
    assert (joining.journal.getCurrentTerm(), candidate.journal.getCurrentTerm()) == (0, 0)

    def asks(term: int, last_log_term: int) -> None:
        joining.transport.on_message(
            candidate.member,
            {
                "type": "request_vote",
                "term": term,
                "last_log_index": 1 + last_log_term,
                "last_log_term": last_log_term,
                "force": True,
            },
        )

    asks(1, 0)
    quorum.wait(1)
    assert joining.journal.getVotedForNodeId() is None
    asks(2, 1)
    quorum.until(lambda: joining.journal.getVotedForNodeId() == candidate.node_id)
    assert other.log is None
    quorum.end()


def test_a_disk_that_only_joins_votes_and_leads_once_others_have_founded_the_quorum() -> None:
    quorum = Quorum()
    joining = quorum.nodes[0]
    joining.only_joins = True
    quorum.start()
    assert quorum.leader() is not joining
    quorum.write()

    def takes_over() -> bool:
        leader = next((node for node in quorum.nodes if node.is_leader()), None)
        if leader is not None and leader is not joining:
            assert leader.log is not None
            leader.log.transfer_leadership(joining.member.node_id)
            quorum.wait(2)
        return leader is joining

    quorum.until(takes_over)
    quorum.write()
    assert joining.log is not None and not joining.log.status().awaits_founded_quorum
    quorum.end()


def test_a_lone_voter_of_its_settings_that_only_joins_never_leads() -> None:
    quorum = Quorum(voters=1)
    (node,) = quorum.nodes
    node.only_joins = True
    quorum.start()
    quorum.wait(30)
    assert node.log is not None
    told = node.log.status()
    assert (told.role, told.elections_total, told.awaits_founded_quorum) == (Role.FOLLOWER, 0, True)
    quorum.end()
