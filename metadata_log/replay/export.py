"""Edge: the committed log as Parquet, for any engine that reads it.

What is exported stays: each run adds files for the offsets that are new, and names them in a manifest that replaces the
last one by rename. A run that dies leaves files the manifest does not name; the next run removes them. Files that a run
supersedes are named there for an hour more, since a reader may have opened the export before.

Every segment is checked as it is written: `apply` folds the records that were read, SQL folds the rows that were
written, and the two state digests must be equal. From a record on that this release does not know, `apply` folds no more:
what follows may rest on what that record changed. The state is then what SQL makes of the known records.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute  # as pa.compute

from metadata_log.apply import image_of
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, FrameHeader, damaged_answer
from metadata_log.errors import (
    InconsistentClusterId,
    InvalidRequest,
    InvariantBroken,
    OffsetCompacted,
    PositionOutOfRange,
    WrittenByAnotherVersion,
)
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.node.disk.durable_files import renamed_os_errors, replace_file
from metadata_log.node.uncollected import no_collections
from metadata_log.records.snapshots import OF_CONTROLLERS, SnapshotHeaderRecord
from metadata_log.replay.columns import Batch, Columns, position_row, topic_names
from metadata_log.replay.digest import apply_all, exported_digest, image_of_snapshot
from metadata_log.replay.export_writer import SEGMENT_RECORDS, ExportWriter
from metadata_log.replay.histories import Ending, check_history
from metadata_log.replay.kinds import MANIFEST
from metadata_log.replay.opaque import OpaqueRecord, Unknown, decode_known, unknown_in
from metadata_log.replay.subjects.registry import CHANGES
from metadata_log.replay.tables import (
    EXPORTED_PATH,
    RECORDS,
    SNAPSHOTS,
    Export,
    SupersededFile,
    named_cluster,
    read_manifest,
)

log = logging.getLogger(__name__)

FramesFrom = Callable[[int, int | None], Iterable[tuple[FrameHeader, bytes]]]
"""As `SegmentedLog.frames`: whole frames from the one that contains an offset, up to another (exclusive) or the end."""

CHUNK_RECORDS: Final = 262_144
"""Rows of one row group: what the export holds in memory as objects."""
CALLS_AHEAD_MAX: Final = 3
"""Row groups that may wait to be written while others are read: what the export holds in memory as rows."""
SUPERSEDED_KEPT_MS: Final = 3_600_000
"""How long a superseded file stays: an hour, in which an analyst opens the log again, or is done."""
SUPERSEDED_BYTES_MAX: Final = 1024**3
"""What superseded files may take together; the oldest go first. A large state is written every few seconds: an hour of
states of 20 MB would be 14 GB."""


def export_log(
    frames: FramesFrom,
    to: Path,
    *,
    cluster_id: str,
    from_offset: int | None = None,
    until: int | None = None,
    snapshot: MetadataImage | None = None,
    begins_at: int = 0,
    ends_at: int | None = None,
    observed_until_ms: int | None = None,
    is_passing: bool = False,
) -> dict[str, Any]:
    """Write what `to` does not hold yet, and return the manifest.

    The log holds the offsets from `begins_at` up to `ends_at`; None: as far as there are frames.

    A first run begins at the batch that contains `from_offset`, which needs an image at or before it: `snapshot`, or the
    log's own beginning; without `from_offset` it begins at `snapshot`, else at 0. A later run goes on where the last one
    ended. `until` (exclusive) inside a batch is cut back to its beginning. `observed_until_ms` is up to when, in Unix ms, a
    controller saw that the log holds no more than what is exported. With `is_passing`, `to` has one reader, who removes it:
    of a small log it gets the records alone, and its reader derives what it needs.

    Raises:
        InconsistentClusterId: `to` is the export of another cluster.
        InvalidRequest: there is nothing to export.
        PositionOutOfRange: `from_offset` would leave a gap after what `to` holds.
        OffsetCompacted: the log does not reach back to where the export must begin.
        InvariantBroken: the log is not the one exported before, or contradicts itself.
    """
    ahead: Iterable[tuple[FrameHeader, bytes]] | None = None

    def goes_on(before: Export) -> bool:
        nonlocal ahead
        coming = _further_frames(frames, before, until, begins_at=begins_at, ends_at=ends_at)
        first = next(coming, None)
        ahead = () if first is None else chain((first,), coming)
        return first is not None

    def frames_behind(end_offset: int, until: int | None) -> Iterable[tuple[FrameHeader, bytes]]:
        return frames(end_offset, until) if ahead is None else ahead

    manifest = export_batches(
        lambda image: _batches(frames_behind, image, cluster_id=cluster_id, until=until),
        to,
        cluster_id=cluster_id,
        from_offset=from_offset,
        snapshot=snapshot,
        goes_on=goes_on,
        observed_until_ms=observed_until_ms,
        is_passing=is_passing,
    )
    say_where_it_ends(to, manifest, until)
    return manifest


def _further_frames(
    frames: FramesFrom, before: Export, until: int | None, *, begins_at: int, ends_at: int | None
) -> Iterator[tuple[FrameHeader, bytes]]:
    """Return the frames after an export of the same log; raises as `export_log`."""
    end_offset = before.end_offset
    if begins_at >= end_offset:
        return iter(frames(end_offset, until))
    # From the last exported batch on, which shows whether this is the same log.
    coming = iter(frames(end_offset - 1, None if until is None else max(until, end_offset)))
    first = next(coming, None)
    if first is not None and first[0].base_offset >= end_offset:
        return chain((first,), coming)  # the log begins there
    ending, end = _last_common(frames, before, first, begins_at=begins_at, ends_at=ends_at)
    check_history(before, ending, begins_at=begins_at, ends_at=end)
    return coming


def say_where_it_ends(to: Path, manifest: Mapping[str, Any], until: int | None) -> None:
    """Say where an export ends, if that is not where it was to end."""
    end_offset = manifest["end_offset"]
    if until is not None and end_offset < until:
        log.warning(
            "%s ends at offset %d, not at %d: there the log ends, or a batch begins that %d lies inside",
            *(to, end_offset, until, until),
        )
    elif until is not None and end_offset > until:
        log.warning("%s has the offsets up to %d already, and %d was asked for", to, end_offset, until)


def _last_common(
    frames: FramesFrom,
    before: Export,
    at_end: tuple[FrameHeader, bytes] | None,
    *,
    begins_at: int,
    ends_at: int | None,
) -> tuple[Ending | None, int]:
    """Return the log's batch with the last offset that an export has, too, and where the log ends.

    `at_end` is the log's frame with the last offset of the export; None where the log ends below.
    """
    end = ends_at
    if at_end is not None:
        end = before.end_offset if end is None else end
    elif end is None:
        at_end = next(iter(deque(frames(begins_at, None), maxlen=1)), None)
        end = begins_at if at_end is None else at_end[0].end_offset
    elif begins_at < (common := min(end, before.end_offset)):
        at_end = next(iter(frames(common - 1, None)), None)
    if at_end is None:
        return None, end
    header = at_end[0]
    return Ending(header.end_offset, header.controller_epoch, header.crc), end


def export_batches(
    batches_behind: Callable[[MetadataImage], Iterable[Batch]],
    to: Path,
    *,
    cluster_id: str,
    from_offset: int | None = None,
    snapshot: MetadataImage | None = None,
    columns: type[Columns] = Columns,
    goes_on: Callable[[Export], bool],
    observed_until_ms: int | None = None,
    is_passing: bool = False,
) -> dict[str, Any]:
    """Write what `to` does not hold yet of the batches that continue an image, and return the manifest; as `export_log`.

    `goes_on` answers whether the log holds more than the export so far, and raises where it is another log. An export that
    has the whole log is left as it is, its last state unread: one that follows a silent log asks this every few seconds.
    """
    named_cluster(cluster_id)
    before = read_manifest(to)
    if before is not None and before.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"{to} holds the export of cluster {before.cluster_id}, not of {cluster_id}: name another directory",
            cluster_id=before.cluster_id,
        )
    if before is not None and before.log_format != columns.LOG_FORMAT:
        raise InvalidRequest(
            f"{to} holds the export of a log of {before.log_format}, not of {columns.LOG_FORMAT}: name another directory"
        )
    if before is not None and from_offset is not None and from_offset > before.end_offset:
        raise PositionOutOfRange(
            f"{to} holds offsets up to {before.end_offset}; going on at {from_offset} would leave a gap"
        )
    if before is not None and from_offset is not None and from_offset < before.first_offset:
        log.warning(
            "%s begins at offset %d: what came before it, from %d on, is not added: export to another directory",
            *(to, before.first_offset, from_offset),
        )
    _remove_leftovers(to, before)
    if before is not None and not goes_on(before):
        return _stored(_observed(before, before, observed_until_ms), before).manifest()
    run = _Run(to, cluster_id, before, columns, is_passing=is_passing)
    if before is None:
        run.begin(snapshot if snapshot is not None else EMPTY, first_offset=from_offset)
    with renamed_os_errors(to), no_collections():
        try:
            for batch in batches_behind(run.image):
                run.take(batch)
            export = run.finish()
        finally:
            run.stop()
    if export is None:
        raise InvalidRequest(
            f"the log holds no whole batch from {run.image.end_offset} on: nothing to export"
        )
    return _stored(_observed(export, before, observed_until_ms), before).manifest()


def _observed(export: Export, before: Export | None, until_ms: int | None) -> Export:
    """Return an export that says until when it was observed; no later run takes back what an earlier one saw."""
    known = [ms for ms in (until_ms, None if before is None else before.observed_until_ms) if ms is not None]
    return replace(export, observed_until_ms=max(known, default=None))


def _stored(export: Export, before: Export | None) -> Export:
    """Write the manifest of an export, if it is another than before."""
    if export != before:
        content = (json.dumps(export.manifest(), indent=1) + "\n").encode()
        replace_file(export.directory / MANIFEST, content, is_private=False)
    return export


def export_image(
    image: MetadataImage, to: Path, *, cluster_id: str, columns: type[Columns] = Columns
) -> dict[str, Any]:
    """Write a state alone, as an export without records, and return the manifest.

    Raises:
        InvalidRequest: `to` holds an export already, or the state is one below offset 0, where a log begins with nothing.
    """
    named_cluster(cluster_id)
    if read_manifest(to) is not None:
        raise InvalidRequest(
            f"{to} holds an export already, and a state alone does not continue one: name another directory"
        )
    if image.end_offset == 0:
        raise InvalidRequest(
            "a state below offset 0 is what a cluster is founded with, and no log begins with it: name the log's directory"
        )
    run = _Run(to, cluster_id, None, columns)
    with renamed_os_errors(to), no_collections():
        try:
            run.begin(image, first_offset=None)
            export = run.finish_without_records()
        finally:
            run.stop()
    content = (json.dumps(export.manifest(), indent=1) + "\n").encode()
    replace_file(to / MANIFEST, content, is_private=False)
    return export.manifest()


def _batches(
    frames: FramesFrom, image: MetadataImage, *, cluster_id: str, until: int | None
) -> Iterator[RecordBatch]:
    """Yield the batches that continue an image, checked to be one unbroken history."""
    end_offset, crc, epoch = image.end_offset, image.last_crc, image.controller_epoch
    for _, frame in frames(end_offset, until):
        try:
            batch, _ = decode_known(frame)
        except DamagedFrame as error:
            raise damaged_answer("the log to be exported", error) from error
        if until is not None and batch.end_offset > until:
            return
        if batch.base_offset > end_offset:
            raise OffsetCompacted(
                f"the log begins at offset {batch.base_offset}, but the export goes on at {end_offset}: "
                "export from the node whose log starts lowest, or to a new directory",
                offset=end_offset,
            )
        claim = batch.claim
        first: Any = batch.records[0]
        is_claim = claim is not None or (isinstance(first, OpaqueRecord) and batch.controller_epoch != epoch)
        if (batch.base_offset, batch.previous_crc) != (end_offset, crc) or (
            batch.controller_epoch <= epoch if is_claim else batch.controller_epoch != epoch
        ):
            raise InvariantBroken(
                f"the log's frame at offset {batch.base_offset} does not continue what was exported up to "
                f"{end_offset}: this is another history"
            )
        if claim is not None and claim.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"the log is that of cluster {claim.cluster_id}, not of {cluster_id}",
                cluster_id=claim.cluster_id,
            )
        yield batch
        end_offset, crc, epoch = batch.end_offset, batch.crc, batch.controller_epoch


class _Run:
    """One run: the state so far, the batches not yet written, and what writes them."""

    def __init__(
        self,
        directory: Path,
        cluster_id: str,
        before: Export | None,
        columns: type[Columns],
        *,
        is_passing: bool = False,
    ) -> None:
        self._cluster_id = cluster_id
        self._waiting: list[Batch] = []
        self._waiting_records = 0
        self._segment_rows = 0
        self.image = EMPTY
        self._columns = columns()
        self._files = ExportWriter(directory, cluster_id=cluster_id, before=before, is_passing=is_passing)
        self._writing = _InOrder()
        self._before = before
        self._is_begun = before is not None
        self._unknown: Unknown | None = None
        if before is not None:
            self._first_offset = before.first_offset
            self._unknown = before.unknown
            state = self._files.last_state()
            self.image = image_of_snapshot(state, position_only=before.unknown is not None)
            position = state.filter(pa.compute.equal(state.column("type"), 1002))
            self._columns = columns(
                controller_id=position.column("controller_id")[0].as_py(), topics=topic_names(state)
            )

    def begin(self, image: MetadataImage, *, first_offset: int | None) -> None:
        """Begin a new export at the batch that holds `first_offset`, with an image at or before it."""
        self._first_offset = image.end_offset if first_offset is None else first_offset
        if self._first_offset < image.end_offset:
            raise OffsetCompacted(
                f"the export is to begin at {first_offset}, before the snapshot it would rest on, {image.end_offset}",
                offset=first_offset,
            )
        self._take_image(image)

    def take(self, batch: Batch) -> None:
        """Add a batch; it is written once enough of them wait."""
        if not self._is_begun and batch.base_offset <= self._first_offset < batch.end_offset:
            self._begin_export(batch.base_offset)
        self._waiting.append(batch)
        self._waiting_records += len(batch.records)
        if self._waiting_records >= CHUNK_RECORDS:
            self._write_waiting()
            if self._segment_rows >= SEGMENT_RECORDS:
                self._close_segment()

    def finish(self) -> Export | None:
        """Write what waits, and return the whole export; None where there is nothing."""
        self._write_waiting()
        self._close_segment()
        self._writing.add(self._files.complete)
        self._writing.add(self._files.compact)
        self._writing.wait()
        return self._export() if self._files.files else None

    def finish_without_records(self) -> Export:
        """Write the state that the run began with, and nothing else; return the export."""
        self._begin_export(self.image.end_offset)
        self._writing.add(self._files.write_no_records, self.image.end_offset)
        self._writing.wait()
        return self._export()

    def _export(self) -> Export:
        return Export(
            directory=self._files.directory,
            cluster_id=self._cluster_id,
            first_offset=self._first_offset,
            end_offset=self.image.end_offset,
            digest=exported_digest(self.image) if self._unknown is None else None,
            files=tuple(self._files.files),
            log_format=self._columns.LOG_FORMAT,
            superseded=self._superseded(),
            unknown=self._unknown,
        )

    def _superseded(self) -> tuple[SupersededFile, ...]:
        """Return what stays although it is superseded: what this run replaced, and what is left of earlier ones."""
        if self._before is None:
            return ()
        now_ms = int(time.time() * 1000)
        named = {file.path for file in self._files.files}
        files = [file for file in self._before.superseded if file.path not in named] + [
            SupersededFile(path=file.path, bytes=file.bytes, superseded_at_ms=now_ms)
            for file in self._before.files
            if file.path not in named
        ]
        kept: list[SupersededFile] = []
        size = 0
        for file in reversed(files):
            size += file.bytes
            if size > SUPERSEDED_BYTES_MAX or now_ms - file.superseded_at_ms > SUPERSEDED_KEPT_MS:
                break
            kept.append(file)
        return tuple(reversed(kept))

    def stop(self) -> None:
        """Write no more; return once nothing is being written."""
        self._writing.stop()

    def _begin_export(self, first_offset: int) -> None:
        """Fold what came before the first batch, and write the state there: later ones rest on it."""
        self._write_waiting()
        self._is_begun = True
        self._first_offset = first_offset
        if self._unknown is not None:
            raise WrittenByAnotherVersion(
                f"the export cannot begin at offset {first_offset}: {self._unknown.line}, or export from the log's "
                "beginning on"
            )
        if first_offset > 0:
            records = [record for record in self.image.to_records() if not isinstance(record, OF_CONTROLLERS)]
            rows = self._columns.snapshot_table(records, time_ms=self.image.last_time_ms)
            self._writing.add(self._files.begin, rows, self._position())

    def _take_image(self, image: MetadataImage) -> None:
        """Go on from an image, its secrets hidden from here on."""
        records = self._columns.shown(
            record for record in image.to_records() if not isinstance(record, OF_CONTROLLERS)
        )
        header = SnapshotHeaderRecord(
            self._cluster_id, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
        )
        self.image = image_of(records, header=header)

    def _write_waiting(self) -> None:
        """Write and fold the waiting batches; those before the export's beginning are only folded."""
        batches, self._waiting, self._waiting_records = self._waiting, [], 0
        if not batches:
            return
        records = self._columns.shown([record for batch in batches for record in batch.records])
        if batches[0].base_offset < self._first_offset:
            self._columns.pass_over(batches)
        else:
            table = self._columns.table(batches, records)
            self._writing.add(self._files.write, table, batches[0].base_offset)
            self._segment_rows += table.num_rows
        last = batches[-1]
        self._unknown = unknown_in(batches[0].base_offset, records, self._unknown)
        if self._unknown is not None:
            self.image = replace(
                self.image,
                end_offset=last.end_offset,
                controller_epoch=last.controller_epoch,
                last_crc=last.crc,
                last_time_ms=last.appended_at_ms,
            )
            return
        self.image = apply_all(
            self.image,
            records,
            controller_epoch=last.controller_epoch,
            time_ms=last.appended_at_ms,
            crc=last.crc,
            end_offset=last.end_offset,
        )

    def _close_segment(self) -> None:
        if self._segment_rows:
            self._segment_rows = 0
            image = self.image if self._unknown is None else None
            self._writing.add(self._files.close_segment, image, self._position())

    def _position(self) -> pa.Table:
        image = self.image
        return position_row(
            end_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            controller_id=self._columns.controller_id,
            last_time_ms=image.last_time_ms,
            last_crc=image.last_crc,
            cluster_id=self._cluster_id,
        )


class _InOrder:
    """Calls, one after the other, in a thread of their own while the next batches are read: SQL and zstd need no GIL."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")
        self._pending: deque[Future[None]] = deque()

    def add(self, call: Callable[..., None], *arguments: object) -> None:
        """Add a call; raises what an earlier one raised."""
        while self._pending and (len(self._pending) >= CALLS_AHEAD_MAX or self._pending[0].done()):
            self._pending.popleft().result()
        self._pending.append(self._thread.submit(call, *arguments))

    def wait(self) -> None:
        while self._pending:
            self._pending.popleft().result()

    def stop(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


def _remove_leftovers(directory: Path, export: Export | None) -> None:
    """Remove the files that the manifest does not name: those of a run that died, and those superseded long ago."""
    named = set()
    if export is not None:
        named |= {directory / file.path for file in export.files}
        named |= {directory / file.path for file in export.superseded}
    for family in (RECORDS, *CHANGES, SNAPSHOTS):
        for path in directory.glob(f"{family}/**/*.parquet"):
            if path not in named and EXPORTED_PATH.fullmatch(path.relative_to(directory).as_posix()):
                path.unlink()
    for path in directory.glob(f"{SNAPSHOTS}/as_of=*"):
        if not any(path.iterdir()):
            path.rmdir()
