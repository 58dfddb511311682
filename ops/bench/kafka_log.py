"""Edge: a large metadata log in the directories of Kafka's controllers: that of `big_log`, record by record, in batches and
segments of Kafka's. Tests: tests/unit/ops/bench/test_kafka_log.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import structs

from metadata_log.batch import RecordBatch
from metadata_log.codec import decode
from metadata_log.ids import uuid_text
from metadata_log.kafka.translation import translating
from metadata_log.records.features import METADATA_VERSION_LEVEL
from metadata_log.records.quorum import Voter, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.replay.kinds import PARTITION
from metadata_log.sliced import at_once
from ops.bench.big_log import frames

SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""Kafka's have up to 1 GiB. A log of 2,000,000 records has seven of these."""


def write_kafka_log(
    folder: Path,
    record_count: int,
    *,
    partitions: int,
    cluster_id: str,
    segment_bytes: int = SEGMENT_BYTES,
) -> tuple[list[Path], int]:
    """Write a log of at least `record_count` records for each of three controllers; return their directories, and its end.

    No voter says where it listens: nothing is looked for there. The directories share the files of segments.
    """
    voters: tuple[Voter, ...] = ()
    directories: list[Path] = []
    waiting: list[bytes] = []
    size = base = end_offset = 0

    def flush() -> None:
        first, *others = (each / PARTITION / f"{base:020d}.log" for each in directories)
        first.write_bytes(b"".join(waiting))
        for other in others:
            other.hardlink_to(first)

    for batch in _batches(record_count, partitions=partitions):
        for record in batch.records:
            if isinstance(record, VotersRecord):
                voters = record.voters
                directories = [_directory(folder, voter, cluster_id) for voter in voters]
        data = at_once(translating(batch, level=METADATA_VERSION_LEVEL, voters=voters))
        if size + len(data) > segment_bytes:
            flush()
            waiting, size, base = [], 0, batch.base_offset
        waiting.append(data)
        size += len(data)
        end_offset = batch.end_offset
    flush()
    return directories, end_offset


def _batches(record_count: int, *, partitions: int) -> Iterator[RecordBatch]:
    for _, frame in frames(record_count, partitions=partitions):
        batch, _ = decode(frame)
        yield structs.replace(batch, records=tuple(map(_silent, batch.records)))


def _silent(record: Record) -> Record:
    if not isinstance(record, VotersRecord):
        return record
    return VotersRecord(tuple(voter._replace(endpoints=()) for voter in record.voters))


def _directory(folder: Path, voter: Voter, cluster_id: str) -> Path:
    directory = folder / f"kafka-{voter.node_id}"
    (directory / PARTITION).mkdir(parents=True)
    told = {
        "version": 1,
        "cluster.id": cluster_id,
        "node.id": voter.node_id,
        "directory.id": uuid_text(voter.directory_id),
    }
    (directory / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    return directory
