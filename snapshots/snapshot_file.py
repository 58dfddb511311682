"""Edge: one snapshot as a file: what the log below an offset adds up to, in the log's own frames.

    <end_offset, 20 digits>-<controller_epoch, 10 digits>.snapshot

The first frame holds the header, the last the footer, those between the records of `MetadataImage.to_records`. A frame
takes records while they number at most 10,000 and its body stays within 1 MiB (one record larger than that stands
alone). base_offset counts from 0 inside the file, previous_crc is chained from 0, epoch and time are those of the last
batch contained. So the file is a pure function of the log below its end: the same bytes on every node, and a download
that began at one node goes on at another.
"""

import gc
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgpack

from metadata_log.apply import image_of
from metadata_log.codec import DamagedFrame, check_frame, damaged_file, decode, frame_of, read_frame
from metadata_log.digest import Buckets, digest
from metadata_log.errors import DamagedFile, InvariantBroken, WrittenByAnotherVersion
from metadata_log.ids import SnapshotId
from metadata_log.image.metadata_image import MetadataImage, StateDigest, buckets_of
from metadata_log.image.snapshot_rows import SnapshotRow, SnapshotRows, packed, records_of
from metadata_log.limits import BATCH_BYTES_MAX, RECORDS_PER_BATCH_MAX
from metadata_log.node.disk.durable_files import open_private, renamed_os_errors, sync_directory
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotFooterRecord, SnapshotHeaderRecord

SUFFIX: Final = ".snapshot"
DERIVED_SUFFIX: Final = ".kafka"
"""Of a file that is made of a snapshot alone, and lies beside it: it is removed with it, and at each start."""
RESTS: Final = 3
"""Ratio of rest to work while a snapshot is written."""
_ID: Final = re.compile(r"([0-9]{20})-([0-9]{10})")
_BODY_BEGINS: Final = b"\x92\x96" + b"\xc0" * 6
"""An array of two: the envelope, six nils, and the records."""
_ROWS_BYTES_MAX: Final = BATCH_BYTES_MAX - len(_BODY_BEGINS) - 5
"""5: the longest head of an array."""


def snapshot_id(end_offset: int, epoch: int) -> SnapshotId:
    """Return the id of the snapshot of the log below `end_offset`, whose last batch is of `epoch`."""
    return SnapshotId(f"{end_offset:020d}-{epoch:010d}")


def position_of(snapshot_id: str) -> tuple[int, int]:
    """Return (end_offset, controller_epoch) of a snapshot's id.

    Raises:
        ValueError: it is no such id.
    """
    match = _ID.fullmatch(snapshot_id)
    if match is None:
        raise ValueError(f"not the id of a snapshot: {snapshot_id!r}")
    return int(match[1]), int(match[2])


def write_snapshot(
    image: MetadataImage, directory: Path, *, rest: Callable[[float], object] = lambda _seconds: None
) -> Path:
    """Write the snapshot of an image, durably, and return its path; for a worker thread.

    `rest` is called after each frame with the seconds that the thread should sleep: while a frame is made, the event loop
    waits for the interpreter.

    Raises:
        DiskFailed: it could not be written; nothing is left of it, and the caller may try again.
    """
    path = directory / f"{snapshot_id(image.end_offset, image.controller_epoch)}{SUFFIX}"
    partial = path.with_name(path.name + ".part")
    with renamed_os_errors(partial):
        try:
            with open_private(partial, "wb") as file:
                began = time.thread_time()
                for frame in snapshot_frames(image):
                    file.write(frame)
                    file.flush()
                    # Frame by frame: a disk that gets all of it at once makes the journal's next sync wait as long. For a
                    # million partitions this takes 0.4 s (docs/measurements.md).
                    os.fdatasync(file.fileno())
                    rest(RESTS * (time.thread_time() - began))
                    began = time.thread_time()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        try:
            sync_directory(directory)
        except OSError:
            path.unlink(missing_ok=True)  # else the next attempt would take it for a durable one
            raise
    return path


def snapshot_frames(image: MetadataImage) -> Iterator[bytes]:
    """Yield the frames of an image's snapshot, header to footer."""
    assert image.quorum.cluster_id is not None, "a snapshot of the empty log says nothing"
    base_offset = previous_crc = 0
    claimant = image.claimant
    header = SnapshotHeaderRecord(
        image.quorum.cluster_id,
        image.end_offset,
        image.controller_epoch,
        image.last_time_ms,
        image.last_crc,
        claimant.controller_id if claimant is not None and claimant.is_kept else None,
    )
    for rows in _grouped(image, header):
        frame, previous_crc = frame_of(
            b"".join((_BODY_BEGINS, msgpack.Packer().pack_array_header(len(rows)), *rows)),
            base_offset=base_offset,
            record_count=len(rows),
            controller_epoch=image.controller_epoch,
            appended_at_ms=image.last_time_ms,
            previous_crc=previous_crc,
        )
        base_offset += len(rows)
        yield frame


def _grouped(image: MetadataImage, header: SnapshotHeaderRecord) -> Iterator[list[bytes]]:
    """Yield the packed records, frame by frame."""
    (first,) = packed((header,))
    yield [first]
    rows: list[bytes] = []
    size = record_count = 0
    for row in packed(image.to_rows()):
        if rows and (len(rows) == RECORDS_PER_BATCH_MAX or size + len(row) > _ROWS_BYTES_MAX):
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += len(row)
        record_count += 1
    if rows:
        yield rows
    yield [*packed((SnapshotFooterRecord(record_count, digest(image)),))]


def read_snapshot(
    path: Path, *, expected_id: str | None = None, known_buckets: Buckets | None = None
) -> MetadataImage:
    """Return the image of a snapshot file, after checking every crc, their chain, the count and the state digest.

    The header must have the position of `expected_id`, or else of the file's name, if that is the name of a snapshot.

    If `known_buckets` add up to the footer's digest, the records are not counted again, which would take half of the time:
    the buckets were counted from the very records that the crcs prove unchanged.

    Raises:
        DamagedFile: it is not what was written, by file and byte.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path):
        data = path.read_bytes()
    with _collector_at_rest():
        records = _Records(path, data)
        header = records.header()
        try:
            image = image_of(records, header=header, digest_buckets=known_buckets)
        except InvariantBroken as error:
            raise records.damaged(f"its records contradict each other: {error.message}") from error
        footer = records.footer
        assert footer is not None
        if footer.record_count != records.count:
            raise records.damaged(
                f"the footer counts {footer.record_count} records, there are {records.count}"
            )
        if known_buckets is not None and footer.digest != digest(image):
            image = replace(image, state_digest=StateDigest(buckets_of(image)))
        if footer.digest != digest(image):
            raise records.damaged(
                f"the footer's state digest is {footer.digest}, the records add up to {digest(image)}"
            )
    wanted = expected_id or path.name.removesuffix(SUFFIX)
    found = snapshot_id(header.end_offset, header.controller_epoch)
    if wanted != found and (expected_id is not None or _ID.match(wanted)):
        raise records.damaged(f"the header is that of snapshot {found}", at=0)
    return image


def check_snapshot(path: Path) -> None:
    """Check a snapshot file for rot without making its image: every crc, their chain, and the file's end.

    Raises:
        DamagedFile: it is not what was written, by file and byte.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path):
        data = path.read_bytes()
    at = last_at = offset = crc = 0
    try:
        while at < len(data) or at == 0:
            header = check_frame(data, at)
            if (header.base_offset, header.previous_crc) != (offset, crc):
                raise DamagedFrame("a frame does not continue the one before it", at=at, torn=False)
            offset, crc, last_at, at = header.end_offset, header.crc, at, at + header.frame_bytes
        if not isinstance(decode(data, last_at)[0].records[-1], SnapshotFooterRecord):
            raise DamagedFrame("it ends without its footer", at=at, torn=False)
    except DamagedFrame as error:
        raise damaged_file(path, error) from error


def read_header(path: Path) -> SnapshotHeaderRecord:
    """Return a snapshot's header alone; only its own frame is checked.

    Raises:
        DamagedFile: it is not what was written.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path), path.open("rb") as file:
        return _Records(path, file.read(4096)).header()


def read_records(path: Path) -> tuple[SnapshotHeaderRecord, Iterator[Record]]:
    """Return a snapshot's header, and its records in order without header and footer, each frame checked as it is read.

    The iterator raises as this does, also where the file ends without a footer.

    Raises:
        DamagedFile: it is not what was written, by file and byte.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path):
        data = path.read_bytes()
    records = _Records(path, data)
    return records.header(), records_of(records)


class _Records:
    """The records between header and footer, checked frame by frame as they are asked for."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data
        self._at = 0
        self._offset = 0
        self._crc = 0
        self._epoch_and_time = (0, 0)
        self._rows = SnapshotRows()
        self.count = 0
        self.footer: SnapshotFooterRecord | None = None

    def header(self) -> SnapshotHeaderRecord:
        (record, *others) = self._next_frame()
        if others or not isinstance(record, SnapshotHeaderRecord):
            raise self.damaged("a snapshot begins with its header", at=0)
        if self._epoch_and_time != (record.controller_epoch, record.last_time_ms):
            raise self.damaged("the header's epoch and time are not its frame's", at=0)
        return record

    def __iter__(self) -> Iterator[SnapshotRow]:
        while True:
            at, offset = self._at, self._offset
            records = self._next_frame()
            last = records[-1]
            if isinstance(last, SnapshotFooterRecord):
                if len(records) != 1:
                    raise self.damaged("the footer stands alone in its frame", at=at)
                if self._at != len(self._data):
                    raise self.damaged("bytes follow the footer")
                self.footer = last
                return
            self.count += self._offset - offset
            yield from records

    def _next_frame(self) -> list[SnapshotRow]:
        at = self._at
        try:
            frame, records = read_frame(self._data, at, read_body=self._read_body)
        except DamagedFrame as error:
            raise damaged_file(self._path, error) from error
        self._at += frame.frame_bytes
        if frame.base_offset != self._offset or frame.previous_crc != self._crc:
            raise self.damaged("a frame does not continue the one before it", at=at)
        if at and self._epoch_and_time != (frame.controller_epoch, frame.appended_at_ms):
            raise self.damaged("a frame's epoch and time are not the header's", at=at)
        self._offset, self._crc = frame.end_offset, frame.crc
        self._epoch_and_time = (frame.controller_epoch, frame.appended_at_ms)
        return records

    def _read_body(self, body: memoryview, record_count: int) -> list[SnapshotRow]:
        head = b"".join((_BODY_BEGINS, msgpack.Packer().pack_array_header(record_count)))
        if body[: len(head)] != head:
            raise ValueError(f"its body does not begin with an empty envelope and {record_count} records")
        return self._rows.read(bytes(body[len(head) :]), record_count)

    def damaged(self, reason: str, *, at: int | None = None) -> DamagedFile | WrittenByAnotherVersion:
        return damaged_file(self._path, DamagedFrame(reason, at=self._at if at is None else at, torn=False))


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Keep the cycle collector from walking an image under construction again and again: it holds no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Into the oldest generation without a walk: else the first collection would examine the whole new image.
            # A process that keeps things frozen keeps this one so, too: there a thaw would bring on one long walk.
            keeps_frozen = gc.get_freeze_count() > 0
            gc.freeze()
            if not keeps_frozen:
                gc.unfreeze()
            gc.enable()
