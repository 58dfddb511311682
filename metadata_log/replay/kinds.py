"""Edge: what a path holds, told by names and first bytes alone, and which verb reads it.

Every verb that takes a log either reads what it was given, or names it and the verb that does. Nothing here needs the
packages of `[replay]`. Tests: tests/unit/ops/verbs/test_kinds.py.
"""

import re
from enum import Enum
from pathlib import Path
from typing import Final

from metadata_log.codec import MAGIC as OUR_MAGIC
from metadata_log.errors import InvalidRequest
from metadata_log.node.disk.durable_files import renamed_os_errors

MANIFEST: Final = "manifest.json"
"""The file that makes a directory an export."""
PARTITION: Final = "__cluster_metadata-0"
"""The directory of Kafka's log, within its metadata.log.dir."""
CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_HEAD_BYTES: Final = 17


class Kind(Enum):
    """What a path holds, in words."""

    EXPORT = "an export"
    LAKE = "a lake, a folder of exports"
    KAFKA_LOG = "the metadata log of an Apache Kafka cluster"
    KAFKA_SEGMENT = "a segment of Kafka's metadata log"
    CHECKPOINT = "a checkpoint of Kafka's metadata log"
    LOG = "a log of metaquorum"
    SEGMENT = "a segment of metaquorum's log"
    SNAPSHOT = "a snapshot of metaquorum"
    PARQUET = "a Parquet file"


_SQL: Final = '`metaquorum replay sql --export {path} "SELECT * FROM records ORDER BY log_offset"` prints'
_REPORT: Final = "`metaquorum replay report --export {parent}` reads the log"
_STATE: Final = "`metaquorum replay state topics --export {path}` shows it"
_VERIFY: Final = "`metaquorum log verify {path}` checks"
READERS: Final = {
    Kind.EXPORT: f"{_SQL} its records, {_VERIFY} it",
    Kind.LAKE: f"{_SQL} the records of its clusters, {_VERIFY} them",
    Kind.KAFKA_LOG: f"{_SQL} its records, {_VERIFY} it",
    Kind.KAFKA_SEGMENT: f"{_VERIFY} it; {_REPORT}",
    Kind.CHECKPOINT: f"{_STATE}, {_VERIFY} it",
    Kind.LOG: f"`metaquorum log dump {{path}}` prints it, {_VERIFY} it",
    Kind.SEGMENT: f"`metaquorum log dump {{path}}` prints it; {_REPORT}",
    Kind.SNAPSHOT: f"{_STATE}, {_VERIFY} it",
    Kind.PARQUET: "`metaquorum replay report --export EXPORT` reads the export that it is part of",
}
"""What reads each kind."""


def kind_of(path: Path) -> Kind | None:
    """Return what a path holds; None where nothing is there that we know.

    A file is told by its first bytes, and an empty or damaged one by its name.
    """
    if path.is_dir():
        return _kind_of_directory(path)
    if not path.is_file():
        return None
    with renamed_os_errors(path), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[:2] == OUR_MAGIC.to_bytes(2):
        return Kind.SNAPSHOT if path.suffix == ".snapshot" else Kind.SEGMENT
    if _is_kafkas(head):
        return Kind.CHECKPOINT if path.suffix == ".checkpoint" else Kind.KAFKA_SEGMENT
    if head[:4] == b"PAR1":
        return Kind.PARQUET
    if _SEGMENT.fullmatch(path.name):
        return Kind.SEGMENT
    return {".checkpoint": Kind.CHECKPOINT, ".snapshot": Kind.SNAPSHOT}.get(path.suffix)


def _kind_of_directory(path: Path) -> Kind | None:
    if (path / MANIFEST).exists():
        return Kind.EXPORT
    if is_kafka_log(path):
        return Kind.KAFKA_LOG
    if segments_in(path):
        return Kind.LOG
    return Kind.LAKE if any(path.glob(f"cluster=*/{MANIFEST}")) else None


def not_for(verb: str, path: Path, *, reads: str) -> InvalidRequest:
    """Return the refusal of a verb that does not read what a path holds: what that is, and what reads it.

    `reads` says what the verb reads, as "segments and snapshots of metaquorum".
    """
    kind = kind_of(path)
    if kind is None:
        return InvalidRequest(f"{path} is nothing that we know, and {verb} reads {reads}")
    what = READERS[kind].format(path=path, parent=path.parent)
    return InvalidRequest(f"{path} is {kind.value}, and {verb} reads {reads}: {what}")


def is_kafka_log(path: Path) -> bool:
    """Answer whether a directory holds Kafka's metadata log, or is within it."""
    if (path / PARTITION).is_dir() or any(path.glob("*.checkpoint")):
        return True
    first = min((file for file in path.glob("*.log") if _SEGMENT.fullmatch(file.name)), default=None)
    if first is None:
        return False
    with renamed_os_errors(first), first.open("rb") as file:
        return _is_kafkas(file.read(_HEAD_BYTES))


def _is_kafkas(head: bytes) -> bool:
    from metadata_log.kafka.batches import MAGIC  # who reads no file of Kafka's does not wait for its import

    return len(head) == _HEAD_BYTES and head[16] == MAGIC and head[:2] == b"\0\0"


def segments_in(path: Path) -> list[Path]:
    """Return the segment files of a data directory, or of a folder, in the order of their offsets."""
    folder = path / "log" if (path / "log").is_dir() else path
    return sorted(file for file in folder.glob("*.log") if _SEGMENT.fullmatch(file.name))
