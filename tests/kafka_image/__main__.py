"""Edge: `python -m tests.kafka_image JARS [--histories N]`: what Kafka's own broker makes of our log.

Random histories are translated, as logs and as checkpoints, and so is what the golden scripts lead to. Kafka's classes
(MemoryRecords, MetadataDelta, MetadataImage) read and replay them as a broker does, and write the state that they add up to:
it must be ours. JARS is a folder with the jars of Kafka 4.3.1 and of what they need; `java` is a JDK of 17 or newer. Exit
code 1: a state differs.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import tests.golden
from metadata_log.apply import image_of
from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.kafka.checkpoints import checkpoint
from metadata_log.kafka.records import decode
from metadata_log.kafka.translation import translating
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import METADATA_VERSION_LEVEL
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.replay.kafka.records import snapshot_record
from metadata_log.sliced import at_once
from quorum.whatif.cluster import Cluster, Written
from quorum.whatif.script import Script
from tests.support.arguments import positive
from tests.support.histories import random_history

PROGRAM: Final = Path(__file__).with_name("Image.java")
SCRIPTS: Final = Path(tests.golden.__path__[0]) / "kafka"
BATCHES: Final = 60
"""Of each history."""


def histories(count: int) -> Iterator[tuple[bytes, MetadataImage]]:
    """Yield translated logs and checkpoints, and the states that they add up to."""
    for seed in range(count):
        image, log = EMPTY, b""
        for step in random_history(random.Random(seed), BATCHES):
            if _is_left_out(step.batch.records):
                break
            log += at_once(
                translating(
                    step.batch,
                    level=METADATA_VERSION_LEVEL,
                    voters=step.image.quorum.voters or (),
                    deleted=image.topics.deleted.keys(),
                )
            )
            image = step.image
        if not log:
            continue
        yield log, image
        yield b"".join(checkpoint(image.to_records(), header=_header(image))), image


def decided() -> Iterator[tuple[bytes, MetadataImage]]:
    """Yield what golden scripts lead to: the state that each begins with, its log, and the state that it ends in."""
    for script in _scripts():
        written: list[Written] = []
        clusters: list[tuple[Cluster, MetadataImage]] = []

        def begin(cluster: Cluster, *args: Any, clusters: Any = clusters, **settings: Any) -> None:
            _BEGIN(cluster, *args, **settings)
            clusters.append((cluster, cluster.image))

        def take(cluster: Cluster, *, written: Any = written) -> list[Written]:
            taken = _TAKE(cluster)
            written.extend(taken)
            return taken

        with patch.object(Cluster, "__init__", begin), patch.object(Cluster, "take_written", take):
            run = Script()
            for line in script:
                run.answer(line)
        for cluster, image in clusters:
            log = b"".join(checkpoint(image.to_records(), header=_header(image)))
            yield log + b"".join(map(_translated, written)), cluster.image


_BEGIN: Final = Cluster.__init__
_TAKE: Final = Cluster.take_written


def _translated(written: Written) -> bytes:
    batch = RecordBatch(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=written.at_ms,
        previous_crc=0,
        crc=0,
        envelope=NO_ENVELOPE,
        records=written.records,
    )
    return at_once(translating(batch, level=METADATA_VERSION_LEVEL, voters=()))


def _scripts() -> Iterator[list[dict[str, Any]]]:
    texts = [gzip.decompress((SCRIPTS / "random.jsonl.gz").read_bytes()).decode()]
    texts += [
        path.read_text() for path in SCRIPTS.glob("*.jsonl") if not path.name.endswith(".expected.jsonl")
    ]
    for text in texts:
        for is_between, lines in groupby(map(json.loads, text.splitlines()), key=_is_reset):
            if not is_between:
                yield [*lines]


def _is_reset(line: dict[str, Any]) -> bool:
    return bool(line["op"] == "Reset")


def _is_left_out(records: Sequence[Record]) -> bool:
    """Answer whether a history ends before a batch.

    No record of Kafka's restores a topic. Where one batch makes settings of a topic and removes it, Kafka's brokers keep the
    settings; no controller decides such a batch.
    """
    kinds = {type(record) for record in records}
    removes = not kinds.isdisjoint({RemoveTopicRecord, TopicTombstoneRecord})
    return TopicRestoreRecord in kinds or (removes and ConfigRecord in kinds)


def _header(image: MetadataImage) -> SnapshotHeaderRecord:
    return SnapshotHeaderRecord(
        *("", image.end_offset, image.controller_epoch), image.last_time_ms, image.last_crc
    )


def state(values: Sequence[bytes]) -> MetadataImage:
    """Return the state that Kafka wrote, as far as it has a counterpart."""
    found = [record for value in values if (record := snapshot_record(decode(value))) is not None]
    partitions = [record for record in found if isinstance(record, PartitionRecord)]
    partitions.sort(key=attrgetter("topic_id", "partition_id"))
    others = [record for record in found if not isinstance(record, PartitionRecord)]
    return image_of([*others, *partitions], header=_header(EMPTY))


def differences(kafkas: MetadataImage, ours: MetadataImage) -> Iterator[str]:
    """Yield what differs, by its path and with both values."""
    pairs = [(part(kafkas), part(ours)) for part in (_brokers, _settings, _topics)]
    pairs.append(({"features": kafkas.features}, {"features": ours.features}))
    pairs.append(({"ids": kafkas.next_producer_id}, {"ids": ours.next_producer_id}))
    for theirs, own in pairs:
        for key in theirs.keys() | own.keys():
            if theirs.get(key) != own.get(key):
                yield f"{key}: {theirs.get(key)} in Kafka, {own.get(key)} here"
    # Kafka 4.3.1 has no record that removes the registration of a controller.
    if not {*ours.controllers} <= {*kafkas.controllers}:
        yield f"controllers: {[*kafkas.controllers]} in Kafka, {[*ours.controllers]} here"


def _brokers(image: MetadataImage) -> dict[Any, Any]:
    """Return the brokers by id; Kafka keeps what they registered in an order of its own."""
    return {
        broker_id: broker._replace(
            log_dirs=tuple(sorted(broker.log_dirs)),
            cordoned_log_dirs=broker.cordoned_log_dirs and tuple(sorted(broker.cordoned_log_dirs)),
            features=tuple(sorted(broker.features)),
            endpoints=tuple(sorted(broker.endpoints)),
        )
        for broker_id, broker in image.brokers.items()
    }


def _settings(image: MetadataImage) -> dict[Any, Any]:
    return {resource: dict(settings) for resource, settings in image.configs.items() if settings}


def _topics(image: MetadataImage) -> dict[Any, Any]:
    return dict(image.topics.by_id)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_image", description=(__doc__ or ""))
    parser.add_argument("jars", type=Path)
    parser.add_argument("--histories", type=positive, default=100)
    args = parser.parse_args(argv)
    wanted: dict[str, MetadataImage] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (data, image) in enumerate(chain(histories(args.histories), decided())):
            path = Path(folder) / f"{number}.log"
            path.write_bytes(data)
            wanted[str(path)] = image
        command = ["java", "-cp", f"{args.jars}/*", str(PROGRAM), *wanted]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found: dict[str, list[bytes]] = {}
    for kind, content in (line.split(" ", 1) for line in said.splitlines()):
        if kind == "file":
            found[content] = values = []
        elif kind == "state":
            values.append(bytes.fromhex(content))
    differing = [
        f"{path}: {each}"
        for path, values in found.items()
        for each in differences(state(values), wanted[path])
    ]
    for each in differing:
        print(each)
    print(
        f"{len(found)} logs and checkpoints, {sum(map(len, found.values()))} records of state; {len(differing)} differ"
    )
    return 1 if differing or found.keys() != wanted.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
