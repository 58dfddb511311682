"""The loop goes on while the journal's thread writes: one step of it inside each operation on the disk, and a loss of power.

The batch that is written frees the first file, fills the current one and rolls into two more.
"""

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest

from metadata_log.errors import DamagedFile, InvariantBroken
from quorum.raft.journal.journal import Journal, JournalBatch
from tests.support.journals import compact_to
from tests.support.memory_disk import MemoryDisk
from tests.unit.quorum.raft.journal.test_journal import PowerCut, State, add, flush, open_on, prepare, state

Step = Callable[[Journal], object]


def append(journal: Journal) -> None:
    add(journal, term=3, size=40)


def replace_the_last(journal: Journal) -> None:
    journal.deleteEntriesFrom(len(journal) - 1)
    add(journal, term=4, size=20)


def vote(journal: Journal) -> None:
    journal.setCurrentTerm(9, 2)


def compact(journal: Journal) -> None:
    compact_to(journal, journal[-1][1])


def ask_for_a_batch(journal: Journal) -> None:
    append(journal)
    with pytest.raises(InvariantBroken, match="still under way"):
        journal.take_batch()


STEPS = (append, replace_the_last, vote, compact, Journal.mark_idle, ask_for_a_batch)


def written(
    operation: int, step: Step, disk: MemoryDisk, *, is_last: bool = False
) -> tuple[Journal, list[State], int]:
    """Write the batch with a step inside its operation of that number, which is the last if `is_last` says so.

    Return the journal, its states from what was acknowledged to what the batch holds, and how many operations there were.
    """
    journal = open_on(disk)
    for _ in range(8):
        add(journal, size=100)
        flush(journal)
    prepare(journal)
    states = [state(journal)]
    compact_to(journal, 8)
    states.append(state(journal))
    journal.setCurrentTerm(2, 1)
    for size in (90, 110, 70, 130, 60, 95):
        states.append(state(journal))
        add(journal, term=2, size=size)
    states.append(state(journal))
    batch = journal.take_batch()
    assert batch is not None and len(batch.placements) > 2 and batch.needed_from > 1
    operations = 0

    def meanwhile(*_: str) -> None:
        nonlocal operations
        operations += 1
        if operations == operation:
            step(journal)
            if is_last:
                raise PowerCut

    disk.before = meanwhile
    with suppress(PowerCut):
        journal.write(batch)
        journal.completed(batch)
    disk.before = lambda *_: None
    return journal, states, operations


OPERATIONS = range(1, written(0, append, MemoryDisk())[2] + 1)


def check(operation: int, step: Step) -> None:
    """Check what a journal promises after the batch, and after the next one."""
    disk = MemoryDisk()
    journal, states, _ = written(operation, step, disk)
    disk.crash()
    entries, term, voted_for = state(open_on(disk))
    assert (entries, term, voted_for) == states[-1], "what came while the batch was written is not in it"
    assert entries[-1][1] >= journal.synced_index
    synced = [entry for entry in journal if entry[1] <= journal.synced_index]
    assert set(synced) <= set(entries)
    if journal.has_durable_vote:
        assert (term, voted_for) == (journal.getCurrentTerm(), journal.getVotedForNodeId())

    disk = MemoryDisk()
    journal, states, _ = written(operation, step, disk)
    if journal.dirty:
        flush(journal)
    journal.mark_idle()
    assert journal.synced_index == journal[-1][1] and journal.has_durable_vote
    disk.crash()
    assert state(open_on(disk)) == state(journal)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_loop_inside_a_batch_waits_for_the_next_one(step: Step) -> None:
    for operation in OPERATIONS:
        check(operation, step)


@pytest.mark.parametrize("step", STEPS)
def test_a_loss_of_power_after_a_step_leaves_what_was_acknowledged(step: Step) -> None:
    for operation in OPERATIONS:
        disk = MemoryDisk()
        _, states, _ = written(operation, step, disk, is_last=True)
        disk.crash()
        assert state(open_on(disk)) in states


# --- the faults that these steps find

shipped_completed, shipped_delete, shipped_mark = (
    Journal.completed,
    Journal.deleteEntriesFrom,
    Journal.mark_idle,
)


def believes_what_came_meanwhile(journal: Journal, batch: JournalBatch) -> None:
    journal._taken_index = journal[-1][1]
    shipped_completed(journal, batch)


def believes_the_vote_that_came_meanwhile(journal: Journal, batch: JournalBatch) -> None:
    journal._taken_vote = journal._term, journal._vote
    shipped_completed(journal, batch)


def believes_what_was_replaced_meanwhile(journal: Journal, position: int) -> None:
    taken = journal._taken_index
    shipped_delete(journal, position)
    journal._taken_index = taken


def marks_amid_a_batch(journal: Journal) -> None:
    under_way, journal._under_way = journal._under_way, None
    shipped_mark(journal)
    journal._under_way = under_way


@pytest.mark.parametrize(
    ("method", "fault", "step"),
    [
        ("completed", believes_what_came_meanwhile, append),
        ("completed", believes_the_vote_that_came_meanwhile, vote),
        ("deleteEntriesFrom", believes_what_was_replaced_meanwhile, replace_the_last),
        ("mark_idle", marks_amid_a_batch, Journal.mark_idle),
    ],
)
def test_a_fault_there_is_noticed(method: str, fault: Callable[..., None], step: Step) -> None:
    with patch.object(Journal, method, fault):
        for operation in OPERATIONS:
            try:
                check(operation, fault if step is shipped_mark else step)
            except (AssertionError, DamagedFile):
                return
    pytest.fail("no step inside the batch notices it")
