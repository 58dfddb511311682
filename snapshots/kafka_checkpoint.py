"""Edge: a snapshot as a checkpoint of Kafka's, a file beside it that is made of the snapshot alone."""

import os
from pathlib import Path

from metadata_log.kafka.checkpoints import checkpoint
from metadata_log.node.disk.durable_files import open_private, renamed_os_errors
from snapshots.snapshot_file import DERIVED_SUFFIX, read_records


def checkpoint_path(snapshot: Path) -> Path:
    """Return where the checkpoint of a snapshot is."""
    return snapshot.with_suffix(DERIVED_SUFFIX)


def write_checkpoint(snapshot: Path, *, listener: str | None) -> int:
    """Write the checkpoint of a snapshot, whole or not at all, and return its bytes; it takes seconds for a large one.

    `listener` is the name that brokers give to the controllers' listener.

    Raises:
        DamagedFile: the snapshot is not what was written.
        DiskFailed: the disk refuses.
    """
    path = checkpoint_path(snapshot)
    partial = path.with_name(path.name + ".part")
    header, records = read_records(snapshot)
    size = 0
    with renamed_os_errors(partial):
        try:
            with open_private(partial, "wb") as file:
                for batch in checkpoint(records, header=header, listener=listener):
                    size += file.write(batch)
                file.flush()
                os.fdatasync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return size
