"""Edge: states at earlier offsets."""

from pathlib import Path

import pytest

from metadata_log.codec import read_header
from metadata_log.errors import InvariantBroken, OffsetCompacted, OffsetInFuture
from metadata_log.log.segmented_log import SegmentedLog
from snapshots.fold import fold
from snapshots.history import batches, image_at
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import history_of
from tests.support.retained import retained


def test_beyond_the_end_and_below_the_start(tmp_path: Path) -> None:
    history = [*history_of(1, 40)]
    log = SegmentedLog.open(tmp_path / "log", segment_bytes=2_000)
    store = SnapshotStore(tmp_path / "snapshots")
    for step in history:
        log.append(step.frame, read_header(step.frame))
    with pytest.raises(OffsetInFuture):
        image_at(log, store, log.end_offset + 1)
    write_snapshot(history[30].image, store.directory)
    retained(log, bytes_max=0, older_than_ms=None, below=history[30].image.end_offset)
    with pytest.raises(OffsetCompacted):
        image_at(log, store, history[30].image.end_offset - 1)
    for step in history[30:]:
        assert image_at(log, store, step.image.end_offset) == step.image
    assert list(batches(log, history[35].batch.base_offset)) == [step.batch for step in history[35:]]
    log.close()


def test_a_batch_that_does_not_continue_is_refused() -> None:
    history = [*history_of(1, 5)]
    with pytest.raises(InvariantBroken, match="does not continue"):
        fold([history[0].batch, history[2].batch])
