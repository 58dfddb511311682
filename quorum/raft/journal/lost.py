"""Pure: whether a journal still reaches as far as what stands beside it on the same disk.

What is applied was synced in the journal before. So a journal that ends sooner, and stands on no snapshot that reaches so
far, has lost its end since, though on the disk that looks like the torn end of a crash; and an empty one beside a log or a
snapshot has lost all. Its voter may have forgotten what it acknowledged.
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
    """Check that the journal in a data directory holds what the log beside it, up to `log_end`, was made from.

    `snapshot_end` is that of the snapshot on which the journal stands, 0 without one that is known; `has_snapshots`: any is
    kept; `is_begun`: the journal was ever written to.

    Raises:
        DamagedFile: it does not.
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
        return  # without its pointer the journal itself is refused, by name
    if log_end > snapshot_end and all(header.end_offset < log_end for header in _newest_first(entries)):
        raise lost_journal(data, what=f"ends below offset {log_end}")


def lost_journal(data: Path, *, what: str = "is empty", beside: str = "log") -> DamagedFile:
    """Return the fault of a journal that is gone, or has lost its end, though what went through it stands beside it."""
    journal = data / "journal"
    return DamagedFile(
        f"{journal}: {what}, yet {data / beside} holds what went through it. {REPLACE_THE_VOTER}",
        path=str(journal),
    )


def _newest_first(entries: Sequence[Entry]) -> Iterator[FrameHeader]:
    """Yield the headers of all frames held, those of the newest entry first; each counts, whatever came of it."""
    for command, _, _ in reversed(entries):
        frames, at = frames_of(command), 0
        while at < len(frames):
            header = read_header(frames, at)
            yield header
            at += header.frame_bytes
