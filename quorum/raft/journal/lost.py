"""Pure: whether a journal still reaches as far as the log and the snapshots beside it on the same disk.

A node applies an entry only after it synced it in its journal. So a journal has lost its end if neither its entries nor the
snapshot that it begins with reach the end of the log, although on disk that looks like the torn end of a crash. A journal
that is empty beside a log or a snapshot has lost everything. Its voter may have forgotten what it acknowledged.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from metadata_log.codec import FrameHeader, read_header
from metadata_log.errors import DamagedFile
from quorum.raft.journal.recovery import REPLACE_THE_VOTER
from quorum.raft.messages import Entry, frames_of


def check_reaches_log(
    data: Path,
    *,
    log_end: int,
    entries: Sequence[Entry],
    snapshot_end: int,
    has_snapshots: bool,
    is_begun: bool,
) -> None:
    """Check that the journal in a data directory covers the log beside it, which ends at `log_end`.

    `snapshot_end` is the end offset of the snapshot with which the journal begins, 0 if none is known. `has_snapshots`: the
    directory holds any snapshot. `is_begun`: the journal was ever written to.

    Raises:
        DamagedFile: the journal does not cover the log.
    """
    if not is_begun:
        beside = {
            "log": log_end > 0,
            "journal/snapshot.pointer": snapshot_end > 0,
            "snapshots": has_snapshots,
        }
        for name, is_there in beside.items():
            if is_there:
                raise lost_journal(data, beside=name)
    if snapshot_end == 0 and entries and entries[0][1] > 1:
        return  # a journal that lacks its pointer is refused elsewhere, by name
    if log_end > snapshot_end and all(header.end_offset < log_end for header in _newest_first(entries)):
        raise lost_journal(data, what=f"ends below offset {log_end}")


def lost_journal(data: Path, *, what: str = "is empty", beside: str = "log") -> DamagedFile:
    """Return the fault of a journal that is gone, or has lost its end, beside files that were made from it."""
    journal = data / "journal"
    return DamagedFile(
        f"{journal}: {what}, yet {data / beside} holds what went through it. {REPLACE_THE_VOTER}",
        path=str(journal),
    )


def _newest_first(entries: Sequence[Entry]) -> Iterator[FrameHeader]:
    """Yield the headers of all frames in the journal, those of the newest entry first; uncommitted ones count too."""
    for command, _, _ in reversed(entries):
        frames, at = frames_of(command), 0
        while at < len(frames):
            header = read_header(frames, at)
            yield header
            at += header.frame_bytes
