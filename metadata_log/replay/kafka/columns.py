"""Pure: batches of Kafka's log as rows of the export: causes differ within a batch, and records may share an offset.
Tests: tests/unit/metadata_log/replay/kafka/test_log.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from metadata_log.batch import Envelope
from metadata_log.records.declaration import told
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.replay.columns import Columns
from metadata_log.replay.kafka.records import AnyRecord
from metadata_log.replay.opaque import OpaqueRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatch:
    """What is seen whole or not at all: a record batch, or all of a transaction; `crc` is that of its last record batch."""

    base_offset: int
    end_offset: int
    controller_epoch: int
    appended_at_ms: int
    crc: int
    records: Sequence[AnyRecord]
    offsets: Sequence[int]
    """Of each record."""
    envelopes: Sequence[Envelope]
    """Of each record."""

    @property
    def last_offset(self) -> int:
        return self.end_offset - 1

    @property
    def claim(self) -> ControllerClaimRecord | None:
        first = self.records[0]
        return first if isinstance(first, ControllerClaimRecord) else None


@dataclass(frozen=True, slots=True)
class _Part:
    """Records after each other in a batch with one envelope; all else is the batch's."""

    batch: KafkaBatch
    envelope: Envelope
    count: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)


class KafkaColumns(Columns):
    """Turns batches of Kafka's log into tables of SCHEMA."""

    LOG_FORMAT = "kafka"

    def table(self, batches: Sequence[Any], records: Sequence[Any]) -> pa.Table:
        parts = [part for batch in batches for part in _parts(batch)]
        counts = np.fromiter((part.count for part in parts), np.int64, len(parts))
        columns = self._batch_columns(parts, counts)
        columns["log_offset"] = pa.array(
            [offset for batch in batches for offset in batch.offsets], pa.int64()
        )
        return self._assembled(records, columns)

    @staticmethod
    def shown(records: Iterable[Any]) -> list[Any]:
        # Kafka's records have no mask keys: the type of the resource and the name alone say what is a secret.
        return [record if isinstance(record, OpaqueRecord) else told(record) for record in records]


def _parts(batch: KafkaBatch) -> Iterator[_Part]:
    for envelope, same in groupby(batch.envelopes):
        yield _Part(batch, envelope, sum(1 for _ in same))
