"""Edge: `python -m tests.kafka_image JARS [--histories N]`: what Kafka's own broker makes of our log.

Random histories are translated, as logs and as checkpoints. Kafka's classes (MemoryRecords, MetadataDelta, MetadataImage)
read and replay them as a broker does, and write the state that they add up to: it must be ours. JARS is a folder with the
jars of Kafka 4.3.1 and of what they need; `java` is a JDK of 17 or newer. Exit code 1: a state differs.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from metadata_log.apply import image_of
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
from tests.support.arguments import positive
from tests.support.histories import random_history

PROGRAM: Final = Path(__file__).with_name("Image.java")
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
    """Return the brokers by id; Kafka sorts their directories."""
    return {
        broker_id: broker._replace(log_dirs=tuple(sorted(broker.log_dirs)))
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
        for number, (data, image) in enumerate(histories(args.histories)):
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
