"""Edge: the directory of Kafka's metadata log: its segments and checkpoints, exported into the same tables as our own."""

import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from metadata_log.errors import InvariantBroken, OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.batches import Batch
from metadata_log.records.features import METADATA_VERSION
from metadata_log.replay.export import export_batches, export_image, say_where_it_ends
from metadata_log.replay.histories import Ending, check_history
from metadata_log.replay.kafka.causes import Teller
from metadata_log.replay.kafka.columns import KafkaBatch, KafkaColumns
from metadata_log.replay.kafka.files import (
    KafkaLog,
    checkpoint_image,
    checkpoints_in,
    files_of,
    opened,
    units,
)
from metadata_log.replay.kafka.records import Entry, Translator
from metadata_log.replay.tables import Export, lake_directory

logger = logging.getLogger(__name__)


def export_kafka(
    path: Path,
    to: Path,
    *,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
) -> dict[str, Any]:
    """Export the metadata log in a directory of Kafka's, which a controller or broker may be writing; as `export_log`.

    A log that does not begin at 0 begins with its oldest checkpoint. Its end may hold records that the quorum had not
    committed yet: Kafka's files do not say up to where it had.

    Raises:
        DamagedFile: a segment or a checkpoint is damaged, or one is missing; the message names file and byte.
        WrittenByAnotherVersion: a record has a version that this release does not know.
        OffsetCompacted: the log does not begin at 0, and no checkpoint is there to begin at.
        InvalidRequest: the directory holds no log.
    """
    log = opened(path)
    if not log.segments:
        return _export_newest_checkpoint(log, to, in_lake=in_lake)
    _, checkpoint = files_of(path)
    return export_part(
        log,
        to,
        log.whole,
        begins_at=int(log.segments[0].stem),
        checkpoint=checkpoint,
        from_offset=from_offset,
        until=until,
        in_lake=in_lake,
    )


def export_part(
    log: KafkaLog,
    to: Path,
    batches_from: "BatchesFrom",
    *,
    begins_at: int,
    checkpoint: Path | None,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
) -> dict[str, Any]:
    """Export the batches that continue a checkpoint, or the log's own beginning; the first batch is at `begins_at`."""
    cluster_id = log.cluster_id
    to = lake_directory(to, cluster_id) if in_lake else to
    manifest = export_batches(
        lambda image: _continuing(batches_from, image, cluster_id=cluster_id, until=until),
        to,
        cluster_id=cluster_id,
        from_offset=from_offset,
        snapshot=None if checkpoint is None else checkpoint_image(checkpoint, cluster_id=cluster_id),
        columns=KafkaColumns,
        goes_on=lambda before: _goes_on(batches_from, before, begins_at=begins_at),
    )
    say_where_it_ends(to, manifest, until)
    return manifest


def _export_newest_checkpoint(log: KafkaLog, to: Path, *, in_lake: bool) -> dict[str, Any]:
    """Export what a directory without segments holds: the state of its newest checkpoint."""
    newest, _ = checkpoints_in(log.directory)[-1]
    logger.warning(
        "%s: no segment is here: the state of %s is read, and no history", log.directory, newest.name
    )
    to = lake_directory(to, log.cluster_id) if in_lake else to
    image = checkpoint_image(newest, cluster_id=log.cluster_id)
    return export_image(image, to, cluster_id=log.cluster_id, columns=KafkaColumns)


class BatchesFrom(Protocol):
    """Yields batches, each with its file, from the one that holds an offset on; `last_crc` is that of the one before."""

    def __call__(self, first: int, *, last_crc: int) -> Iterator[tuple[Path, Batch]]: ...


def _goes_on(batches_from: BatchesFrom, before: Export, *, begins_at: int) -> bool:
    """Answer whether a log holds more than an export; raises as `check_history`."""
    if begins_at >= before.end_offset:
        return True
    unit = next(units(batches_from(before.end_offset - 1, last_crc=0), is_whole=False), None)
    if unit is None:
        # The log ends below the export: its own last batch is compared.
        ended = deque(units(batches_from(begins_at, last_crc=0), is_whole=begins_at == 0), maxlen=1)
        unit = ended[0] if ended else None
    last = None if unit is None else unit.batches[-1]
    ending = None if last is None else Ending(last.end_offset, last.leader_epoch, last.crc)
    end = max(begins_at, 0 if last is None else last.end_offset)
    check_history(before, ending, begins_at=begins_at, ends_at=end)
    return end >= before.end_offset


def _continuing(
    batches_from: BatchesFrom, image: MetadataImage, *, cluster_id: str, until: int | None
) -> Iterator[KafkaBatch]:
    """Yield the batches that continue an image."""
    translator = Translator(image, cluster_id=cluster_id)
    teller = Teller(
        stopping=[broker.broker_id for broker in image.brokers.values() if broker.in_controlled_shutdown],
        voters=image.quorum.voters,
        metadata_version=image.features.get(METADATA_VERSION, 0),
        begins=image.end_offset == 0,
    )
    end_offset, epoch = image.end_offset, image.controller_epoch
    for unit in units(batches_from(end_offset, last_crc=image.last_crc)):
        base, end = unit.batches[0].base_offset, unit.batches[-1].end_offset
        if until is not None and end > until:
            return
        if base != end_offset:
            raise OffsetCompacted(
                f"the log goes on at offset {base}, but {end_offset} is wanted: it was cut there meanwhile"
            )
        last = unit.batches[-1]
        if last.leader_epoch < epoch:
            raise InvariantBroken(f"offset {base} is of leader epoch {last.leader_epoch}, behind {epoch}")
        entries: list[Entry] = []
        names_voters = any(record.name == "KRaftVersion" for _, record in unit.records)
        for offset, record in unit.records:
            if offset in unit.aborted and record.name != "LeaderChange":
                entries.append(translator.aborted(offset, record))
            else:
                entries += translator.entries(
                    offset, record, leader_epoch=last.leader_epoch, names_voters=names_voters
                )
        yield KafkaBatch(
            base_offset=base,
            end_offset=end,
            controller_epoch=last.leader_epoch,
            appended_at_ms=last.max_timestamp,
            crc=last.crc,
            records=[entry.record for entry in entries],
            offsets=[entry.offset for entry in entries],
            envelopes=teller.envelopes(entries),
        )
        end_offset, epoch = end, last.leader_epoch
