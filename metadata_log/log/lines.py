"""Pure: the log as people and tools read it: one JSON object a record."""

from collections.abc import Callable, Iterator
from typing import Any

from metadata_log.batch import Envelope, RecordBatch
from metadata_log.ids import uuid_text
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
                "version": version_of(type(record)),
                **about,
                "record": to_json(record),
            }


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
