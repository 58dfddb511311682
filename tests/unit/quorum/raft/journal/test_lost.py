"""A journal that ends below the log beside it is refused, by name."""

from pathlib import Path

import pytest

from metadata_log.errors import DamagedFile
from metadata_log.ids import NodeId, Uuid
from quorum.raft.journal.lost import check_reaches_log
from quorum.raft.messages import NO_OP, PAYLOAD, Entry
from quorum.raft.voters import to_command
from tests.support.histories import history_of

HISTORY = [*history_of(1, 4)]
ENDS = [step.batch.end_offset for step in HISTORY]
END = ENDS[-1]
PACKED = bytes([PAYLOAD]) + HISTORY[2].frame + HISTORY[3].frame
"""The last two batches in one entry."""


def entries(*commands: bytes, first: int = 1) -> list[Entry]:
    return [(command, index, 1) for index, command in enumerate(commands, first)]


def check(
    held: list[Entry],
    *,
    log_end: int = END,
    snapshot_end: int = 0,
    has_snapshots: bool = False,
    is_begun: bool = True,
) -> None:
    check_reaches_log(
        Path("d"),
        log_end=log_end,
        entries=held,
        snapshot_end=snapshot_end,
        has_snapshots=has_snapshots or snapshot_end > 0,
        is_begun=is_begun,
    )


@pytest.mark.parametrize(
    "command",
    [PACKED, to_command({NodeId(1): Uuid(bytes(16))}, PACKED[1:])],
    ids=["a payload", "a change of voters"],
)
def test_an_entry_of_several_frames_reaches_as_far_as_the_last(command: bytes) -> None:
    check(entries(NO_OP, command, NO_OP, bytes([PAYLOAD])))
    check(entries(command, bytes([PAYLOAD]) + HISTORY[2].frame))
    with pytest.raises(DamagedFile, match=f"^d/journal: ends below offset {END + 1}, yet d/log holds"):
        check(entries(command), log_end=END + 1)


def test_what_the_snapshot_covers_need_not_be_held() -> None:
    check(entries(NO_OP, NO_OP, first=7), snapshot_end=END)
    with pytest.raises(DamagedFile, match="ends below"):
        check(entries(NO_OP, NO_OP, first=7), snapshot_end=ENDS[-2])
    with pytest.raises(DamagedFile, match="ends below"):
        check([], log_end=END)
    check([], snapshot_end=END)


def test_a_journal_that_was_never_written_to_has_nothing_beside_it() -> None:
    check([], log_end=0, is_begun=False)
    with pytest.raises(DamagedFile, match=r"^d/journal: is empty, yet d/log holds .* quorum replace-voter"):
        check([], snapshot_end=END, is_begun=False)
    with pytest.raises(DamagedFile, match=r"^d/journal: is empty, yet d/journal/snapshot.pointer holds"):
        check([], log_end=0, snapshot_end=END, is_begun=False)
    with pytest.raises(DamagedFile, match=r"^d/journal: is empty, yet d/snapshots holds"):
        check([], log_end=0, has_snapshots=True, is_begun=False)


def test_a_trimmed_journal_without_its_pointer_is_left_to_who_names_that() -> None:
    check(entries(NO_OP, NO_OP, first=7))
