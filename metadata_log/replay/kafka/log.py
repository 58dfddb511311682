"""Edge: the directory of Kafka's metadata log: its segments and checkpoints, exported into the same tables as our own."""

import logging
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from metadata_log.apply import image_of
from metadata_log.codec import DamagedFrame, damaged_file
from metadata_log.errors import DamagedFile, InvalidRequest, InvariantBroken, OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.batches import Batch, batches
from metadata_log.kafka.records import Decoded, UnknownVersion, decode, decode_control
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.export import export_batches, export_image, say_where_it_ends
from metadata_log.replay.histories import Ending, check_history
from metadata_log.replay.kafka.causes import Teller
from metadata_log.replay.kafka.columns import KafkaBatch, KafkaColumns
from metadata_log.replay.kafka.records import Entry, Translator, snapshot_record
from metadata_log.replay.kinds import CHECKPOINT, PARTITION
from metadata_log.replay.tables import Export, lake_directory

UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster's id where no meta.properties names it."""
READ_BYTES: Final = 8 * 1024 * 1024
"""Read at once: a segment of Kafka's has up to 1 GiB."""
_SEGMENT: Final = re.compile(r"\d{20}\.log")

_OF_TRANSACTIONS: Final = ("BeginTransaction", "EndTransaction", "AbortTransaction")

logger = logging.getLogger(__name__)


class _Numbered(NamedTuple):
    """A record with its place in the log."""

    offset: int
    record: Decoded


class _Unit(NamedTuple):
    """Record batches that count together, and their records."""

    batches: list[Batch]
    records: list[_Numbered]
    aborted: frozenset[int]
    """The offsets of records that never counted."""


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


class KafkaLog(NamedTuple):
    """A directory of Kafka's log, the segments in it, and whose log it is."""

    path: Path
    """As it was named."""
    directory: Path
    segments: list[Path]
    cluster_id: str

    def whole(self, first: int, *, last_crc: int) -> "Iterator[tuple[Path, Batch]]":
        """Yield the batches from `first` on, as `_whole`."""
        return _whole(self.segments, first, last_crc=last_crc)


def opened(path: Path) -> KafkaLog:
    """Return the log in a directory; one without segments may still have checkpoints.

    Raises:
        InvalidRequest: there is neither.
    """
    directory = path / PARTITION if (path / PARTITION).is_dir() else path
    segments = _segments(directory)
    if not segments and not checkpoints_in(directory):
        raise InvalidRequest(
            f"{path}: no metadata log of Kafka: name a metadata.log.dir, or the {PARTITION} in it"
        )
    return KafkaLog(path, directory, segments, cluster_id_of(directory))


def files_of(path: Path) -> tuple[list[Path], Path | None]:
    """Return the segments that an export reads, and the checkpoint that they continue; none where only that is there.

    Raises:
        OffsetCompacted, InvalidRequest: as `export_kafka`.
    """
    log = opened(path)
    begins_at = int(log.segments[0].stem) if log.segments else 0
    return log.segments, _oldest_checkpoint(log.directory, not_below=begins_at) if begins_at else None


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


def checkpoints_in(directory: Path) -> list[tuple[Path, int]]:
    """Return the checkpoints of a directory, and the offset below which each holds the state, the oldest first."""
    found = ((path, CHECKPOINT.fullmatch(path.name)) for path in sorted(directory.glob("*.checkpoint")))
    return [(path, int(name[1])) for path, name in found if name is not None]


def _segments(directory: Path) -> list[Path]:
    return sorted(file for file in directory.glob("*.log") if _SEGMENT.fullmatch(file.name))


def cluster_id_of(directory: Path) -> str:
    """Return the cluster that the meta.properties above a directory of Kafka's, or in it, name."""
    for folder in (directory.parent, directory):
        path = folder / "meta.properties"
        if path.is_file():
            with renamed_os_errors(path):
                text = path.read_text(errors="replace")
            # Some images of Kafka format a directory with the text of an option, "Some(ID)".
            found = re.search(r"^cluster\.id=(?:Some\()?([^\s()]+)", text, re.MULTILINE)
            if found is not None:
                return found[1]
    return UNKNOWN_CLUSTER


# --- checkpoints


def _oldest_checkpoint(directory: Path, *, not_below: int) -> Path:
    found = [path for path, end_offset in checkpoints_in(directory) if end_offset >= not_below]
    if not found:
        raise OffsetCompacted(
            f"{directory}: the log begins at offset {not_below}, and no checkpoint is here to begin at: copy the"
            " *.checkpoint files too"
        )
    return found[0]


def checkpoint_image(path: Path, *, cluster_id: str) -> MetadataImage:
    """Return the state in a checkpoint, as far as it has a counterpart.

    Raises:
        DamagedFile: it is damaged, or not whole.
        WrittenByAnotherVersion: a record has a version that this release does not know.
    """
    name = CHECKPOINT.fullmatch(path.name)
    if name is None:
        raise InvalidRequest(f"{path}: a checkpoint is named OFFSET-EPOCH.checkpoint")
    records, last_time_ms, is_whole = [], 0, False
    for batch in _batches_of(path, is_last=False):
        for _, record in _decoded(path, batch):
            if record.name == "SnapshotHeader" and record.fields is not None:
                last_time_ms = max(0, record.fields["last_contained_log_timestamp"])
            is_whole = is_whole or record.name == "SnapshotFooter"
            if record.name in _OF_TRANSACTIONS:
                raise DamagedFile(
                    f"{path}: byte {batch.at}: {record.name} has no place in a checkpoint, which is a state between "
                    "transactions",
                    path=str(path),
                )
            if (ours := snapshot_record(record)) is not None:
                records.append(ours)
    if not is_whole:
        raise DamagedFile(
            f"{path}: byte {path.stat().st_size}: the checkpoint ends without its footer", path=str(path)
        )
    # Kafka writes the partitions of a topic in no promised order.
    partitions = sorted(
        (record for record in records if isinstance(record, PartitionRecord)),
        key=lambda record: (record.topic_id, record.partition_id),
    )
    others = [record for record in records if not isinstance(record, PartitionRecord)]
    header = SnapshotHeaderRecord(cluster_id, int(name[1]), int(name[2]), last_time_ms, 0)
    return image_of([*others, *partitions], header=header)


# --- segments


def _batches_of(path: Path, *, is_last: bool) -> Iterator[Batch]:
    """Yield the batches of a file; the last segment may end in one that is being written."""
    at, data = 0, b""
    with renamed_os_errors(path), path.open("rb") as file:
        while True:
            more = file.read(READ_BYTES)
            data += more
            try:
                for batch in batches(data):
                    yield batch._replace(at=at + batch.at)
            except DamagedFrame as error:
                if error.torn and more:
                    at, data = at + error.at, data[error.at :]
                    continue
                if error.torn and is_last:
                    logger.warning(
                        "%s: byte %d: %s: the log is read up to there", path, at + error.at, error.reason
                    )
                    return
                raise damaged_file(path, error, base=at) from error
            at, data = at + len(data), b""
            if not more:
                return


def _decoded(path: Path, batch: Batch) -> Iterator[_Numbered]:
    """Yield the records of a batch with their offsets."""
    for offset, (key, value) in enumerate(batch.records, batch.base_offset):
        try:
            if value is None or (batch.is_control and (key is None or len(key) != 4)):
                raise ValueError("it has no value, or no key that says its type")
            if batch.is_control:
                assert key is not None
                yield _Numbered(offset, decode_control(int.from_bytes(key[2:], "big"), value))
            else:
                yield _Numbered(offset, decode(value))
        except ValueError as error:
            raise damaged_file(
                path,
                DamagedFrame(
                    f"the record at offset {offset}: {error}",
                    at=batch.at,
                    torn=False,
                    another_version=isinstance(error, UnknownVersion),
                ),
            ) from error


def _whole(segments: list[Path], first: int, *, last_crc: int) -> Iterator[tuple[Path, Batch]]:
    """Yield the batches that hold what comes at `first` and behind it, one after the other.

    Raises:
        DamagedFile: batches are missing.
        InvariantBroken: the batch that ends at `first` is not the one with `last_crc`.
    """
    bases = [int(path.stem) for path in segments]
    expected = None
    for place, path in enumerate(segments):
        if place + 1 < len(segments) and bases[place + 1] < first:
            continue
        for batch in _batches_of(path, is_last=place + 1 == len(segments)):
            if expected is not None and batch.base_offset != expected:
                raise DamagedFile(
                    f"{path}: byte {batch.at}: offset {batch.base_offset} follows, where {expected} is expected: "
                    "a segment is missing, or was cut",
                    path=str(path),
                )
            expected = batch.end_offset
            if batch.end_offset > first:
                yield path, batch
            elif batch.end_offset == first and last_crc not in (0, batch.crc):
                raise InvariantBroken(
                    f"{path}: byte {batch.at}: the batch up to offset {first} is not the one that was exported: this "
                    "is another history, or its end was not committed then: export to another directory"
                )


def _units(whole: Iterator[tuple[Path, Batch]], *, is_whole: bool = True) -> Iterator[_Unit]:
    """Yield what counts together of batches in a row: a batch, or a transaction up to its end.

    The batches of an aborted transaction are apart.
    A transaction that has not ended yet hides what follows it, as it does in Kafka.

    Raises:
        DamagedFile: a transaction begins within another one, or, where the batches are `is_whole`, and do not begin within
            one, it ends without a beginning.
    """
    waiting: list[_Unit] = []
    begun: int | None = None
    aborted: set[int] = set()
    for path, batch in whole:
        unit = _Unit([batch], list(_decoded(path, batch)), frozenset())
        waiting.append(unit)
        for offset, record in unit.records:
            match record.name:
                case "BeginTransaction":
                    if begun is not None:
                        raise _misplaced(path, batch, f"{offset} begins within that of offset {begun}")
                    begun = offset
                case "EndTransaction" | "AbortTransaction":
                    if begun is None and is_whole:
                        raise _misplaced(path, batch, f"that ends at offset {offset} has no beginning")
                    if record.name == "AbortTransaction":
                        aborted |= set(range(offset if begun is None else begun, offset))
                    begun = None
        if begun is not None:
            continue
        if aborted:
            yield from (each._replace(aborted=frozenset(aborted)) for each in waiting)
        else:
            yield _Unit(
                [batch for each in waiting for batch in each.batches],
                [numbered for each in waiting for numbered in each.records],
                frozenset(),
            )
        waiting, aborted = [], set()


def _misplaced(path: Path, batch: Batch, what: str) -> DamagedFile:
    where = "the transaction of offset" if what[0].isdigit() else "the transaction"
    return DamagedFile(f"{path}: byte {batch.at}: {where} {what}", path=str(path))


class BatchesFrom(Protocol):
    """Yields batches, each with its file, from the one that holds an offset on; `last_crc` is that of the one before."""

    def __call__(self, first: int, *, last_crc: int) -> Iterator[tuple[Path, Batch]]: ...


def _goes_on(batches_from: BatchesFrom, before: Export, *, begins_at: int) -> bool:
    """Answer whether a log holds more than an export; raises as `check_history`."""
    if begins_at >= before.end_offset:
        return True
    unit = next(_units(batches_from(before.end_offset - 1, last_crc=0), is_whole=False), None)
    if unit is None:
        # The log ends below the export: its own last batch is compared.
        ended = deque(_units(batches_from(begins_at, last_crc=0), is_whole=begins_at == 0), maxlen=1)
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
    for unit in _units(batches_from(end_offset, last_crc=image.last_crc)):
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
