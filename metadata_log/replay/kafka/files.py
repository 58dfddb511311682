"""Edge: the files of Kafka's metadata log: a directory's segments and checkpoints, read and checked.

Nothing here needs the packages of `[replay]`. Tests: tests/unit/metadata_log/replay/kafka/test_log.py.
"""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from metadata_log.apply import image_of
from metadata_log.codec import DamagedFrame, damaged_file
from metadata_log.errors import DamagedFile, InvalidRequest, InvariantBroken, OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.kafka.batches import Batch, batches, next_batch
from metadata_log.kafka.records import Decoded, UnknownVersion, decode, decode_control
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.kafka.records import snapshot_record
from metadata_log.replay.kinds import CHECKPOINT, PARTITION

UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster's id where no meta.properties names it."""
READ_BYTES: Final = 8 * 1024 * 1024
"""Read at once: a segment of Kafka's has up to 1 GiB."""
_SEGMENT: Final = re.compile(r"\d{20}\.log")

_OF_TRANSACTIONS: Final = ("BeginTransaction", "EndTransaction", "AbortTransaction")

OnTorn: TypeAlias = Callable[[Path, int, str], None]
"""Reports a batch that is not whole at a log's end: its file, the byte where it begins, and why it is not."""

logger = logging.getLogger(__name__)


class Numbered(NamedTuple):
    """A record with its place in the log."""

    offset: int
    record: Decoded


class Unit(NamedTuple):
    """Record batches that count together, and their records."""

    batches: list[Batch]
    records: list[Numbered]
    aborted: frozenset[int]
    """The offsets of records that never counted."""


class KafkaLog(NamedTuple):
    """A directory of Kafka's log, the segments in it, and whose log it is."""

    path: Path
    """As it was named."""
    directory: Path
    segments: list[Path]
    cluster_id: str

    def whole(self, first: int, *, last_crc: int) -> "Iterator[tuple[Path, Batch]]":
        """Yield the batches from `first` on, as `whole_batches`."""
        return whole_batches(self.segments, first, last_crc=last_crc)


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
    return log.segments, oldest_checkpoint(log.directory, not_below=begins_at) if begins_at else None


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


def oldest_checkpoint(directory: Path, *, not_below: int) -> Path:
    found = [path for path, end_offset in checkpoints_in(directory) if end_offset >= not_below]
    if not found:
        raise OffsetCompacted(
            f"{directory}: the log begins at offset {not_below}, and no checkpoint is here to begin at: copy the"
            " *.checkpoint files too"
        )
    return found[0]


def checkpoint_image(
    path: Path,
    *,
    cluster_id: str,
    keeps_secrets: bool = False,
    on_record: Callable[[Decoded], None] | None = None,
) -> MetadataImage:
    """Return the state in a checkpoint, as far as it has a counterpart; `on_record` is given each record of Kafka's.

    Without `keeps_secrets` credentials are there without what could be used.

    Raises:
        DamagedFile: it is damaged, or not whole.
        WrittenByAnotherVersion: a record has a version that this release does not know.
    """
    name = CHECKPOINT.fullmatch(path.name)
    if name is None:
        raise InvalidRequest(f"{path}: a checkpoint is named OFFSET-EPOCH.checkpoint")
    records, last_time_ms, is_whole = [], 0, False
    for batch in batches_of(path, is_last=False):
        for _, record in decoded(path, batch):
            if record.name == "SnapshotHeader" and record.fields is not None:
                last_time_ms = max(0, record.fields["last_contained_log_timestamp"])
            is_whole = is_whole or record.name == "SnapshotFooter"
            if record.name in _OF_TRANSACTIONS:
                raise DamagedFile(
                    f"{path}: byte {batch.at}: {record.name} has no place in a checkpoint, which is a state between "
                    "transactions",
                    path=str(path),
                )
            if on_record is not None:
                on_record(record)
            if (ours := snapshot_record(record, keeps_secrets=keeps_secrets)) is not None:
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


def _say_torn(path: Path, at: int, reason: str) -> None:
    logger.warning("%s: byte %d: %s: the log is read up to there", path, at, reason)


def batches_of(
    path: Path, *, is_last: bool, on_torn: OnTorn = _say_torn, reads_data: bool = True
) -> Iterator[Batch]:
    """Yield the batches of a file; the last segment may end in one that is being written: `on_torn` reports it.

    `reads_data` as of `batches`.

    Raises:
        DamagedFile, WrittenByAnotherVersion: a batch is damaged, or one that ends after the file has a whole one after it.
    """
    at, data = 0, b""
    with renamed_os_errors(path), path.open("rb") as file:
        while True:
            more = file.read(READ_BYTES)
            data += more
            try:
                for batch in batches(data, reads_data=reads_data):
                    yield batch._replace(at=at + batch.at)
            except DamagedFrame as error:
                if error.torn and more:
                    at, data = at + error.at, data[error.at :]
                    continue
                if error.torn and is_last:
                    if (following := next_batch(data, error.at + 1)) is not None:
                        # Nothing was written after a batch that is being written: it is this one's size that is wrong.
                        error.reason += f", and at byte {at + following} a whole one begins"
                        raise damaged_file(path, error, base=at) from error
                    on_torn(path, at + error.at, error.reason)
                    return
                raise damaged_file(path, error, base=at) from error
            at, data = at + len(data), b""
            if not more:
                return


def decoded(path: Path, batch: Batch) -> Iterator[Numbered]:
    """Yield the records of a batch with their offsets."""
    for offset, (key, value) in enumerate(batch.records, batch.base_offset):
        try:
            if value is None or (batch.is_control and (key is None or len(key) != 4)):
                raise ValueError("it has no value, or no key that says its type")
            if batch.is_control:
                assert key is not None
                yield Numbered(offset, decode_control(int.from_bytes(key[2:], "big"), value))
            else:
                yield Numbered(offset, decode(value))
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


def whole_batches(
    segments: list[Path],
    first: int,
    *,
    last_crc: int,
    on_torn: OnTorn = _say_torn,
    reads_data: bool = True,
) -> Iterator[tuple[Path, Batch]]:
    """Yield the batches that hold what comes at `first` and after it, one after the other; `reads_data` as of `batches`.

    Raises:
        DamagedFile: batches are missing.
        InvariantBroken: the batch that ends at `first` is not the one with `last_crc`.
    """
    bases = [int(path.stem) for path in segments]
    expected = None
    for place, path in enumerate(segments):
        if place + 1 < len(segments) and bases[place + 1] < first:
            continue
        is_last = place + 1 == len(segments)
        for batch in batches_of(path, is_last=is_last, on_torn=on_torn, reads_data=reads_data):
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


def units(whole: Iterator[tuple[Path, Batch]], *, is_whole: bool = True) -> Iterator[Unit]:
    """Yield what counts together of batches in a row: a batch, or a transaction up to its end.

    The batches of an aborted transaction are apart.
    A transaction that has not ended yet hides what follows it, as it does in Kafka.

    Raises:
        DamagedFile: a transaction begins within another one, or, where the batches are `is_whole`, and do not begin within
            one, it ends without a beginning.
    """
    waiting: list[Unit] = []
    begun: int | None = None
    aborted: set[int] = set()
    for path, batch in whole:
        unit = Unit([batch], list(decoded(path, batch)), frozenset())
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
            yield Unit(
                [batch for each in waiting for batch in each.batches],
                [numbered for each in waiting for numbered in each.records],
                frozenset(),
            )
        waiting, aborted = [], set()


def _misplaced(path: Path, batch: Batch, what: str) -> DamagedFile:
    where = "the transaction of offset" if what[0].isdigit() else "the transaction"
    return DamagedFile(f"{path}: byte {batch.at}: {where} {what}", path=str(path))
