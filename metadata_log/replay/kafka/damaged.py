"""Edge: Kafka's metadata log with damaged files: its longest whole part that has a beginning, and what is missing.

A part begins at offset 0, or at a checkpoint: a record means nothing without what it changes.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from metadata_log.codec import DamagedFrame, damaged_file
from metadata_log.kafka.batches import Batch, batches, next_batch
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.kafka.files import KafkaLog, checkpoints_in, opened
from metadata_log.replay.kafka.log import export_part
from metadata_log.replay.whole_parts import longest_part


class Missing(NamedTuple):
    """Offsets from `first` up to `end` (exclusive) that no sound batch holds, and why."""

    first: int
    end: int
    why: str


def export_whole_part(
    path: Path,
    to: Path,
    *,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Export the longest whole part of a log of Kafka's; return the manifest, and lines that say what is missing.

    Raises:
        DamagedFile: no part has a beginning.
        WrittenByAnotherVersion: a sound batch holds what this release does not know.
        InvalidRequest: there is no log.
    """
    log = opened(path)
    missing, tail = _missing(log)
    begins_at, ends_at = int(log.segments[0].stem), _end_offset(log)
    edges = [begins_at, *(edge for gap in missing for edge in (gap.first, gap.end)), ends_at]
    lines = [f"the offsets {gap.first}-{gap.end - 1} are missing: {gap.why}" for gap in missing]
    lines += [] if tail is None else [f"the offsets from {ends_at} on are missing: {tail}"]
    part = longest_part(path, edges, partial(checkpoints_in, log.directory), lines)

    def sound(first: int, *, last_crc: int) -> Iterator[tuple[Path, Batch]]:  # noqa: ARG001 as KafkaLog.whole
        for file, batch in _sound(log):
            if max(first, part.first) < batch.end_offset <= part.until and batch.base_offset >= part.first:
                yield file, batch

    manifest = export_part(
        log,
        to,
        sound,
        begins_at=part.first,
        checkpoint=part.state,
        from_offset=from_offset,
        until=part.until if until is None else min(until, part.until),
        in_lake=in_lake,
    )
    return manifest, tuple(lines)


def _end_offset(log: KafkaLog) -> int:
    return max((batch.end_offset for _, batch in _sound(log)), default=int(log.segments[-1].stem))


def _sound(log: KafkaLog) -> Iterator[tuple[Path, Batch]]:
    """Yield the sound batches, whatever lies between them."""
    for file in log.segments:
        for found in _pieces(file):
            if isinstance(found, Batch):
                yield file, found


def _missing(log: KafkaLog) -> tuple[list[Missing], str | None]:
    """Return the gaps between the sound batches, and what is damaged after the last of them.

    What is torn at the log's end is being written, and not damaged.
    """
    gaps: list[Missing] = []
    expected, why = int(log.segments[0].stem), None
    for file in log.segments:
        for found in _pieces(file):
            if isinstance(found, Batch):
                if found.base_offset > expected:
                    no_file = f"no file holds them before {file}"
                    gaps.append(Missing(expected, found.base_offset, why or no_file))
                expected, why = max(expected, found.end_offset), None
            elif not (found.torn and file == log.segments[-1]):
                why = why or f"{file}: byte {found.at}: {found.reason}"
    return gaps, why


def _pieces(file: Path) -> Iterator[Batch | DamagedFrame]:
    """Yield the sound batches of a file, and in their places what is damaged between them.

    Raises:
        WrittenByAnotherVersion: a whole batch is of a kind that this release does not read.
    """
    with renamed_os_errors(file):
        data = file.read_bytes()
    at = 0
    while at < len(data):
        try:
            for batch in batches(data[at:]):
                yield batch._replace(at=at + batch.at)
            at = len(data)
        except DamagedFrame as error:
            if error.another_version:
                raise damaged_file(file, error, base=at) from error
            error.at += at
            yield error
            following = next_batch(data, error.at + 1)
            at = len(data) if following is None else following
