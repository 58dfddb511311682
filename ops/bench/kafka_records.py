"""Edge: `bench kafka-records`: what it costs to write our log and our snapshots as Kafka's, and to read Kafka's records.

Times are those of the processor: nothing here waits for anything. A slice is what runs between two rests of the translation
of a batch; the loop serves everybody else there.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.kafka.batches import batches
from metadata_log.kafka.checkpoints import checkpoint
from metadata_log.kafka.counterparts import ours
from metadata_log.kafka.records import decode
from metadata_log.kafka.translation import translating
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.records.features import METADATA_VERSION_LEVEL
from metadata_log.records.partitions import RECOVERED, PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.sliced import at_once
from ops.bench.decisions import CLUSTER_ID, cluster
from ops.bench.measure import percentile, report

_BROKERS: Final = 1_000
_OF_ONE: Final = 1_000
"""Batches of one record that are translated in a round."""


def kafka_records(*, partitions: int, rounds: int) -> dict[str, Any]:
    """Return what records and a checkpoint of so many partitions cost.

    Measure the largest batch, batches of one record, and a checkpoint, `rounds` times each; the fastest counts.
    """
    created, changed = _records(random.Random(1))
    figures: dict[str, Mapping[str, float]] = {
        "partition": _costs(created, rounds),
        "partition_change": _costs(changed, rounds),
        "checkpoint": _checkpoint(partitions, rounds),
    }
    return report(
        "kafka-records",
        params={"partitions": partitions, "records_of_a_batch": len(created), "replicas": 3},
        ours={
            name: {figure: round(value, 2) for figure, value in of.items()} for name, of in figures.items()
        },
        peers={},
        rounds=rounds,
        probes={},
    )


def _records(rng: random.Random) -> tuple[list[Record], list[Record]]:
    """Return partitions, as a creation writes them, and changes of their leaders and ISRs."""
    topic_id = TopicId(rng.randbytes(16))
    directories = {broker: Uuid(rng.randbytes(16)) for broker in range(_BROKERS)}
    created: list[Record] = []
    changed: list[Record] = []
    for number in range(RECORDS_PER_BATCH_MAX):
        replicas = tuple(BrokerId(broker) for broker in rng.sample(range(_BROKERS), 3))
        placed = tuple(directories[broker] for broker in replicas)
        created.append(
            PartitionRecord(
                *(topic_id, number, replicas, replicas, replicas[0], 0, 0, RECOVERED, (), (), (), ()), placed
            )
        )
        changed.append(PartitionChangeRecord(topic_id, number, leader=replicas[1], isr=replicas[1:]))
    return created, changed


def _batch(records: list[Record]) -> RecordBatch:
    return RecordBatch(
        base_offset=7,
        controller_epoch=3,
        appended_at_ms=1_700_000_000_000,
        previous_crc=0,
        crc=0,
        envelope=NO_ENVELOPE,
        records=records,
    )


def _costs(records: list[Record], rounds: int) -> dict[str, float]:
    many, one = _batch(records), _batch(records[:1])
    data = _translated(many)
    (read,) = batches(data)
    values = [value for _, value in read.records if value is not None]
    slices = [spent for _ in range(rounds) for spent in _slices(many)]
    return {
        "write_us_per_record": _fastest(lambda: _translated(many), rounds) / len(records),
        "write_us_batch_of_one": _fastest(lambda: [_translated(one) for _ in range(_OF_ONE)], rounds)
        / _OF_ONE,
        "read_us_per_record": _fastest(lambda: [ours(decode(value)) for value in values], rounds)
        / len(values),
        "slice_p50_us": percentile(slices, 50),
        "bytes_per_record": len(data) / len(records),
    }


def _translated(batch: RecordBatch) -> bytes:
    return at_once(translating(batch, level=METADATA_VERSION_LEVEL, voters=()))


def _slices(batch: RecordBatch) -> list[float]:
    work = translating(batch, level=METADATA_VERSION_LEVEL, voters=())
    spent: list[float] = []
    while True:
        began = time.process_time_ns()
        try:
            next(work)
        except StopIteration:
            return spent
        spent.append((time.process_time_ns() - began) / 1_000)


def _checkpoint(partitions: int, rounds: int) -> dict[str, float]:
    image = cluster(partitions=partitions, per_topic=10, leaderships=partitions // 100)
    header = SnapshotHeaderRecord(
        CLUSTER_ID, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    size = sum(len(batch) for batch in checkpoint(image.to_records(), header=header))

    def write() -> None:
        for _ in checkpoint(image.to_records(), header=header):
            pass

    return {
        "write_us_per_partition": _fastest(write, rounds) / partitions,
        "bytes_per_partition": size / partitions,
    }


def _fastest(work: Callable[[], object], rounds: int) -> float:
    """Return microseconds of the processor, of the fastest round."""
    spent = []
    for _ in range(rounds):
        began = time.process_time_ns()
        work()
        spent.append((time.process_time_ns() - began) / 1_000)
    return min(spent)
