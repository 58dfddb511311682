"""Pure: seeded bugs of the journal, segments and snapshots on disks."""

from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.mutants.mutant import Directed, Mutant, Seeds, always

_ADAPTER_TESTS: Final = "tests/unit/quorum/raft/test_adapter.py"
_VOTERS_TESTS: Final = "tests/unit/quorum/raft/test_voters.py"
_JOURNAL_TESTS: Final = "tests/unit/quorum/raft/journal/test_journal.py"
_L: Final = "quorum.raft.adapter:PySyncObjLog"
_J: Final = "quorum.raft.journal.journal:Journal"
_FAILED_SYNCS: Final = "tests/powercut/test_failed_syncs.py"
_OUTLIVES: Final = "test_what_is_done_again_after_a_failed_sync_outlives_a_power_cut"


def _waits_to_the_end(_original: Any) -> Any:
    async def mutant(_self: Any, work: Coroutine[Any, Any, None]) -> bool:
        await work
        return True

    return mutant


def _trusts_the_cache(original: Any) -> Any:
    def recover(disk: Any, file_bytes: int, **facts: Any) -> Any:
        with patch("quorum.raft.journal.format.JournalFile.write_header", lambda _file: None):
            return original(disk, file_bytes, **facts)

    return recover


def _installs_at_once(original: Any) -> Any:
    def accept(start: Any, leader: Any, news: Any) -> Any:
        with patch("quorum.raft.journal.journal.Journal.is_begun", new=True):
            return original(start, leader, news)

    return accept


def _may_always_be_new(recover: Any) -> Any:
    return lambda disk, file_bytes, **_: recover(disk, file_bytes, may_be_new=True)


def _forgets_snapshots(original: Any) -> Any:
    def check(data: Path, **facts: Any) -> None:
        original(data, **(facts | {"has_snapshots": False}))

    return check


def _copies_unsynced(original: Any) -> Any:
    def copy(path: Path) -> Path:
        with patch("os.fsync", lambda _descriptor: None):
            kept: Path = original(path)
        return kept

    return copy


def _votes_in_secret(original: Any) -> Any:
    def set_current_term(journal: Any, term: int, vote: Any) -> None:
        original(journal, term, None)
        journal._vote = vote

    return set_current_term


def _keeps_terms_to_itself(_original: Any) -> Any:
    def set_current_term(journal: Any, term: int, vote: Any) -> None:
        journal._term, journal._vote = term, vote

    return set_current_term


def _numbers_begin_anew(original: Any) -> Any:
    def init(journal: Any, *args: Any, **kwargs: Any) -> None:
        original(journal, *args, **kwargs)
        journal._number = 0

    return init


def _trims_before_the_pointer(_original: Any) -> Any:
    async def compact(log: Any, pointer: Any) -> None:
        start = log._log_start
        async with start._lock:
            if pointer.index > start._journal.snapshot_index:
                if start._trim(pointer):
                    log._wake.set()
                await start._replace_pointer(pointer)

    return compact


def _unpins_who_waits(original: Any) -> Any:
    async def replace_pointer(start: Any, pointer: Any) -> None:
        await original(start, pointer)
        start._soon[:] = [pointer.snapshot_id]

    return replace_pointer


def _trusts_its_end(_original: Any) -> Any:
    return lambda journal: journal[-1][1] if len(journal) else 1


def _proved_for_good(original: Any) -> Any:
    def delete(journal: Any, *args: Any) -> None:
        proved = journal.proved_changes
        original(journal, *args)
        journal.proved_changes = proved

    return delete


def _compares_what_is_gone(original: Any) -> Any:
    def on_rest(log: Any) -> None:
        with patch("metadata_log.log.segmented_log.SegmentedLog.log_start_offset", 0):
            original(log)

    return on_rest


def _reads_files_of_any_size(original: Any) -> Any:
    return lambda disk, _file_bytes: original(disk, 0)


MUTANTS: Final = (
    Mutant(
        "proved-for-good",
        "what proved a change of voters proves it when it is cut from the log",
        f"{_J}.deleteEntriesFrom",
        _proved_for_good,
        Directed(f"{_VOTERS_TESTS}::test_what_was_proved_is_not_proved_once_it_is_cut"),
    ),
    Mutant(
        "trim-first",
        "the journal is trimmed before the pointer is durable",
        f"{_L}._compact",
        _trims_before_the_pointer,
        Seeds("nasty", 40, raft_only=True),
    ),
    Mutant(
        "compares-what-is-gone",
        "frames that a retention took are to be compared with segments when the journal has them still",
        "quorum.log.committed_log:CommittedLog.on_rest",
        _compares_what_is_gone,
        Directed(
            "tests/unit/quorum/log/test_committed_log.py::test_what_a_retention_took_may_be_applied_once_more"
        ),
    ),
    Mutant(
        "quarantine-unsynced",
        "a damaged segment is cut before its copy in quarantine is durable",
        "metadata_log.log.recovery:quarantine_copy",
        _copies_unsynced,
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[damaged segments]"),
    ),
    Mutant(
        "lost-all",
        "a journal that is empty beside a snapshot was never begun",
        "quorum.raft.journal.lost:check_reaches_log",
        _forgets_snapshots,
        Directed(
            "tests/unit/ops/verbs/test_log.py::test_a_journal_that_is_gone_is_refused_as_the_start_does"
        ),
    ),
    Mutant(
        "begins-anew",
        "a voter that lost all it ever wrote begins anew, and votes again",
        "quorum.raft.journal.journal:recover",
        _may_always_be_new,
        Directed(f"{_JOURNAL_TESTS}::test_a_journal_that_was_begun_is_never_begun_anew"),
    ),
    Mutant(
        "installs-first",
        "a snapshot is installed beside a journal that was never begun, so that a crash looks like its loss",
        "quorum.raft.log_start:LogStart.accept",
        _installs_at_once,
        Directed(f"{_ADAPTER_TESTS}::test_no_snapshot_is_installed_beside_a_journal_that_was_never_begun"),
    ),
    Mutant(
        "serves-rot",
        "a snapshot is served as it was written, unread: whoever is far behind circles for ever",
        "snapshots.store:SnapshotStore.check",
        always(None),
        Directed("tests/unit/snapshots/test_store.py::test_one_that_rotted_is_found_before_it_is_sent"),
    ),
    Mutant(
        "start-ignores-stop",
        "a node that fetches its snapshot at the start stops only once it has it",
        f"{_L}._unless_closed",
        _waits_to_the_end,
        Directed(f"{_ADAPTER_TESTS}::test_close_does_not_wait_for_a_snapshot_that_nobody_gives"),
    ),
    Mutant(
        "unpinned",
        "a snapshot goes while the pointer names it",
        f"{_L}.pinned_snapshots",
        always(frozenset()),
        Directed(f"{_ADAPTER_TESTS}::test_the_snapshot_that_the_pointer_names_is_pinned"),
    ),
    Mutant(
        "secret-vote",
        "a vote is not written down",
        f"{_J}.setCurrentTerm",
        _votes_in_secret,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "secret-term",
        "a term is not written down",
        f"{_J}.setCurrentTerm",
        _keeps_terms_to_itself,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "numbers-anew",
        "batch numbers begin anew at a restart",
        f"{_J}.__init__",
        _numbers_begin_anew,
        Directed(_JOURNAL_TESTS),
    ),
    Mutant(
        "trusted-commit",
        "the log's end counts as committed after a restart",
        f"{_J}.getRaftCommitIndex",
        _trusts_its_end,
        Seeds("fifo", 20, raft_only=True),
    ),
    Mutant(
        "journal-crc",
        "the journal's checksums say nothing",
        "quorum.raft.journal.format:batch_crc",
        always(0),
        Directed(f"{_JOURNAL_TESTS}::test_no_flipped_bit_goes_unnoticed"),
    ),
    Mutant(
        "shortened",
        "a journal file that became shorter was never longer",
        "quorum.raft.journal.recovery:read_journal",
        _reads_files_of_any_size,
        Directed(f"{_JOURNAL_TESTS}::test_a_file_cut_at_any_length_is_refused"),
    ),
    Mutant(
        "lost-end",
        "a journal that ends below its log only lost what was torn",
        "quorum.raft.journal.lost:check_reaches_log",
        always(None),
        Directed(
            "tests/unit/ops/verbs/test_log.py::test_a_journal_that_ends_below_its_log_is_refused_as_the_start_does"
        ),
    ),
    Mutant(
        "file-half-made",
        "the journal enters a file that is still in the making",
        "quorum.raft.journal.files:JournalFiles.make_spare",
        always(None),
        Directed(f"{_JOURNAL_TESTS}::test_a_new_file_is_whole_and_synced_before_its_first_batch"),
    ),
    Mutant(
        "header-unsynced",
        "an unused file's header is trusted as the kernel's cache shows it",
        "quorum.raft.journal.journal:recover",
        _trusts_the_cache,
        Directed(f"{_JOURNAL_TESTS}::test_the_header_of_an_unused_file_is_not_trusted_before_it_is_synced"),
    ),
    Mutant(
        "ack-before-sync",
        "the journal's sync does nothing",
        "quorum.raft.journal.os_disk:OsFile.sync",
        always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[journal]"),
    ),
    Mutant(
        "directory-unsynced",
        "new files have no durable name",
        "quorum.raft.journal.os_disk:sync_directory",
        always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[journal]"),
    ),
    Mutant(
        "announced-early",
        "a snapshot is announced before the segments are synced",
        "metadata_log.log.segmented_log:SegmentedLog.sync",
        always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[node]"),
    ),
    Mutant(
        "snapshot-unsynced",
        "a snapshot has no durable name",
        "snapshots.snapshot_file:sync_directory",
        always(None),
        Directed("tests/powercut/test_powercut.py::test_nothing_promised_is_lost[snapshots]"),
    ),
    Mutant(
        "seen-not-synced",
        "a snapshot whose name a killed process left un-synced is stood on",
        "snapshots.store:SnapshotStore._sync",
        always(None),
        Directed(
            "tests/unit/snapshots/test_store.py::test_what_is_seen_at_the_start_is_durable_from_then_on"
        ),
    ),
    Mutant(
        "forgets-a-failed-sync",
        "after a failed sync of the log another one counts",
        "metadata_log.log.segmented_log:SegmentedLog._failing_once",
        always(nullcontext()),
        Directed(f"{_FAILED_SYNCS}::{_OUTLIVES}[segments]"),
    ),
    Mutant(
        "keeps-an-unsynced-download",
        "a download whose sync failed is there for the next attempt",
        "snapshots.download:removed_if_it_fails",
        always(nullcontext()),
        Directed(f"{_FAILED_SYNCS}::{_OUTLIVES}[download]"),
    ),
    Mutant(
        "unpins-who-waits",
        "a snapshot whose pointer waits for another's write may be removed",
        "quorum.raft.log_start:LogStart._replace_pointer",
        _unpins_who_waits,
        Directed(
            "tests/unit/quorum/raft/test_log_start.py::"
            "test_an_installation_that_was_overtaken_leaves_the_next_snapshot_pinned"
        ),
    ),
    Mutant(
        "settles-nothing",
        "a start goes on from what only the kernel's cache holds",
        "quorum.raft.journal.recovery:settle",
        always(None),
        Seeds("nasty", 10, raft_only=True),
    ),
)
