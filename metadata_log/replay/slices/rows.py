"""Edge: the frames of a slice as Arrow batches; what is missing of it as rows of their own.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from metadata_log.batch import RecordBatch
from metadata_log.node.uncollected import no_collections
from metadata_log.records.registry import TYPES, Record
from metadata_log.replay.columns import SCHEMA, Columns
from metadata_log.replay.slices.frames import Missing, Sound
from metadata_log.replay.slices.wanted import Wanted

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 8192
"""Rows of one Arrow batch: larger ones leave the processor's caches, and were slower."""
_NEEDED: Final = ("controller_id", "cluster_id")
MISSING: Final = "Missing"
"""The type's name of a row that replaces offsets that could not be read."""
MISSING_TYPE: Final = -1


class Rows:
    """Makes Arrow batches of the wanted records of frames, a few thousand rows at a time."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._columns = Columns(from_anywhere=True, only={*wanted.columns, *_NEEDED})
        types = wanted.types
        self._kinds = (
            None if types is None else frozenset(of for type_id, of in TYPES.items() if type_id in types)
        )
        self._batches: list[RecordBatch] = []
        self._records: list[Record] = []
        self._counts: list[int] = []
        self._places: dict[int, list[int]] = {}
        """Of those waiting batches of which some records are left out, by place: the places of the others."""

    def of(self, frames: Iterable[Sound | Missing], source: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of frames; `source` is the name of what they lie in."""
        with no_collections():
            for frame in frames:
                if isinstance(frame, Missing):
                    yield from self._waiting()
                    yield from self._missing(frame, source)
                elif frame.batch is not None:
                    self._take(frame.batch)
                    if len(self._records) >= BATCH_ROWS:
                        yield from self._waiting()
            yield from self._waiting()

    def _take(self, batch: RecordBatch) -> None:
        records = batch.records
        bounds = self._wanted.offsets
        if self._kinds is not None or not _covers(bounds.first, bounds.until, batch):
            places = [
                place
                for place, record in enumerate(records)
                if (self._kinds is None or type(record) in self._kinds)
                and bounds.meets(batch.base_offset + place, batch.base_offset + place)
            ]
            if not places:
                return
            records = [records[place] for place in places]
            self._places[len(self._batches)] = places
        self._batches.append(batch)
        self._records += records
        self._counts.append(len(records))

    def _waiting(self) -> Iterator[pa.RecordBatch]:
        if not self._batches:
            return
        counts = np.array(self._counts, np.int64)
        table = self._columns.rows(
            self._batches,
            self._columns.shown(self._records),
            counts=counts,
            offsets=self._offsets(counts),
        )
        self._batches, self._records, self._counts, self._places = [], [], [], {}
        yield from _selected(_without_inherited(table), self._wanted)

    def _offsets(self, counts: Any) -> Any:
        """Return the offset of each waiting record."""
        bases = np.fromiter((batch.base_offset for batch in self._batches), np.int64, len(self._batches))
        begins = counts.cumsum() - counts
        offsets = np.arange(len(self._records), dtype=np.int64) + np.repeat(bases - begins, counts)
        for at, places in self._places.items():
            begin = begins[at]
            offsets[begin : begin + len(places)] = bases[at] + np.array(places, np.int64)
        return offsets

    def _missing(self, missing: Missing, source: str) -> Iterator[pa.RecordBatch]:
        last = missing.end_offset - 1
        if not self._wanted.offsets.meets(missing.first_offset, last):
            return
        log.warning(
            "%s: byte %d: %s: the offsets %d-%d are missing",
            *(source, missing.position, missing.reason, missing.first_offset, last),
        )
        about = {"source": source, "byte": missing.position, "reason": missing.reason}
        row = {
            "log_offset": missing.first_offset,
            "batch_base": missing.first_offset,
            "batch_last_offset": last,
            "type": MISSING_TYPE,
            "type_name": MISSING,
            "cause_detail": json.dumps(about),
        }
        arrays = [pa.array([row.get(field.name)], field.type) for field in SCHEMA]
        yield from _selected(pa.Table.from_arrays(arrays, schema=SCHEMA), self._wanted)


def _covers(first: int | None, until: int | None, batch: RecordBatch) -> bool:
    return (first is None or first <= batch.base_offset) and (until is None or batch.end_offset <= until)


def _without_inherited(table: pa.Table) -> pa.Table:
    """Return rows whose `controller_id` only claims have: for others it depends on frames before them."""
    is_claim = pa.compute.is_valid(table.column("cluster_id"))
    field = SCHEMA.field("controller_id")
    ids = pa.compute.if_else(is_claim, table.column("controller_id"), pa.scalar(None, field.type))
    return table.set_column(SCHEMA.get_field_index("controller_id"), field, ids)


def _selected(table: pa.Table, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    yield from table.select(wanted.columns).combine_chunks().to_batches()
