"""Edge: one file that holds a state, exported as a log without records: a snapshot of ours, a checkpoint of Kafka's.
Tests: tests/unit/metadata_log/replay/kafka/test_log.py.
"""

from pathlib import Path
from typing import Any

from metadata_log.replay.export import export_image
from metadata_log.replay.kafka.columns import KafkaColumns
from metadata_log.replay.kafka.files import checkpoint_image, cluster_id_of
from metadata_log.replay.kinds import Kind, kind_of
from metadata_log.replay.nearby import no_log_at
from metadata_log.replay.tables import lake_directory
from snapshots.snapshot_file import read_snapshot

UNKNOWN_CLUSTER = "unknown"
"""The cluster's id where the snapshot does not name it."""


def export_state_file(path: Path, to: Path, *, in_lake: bool = False) -> dict[str, Any]:
    """Export the state in a file, and return the manifest. With `in_lake`, `to` is a lake, as in `export_files`.

    Raises:
        DamagedFile, WrittenByAnotherVersion: it cannot be read.
        InvalidRequest: the file holds no state.
    """
    kind = kind_of(path)
    if kind is Kind.CHECKPOINT:
        cluster_id = cluster_id_of(path.parent)
        image = checkpoint_image(path, cluster_id=cluster_id)
        to = lake_directory(to, cluster_id) if in_lake else to
        return export_image(image, to, cluster_id=cluster_id, columns=KafkaColumns)
    if kind is not Kind.SNAPSHOT:
        raise no_log_at(path)
    image = read_snapshot(path)
    cluster_id = image.quorum.cluster_id or UNKNOWN_CLUSTER
    return export_image(image, lake_directory(to, cluster_id) if in_lake else to, cluster_id=cluster_id)
