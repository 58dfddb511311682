"""Edge: makes the data directory of a controller whose log begins with a state: a backup's, or that of a lost quorum's rest.

The controller of a backup is the only voter, so no second controller can begin with another state under the same voters.
The others are formatted to join it, and added one by one. Several voters may begin with one state only if one call makes
all their directories.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.apply import is_next, may_be_refused
from metadata_log.batch import RecordBatch
from metadata_log.codec import decode_all
from metadata_log.errors import DamagedFile, ForeignDirectory
from metadata_log.image.metadata_image import EMPTY, MetadataImage, StateDigest, buckets_of
from metadata_log.log.recovery import verify as verify_log
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import DirectoryLock, is_fresh, load_meta, not_fresh_any_more
from metadata_log.node.disk.durable_files import renamed_os_errors, sync_directory
from metadata_log.records.quorum import Voter
from quorum.decide.quorum import identities
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.offline import begin_at_snapshot, read_offline
from snapshots.fold import fold
from snapshots.seal import Seal
from snapshots.snapshot_file import SUFFIX, read_snapshot, snapshot_id, write_snapshot
from snapshots.store import sha256_of

EPOCHS_SKIPPED: Final = 100_000
"""What a recovery adds to the newest epoch that is known: more than a day of elections, one a second, of which this
directory heard nothing. Brokers obey the newest epoch that they have seen."""


class Survivor(NamedTuple):
    """What the data directory of a stopped controller holds."""

    image: MetadataImage
    """Everything in its log, whether a majority had it or not."""
    applied_end: int | None
    """The end offset of what this controller knew to be committed; None: what says so is damaged."""
    epoch: int
    """The newest epoch in its log."""


def surviving_state(data: Path) -> Survivor:
    """Return what a stopped controller's data directory holds; it is only read.

    Raises:
        ForeignDirectory: it is no controller's.
        DirectoryInUse: a process runs in it.
        DamagedFile: its journal or the snapshot before it is not what was written, or it holds no state.
        InvariantBroken: its journal contradicts the snapshot before it.
    """
    if (role := load_meta(data).role) != "controller":
        raise ForeignDirectory(f"{data}: is a {role}'s: take a controller's data directory", path=str(data))
    with _kept_still(data):
        held = read_offline(OsDisk(data / "journal", read_only=True), may_be_new=is_fresh(data))
        begin = EMPTY
        if held.snapshot_id is not None:
            begin = read_snapshot(data / "snapshots" / (held.snapshot_id + SUFFIX))
        image = begin
        for batch in _batches(held.frames):
            # Raft's log also holds what every controller refuses, such as a deposed one's late batch.
            if is_next(image, batch) or not may_be_refused(image, batch):
                image = fold((batch,), onto=image)
        applied_end = None
        with suppress(DamagedFile):  # the journal and the snapshot hold all that is needed
            applied_end = verify_log(data / "log").end_offset
    if image.quorum.cluster_id is None:
        raise DamagedFile(
            f"{data}: its log is empty: take another controller's data directory", path=str(data)
        )
    return Survivor(image, applied_end=applied_end, epoch=max(image.controller_epoch, held.epoch))


@contextmanager
def _kept_still(data: Path) -> Iterator[None]:
    """Keep processes from running in a directory, and leave its permissions as they are: it may be anything's."""
    lock = DirectoryLock(data)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _batches(entries: Sequence[bytes]) -> Iterator[RecordBatch]:
    for frames in entries:
        for batch, _ in decode_all(frames):
            yield batch


def restored(image: MetadataImage, *, cluster_id: str, voters: Sequence[Voter], epoch: int) -> MetadataImage:
    """Return the state with which the voters of a cluster begin; what brokers and topics are stays as it is.

    No controller is registered and none leads. The brokers' registrations stay, for replicas name them: those that do not
    come back are fenced when their sessions end.
    """
    begun = replace(
        image,
        controller_epoch=epoch,
        quorum=image.quorum._replace(cluster_id=cluster_id, voters=tuple(sorted(voters))),
        controllers=EMPTY.controllers,
        claimant=None,
    )
    return replace(begun, state_digest=StateDigest(buckets_of(begun)))


def check_may_begin(data: Path) -> None:
    """Check that the log of a formatted directory may begin with a state.

    Raises:
        ForeignDirectory: a controller has run in it, or its log begins with a state already.
    """
    if not is_fresh(data):
        raise ForeignDirectory(
            f"{data}: a controller has run in it, or a state was restored into it: format another directory",
            path=str(data),
        )


def begin_directory(data: Path, image: MetadataImage) -> Path:
    """Let the log of a formatted directory, in which no controller ever ran, begin with a state; return the snapshot's path.

    The voters are those of the image. What an interrupted call left is made once more.

    Raises:
        ForeignDirectory: a controller has run in it, or its log begins with a state already.
        DirectoryInUse: a process runs in it.
        DiskFailed: it could not be written.
    """
    voters = image.quorum.voters
    assert voters is not None, "a restored state names its voters"
    with DirectoryLock(data):
        check_may_begin(data)
        for folder in ("journal", "snapshots", "log"):
            _empty(data / folder)
        path = write_snapshot(image, data / "snapshots")
        segments = SegmentedLog.open(data / "log")
        # Else the controller would look for the log below the snapshot at others that have it.
        segments.restart_at(image.end_offset, image.controller_epoch, image.last_crc)
        segments.close()
        begin_at_snapshot(
            OsDisk(data / "journal"),
            snapshot_id(image.end_offset, image.controller_epoch),
            end_offset=image.end_offset,
            epoch=image.controller_epoch,
            voters=identities(voters),
            seal=Seal(image.last_crc, sha256_of(path)).to_bytes(),
        )
        sync_directory(data / "journal")
        not_fresh_any_more(data)  # from here on, a start needs what was written
    return path


def _empty(folder: Path) -> None:
    with renamed_os_errors(folder):
        for path in folder.iterdir():
            path.unlink()
