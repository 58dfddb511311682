"""Edge: `bench broker-start`: how long a broker takes from opening its cache to a current image.
Tests: tests/cluster/test_bench.py.
"""

import random
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from broker_agent.cache import Cache
from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import encode, read_header
from metadata_log.ids import BrokerId, NodeId, TopicId, random_uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord
from ops.bench.measure import figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

CLUSTER_ID: Final = "BenchBenchBenchBenchBe"
_PARTITIONS_PER_TOPIC: Final = 10
_BROKERS: Final = 30


def broker_start(*, rounds: int = 5, partitions: int = 100_000) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of opening a cache that holds 100,000 partitions of three replicas.

    Fill a broker's cache as its fetches would, then open it `rounds` times as its restarts would.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        data = Path(scratch, "broker")
        format_directory(data, role="broker", node_id=NodeId(11), cluster_id=CLUSTER_ID, rng=random.Random(1))
        end_offset = filled(data, partitions).end_offset
        taken_ms = []
        for _ in range(rounds):
            cache = Cache(data, cluster_id=CLUSTER_ID)
            began = time.perf_counter()
            image = cache.open()
            taken_ms.append((time.perf_counter() - began) * 1000)
            cache.close()
            assert image.end_offset == end_offset, "the cache holds the whole log"
        floors = probes(Path(scratch))
    return report(
        "broker-start",
        params={"partitions": partitions, "partitions_per_topic": _PARTITIONS_PER_TOPIC, "replicas": 3},
        ours={"unit": "ms", **figures(taken_ms)},
        peers={},
        rounds=rounds,
        probes=floors,
    )


def filled(data: Path, partitions: int) -> MetadataImage:
    """Fill a broker's cache as its fetches would, and return the state in it."""
    cache = Cache(data, cluster_id=CLUSTER_ID)
    image = cache.open()
    for records in _batches(partitions):
        image = _take(cache, image, records)
        cache.write_due_snapshot()
    cache.close()
    return image


def _take(cache: Cache, image: MetadataImage, records: list[Record]) -> MetadataImage:
    batch, frame = encode(
        base_offset=image.end_offset,
        controller_epoch=1,
        appended_at_ms=1_750_000_000_000,
        previous_crc=image.last_crc,
        envelope=NO_ENVELOPE,
        records=records,
    )
    header = read_header(frame)
    cache.append(frame, header)
    after = apply(image, batch).image
    cache.applied(header, after)
    return after


def _batches(partitions: int) -> list[list[Record]]:
    rng = random.Random(1)
    directories = [random_uuid(rng) for _ in range(_BROKERS)]
    batches: list[list[Record]] = [[ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)]]
    for number in range(partitions // _PARTITIONS_PER_TOPIC):
        topic_id = TopicId(random_uuid(rng))
        topic: list[Record] = [TopicRecord(topic_id, f"topic-{number}")]
        for partition_id in range(_PARTITIONS_PER_TOPIC):
            places = [(number + partition_id + replica) % _BROKERS for replica in range(3)]
            replicas = tuple(BrokerId(11 + place) for place in places)
            placed = tuple(directories[place] for place in places)
            topic.append(
                PartitionRecord(
                    topic_id, partition_id, replicas, replicas, replicas[0], 0, 0, 0, (), (), (), (), placed
                )
            )
        if len(batches[-1]) + len(topic) > RECORDS_PER_BATCH_MAX // 2:
            batches.append([])
        batches[-1] += topic
    return batches
