"""Edge: the state as it was at an offset, from the newest snapshot below it and the log after that."""

from collections.abc import Iterator

from metadata_log.batch import RecordBatch
from metadata_log.errors import OffsetCompacted, OffsetInFuture
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.log.segmented_log import SegmentedLog
from snapshots.fold import fold
from snapshots.store import SnapshotStore


def image_at(log: SegmentedLog, store: SnapshotStore, end_offset: int) -> MetadataImage:
    """Return the image of the log below `end_offset`; inside a batch, that at the batch's beginning.

    It reads a snapshot, and the log from there on. Damaged snapshots are passed over, and go to quarantine.

    Raises:
        OffsetInFuture: the log ends below `end_offset`.
        OffsetCompacted: neither the log nor a snapshot reaches back so far.
        DamagedFile: the log is not what was written.
    """
    if end_offset > log.end_offset:
        raise OffsetInFuture(f"the log ends at offset {log.end_offset}", end_offset=log.end_offset)
    onto = store.load_newest_at_or_below(end_offset).image or EMPTY
    if onto.end_offset < log.log_start_offset:
        raise OffsetCompacted(
            f"offset {end_offset} cannot be rebuilt: the log begins at {log.log_start_offset}, and no snapshot in between",
            log_start_offset=log.log_start_offset,
        )
    return fold(batches(log, onto.end_offset, end_offset), onto=onto)


def batches(log: SegmentedLog, from_offset: int, until: int | None = None) -> Iterator[RecordBatch]:
    """Yield the batches from the one that contains `from_offset` on, those that end at or below `until`.

    Raises:
        DamagedFile: the log is not what was written.
    """
    for _, batch in log.batches(from_offset, until):
        yield batch
