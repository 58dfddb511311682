"""Edge: the retention of a log at once, where no loop goes on in between."""

from pathlib import Path

from metadata_log.log.segmented_log import SegmentedLog


def retained(
    log: SegmentedLog, *, bytes_max: int | None, older_than_ms: int | None, below: int
) -> list[Path]:
    """Remove the oldest files, as `SegmentedLog.to_remove` says, and return them."""
    retention = log.to_remove(bytes_max=bytes_max, older_than_ms=older_than_ms, below=below)
    if retention is None:
        return []
    log.begin_later(retention)
    log.forget(retention)
    return log.unlink(retention)
