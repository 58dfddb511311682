"""The journal: what it keeps, what a crash may lose, and which damage it refuses.

A journal's state is (entries, term, vote). The tests know every state it passed through, so "a prefix of what was
written, nothing acknowledged missing" is: the recovered state is one of those since the last acknowledgement.
"""

import contextlib
import errno
import os
import random
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import DamagedFile, DiskFailed, InvariantBroken
from metadata_log.limits import JOURNAL_FILE_BYTES
from quorum.raft.journal.format import file_name
from quorum.raft.journal.journal import Journal, JournalBatch
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.journal.recovery import room_to_open
from tests.golden.journal import regenerate
from tests.support.independent_reader import journal as independently_read
from tests.support.journals import compact_to
from tests.support.memory_disk import MemoryDisk, any_sectors, everything, nothing

FILE_BYTES = 512
HEADER_BYTES = 36
State = tuple[tuple[tuple[bytes, int, int], ...], int, Any]


class PowerCut(Exception):
    """Raised in place of a disk operation."""


def open_on(disk: Any, *, seed: int = 0, file_bytes: int = FILE_BYTES, may_be_new: bool = True) -> Journal:
    random_bytes = random.Random(seed).randbytes
    return Journal.open(disk, random_bytes=random_bytes, file_bytes=file_bytes, may_be_new=may_be_new)


def opened(disk: MemoryDisk) -> tuple[State | None, DamagedFile | None]:
    """Return the state that opening finds, or the damage."""
    try:
        return state(open_on(disk)), None
    except DamagedFile as damage:
        return None, damage


def flush(journal: Journal) -> JournalBatch:
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    journal.completed(batch)
    return batch


def prepare(journal: Journal) -> None:
    while not journal.is_prepared:
        journal.prepare()


def state(journal: Journal) -> State:
    return tuple(journal), journal.getCurrentTerm(), journal.getVotedForNodeId()


def add(journal: Journal, *, term: int = 1, size: int = 10) -> None:
    index = journal[-1][1] + 1 if journal else 1
    journal.add(b"\x10" + bytes([index % 256]) * size, index, term)


def small_journal(disk: MemoryDisk, *, marked: bool) -> list[State]:
    """Write three files of batches; return the states after each."""
    journal = open_on(disk)
    states = [state(journal)]
    for number in range(14):
        if number % 4 == 2:
            journal.setCurrentTerm(number, number % 3)
        if number == 6:
            journal.deleteEntriesFrom(len(journal) - 2)
        add(journal, term=number, size=60)
        flush(journal)
        states.append(state(journal))
    prepare(journal)
    if marked:
        journal.mark_idle()
    return states


# --- what it is to the engine


def test_it_is_a_list_that_survives() -> None:
    """B1: term 3, the vote for 2 and the entries are there after a loss of power."""
    disk = MemoryDisk()
    journal = open_on(disk)
    assert list(journal) == [] and journal.take_batch() is None
    journal.add(b"\x01", 1, 0)  # as the engine does with an empty one
    journal.setCurrentTerm(3, 2)
    add(journal, term=3)
    assert journal[-1] == (b"\x10" + b"\x02" * 10, 2, 3) and journal[1:] == [journal[1]]
    assert journal.dirty and journal.synced_index == 0
    flush(journal)
    assert journal.take_batch() is None and journal.synced_index == 2
    disk.crash()
    again = open_on(disk)
    assert state(again) == state(journal) == (tuple(journal), 3, 2)
    assert again.synced_index == 2 and again.getRaftCommitIndex() == again.snapshot_index == 1


@pytest.mark.parametrize("vote", [None, 0, 3, 2**40, "node-2", ""])
def test_a_vote_may_be_any_id_the_engine_gives(vote: int | str | None) -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    journal.setCurrentTerm(7, vote)
    flush(journal)
    again = open_on(disk)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, vote)


def test_a_term_and_vote_that_stand_already_are_not_written_again() -> None:
    journal = open_on(MemoryDisk())
    journal.setCurrentTerm(1, None)
    flush(journal)
    journal.setCurrentTerm(1, None)
    assert not journal.dirty


def test_no_commit_index_is_kept() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    journal.setRaftCommitIndex(1_000)
    journal.onOneSecondTimer()
    flush(journal)
    assert journal.getRaftCommitIndex() == open_on(disk).getRaftCommitIndex() == 1
    journal.snapshot_index = 9
    assert journal.getRaftCommitIndex() == 9


def test_positions_beyond_the_list_change_nothing() -> None:
    journal = open_on(MemoryDisk())
    add(journal)
    flush(journal)
    journal.deleteEntriesFrom(1)
    journal.deleteEntriesFrom(-1)
    journal.deleteEntriesTo(0)
    compact_to(journal, 1)
    assert not journal.dirty and len(journal) == 1
    journal.clear()
    journal.clear()
    compact_to(journal, 5)
    flush(journal)
    assert list(journal) == [] and journal.synced_index == 0


def test_a_journal_that_was_begun_is_never_begun_anew() -> None:
    """Goal: a voter that lost all it wrote does not vote again, though nothing beside its journal tells of it."""
    disk = MemoryDisk()
    with pytest.raises(DamagedFile, match=r"journal: is empty, though it was begun.*replace-voter"):
        open_on(disk, may_be_new=False)
    assert disk.names() == [], "nothing is made before it is refused"
    open_on(disk).close()
    open_on(disk, may_be_new=False).close()
    torn = b"MQJB\0\0\0\x40" + bytes(range(1, 40))
    disk.open(file_name(1)).write(HEADER_BYTES, torn)
    open_on(disk, may_be_new=False).close()
    assert disk.names() == [file_name(1)]
    assert disk.open(file_name(1)).read(HEADER_BYTES, FILE_BYTES) == bytes(FILE_BYTES - HEADER_BYTES), (
        "what was never acknowledged leaves no trace"
    )
    disk.open(file_name(1)).write(0, bytes(HEADER_BYTES))
    before = disk.names()
    with pytest.raises(DamagedFile, match="journal: is empty"):
        open_on(disk, may_be_new=False)
    assert disk.names() == before


def test_what_cannot_be_is_a_fault() -> None:
    journal = open_on(MemoryDisk())
    add(journal)
    with pytest.raises(InvariantBroken, match="entry 3 cannot follow entry 1"):
        journal.add(b"\x01", 3, 1)
    with pytest.raises(InvariantBroken, match="would drop all"):
        journal.deleteEntriesTo(1)
    with pytest.raises(InvariantBroken, match="does not fit"):
        journal.add(bytes(FILE_BYTES), 2, 1)
    with pytest.raises(InvariantBroken, match="64 bytes"):
        journal.setCurrentTerm(1, "n" * 65)
    batch = journal.take_batch()
    assert batch is not None
    add(journal)
    with pytest.raises(InvariantBroken, match="still under way"):
        journal.take_batch()
    journal.write(batch)
    journal.completed(batch)
    with pytest.raises(InvariantBroken, match="not the one under way"):
        journal.completed(batch)
    assert len(journal) == 2


def test_a_truncation_lowers_the_synced_index_also_while_a_batch_is_under_way() -> None:
    journal = open_on(MemoryDisk())
    for _ in range(5):
        add(journal)
    flush(journal)
    assert journal.synced_index == 5
    for _ in range(3):
        add(journal)
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    journal.deleteEntriesFrom(6)  # entries 7 and 8 are cut while on their way,
    add(journal, term=2)  # and another entry 7 takes the place of the first
    assert journal.synced_index == 5
    journal.completed(batch)
    assert journal.synced_index == 6
    flush(journal)
    assert journal.synced_index == 7
    journal.deleteEntriesFrom(2)
    assert journal.synced_index == 2


def test_compaction_keeps_the_last_two_entries() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    for _ in range(10):
        add(journal)
    compact_to(journal, 8)
    assert [index for _, index, _ in journal] == [7, 8, 9, 10]
    flush(journal)
    again = open_on(disk)
    assert state(again) == state(journal) and again.snapshot_index == 8
    compact_to(again, 8)
    compact_to(again, 3)
    assert not again.dirty


def test_an_installed_snapshot_replaces_everything() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    for _ in range(30):
        add(journal)
        flush(journal)
    journal.clear()
    journal.add(b"\x10", 999, 4)
    journal.add(b"\x10", 1000, 4)
    flush(journal)
    assert journal.synced_index == 1000
    disk.crash()
    again = open_on(disk)
    assert state(again) == state(journal) and again.snapshot_index == 1000
    assert len(disk.names()) == 2, "no older file is needed"


# --- files


def test_files_follow_one_another_and_go_when_no_entry_needs_them() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    for _ in range(100):
        add(journal, size=50)
        flush(journal)
        compact_to(journal, journal[-1][1] - 3)
    flush(journal)
    numbers = [int(name[:20]) for name in disk.names()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] > 10 and len(numbers) <= 3
    assert state(open_on(disk)) == state(journal)


def test_batch_numbers_rise_across_files_and_recoveries(tmp_path: Path) -> None:
    for _ in range(5):
        journal = open_on(OsDisk(tmp_path))
        for _ in range(7):
            add(journal, size=50)
            flush(journal)
            journal.mark_idle()
        journal.close()
    numbers = [number for number, _ in independently_read(tmp_path)]
    assert numbers == sorted(set(numbers)) and len(list(tmp_path.iterdir())) > 5


def test_more_than_a_file_holds_is_divided() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    for _ in range(40):
        add(journal, size=60)
    journal.setCurrentTerm(2, 1)
    batch = flush(journal)
    assert len(batch.placements) > 10 and batch.number == batch.placements[-1].number
    assert journal.synced_index == 40
    disk.crash()
    assert state(open_on(disk)) == state(journal)


def test_a_new_file_is_made_ahead_of_need_part_by_part() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal, size=100)
    flush(journal)
    assert disk.durable[file_name(2)].size == 0, "begun before the batch is acknowledged"
    sizes = []
    for _ in range(16):
        assert not journal.is_prepared
        assert not any(disk.durable[file_name(2)].read(0, 8)), "no header before it is whole"
        journal.prepare()
        sizes.append(disk.durable[file_name(2)].size)
    assert sizes == list(range(FILE_BYTES // 16, FILE_BYTES + 1, FILE_BYTES // 16))
    assert disk.durable[file_name(2)].read(0, 8) == b"MQJRNL\x00\x01"
    prepare(journal)
    journal.prepare()  # in vain: nothing is left to do
    assert disk.names() == [file_name(1), file_name(2)]


@pytest.mark.parametrize("parts", [0, 1, 7, 15, 16])
def test_a_new_file_is_whole_and_synced_before_its_first_batch(parts: int) -> None:
    """However far it was made when it is needed: the batch makes the rest."""
    disk = MemoryDisk()
    journal = open_on(disk)
    entered: list[str] = []

    def look(operation: str, name: str) -> None:
        if operation == "create":
            entered.append(disk.names()[-1])
            assert disk.durable[entered[-1]].size == FILE_BYTES
            assert disk.durable[entered[-1]].read(0, 8) == b"MQJRNL\x00\x01"

    disk.before = look
    for _ in range(10):
        for _ in range(parts):
            journal.prepare()
        add(journal, size=100)
        flush(journal)
    assert len(entered) > 2
    disk.crash()
    assert state(open_on(disk)) == state(journal)


def test_a_file_still_in_the_making_is_made_anew() -> None:
    for size in (0, 10, HEADER_BYTES, 100, FILE_BYTES):  # of zeros, and no header yet
        disk = MemoryDisk()
        states = small_journal(disk, marked=False)
        spare = disk.names()[-1]
        disk.remove(spare)
        disk.create(spare).write(0, bytes(size))
        assert state(open_on(disk)) == states[-1]
        assert disk.visible[spare].size == FILE_BYTES


def test_files_may_be_larger_than_they_are_made_now() -> None:
    disk = MemoryDisk()
    journal = open_on(disk, file_bytes=2048)
    for _ in range(30):
        add(journal, size=50)
        flush(journal)
    again = open_on(disk)
    assert state(again) == state(journal)
    for _ in range(30):
        add(again, term=99, size=50)
        flush(again)
    assert state(open_on(disk)) == state(again)


@pytest.mark.slow
def test_production_files_hold_the_largest_entry() -> None:
    disk = MemoryDisk()
    journal = open_on(disk, file_bytes=JOURNAL_FILE_BYTES)
    for index in range(1, 8):
        journal.add(b"\x10" + bytes([index]) * (4 * 1024 * 1024), index, 1)
    flush(journal)
    assert state(open_on(disk, file_bytes=JOURNAL_FILE_BYTES)) == state(journal)


# --- crashes


def random_change(journal: Journal, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.6 or not journal:
        index = journal[-1][1] + 1 if journal else rng.randrange(1, 1000)
        journal.add(rng.randbytes(rng.randrange(120)), index, journal.getCurrentTerm())
    elif kind < 0.75:
        journal.setCurrentTerm(journal.getCurrentTerm() + 1, rng.choice([None, 1, 2, "3"]))
    elif kind < 0.85:
        journal.deleteEntriesFrom(rng.randrange(max(0, len(journal) - 5), len(journal)))
    elif kind < 0.98:
        journal.deleteEntriesTo(rng.randrange(len(journal)))
    else:
        journal.clear()


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_at_any_moment_loses_nothing_acknowledged(seed: int) -> None:
    """Random changes, batches and idle marks; power is cut in place of a random disk operation, any un-synced sectors
    are lost, also during recovery itself; then it goes on from there.
    """
    rng = random.Random(seed)
    disk = MemoryDisk()
    acknowledged = [state(open_on(disk))]  # and the states since
    for _life in range(20):
        operations_left = rng.randrange(40)

        def cut_power(_operation: str, _name: str) -> None:
            nonlocal operations_left
            operations_left -= 1
            if operations_left < 0:
                raise PowerCut

        disk.before = cut_power
        with contextlib.suppress(PowerCut):
            journal = open_on(disk, seed=rng.randrange(2**32))
            assert state(journal) in acknowledged
            assert journal.synced_index == (journal[-1][1] if journal else 0)
            acknowledged = [state(journal)]
            while True:
                for _ in range(rng.randrange(1, 6)):
                    random_change(journal, rng)
                    acknowledged.append(state(journal))
                if journal.dirty:
                    flush(journal)
                acknowledged = [state(journal)]
                for _ in range(rng.choice((0, 1, 16))):
                    journal.prepare()
                if rng.random() < 0.3:
                    journal.mark_idle()
        disk.before = lambda _operation, _name: None
        disk.crash(rng)
    assert state(open_on(disk)) in acknowledged


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_while_syncs_are_under_way_loses_nothing_acknowledged(seed: int) -> None:
    """As under the simulator: the calls return, what they synced becomes durable later, or not at all."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    acknowledged = [state(open_on(disk))]
    for _life in range(30):
        journal = open_on(disk, seed=rng.randrange(2**32))
        assert state(journal) in acknowledged
        acknowledged = [state(journal)]
        for _ in range(rng.randrange(6)):
            disk.defer_syncs = True
            for _ in range(rng.randrange(1, 6)):
                random_change(journal, rng)
                acknowledged.append(state(journal))
            batch = journal.take_batch()
            if batch is None:
                continue
            journal.write(batch)
            if rng.random() < 0.2:
                break
            disk.settle()
            journal.completed(batch)
            acknowledged = [state(journal)]
            for _ in range(rng.choice((0, 1, 16))):
                journal.prepare()
            if rng.random() < 0.2:
                break
            disk.settle()
            disk.defer_syncs = False
            if rng.random() < 0.5:
                journal.mark_idle()
        disk.crash(rng)
        disk.defer_syncs = False


def test_compaction_and_rotation_survive_a_crash_before_each_operation() -> None:
    """Exhaustive where the test above is random: each operation in turn, and all, none or some of what was un-synced."""
    crashes = 0
    while True:
        for keep in (nothing, everything, any_sectors(random.Random(crashes))):
            disk = MemoryDisk()
            journal = open_on(disk)
            for _ in range(10):
                add(journal, size=60)
                flush(journal)
            states = [state(journal)]
            operations_left = crashes

            def cut_power(_operation: str, _name: str) -> None:
                nonlocal operations_left
                operations_left -= 1
                if operations_left < 0:
                    raise PowerCut

            disk.before = cut_power
            try:
                for _ in range(6):
                    compact_to(journal, journal[-1][1] - 1)
                    states.append(state(journal))
                    add(journal, size=60)
                    states.append(state(journal))
                    flush(journal)
                    states = states[-1:]
                    journal.mark_idle()
            except PowerCut:
                disk.before = lambda _operation, _name: None
                disk.crash(keep)
                again = open_on(disk)
                assert state(again) in states
                add(again, term=9)
                flush(again)
                assert state(open_on(disk)) == state(again)
            else:
                assert crashes > 25
                return
        crashes += 1


def test_what_a_torn_batch_left_never_comes_back() -> None:
    """A torn batch is overwritten before anything else: even one that was all there but its first sector."""
    disk = MemoryDisk()
    journal = open_on(disk, file_bytes=4096)
    add(journal)
    flush(journal)
    before = state(journal)
    position = journal._position
    for _ in range(8):
        add(journal, size=100)
    disk.defer_syncs = True
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)

    def all_but_the_first_sector(_name: str, start: int, data: bytes) -> list[tuple[int, bytes]]:
        return [(start + 100, data[100:])]

    disk.crash(all_but_the_first_sector)
    disk.defer_syncs = False
    again = open_on(disk)
    assert state(again) == before
    assert not any(disk.durable[file_name(1)].read(position, 4096))


# --- damage


@pytest.mark.slow
@pytest.mark.parametrize("marked", [False, True])
def test_no_flipped_bit_goes_unnoticed(marked: bool) -> None:
    """Each bit of each file in turn: refused, or without effect, or (without a mark) the last batch is lost."""
    original = MemoryDisk()
    states = small_journal(original, marked=marked)
    outcomes = {"refused": 0, "harmless": 0, "last batch dropped": 0}
    assert len(original.names()) >= 4
    for name in original.names():
        for position in range(FILE_BYTES):
            for bit in range(8):
                disk = original.copy()
                disk.flip_bit(name, position, bit)
                recovered, damage = opened(disk)
                if damage is not None:
                    place = damage.context
                    assert place["file"] == name and f"byte {place['position']}" in damage.message
                    outcomes["refused"] += 1
                    continue
                assert recovered in states[-2:]
                outcomes["harmless" if recovered == states[-1] else "last batch dropped"] += 1
    assert outcomes["refused"] > 3_000 and outcomes["harmless"] > 3_000
    assert (outcomes["last batch dropped"] == 0) == marked, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("marked", [False, True])
def test_a_file_cut_at_any_length_is_refused(marked: bool) -> None:
    """No crash shortens a file: also one cut between two batches may have lost what was acknowledged."""
    original = MemoryDisk()
    states = small_journal(original, marked=marked)
    spare = original.names()[-1]
    for name in original.names():
        for size in range(FILE_BYTES):
            disk = original.copy()
            disk.cut(name, size)
            recovered, damage = opened(disk)
            if name == spare:
                assert damage is None and recovered == states[-1], "nothing was in it"
            else:
                assert damage is not None and damage.context["file"] == name


def test_a_missing_file_is_named() -> None:
    original = MemoryDisk()
    small_journal(original, marked=False)
    names = original.names()
    for name in names[:-2]:
        disk = original.copy()
        disk.remove(name)
        with pytest.raises(DamagedFile, match="missing"):
            open_on(disk)
    disk = original.copy()
    for name in names[:-1]:
        disk.remove(name)
    with pytest.raises(DamagedFile, match=f"{names[-2]}, byte 0: the file is missing"):
        open_on(disk)


def test_a_file_under_another_number_is_refused() -> None:
    disk = MemoryDisk()
    small_journal(disk, marked=False)
    names = disk.names()
    disk.durable[names[0]], disk.durable[names[1]] = disk.durable[names[1]], disk.durable[names[0]]
    disk.restart()
    with pytest.raises(DamagedFile, match=f"{names[0]}, byte 0: its header"):
        open_on(disk)


def test_a_batch_of_another_file_is_not_taken_for_one_of_this() -> None:
    """The random id in every CRC: a stale block that shows up where a batch could stand proves nothing."""
    disk, other = MemoryDisk(), MemoryDisk()
    journal = open_on(disk, seed=1)
    add(journal)
    flush(journal)
    before, position = state(journal), journal._position
    twin = open_on(other, seed=2)
    add(twin)
    flush(twin)
    add(twin)
    flush(twin)
    stale = other.visible[file_name(1)].read(position, 60)
    disk.durable[file_name(1)].write(position, stale)
    disk.restart()
    assert state(open_on(disk)) == before


def test_other_files_in_the_directory_are_let_be() -> None:
    disk = MemoryDisk()
    disk.replace("snapshot.pointer", b"x")
    states = small_journal(disk, marked=False)
    assert state(open_on(disk)) == states[-1]
    assert disk.read("snapshot.pointer") == b"x"


# --- the idle mark


def test_an_idle_mark_turns_a_rotten_last_batch_into_damage() -> None:
    for marked in (False, True):
        disk = MemoryDisk()
        states = small_journal(disk, marked=marked)
        name = disk.names()[-2]
        last = open_on(disk.copy())._position - 1
        disk.flip_bit(name, last, 0)
        if marked:
            with pytest.raises(DamagedFile, match=rf"{name}, byte \d+: .*written behind it"):
                open_on(disk)
        else:
            assert state(open_on(disk)) == states[-2]


def test_an_idle_mark_is_written_once_and_not_synced() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    seen: list[str] = []
    disk.before = lambda operation, _name: seen.append(operation)
    journal.mark_idle()
    assert seen == [], "there is nothing to mark"
    add(journal)
    journal.mark_idle()
    assert seen == [], "records wait"
    flush(journal)
    seen.clear()
    journal.mark_idle()
    journal.mark_idle()
    assert seen == ["write"]
    again = open_on(disk)
    seen.clear()
    again.mark_idle()
    assert seen == [], "it stands already"


@pytest.mark.parametrize("seed", range(30))
def test_an_idle_mark_lost_under_the_next_batch_is_no_damage(seed: int) -> None:
    """Mark and batch are both un-synced when power goes: whichever sectors arrive, the journal opens."""
    disk = MemoryDisk()
    journal = open_on(disk, file_bytes=2048)
    add(journal, size=FILE_BYTES - journal._position - 90)  # a mark behind it crosses a sector's border
    flush(journal)
    states = [state(journal)]
    disk.defer_syncs = True
    journal.mark_idle()
    add(journal, size=700)
    states.append(state(journal))
    batch = journal.take_batch()
    assert batch is not None
    journal.write(batch)
    disk.crash(any_sectors(random.Random(seed)))
    assert state(open_on(disk, file_bytes=2048)) in states


# --- a disk that fails


def test_a_full_disk_stops_the_journal_and_loses_nothing() -> None:
    disk = MemoryDisk()
    disk.free_bytes = 4 * FILE_BYTES
    journal = open_on(disk)
    acknowledged = [state(journal)]
    with pytest.raises(DiskFailed, match="no space left"):  # noqa: PT012 - some round fails
        while True:
            add(journal, size=100)
            flush(journal)
            acknowledged.append(state(journal))
    for refused in (journal.take_batch, journal.mark_idle, lambda: add(journal)):
        with pytest.raises(DiskFailed):
            refused()
    disk.crash()
    with pytest.raises(DiskFailed):
        open_on(disk)
    disk.free_bytes = 100 * FILE_BYTES
    again = open_on(disk)
    assert state(again)[0][: len(acknowledged[-1][0])] == acknowledged[-1][0]
    add(again)
    flush(again)


def test_a_next_file_that_cannot_be_made_stops_the_journal() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)
    disk.free_bytes = FILE_BYTES // 2
    with pytest.raises(DiskFailed, match="no space left"):
        prepare(journal)
    with pytest.raises(DiskFailed, match="no space left"):
        journal.prepare()
    with pytest.raises(DiskFailed, match="no space left"):
        journal.take_batch()
    assert disk.names() == [file_name(1)], "the room is given back"
    disk.crash()
    disk.free_bytes = None
    assert state(open_on(disk)) == state(journal)


def test_the_room_that_opening_takes_is_known_before() -> None:
    disk = MemoryDisk()
    assert room_to_open(disk, file_bytes=FILE_BYTES) == 2 * FILE_BYTES, "the first, and the one behind it"
    journal = open_on(disk)
    assert room_to_open(disk, file_bytes=FILE_BYTES) == FILE_BYTES
    add(journal)
    flush(journal)
    assert room_to_open(disk, file_bytes=FILE_BYTES) == FILE_BYTES, "the next file is empty"
    for _ in range(4):
        journal.prepare()
    assert room_to_open(disk, file_bytes=FILE_BYTES) == FILE_BYTES * 3 // 4
    prepare(journal)
    assert room_to_open(disk, file_bytes=FILE_BYTES) == 0
    disk.remove(file_name(2))
    assert room_to_open(disk, file_bytes=FILE_BYTES) == FILE_BYTES, "the newest file is in use"


def test_one_batch_that_needs_an_unmade_file_syncs_it_once() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    for _ in range(2):
        add(journal, size=170)
        flush(journal)
    add(journal, size=170)
    seen: list[tuple[str, str]] = []
    disk.before = lambda operation, name: seen.append((operation, name))
    flush(journal)
    assert seen.count(("sync", file_name(2))) == 3, "zeros, header, batch"


def test_the_header_of_an_unused_file_is_not_trusted_before_it_is_synced() -> None:
    """A process that was killed may have written it and not synced it; a power cut under its first batch would leave a
    file that holds something and has no header.
    """
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)

    def kill(operation: str, name: str) -> None:
        if operation == "sync" and any(disk.visible[name].read(0, 1)):
            raise PowerCut

    disk.before = kill
    with pytest.raises(PowerCut):
        prepare(journal)
    disk.before = lambda _operation, _name: None
    disk.kill()
    again = open_on(disk)
    assert disk.durable[file_name(2)].read(0, 8) == b"MQJRNL\x00\x01"
    assert state(again) == state(journal)


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_failed_write_or_sync_is_never_tried_again(failing: str) -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)
    add(journal)
    batch = journal.take_batch()
    assert batch is not None

    def fail(operation: str, name: str) -> None:
        if operation == failing:
            raise DiskFailed(f"cannot {operation} {name}")

    disk.before = fail
    with pytest.raises(DiskFailed):
        journal.write(batch)
    disk.before = lambda _operation, _name: None
    with pytest.raises(DiskFailed):
        journal.write(batch)
    with pytest.raises(DiskFailed):
        journal.setCurrentTerm(9, None)
    journal.close()


def test_what_a_failed_sync_left_in_the_cache_is_written_again_before_it_is_trusted() -> None:
    """After a failed fsync Linux drops the dirty pages' mark: reads show them, further syncs succeed, and they are
    on no disk. So a restarted journal must not believe a read and a sync.
    """
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)
    add(journal)
    batch = journal.take_batch()
    assert batch is not None
    disk.defer_syncs = True
    journal.write(batch)
    disk.defer_syncs = False
    disk._since.clear()  # the kernel gave up on them
    disk.kill()
    again = open_on(disk)
    assert state(again) == state(journal), "the cache still shows the batch"
    disk.crash()
    assert state(open_on(disk)) == state(journal), "and now the disk holds it"


def test_an_idle_mark_that_fails_stops_the_journal() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)

    def fail(operation: str, name: str) -> None:
        raise DiskFailed(f"cannot {operation} {name}")

    disk.before = fail
    with pytest.raises(DiskFailed):
        journal.mark_idle()
    with pytest.raises(DiskFailed):
        add(journal)


# --- the operating system's disk


def test_files_of_the_operating_system(tmp_path: Path) -> None:
    journal = open_on(OsDisk(tmp_path))
    for _ in range(20):
        add(journal, size=50)
        flush(journal)
        compact_to(journal, journal[-1][1] - 2)
    flush(journal)
    prepare(journal)
    journal.mark_idle()
    journal.close()
    assert all(path.stat().st_size == FILE_BYTES for path in tmp_path.iterdir())
    again = open_on(OsDisk(tmp_path))
    assert state(again) == state(journal)
    again.close()


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    assert disk.read("pointer") is None
    disk.replace("pointer", b"one")
    disk.replace("pointer", b"two")
    assert disk.read("pointer") == b"two" and disk.names() == ["pointer"]


def test_a_read_that_the_kernel_cuts_short_goes_on_to_its_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk(tmp_path).create("file")
    file.write(0, b"abcdef")
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda descriptor, size, position: pread(descriptor, min(size, 2), position)
    )
    assert (file.read(1, 5), file.read(2, 1), file.read(4, 100)) == (b"bcdef", b"c", b"ef")
    file.close()


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_made_whole_is_not_left_behind(tmp_path: Path) -> None:
    with file_size_limit(4096), pytest.raises(DiskFailed, match=str(tmp_path)):
        open_on(OsDisk(tmp_path), file_bytes=8192)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "action",
    [
        lambda disk: disk.names(),
        lambda disk: disk.open("x"),
        lambda disk: disk.create("x"),
        lambda disk: disk.remove("x"),
        lambda disk: disk.replace("x", b""),
    ],
)
def test_every_error_of_the_disk_names_its_path(tmp_path: Path, action: Callable[[OsDisk], object]) -> None:
    with pytest.raises(DiskFailed, match=r"/gone.*No such file or directory.*start again") as raised:
        action(OsDisk(tmp_path / "gone"))
    assert "gone" in str(raised.value.context["path"])


def test_a_full_disk_is_told_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk(tmp_path)
    file = disk.create("x")

    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", no_space)
    with pytest.raises(DiskFailed, match=r"/x: No space left on device: free at least 1 bytes there"):
        file.write(0, b"x")
    file.close()


# --- the format


def test_the_golden_journal_is_written_byte_for_byte(tmp_path: Path) -> None:
    regenerate.write_golden(tmp_path)
    golden = sorted(regenerate.HERE.glob("*.journal"))
    assert [path.name for path in golden] == sorted(path.name for path in tmp_path.iterdir())
    for path in golden:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_an_independent_reader_finds_the_same_in_the_golden_journal() -> None:
    batches = list(independently_read(regenerate.HERE))
    kinds = {record[0] for _, records in batches for record in records}
    assert kinds == {0, 1, 2, 3, 4} and batches[-1][1] == []
    disk = MemoryDisk()
    for path in regenerate.HERE.glob("*.journal"):
        disk.replace(path.name, path.read_bytes())
    journal = open_on(disk)
    assert _added_up(batches) == (
        list(journal),
        journal.getCurrentTerm(),
        journal.getVotedForNodeId(),
    )


def _added_up(batches: Sequence[tuple[int, list[Any]]]) -> tuple[list[Any], int, int | None]:
    """Return what the records come to: entries, current term, vote."""
    entries, term, vote = {}, 0, None
    for record in (record for _, records in batches for record in records):
        match record:
            case [0, _, term, vote, _, _] | [1, term, vote]:
                pass
            case [2, index, entry_term, command]:
                entries[index] = (command, index, entry_term)
            case [3, index]:
                entries = {held: entry for held, entry in entries.items() if held < index}
            case [4, index]:
                entries = {held: entry for held, entry in entries.items() if held >= index}
    return list(entries.values()), term, vote


def test_a_batch_whose_records_are_not_ours_is_refused() -> None:
    disk = MemoryDisk()
    journal = open_on(disk)
    add(journal)
    flush(journal)
    assert journal._files.current is not None
    for records in (
        b"\xc1",
        b"\x01",
        b"\x91\x01",
        b"\x91\x92\x09\x01",
        b"\x91\x92\x01\x01",
        b"\x91\x92\x04\x63",
        b"\x91\x94\x02\x09\x01\xc4\x00",
    ):
        journal._files.current.put(journal._position, 2, records)
        with pytest.raises(DamagedFile, match="batch 2 is none of ours"):
            open_on(disk.copy())
