"""Pure: the log as people and tools read it: one JSON object a record."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from metadata_log import limits
from metadata_log.batch import Envelope, RecordBatch
from metadata_log.codec import decode_all
from metadata_log.ids import uuid_text
from metadata_log.log.topic_filter import TopicFilter
from metadata_log.records.registry import Record, to_json, type_name, version_of


def log_lines(
    batch: RecordBatch, *, from_offset: int = 0, wanted: Callable[[Record], bool] = lambda _: True
) -> Iterator[dict[str, Any]]:
    """Yield an object for each wanted record of a batch, from `from_offset` on; `wanted` is asked of every record."""
    about = _about(batch.envelope)
    for offset, record in enumerate(batch.records, batch.base_offset):
        if wanted(record) and offset >= from_offset:
            yield {
                "offset": offset,
                "controller_epoch": batch.controller_epoch,
                "time_ms": batch.appended_at_ms,
                "type": type_name(record),
                "version": version_of(record),
                **about,
                "record": to_json(record),
            }


def lines_of(
    frames: bytes, start: int, topics: TopicFilter | None = None, bytes_max: int = limits.ANSWER_PIECE_BYTES
) -> tuple[bytes, int, TopicFilter | None]:
    """Return a line for each record of whole frames from offset `start` on, or for those that concern `topics`.

    Once there are `bytes_max` bytes of lines, no further ones are made: a record's line may be many times as long as the
    record. Also return the offset after all records that were looked at, perhaps inside a batch, and the filter with what it
    learned from them.

    Raises:
        DamagedFrame: the bytes are no frames.
    """
    lines, at, size = [], start, 0
    wanted = (lambda _: True) if topics is None else topics.concerns
    for batch, _ in decode_all(frames):
        for line in log_lines(batch, from_offset=start, wanted=wanted):
            lines.append(f"{json.dumps(line)}\n")
            size += len(lines[-1])
            if size >= bytes_max:
                return "".join(lines).encode(), line["offset"] + 1, topics
        at = batch.end_offset
    return "".join(lines).encode(), at, topics


def _about(envelope: Envelope) -> dict[str, Any]:
    cause = envelope.cause
    return {
        "actor": envelope.actor,
        "request_id": None if envelope.request_id is None else uuid_text(envelope.request_id),
        "operation": envelope.operation,
        "cause": None
        if cause is None
        else {"code": cause.code, "ref_offset": cause.ref_offset, "detail": cause.detail},
    }
