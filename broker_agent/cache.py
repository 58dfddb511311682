"""Edge: the log and its snapshots on a broker's disk, so that a restart fetches only what is new.

A cache: everything here can be had from the controllers again. So what is damaged goes to quarantine and the broker
begins at the newest sound snapshot, or empty; it never fails for it. Only a disk that refuses to be written stops it.

Threads: `append` and `applied` belong to the event loop; all other methods block and belong to one worker thread, one
at a time. While one other than `sync` and `write_due_snapshot` runs, nothing is appended.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker_agent.follower import position_of
from metadata_log.batch import RecordBatch
from metadata_log.codec import FrameHeader
from metadata_log.errors import DamagedFile, InvariantBroken
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.limits import FRAME_BYTES_MAX, MIB, SNAPSHOT_AGE_MS, SNAPSHOTS_KEPT
from metadata_log.log.segmented_log import Retention, SegmentedLog
from metadata_log.node.disk.durable_files import (
    checked_json,
    from_checked_json,
    quarantine,
    renamed_os_errors,
    replace_file,
    sync_directory,
)
from metadata_log.wire.shapes import Natural, Shape
from snapshots.fold import fold
from snapshots.kept_digest import KeptDigest
from snapshots.policy import SnapshotClock, SnapshotPolicy
from snapshots.snapshot_file import position_of as snapshot_position
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 8 * MIB
"""Small: opening scans the last file frame by frame, and what a snapshot covers goes by whole files."""
SNAPSHOT_BYTES_MIN: Final = 1 * MIB
SNAPSHOT_SHARE: Final = 8
"""A snapshot is due once the log after the last one is an eighth of it: a restart folds at most that much, and the
bytes written stay in proportion to the log however large the state is."""
CLEAN_STOP_FILE: Final = "clean-stop.json"

assert FRAME_BYTES_MAX < SEGMENT_BYTES


class _CleanStopFile(Shape, frozen=True):
    broker_epoch: Natural


class Cache:
    """The files of one broker. `open` first; afterwards the log ends where the image does."""

    def __init__(self, data_dir: Path, *, cluster_id: str) -> None:
        self._data_dir = data_dir
        self._log_dir = data_dir / "log"
        self._cluster_id = cluster_id
        self._log: SegmentedLog | None = None
        self._store: SnapshotStore | None = None
        self._clock = SnapshotClock()
        self._policy = SnapshotPolicy(bytes=SNAPSHOT_BYTES_MIN, age_ms=SNAPSHOT_AGE_MS)
        self._due: MetadataImage | None = None
        self._covered_offset = 0
        self.damaged_count = 0
        """Files found damaged or foreign since the process started."""
        self.snapshots_failed = 0
        self.warnings: dict[str, str] = {}
        """What an operator should see to although the broker serves, by code."""

    @property
    def segments(self) -> SegmentedLog:
        assert self._log is not None, "open comes first"
        return self._log

    @property
    def store(self) -> SnapshotStore:
        assert self._store is not None, "open comes first"
        return self._store

    # --- at the start

    def open(self) -> MetadataImage:
        """Open what the last process left and return the image it adds up to.

        Raises:
            DiskFailed: the disk refuses.
        """
        self._store = SnapshotStore(
            self._data_dir / "snapshots",
            self._data_dir / "quarantine",
            kept_digest=KeptDigest(self._data_dir),
        )
        base = self._newest_snapshot(None)
        try:
            # Whatever lies after the snapshot can be fetched again.
            self._log = SegmentedLog.open(
                self._log_dir, segment_bytes=SEGMENT_BYTES, made_again_from=base.end_offset
            )
        except DamagedFile as error:
            self._report_damage(error.message)
            return self._begin_anew(base)
        if self._log.damage is not None:
            self._report_damage(self._log.damage)
        if self._log.end_offset < base.end_offset:
            # The process ended between taking a snapshot in and going on after it.
            self._drop_log_below(base)
            return base
        try:
            if not self._log_continues(base):
                raise InvariantBroken("the log does not continue the newest snapshot")
            return self._fold(base)
        except (DamagedFile, InvariantBroken) as error:
            self._report_damage(error.message)
            return self._begin_anew(base)

    def _newest_snapshot(self, at_or_below: int | None) -> MetadataImage:
        """Return the newest sound snapshot's image, the empty one if there is none of this cluster."""
        loaded = self.store.load_newest_at_or_below(at_or_below)
        for damaged in loaded.quarantined:
            self._report_damage(damaged.error.message)
        image = EMPTY if loaded.image is None else loaded.image.without_results()
        if image.quorum.cluster_id not in (None, self._cluster_id):
            self._report_damage(f"snapshots are of cluster {image.quorum.cluster_id}")
            self._quarantine_snapshots_from(0)
            image = EMPTY
        if image is not EMPTY and loaded.snapshot_id is not None:
            self._began_at_snapshot(image, size=self.store.size(loaded.snapshot_id))
            self.store.keep_digest(image)
        else:
            self._began_at_snapshot(EMPTY, size=0)
        return image

    def _log_continues(self, base: MetadataImage) -> bool:
        position = position_of(base)
        if self.segments.log_start_offset > base.end_offset:
            return False
        found = self.segments.position_before(base.end_offset)
        return found == (position.last_epoch, position.last_crc)

    def _fold(self, base: MetadataImage) -> MetadataImage:
        def batches() -> Iterator[RecordBatch]:
            for header, batch in self.segments.batches(base.end_offset):
                yield batch
                self._clock = self._clock.after(header)

        image = fold(batches(), onto=base, keeps_results=False)
        if image.quorum.cluster_id not in (None, self._cluster_id):
            raise InvariantBroken(f"the log is of cluster {image.quorum.cluster_id}")
        if self._clock.bytes_since and self._clock.is_due(self._policy, appended_at_ms=image.last_time_ms):
            self._due = image
        return image

    # --- while following

    def append(self, frame: bytes, header: FrameHeader) -> None:
        """Write a frame after the last one, before it is applied: a broker reports only what it keeps.

        Raises:
            DiskFailed: it could not be written; the process must end.
        """
        self.segments.append(frame, header)

    def applied(self, header: FrameHeader, image: MetadataImage) -> None:
        """Note the image after the last frame appended; a snapshot of it may be due."""
        self._clock = self._clock.after(header)
        if self._clock.is_due(self._policy, appended_at_ms=header.appended_at_ms):
            self._clock = SnapshotClock.at_snapshot(header.appended_at_ms)
            self._due = image

    def to_remove(self) -> Retention | None:
        """Return the files of the log that two snapshots cover, None if there are none; on the event loop."""
        covered, self._covered_offset = self._covered_offset, 0
        return self.segments.to_remove(bytes_max=0, older_than_ms=None, below=covered)

    def unlink(self, segments: SegmentedLog, retention: Retention) -> None:
        """Remove files. If the cache was rebuilt meanwhile, they are in quarantine, and others may have their names."""
        if self.segments is segments:
            segments.unlink(retention)

    def sync(self) -> None:
        """Make durable what was appended."""
        self.segments.sync()

    @property
    def is_snapshot_due(self) -> bool:
        return self._due is not None

    def write_due_snapshot(self) -> bool:
        """Write the snapshot that is due, and answer whether one was; what it makes superfluous goes.

        Raises:
            DiskFailed: it could not be written; nothing is left of it, and nothing is lost.
        """
        image, self._due = self._due, None
        if image is None:
            return False
        path = write_snapshot(image, self.store.directory)
        self._policy = _policy_after(path.stat().st_size)
        self.store.retire(SNAPSHOTS_KEPT)
        ids = self.store.ids()
        self._covered_offset = _end_of(ids[0]) if len(ids) == SNAPSHOTS_KEPT else 0
        self.store.keep_digest(image)
        log.info("snapshot_taken", extra={"end_offset": image.end_offset})
        return True

    # --- where the history breaks off

    def install(self, snapshot_id: str) -> MetadataImage:
        """Go on from a snapshot that was downloaded into the store; it ends beyond this log's end.

        Raises:
            DamagedFile: it is not what a controller may send; it is set aside.
            DiskFailed: the disk refuses.
        """
        image = self.store.load(snapshot_id).without_results()
        if image.quorum.cluster_id != self._cluster_id or image.end_offset <= self.segments.end_offset:
            moved_to = quarantine(self.store.path(snapshot_id))
            raise DamagedFile(
                f"{moved_to}: a snapshot of cluster {image.quorum.cluster_id} at offset {image.end_offset} is none that "
                f"leads beyond offset {self.segments.end_offset}"
            )
        self._began_at_snapshot(image, size=self.store.size(snapshot_id))
        self.store.retire(SNAPSHOTS_KEPT)
        self._drop_log_below(image)
        self.store.keep_digest(image)
        return image

    def rebuild(self, *, at_or_below: int, strictly_below: int) -> MetadataImage:
        """Set aside what the controllers do not know as history and return the newest image that may be.

        A snapshot at `strictly_below`, where the broker stood, is the very thing that was refused.

        Raises:
            DiskFailed: the disk refuses.
        """
        keep_up_to = min(at_or_below, strictly_below - 1)
        self._quarantine_snapshots_from(keep_up_to + 1)
        return self._begin_anew(self._newest_snapshot(keep_up_to))

    def _drop_log_below(self, image: MetadataImage) -> None:
        position = position_of(image)
        moved = self.segments.restart_at(position.fetch_offset, position.last_epoch, position.last_crc)
        # Sound, and known to the controllers: nothing that an operator could miss.
        with renamed_os_errors(self._log_dir):
            for path in moved:
                path.unlink()

    def _begin_anew(self, image: MetadataImage) -> MetadataImage:
        """Put all files of the log into quarantine and begin a new one after `image`."""
        self.close()
        with renamed_os_errors(self._log_dir):
            for path in sorted(self._log_dir.iterdir()):
                if path.suffix == ".log":
                    moved_to = quarantine(path)
                    log.warning(
                        "cache_file_quarantined", extra={"path": str(path), "moved_to": str(moved_to)}
                    )
                else:
                    path.unlink()
            sync_directory(self._log_dir)
        self._log = SegmentedLog.open(self._log_dir, segment_bytes=SEGMENT_BYTES)
        if image.end_offset:
            self._drop_log_below(image)
        self._clock, self._due = _clock_at(image), None
        return image

    def _quarantine_snapshots_from(self, offset: int) -> None:
        for snapshot_id in self.store.ids():
            if _end_of(snapshot_id) >= offset:
                path = self.store.path(snapshot_id)
                moved_to = quarantine(path)
                log.warning("cache_file_quarantined", extra={"path": str(path), "moved_to": str(moved_to)})

    def _began_at_snapshot(self, image: MetadataImage, *, size: int) -> None:
        self._clock = _clock_at(image)
        self._policy = _policy_after(size)
        self._due = None
        self._covered_offset = 0

    def _report_damage(self, reason: str) -> None:
        self.damaged_count += 1
        self.warnings["CACHE_SET_ASIDE"] = (
            f"{reason}; what was damaged lies in quarantine, and the controllers had it"
        )
        log.error("cache_damaged", extra={"reason": reason})

    # --- at the end

    def close(self) -> None:
        """Sync and close; nothing if it was never opened."""
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- whether the last stop was clean

    def take_clean_stop(self) -> int:
        """Return the broker epoch of the run before, if that ended cleanly, else -1.

        Only the first call after a clean stop returns it.

        Source: KIP-966: a broker that stopped uncleanly may have lost what it had acknowledged.
        """
        path = self._data_dir / CLEAN_STOP_FILE
        with renamed_os_errors(path):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                return -1
            path.unlink()
            sync_directory(self._data_dir)
        try:
            return from_checked_json(content, _CleanStopFile).broker_epoch
        except ValueError as error:
            # A stop that was not clean is what every crash leads to, so nothing rests on this file.
            log.warning("clean_stop_unreadable", extra={"path": str(path), "reason": str(error)})
            return -1

    def write_clean_stop(self, broker_epoch: int) -> None:
        """Record for the next start that a controller granted the stop and that everything was synced."""
        replace_file(self._data_dir / CLEAN_STOP_FILE, checked_json({"broker_epoch": broker_epoch}))


def _policy_after(snapshot_bytes: int) -> SnapshotPolicy:
    return SnapshotPolicy(
        bytes=max(SNAPSHOT_BYTES_MIN, snapshot_bytes // SNAPSHOT_SHARE), age_ms=SNAPSHOT_AGE_MS
    )


def _clock_at(image: MetadataImage) -> SnapshotClock:
    return SnapshotClock.at_snapshot(image.last_time_ms) if image.end_offset else SnapshotClock()


def _end_of(snapshot_id: str) -> int:
    return snapshot_position(snapshot_id)[0]
