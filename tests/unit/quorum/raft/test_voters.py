"""Changes of voters: their entries, when they are in force, and which votes count."""

import random
from collections.abc import Iterator

import msgpack
import pytest

from metadata_log.errors import ChangePending, InvalidRequest
from metadata_log.ids import NodeId, Uuid
from quorum.raft import messages
from quorum.raft.journal.journal import Journal
from quorum.raft.messages import Entry, is_entry_command
from quorum.raft.pointer import FILE_NAME, Pointer
from quorum.raft.raft_log import Role, Voters
from quorum.raft.voters import check_one_change, from_command, to_command
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.model import SNAPSHOT_FRAMES, Model
from tests.simulation.world.node import JOURNAL_FILE_BYTES, SimulatedNode, directory_of
from tests.simulation.world.stepped import Quorum, frames_of
from tests.simulation.world.watched_log import Standing


def voters_of(*ids: int) -> Voters:
    return {NodeId(number): directory_of(NodeId(number), 0) for number in ids}


# --- entries


def test_an_entry_survives_its_bytes() -> None:
    voters = voters_of(3, 1, 2)
    command = to_command(voters, b"frames")
    assert from_command(command) == (voters, b"frames")
    assert is_entry_command(command)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [[1]],
        [[1, b"short"]],
        [[-1, bytes(16)]],
        [[True, bytes(16)]],
        [["1", bytes(16)]],
        [[2, bytes(16)], [1, bytes(16)]],
        [[1, bytes(16)], [1, bytes(16)]],
        [[number, bytes(16)] for number in range(100)],
        {"1": bytes(16)},
        None,
    ],
)
def test_an_entry_with_other_rows_is_none(rows: object) -> None:
    packed = msgpack.packb(rows)
    command = b"\x11" + len(packed).to_bytes(2, "big") + packed
    with pytest.raises(ValueError, match="its voters"):
        from_command(command)
    assert not is_entry_command(command)


@pytest.mark.parametrize("command", [b"", b"\x11", b"\x11\0", b"\x11\0\5abc", b"\x11\0\1\xc1", b"\x10x"])
def test_an_entry_cut_short_is_none(command: bytes) -> None:
    with pytest.raises(ValueError, match=r"voters"):
        from_command(command)


def test_a_message_with_a_malformed_change_is_refused() -> None:
    message = messages.append_entries(
        term=2, commit_index=1, previous=(1, 0), entries=[(b"\x11\0\1\xc1", 2, 2)]
    )
    with pytest.raises(ValueError, match="entries"):
        messages.check(message)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (voters_of(1, 2, 3), voters_of(1, 2, 3, 4), True),
        (voters_of(1, 2, 3), voters_of(1, 2), True),
        (voters_of(1, 2, 3), voters_of(1, 2, 3), False),
        (voters_of(1, 2, 3), voters_of(1, 2, 4), False),
        (voters_of(1, 2, 3), {**voters_of(1, 2), NodeId(3): directory_of(NodeId(3), 1)}, False),
        (voters_of(1, 2, 3), voters_of(1), False),
        (voters_of(1), {}, False),
    ],
)
def test_one_voter_comes_or_goes(before: Voters, after: Voters, *, allowed: bool) -> None:
    if allowed:
        check_one_change(before, after)
        return
    with pytest.raises(InvalidRequest):
        check_one_change(before, after)


@pytest.mark.parametrize(("voters", "commit", "survives"), [(1, 1, 0), (3, 2, 1), (5, 3, 2)])
def test_a_majority_commits(voters: int, commit: int, survives: int) -> None:
    """A2, A93, B62: of 2N + 1 voters N + 1 commit, so N may be lost; after one loss more nothing is written."""
    quorum = Quorum(voters=voters)
    quorum.start()
    leader = quorum.leader()
    others = [node for node in quorum.nodes if node is not leader]
    for node in others[:survives]:
        node.crash()
    quorum.write()
    assert sum(node.log is not None for node in quorum.nodes) == commit
    for node in others[survives : survives + 1]:
        node.crash()
        assert leader.log is not None
        before = frames_of(leader)
        leader.log.append(quorum.world.next_frame())
        quorum.wait(3.0)
        assert frames_of(leader) == before
        assert not leader.is_leader()
    quorum.end()


# --- changes


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    """Three voters and two observers."""
    made = Quorum(observers=2)
    made.start()
    made.write()
    yield made
    made.end()
    assert made.world.violations == []


def change(quorum: Quorum, voters: Voters) -> None:
    """Have these vote, and wait until they do in the eyes of all who run."""
    leader = quorum.leader()
    quorum.until(lambda: _proposed(quorum, leader, voters))
    quorum.until(
        lambda: all(node.log.status().voters == voters for node in quorum.nodes if node.log is not None)
    )


def _proposed(quorum: Quorum, leader: SimulatedNode, voters: Voters) -> bool:
    try:
        quorum.world.propose(leader, voters)
    except ChangePending:
        return False
    return True


def test_an_observer_becomes_a_voter_and_is_counted(quorum: Quorum) -> None:
    change(quorum, voters_of(1, 2, 3, 4))
    change(quorum, voters_of(1, 2, 3, 4, 5))
    quorum.write(5)
    leader = quorum.leader()
    down = [node for node in quorum.nodes if node is not leader and node.node_id <= 3][:2]
    for node in down:
        node.crash()
    quorum.write(5)  # of five voters three run, two of them newcomers


def test_an_observer_is_not_counted(quorum: Quorum) -> None:
    """B5"""
    leader = quorum.leader()
    for node in quorum.nodes:
        if node is not leader and node.node_id <= 3:
            node.crash()
    assert leader.log is not None
    before = frames_of(leader)
    leader.log.append(quorum.world.next_frame())
    quorum.until(lambda: not leader.is_leader())
    quorum.wait(3.0)
    assert frames_of(leader) == before
    assert not any(node.is_leader() for node in quorum.nodes)


def test_a_voter_that_leads_on_does_so_at_once(quorum: Quorum) -> None:
    leader = quorum.leader()
    term = leader.log._node.engine.term  # type: ignore[union-attr]
    quorum.until(lambda: all(node.journal.is_prepared for node in quorum.nodes))  # the disks are idle
    change(quorum, voters_of(1, 2, 3, 4))
    began = quorum.loop.time()
    again = quorum.leader()
    assert again is leader
    assert again.log._node.engine.term == term + 1  # type: ignore[union-attr]
    assert quorum.loop.time() - began < 0.1  # simulated: no timeout passed


def test_a_leader_that_removes_itself_has_another_take_over_and_follows(quorum: Quorum) -> None:
    leader = quorum.leader()
    change(
        quorum, {node: directory for node, directory in voters_of(1, 2, 3).items() if node != leader.node_id}
    )
    quorum.write(3)
    assert quorum.leader() is not leader
    assert leader.log is not None
    status = leader.log.status()
    assert (status.is_voter, status.role) == (False, Role.FOLLOWER)


def test_whom_a_leader_that_removed_itself_asks_stands_at_once(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News that the change is committed, and the request to stand, leave in one write and are taken in one pump."""
    monkeypatch.setattr(quorum.world.network, "_delay", lambda: 0.0005)
    monkeypatch.setattr(SimulatedNode, "_sync_seconds", lambda _: 0.001)
    quorum.wait(0.5)  # what was sent before has arrived
    leader = quorum.leader()
    left = {node: directory for node, directory in voters_of(1, 2, 3).items() if node != leader.node_id}
    quorum.world.propose(leader, left)
    quorum.until(lambda: not leader.is_leader())
    ended = quorum.loop.time()
    quorum.leader()
    assert quorum.loop.time() - ended < 0.02  # simulated: no timeout passed


@pytest.mark.parametrize("asked", [False, True])
def test_a_candidate_that_applies_a_change_late_deposes_no_live_leader(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    """Goal: only a leader's own request makes voters vote while they hear a leader. Method: a follower knows that a change
    is committed, and campaigns before it has applied it; what it sends then is recorded and lost.
    """
    leader = quorum.leader()
    late = next(node for node in quorum.nodes[:3] if node is not leader)
    log, sent = late.log, list[messages.Message]()
    assert log is not None
    with monkeypatch.context() as patch:
        patch.setattr(log._applied, "run", lambda _now: False)
        quorum.until(lambda: _proposed(quorum, leader, voters_of(1, 2, 3, 4)))
        quorum.until(lambda: leader.log is not None and 4 in leader.log.status().voters)
        quorum.until(lambda: log._node.engine.commit_index >= log._node.in_force._log.voter_changes[-1])
        assert 4 not in log.status().voters
        quorum.until(log._guard.elections.may_stand)  # its disk has what it would ask for votes for
        patch.setattr(late.transport, "send", lambda _target, message: sent.append(message))
        log._guard.elections.campaign(force=asked)
        assert log._node.engine.role is Role.CANDIDATE
        term = log._node.engine.term
        patch.undo()
        patch.setattr(late.transport, "send", lambda _target, message: sent.append(message))
        quorum.until(lambda: 4 in log.status().voters)
        quorum.wait(0.05)
    forced = {message["term"] for message in sent if message.get("force", False)}
    assert forced - {term} == ({term + 1} if asked else set())


def test_a_quorum_shrinks_to_one_and_grows_again(quorum: Quorum) -> None:
    leader = quorum.leader()
    others = [number for number in (1, 2, 3) if number != leader.node_id]
    change(quorum, voters_of(leader.node_id, others[0]))
    change(quorum, voters_of(leader.node_id))
    quorum.write(3)
    change(quorum, voters_of(leader.node_id, 5))
    quorum.write(3)


def test_one_change_at_a_time(quorum: Quorum) -> None:
    """B7, B70"""
    leader = quorum.leader()
    assert leader.log is not None
    quorum.until(lambda: _proposed(quorum, leader, voters_of(1, 2, 3, 4)))
    for later in (voters_of(1, 2, 3, 5), voters_of(1, 2, 3, 4, 5)):
        with pytest.raises(ChangePending):
            quorum.world.propose(leader, later)
    quorum.wait(0.001)  # it is in the log by now
    assert leader.log.status().change_pending or leader.log.status().voters == voters_of(1, 2, 3, 4)


def test_two_voters_do_not_change_at_once(quorum: Quorum) -> None:
    """B7, B70"""
    quorum.write()
    with pytest.raises(InvalidRequest):
        quorum.world.propose(quorum.leader(), voters_of(1, 2, 3, 4, 5))


def test_no_change_before_the_leadership_has_committed_anything() -> None:
    """Another's change may be committed already, unknown to a new leader. Source: the correction of Raft thesis 4.1."""
    quorum = Quorum(observers=1)
    refused: list[bool] = []
    lead = Model.on_leadership

    def propose_at_once(model: Model, *, is_leader: bool) -> None:
        lead(model, is_leader=is_leader)
        if is_leader and model.node.log is not None:
            with pytest.raises(ChangePending):
                model.node.log.append(quorum.world.next_frame(), voters_of(1, 2, 3, 4))
            refused.append(True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "on_leadership", propose_at_once)
        quorum.start()
        quorum.write()
        first = quorum.leader()
        first.crash()
        quorum.until(lambda: bool(refused))
    quorum.end()


# --- what is in force after a start


def recovered(entries: list[Entry], *, pointer: Pointer | None = None) -> Voters:
    """Return who votes on node 1 of a quorum of three once it has started with such a log, and heard nobody."""
    quorum = started_with(entries, pointer=pointer)
    voters = voters_on(quorum.nodes[0])
    quorum.end()
    return voters


def started_with(entries: list[Entry], *, pointer: Pointer | None = None) -> Quorum:
    """Return a quorum of three of which node 1 alone has started, with such a log, and heard nobody."""
    quorum = Quorum()
    node = quorum.nodes[0]
    disk = SimulatedDisk()
    journal = Journal.open(disk, random_bytes=random.Random(1).randbytes, file_bytes=JOURNAL_FILE_BYTES)
    for entry in entries:
        journal.add(*entry)
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    journal.completed(batch)
    if pointer is not None:
        disk.replace(FILE_NAME, pointer.to_bytes())
        node.store[pointer.snapshot_id] = 0
    disk.settle()
    node.disk, node.durable = disk, Standing(list(journal), 0, None)
    quorum.run(_start(node))
    quorum.wait(0.01)
    return quorum


def voters_on(node: SimulatedNode) -> Voters:
    assert node.log is not None
    return node.log.status().voters


def hear(quorum: Quorum, entries: list[Entry]) -> None:
    """Let node 1 take these entries, behind the first of all, from node 3, which leads term 4 and has committed none."""
    log = quorum.nodes[0].log
    assert log is not None
    message = messages.append_entries(term=4, commit_index=1, previous=(1, 0), entries=entries)
    log._node.arrived(quorum.nodes[2].member, message)
    log._wake.set()
    quorum.wait(0.01)


async def _start(node: SimulatedNode) -> None:
    node.start()


FOUNDED = (to_command(voters_of(1, 2, 3), b"foundedd"), 3, 1)
NOTHING = [(b"\x01", 1, 0), (b"\x01", 2, 1)]


def set_by(index: int, *ids: int) -> Entry:
    return (to_command(voters_of(*ids), index.to_bytes(8, "big")), index, 1)


def test_the_log_says_who_votes_not_the_settings() -> None:
    assert recovered([*NOTHING, (to_command(voters_of(1, 2), b"foundedd"), 3, 1)]) == voters_of(1, 2)


def test_the_last_change_is_not_in_force_before_it_is_known_to_be_committed() -> None:
    assert recovered([*NOTHING, FOUNDED, set_by(4, 1, 2, 3, 4)]) == voters_of(1, 2, 3)


def test_a_change_behind_it_proves_that_one_was_committed() -> None:
    """Else this node could act under voters two changes old, whose majority need not meet that of the newest."""
    changes = [FOUNDED, set_by(4, 1, 2, 3, 4), set_by(5, 1, 2, 3, 4, 5)]
    assert recovered([*NOTHING, *changes]) == voters_of(1, 2, 3, 4)


def test_what_was_proved_is_not_proved_once_it_is_cut() -> None:
    """Leaderships of node 1 that committed nothing said who votes; in the place of one of these stands a change now."""
    founded = FOUNDED[0]
    quorum = started_with(
        [*NOTHING, FOUNDED, (b"\x01", 4, 2), (founded, 5, 2), (b"\x01", 6, 3), (founded, 7, 3)]
    )
    added = to_command(voters_of(1, 2, 3, 4), b"addedddd")
    hear(quorum, [(b"\x01", 2, 4), (founded, 3, 4), (added, 4, 4)])
    assert quorum.nodes[0].journal[-1] == (added, 4, 4)
    assert voters_on(quorum.nodes[0]) == voters_of(1, 2, 3)
    quorum.end()


def test_a_quorum_whose_founding_was_cut_is_founded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(model: Model, *, is_leader: bool) -> None:
        model.is_leader = is_leader
        if is_leader and model.node.log is not None:
            model.node.log.append(model.node.world.next_frame(), voters_of(1, 2, 3))

    monkeypatch.setattr(Model, "on_leadership", found)
    quorum = started_with([*NOTHING, FOUNDED])
    node = quorum.nodes[0]
    hear(quorum, [(b"\x01", 2, 4)])
    assert [index for _, index, _ in node.journal] == [1, 2]
    quorum.run(_start(quorum.nodes[1]))
    quorum.write()
    assert node.is_leader()
    assert node.journal.voter_changes
    quorum.end()
    assert quorum.world.violations == []


def test_a_change_is_proved_once_the_leadership_behind_it_has_committed_anything(quorum: Quorum) -> None:
    """Else the voters of before would be asked by all who start anew, though one of those may be gone for good."""
    change(quorum, voters_of(1, 2, 3, 4))
    quorum.write()
    for node in quorum.nodes:
        assert recovered([*node.journal]) == voters_of(1, 2, 3, 4)


def test_a_snapshots_pointer_says_who_voted_there() -> None:
    entries = ((b"\x01", 6, 2), (b"\x10snapshot", 7, 2))
    pointer = Pointer.to("0" * 19 + "9", b"seal", before=entries[0], last=entries[1], voters=voters_of(1, 4))
    assert recovered(list(entries), pointer=pointer) == voters_of(1, 4)
    assert recovered([*entries, set_by(8, 1)], pointer=pointer) == voters_of(1, 4)


def test_a_trimmed_log_and_an_installed_snapshot_know_who_votes(quorum: Quorum) -> None:
    absent = next(node for node in quorum.nodes if node.node_id == 5)
    absent.crash()
    change(quorum, voters_of(1, 2, 3, 4))
    for _ in range(2 * SNAPSHOT_FRAMES):  # an entry each
        quorum.write()
    leader = quorum.leader()
    quorum.until(lambda: leader.journal[0][1] > 20)
    assert max(leader.journal.voter_changes, default=0) <= leader.journal.snapshot_index
    quorum.run(_start(absent))
    quorum.write()
    assert quorum.world.snapshots_fetched > 0
    for node in quorum.nodes:
        assert node.log is not None
        assert node.log.status().voters == voters_of(1, 2, 3, 4)


# --- wiped disks


def test_a_wiped_voter_follows_without_a_vote_until_it_is_made_one(quorum: Quorum) -> None:
    leader = quorum.leader()
    wiped = next(node for node in quorum.nodes if node is not leader and node.node_id <= 3)
    wiped.wipe()
    quorum.run(_start(wiped))
    quorum.write(3)
    assert wiped.log is not None
    assert not wiped.log.status().is_voter
    assert leader.log is not None
    told = [
        (peer.is_voter, peer.reachable) for peer in leader.log.status().peers if peer.node_id == wiped.node_id
    ]
    assert told == [(True, False), (False, True)]
    left = {node: directory for node, directory in voters_of(1, 2, 3).items() if node != wiped.node_id}
    change(quorum, left)
    replaced: dict[NodeId, Uuid] = dict(left) | dict([wiped.member])
    change(quorum, replaced)
    quorum.write(3)
    assert wiped.log.status().is_voter
