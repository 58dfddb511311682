"""Edge: the whole state of a running cluster, read from a follower: its newest snapshot, and the log behind it."""

import tempfile
from pathlib import Path
from typing import Final

from metadata_log.apply import apply
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from ops.bulk_reads import bulk_source
from ops.client import Answer, ClusterClient
from ops.log_frames import cluster_frames
from snapshots.snapshot_file import read_snapshot

OCTETS: Final = "application/octet-stream"


def live_image(client: ClusterClient) -> MetadataImage:
    """Return a state that has everything that was acknowledged before this call.

    Raises:
        Unreachable: no controller answers.
        DamagedFile: the snapshot is not sound.
    """
    source = bulk_source(client)

    def ask(path: str) -> Answer:
        answer = client.ask_one(source.url, f"{path}&consistency=stale", accept=OCTETS)
        if not answer.ok:
            raise answer.error()
        return answer

    image = EMPTY
    snapshots = ask("/v1/snapshots?").json()["items"]
    if snapshots:
        newest = max(snapshots, key=lambda snapshot: int(snapshot["end_offset"]))
        with tempfile.TemporaryDirectory(prefix="metaquorum-") as directory:
            path = Path(directory) / f"{newest['id']}.snapshot"
            path.write_bytes(ask(f"/v1/metadata/snapshots/{newest['id']}?").body)
            image = read_snapshot(path)
    if image.end_offset < source.end_offset:
        for frame in cluster_frames(ask, first=str(image.end_offset), until=None):
            batch = frame.batch()
            if batch.base_offset >= image.end_offset:
                image = apply(image, batch).image
    return image
