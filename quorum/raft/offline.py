"""Edge: the Raft log of a controller that is stopped: what it holds, and how one begins at a snapshot.
Tests: tests/unit/quorum/node/test_restoring.py.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from metadata_log.limits import JOURNAL_FILE_BYTES
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.journal.recovery import verify
from quorum.raft.log_start import stored_pointer
from quorum.raft.messages import NO_OP, frames_of
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer
from quorum.raft.raft_log import Voters


class Held(NamedTuple):
    """What a stopped controller's Raft log holds, committed or not."""

    snapshot_id: str | None
    """The snapshot before the log; None: it begins with the first entry of all."""
    frames: Sequence[bytes]
    """The frames of each entry, in order; the first ones may lie below the snapshot's end."""
    epoch: int
    """The newest one of an entry, which Raft calls its term; 0 without entries."""


def read_offline(disk: OsDisk, *, may_be_new: bool) -> Held:
    """Return what a Raft log holds; nothing is changed. `may_be_new`: no controller has run on this disk.

    Raises:
        DamagedFile: synced bytes have changed, or a file is missing.
    """
    entries = verify(disk, file_bytes=JOURNAL_FILE_BYTES, may_be_new=may_be_new).entries
    pointer = stored_pointer(disk)
    return Held(
        None if pointer is None else pointer.snapshot_id,
        [frames_of(command) for command, _, _ in entries],
        max((term for _, _, term in entries), default=0),
    )


def begin_at_snapshot(
    disk: OsDisk, snapshot_id: str, *, end_offset: int, epoch: int, voters: Voters, seal: bytes
) -> None:
    """Let an empty disk's Raft log begin after a snapshot, under `voters`; its first leader has an epoch above `epoch`.

    Raises:
        DiskFailed: it could not be written.
    """
    # No log of a controller that joins has an entry of this index and term, so each of them gets the snapshot.
    index = end_offset + 2
    entries = ((NO_OP, index - 1, epoch), (NO_OP, index, epoch))
    pointer = Pointer(
        snapshot_id=snapshot_id, index=index, term=epoch, entries=entries, voters=voters, seal=seal
    )
    disk.replace(POINTER_FILE, pointer.to_bytes())
    journal = Journal.open(disk, random_bytes=os.urandom, may_be_new=True)
    try:
        for entry in entries:
            journal.add(*entry)
        journal.setCurrentTerm(epoch, None)
        while (batch := journal.take_batch()) is not None:
            journal.write(batch)
            journal.completed(batch)
    finally:
        journal.close()
