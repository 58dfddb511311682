"""Edge: `bench restore`: how long a controller takes to begin with a backup of many partitions.
Tests: tests/cluster/test_bench.py.
"""

import random
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from metadata_log.digest import digest
from metadata_log.ids import NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.quorum import RAFT_ENDPOINT, Voter, VoterEndpoint
from ops.bench.broker_start import CLUSTER_ID, filled
from ops.bench.measure import figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from quorum.node.restoring import begin_directory, restored, surviving_state
from snapshots.snapshot_file import read_snapshot, write_snapshot

NEW_CLUSTER_ID: Final = "RestoreRestoreRestoreA"
NO_VOTER: Final = Voter(NodeId(1), Uuid(bytes(15) + b"\1"), (), 0, 1)


def restore(*, rounds: int = 3, partitions: int = 100_000) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of reading a backup, making the new cluster's state, and writing its directory."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        data = Path(scratch, "broker")
        format_directory(data, role="broker", node_id=NodeId(11), cluster_id=CLUSTER_ID, rng=random.Random(1))
        backup = write_snapshot(filled(data, partitions), Path(scratch))
        taken_ms = []
        for number in range(rounds):
            data = Path(scratch, f"controller-{number}")
            meta = format_directory(
                data,
                role="controller",
                node_id=NodeId(1),
                cluster_id=NEW_CLUSTER_ID,
                rng=random.Random(number),
            )
            endpoint = VoterEndpoint(RAFT_ENDPOINT, "127.0.0.1", 9001)
            voter = Voter(meta.node_id, meta.directory_id, (endpoint,), 0, 1)
            began = time.perf_counter()
            image = read_snapshot(backup)
            begun = restored(image, cluster_id=NEW_CLUSTER_ID, voters=(voter,), epoch=image.controller_epoch)
            begin_directory(data, begun)
            taken_ms.append((time.perf_counter() - began) * 1000)
            assert _kept(surviving_state(data).image) == _kept(image), (
                "the brokers, topics and settings are the same"
            )
        floors = probes(Path(scratch))
    return report(
        "restore",
        params={"partitions": partitions, "replicas": 3},
        ours={"unit": "ms", **figures(taken_ms)},
        peers={},
        rounds=rounds,
        probes=floors,
    )


def _kept(image: MetadataImage) -> str:
    """Return the digest of what a restore leaves as it is."""
    return digest(
        restored(image, cluster_id=NEW_CLUSTER_ID, voters=(NO_VOTER,), epoch=image.controller_epoch)
    )
