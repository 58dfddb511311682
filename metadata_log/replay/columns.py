"""Pure: records as columns, and back: the one schema of all exported rows.

A row of the export is a record with its position and its envelope beside it. A snapshot has the same columns: a row there
is a whole entity, at the offset of its last record. So state is always the same fold, whether it starts from nothing or
from a snapshot, and one SQL text does it.
Tests: tests/unit/metadata_log/replay/test_export.py.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute  # as pa.compute

from metadata_log.batch import Envelope
from metadata_log.ids import uuid_from_text
from metadata_log.records.declaration import declaration_of, shown
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import TYPE_IDS, TYPES, Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import TopicRecord, TopicTombstoneRecord
from metadata_log.replay.opaque import OpaqueRecord
from metadata_log.replay.subjects.registry import SUBJECTS
from metadata_log.replay.subjects.subject import UuidTexts

SCHEMA: Final = pa.schema(
    [
        # The position of a record. `batch_last_offset` because state is only ever cut between batches.
        ("log_offset", pa.int64()),
        ("batch_base", pa.int64()),
        ("batch_last_offset", pa.int64()),
        ("batch_crc", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("controller_epoch", pa.int32()),
        ("controller_id", pa.int32()),
        ("type", pa.int32()),
        ("type_name", pa.string()),
        # The actor, the request and the cause.
        ("actor", pa.string()),
        ("request_id", pa.string()),
        ("operation", pa.string()),
        ("cause_code", pa.string()),
        ("cause_ref", pa.int64()),
        ("cause_detail", pa.string()),
        ("opaque", pa.string()),
        *((name, of) for subject in SUBJECTS.values() for name, of, _ in subject.fields),
    ]
)
MEANINGS: Final[Mapping[str, str]] = {
    "log_offset": "the record's offset in the log; in a state, that of the last record about the entity",
    "batch_base": "the first offset of its batch, which is seen whole or not at all",
    "batch_last_offset": "the last offset of its batch",
    "batch_crc": "the CRC-32C of its batch's frame",
    "ts": "when the controller appended it; clocks step at takeovers, so order by offset",
    "controller_epoch": "the claim under which it was written",
    "controller_id": "the controller that wrote it",
    "type": "the record type's number, in docs/formats.md section 1",
    "type_name": "its name",
    "actor": "who asked for it: User:, Broker: or Controller:",
    "request_id": "the request's id, where it had one",
    "operation": "what was asked for, or what a controller did by itself; null there in logs of earlier releases",
    "cause_code": "why the controller wrote it; null if it was a request",
    "cause_ref": "the record that led to it",
    "cause_detail": "more of the cause, as JSON",
    "opaque": "what is kept of a record that no other column shows, as JSON, without secrets; else null",
    **{name: meaning for subject in SUBJECTS.values() for name, _, meaning in subject.fields},
}
"""What each column of SCHEMA holds."""

_COLUMNS: Final[Mapping[int, tuple[str | None, ...]]] = {
    TYPE_IDS[of]: columns for subject in SUBJECTS.values() for of, columns in subject.columns.items()
}
"""Which column holds which field of a record type. The types that only a snapshot file holds have none: request
results are no part of the state, and a snapshot's position is written by `position_row`."""
_TO_COLUMN: Final = {name: turn for subject in SUBJECTS.values() for name, turn in subject.to_column.items()}
_FROM_COLUMN: Final = {
    name: turn for subject in SUBJECTS.values() for name, turn in subject.from_column.items()
}

_POSITION_COLUMNS: Final = frozenset({"controller_id", "controller_epoch"})
"""Filled for every row, from the frame and the claim in force."""
_SNAPSHOT_HEADER: Final = TYPE_IDS[SnapshotHeaderRecord]
_TYPE_NAMES: Final = {type_id: of.__name__.removesuffix("Record") for type_id, of in TYPES.items()}
_NAMES: Final = pa.array(list(_TYPE_NAMES.values()))
_NAME_PLACES: Final = np.zeros(max(_TYPE_NAMES) + 1, np.int64)
_NAME_PLACES[list(_TYPE_NAMES)] = range(len(_TYPE_NAMES))
"""The place of a type's name in _NAMES, by the type's number."""

_RECORDS_IN_CACHE: Final = 1024
_WITHOUT_SECRETS: Final = frozenset(
    (*(of for of in TYPE_IDS if not declaration_of(of).secret_fields), OpaqueRecord)
)
_OPAQUE: Final = -1
"""The type of opaque records while the others are transposed."""
_NUMBERS: Final[Mapping[type, int]] = {**TYPE_IDS, OpaqueRecord: _OPAQUE}

_NAMING: Final = (TYPE_IDS[TopicRecord], TYPE_IDS[TopicTombstoneRecord])
"""The types that name a topic; in a snapshot a deleted topic has the second alone."""


class Batch(Protocol):
    """What is seen whole or not at all: a batch of our log, or of Kafka's."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def controller_epoch(self) -> int: ...
    @property
    def appended_at_ms(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def claim(self) -> ControllerClaimRecord | None: ...


class TopicName(NamedTuple):
    topic_seq: int
    name: str


class Columns:
    """Turns batches, fed in order, into tables of SCHEMA; remembers whose claim is in force and how topics are named.

    `from_anywhere`: the batches before them are not known. Then `topic_seq` stays null, and so does the topic's name where
    the record itself does not give it. `only`: columns that somebody needs; others stay null.
    """

    LOG_FORMAT: ClassVar[str] = "metaquorum"

    def __init__(
        self,
        *,
        controller_id: int | None = None,
        topics: Mapping[bytes, TopicName] | None = None,
        from_anywhere: bool = False,
        only: Iterable[str] = SCHEMA.names,
    ) -> None:
        self.controller_id = controller_id
        self._topics: dict[bytes, TopicName] = dict(topics or {})
        self._uuids = UuidTexts()
        self._from_anywhere = from_anywhere
        self._only = frozenset(only)

    def table(self, batches: Sequence[Any], records: Sequence[Any]) -> pa.Table:
        """Return the records of `batches`, one row each, in order of offset; `records` are `shown` of them."""
        counts = np.fromiter((len(batch.records) for batch in batches), np.int64, len(batches))
        first = batches[0].base_offset
        offsets = np.arange(first, first + len(records), dtype=np.int64)
        return self.rows(batches, records, counts=counts, offsets=offsets)

    def rows(self, batches: Sequence[Any], records: Sequence[Any], *, counts: Any, offsets: Any) -> pa.Table:
        """Return some records of `batches`: of each batch the number that `counts` says, at these offsets."""
        columns = self._batch_columns(batches, counts)
        columns["log_offset"] = pa.array(offsets)
        return self._assembled(records, columns)

    @staticmethod
    def shown(records: Iterable[Any]) -> list[Any]:
        """Return the records of batches without the secrets of settings: no exported byte holds one."""
        return [record if type(record) in _WITHOUT_SECRETS else shown(record) for record in records]

    def pass_over(self, batches: Iterable[Batch]) -> None:
        """Learn from batches that get no rows whose claim is in force."""
        for batch in batches:
            if batch.claim is not None:
                self.controller_id = batch.claim.controller_id

    def snapshot_table(self, records: Sequence[Record], *, time_ms: int) -> pa.Table:
        """Return a snapshot's records as rows of a state whose history is unknown.

        They get the offsets -len .. -1, in the snapshot's own order, where a topic comes before its configs.
        """
        count = len(records)
        columns: dict[str, Any] = {
            "log_offset": pa.array(np.arange(-count, 0, dtype=np.int64)),
            "ts": _times([time_ms]).take(pa.array(np.zeros(count, dtype=np.int64))),
        }
        return self._assembled(records, columns)

    def _batch_columns(self, batches: Sequence[Any], counts: Any) -> dict[str, Any]:
        controllers = []
        for batch in batches:
            claim = batch.claim
            if claim is not None:
                self.controller_id = claim.controller_id
            controllers.append(self.controller_id)
        envelopes = [batch.envelope for batch in batches]
        columns: dict[str, Any] = {}
        for name, of_batch in _NUMBERS_OF_BATCHES.items():
            if name in self._only:
                of_type = SCHEMA.field(name).type
                values = np.fromiter(map(of_batch, batches), np.int64, len(batches)).repeat(counts)
                columns[name] = _times(values) if name == "ts" else pa.array(values).cast(of_type)
        rows = pa.array(np.repeat(np.arange(len(batches)), counts))
        for name, of_envelope in _OF_ENVELOPES.items():
            if name in self._only:
                columns[name] = _taken([of_envelope(each, self._uuids) for each in envelopes], name, rows)
        if "controller_id" in self._only:
            columns["controller_id"] = _taken(controllers, "controller_id", rows)
        return columns

    def _assembled(self, records: Sequence[Any], columns: dict[str, Any]) -> pa.Table:
        """Add the records' own columns: each type is transposed whole, then spread over its rows."""
        count = len(records)
        types = np.fromiter(map(_NUMBERS.__getitem__, map(type, records)), np.int32, count)
        pieces: dict[str, list[tuple[Any, pa.Array]]] = {}
        for type_id in _NAMING:
            places = np.flatnonzero(types == type_id)
            named_at = columns["log_offset"].take(pa.array(places)).to_pylist()
            self._learn_topics([records[place] for place in places.tolist()], named_at)
        for type_id in np.unique(types[types != _OPAQUE]).tolist():
            places = np.flatnonzero(types == type_id)
            of_type = [records[place] for place in places.tolist()]
            offsets = columns["log_offset"].take(pa.array(places))
            for name, values in self._transposed(type_id, of_type, offsets):
                array = values if isinstance(values, pa.Array) else pa.array(values, SCHEMA.field(name).type)
                if array.null_count < len(array):
                    pieces.setdefault(name, []).append((places, array))
        columns["type"] = pa.array(types)
        columns["type_name"] = _NAMES.take(pa.array(_NAME_PLACES[types]))
        for name, parts in pieces.items():
            columns[name] = _spread(parts, count)
        is_opaque = types == _OPAQUE
        if is_opaque.any():
            opaque = [records[place] for place in np.flatnonzero(is_opaque).tolist()]
            columns["opaque"] = pa.nulls(count, pa.string())
            for name, values in (
                ("type", [record.type_id for record in opaque]),
                ("type_name", [record.type_name for record in opaque]),
                ("opaque", [record.content for record in opaque]),
            ):
                told = pa.array(values, SCHEMA.field(name).type)
                columns[name] = pa.compute.replace_with_mask(columns[name], pa.array(is_opaque), told)
        return pa.Table.from_arrays(
            [
                columns[field.name] if field.name in columns else pa.nulls(count, field.type)
                for field in SCHEMA
            ],
            schema=SCHEMA,
        )

    def _learn_topics(self, records: Iterable[Any], offsets: Iterable[int]) -> None:
        for record, offset in zip(records, offsets, strict=True):
            self._topics.setdefault(record.topic_id, TopicName(offset, record.name))

    def _transposed(
        self, type_id: int, records: Sequence[Any], offsets: pa.Array
    ) -> Iterator[tuple[str, Sequence[Any] | pa.Array]]:
        for name, values in zip(_COLUMNS[type_id], _fields_of(records), strict=True):
            if name == "topic_id":
                yield from self._topic_columns(type_id, values, offsets)
            elif name in self._only and name not in _POSITION_COLUMNS:
                to_column = _TO_COLUMN.get(name)
                yield name, values if to_column is None else to_column(values, self._uuids)

    def _topic_columns(
        self, type_id: int, topic_ids: Sequence[bytes], offsets: pa.Array
    ) -> Iterator[tuple[str, pa.Array]]:
        """Yield what is said of topics: many records concern few of them, so each is looked up once.

        A topic that only a record unknown to this release names has its id for its name.
        """
        places = {topic_id: place for place, topic_id in enumerate(dict.fromkeys(topic_ids))}
        rows = pa.array(np.fromiter(map(places.__getitem__, topic_ids), np.int64, len(topic_ids)))
        if "topic_id" in self._only:
            yield "topic_id", pa.array([self._uuids[topic_id] for topic_id in places], pa.string()).take(rows)
        if not self._from_anywhere:
            for topic_id in places.keys() - self._topics.keys():
                first = offsets[topic_ids.index(topic_id)].as_py()
                self._topics[topic_id] = TopicName(first, self._uuids[topic_id])
            topics = [self._topics[topic_id] for topic_id in places]
            yield "topic_seq", pa.array([topic.topic_seq for topic in topics], pa.int64()).take(rows)
            if type_id not in _NAMING:
                yield "topic_name", pa.array([topic.name for topic in topics], pa.string()).take(rows)


_NUMBERS_OF_BATCHES: Final[Mapping[str, Callable[[Any], int]]] = {
    "batch_base": attrgetter("base_offset"),
    "batch_last_offset": attrgetter("last_offset"),
    "batch_crc": attrgetter("crc"),
    "ts": attrgetter("appended_at_ms"),
    "controller_epoch": attrgetter("controller_epoch"),
}
"""The columns that every batch has a number for."""
_OF_ENVELOPES: Final[Mapping[str, Callable[[Envelope, UuidTexts], int | str | None]]] = {
    "actor": lambda envelope, _: envelope.actor,
    "request_id": lambda envelope, texts: None if envelope.request_id is None else texts[envelope.request_id],
    "operation": lambda envelope, _: envelope.operation,
    "cause_code": lambda envelope, _: envelope.cause and envelope.cause.code,
    "cause_ref": lambda envelope, _: envelope.cause and envelope.cause.ref_offset,
    "cause_detail": lambda envelope, _: envelope.cause and _json(envelope.cause.detail),
}


def position_row(
    *,
    end_offset: int,
    controller_epoch: int,
    controller_id: int | None,
    last_time_ms: int,
    last_crc: int,
    cluster_id: str,
) -> pa.Table:
    """Return the row of a snapshot that says its position."""
    values: dict[str, Any] = {
        "log_offset": end_offset - 1,
        "batch_last_offset": end_offset - 1,
        "batch_crc": last_crc,
        "controller_epoch": controller_epoch,
        "controller_id": controller_id,
        "type": _SNAPSHOT_HEADER,
        "type_name": _TYPE_NAMES[_SNAPSHOT_HEADER],
        "cluster_id": cluster_id,
    }
    arrays = [
        _times([last_time_ms]) if field.name == "ts" else pa.array([values.get(field.name)], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def records_of(table: pa.Table) -> Iterator[tuple[int, Record]]:
    """Yield each row's offset and record, type by type: within a type in the table's order.

    If an older release wrote no column, or the table of all columns has a null for it, the field has its default. Rows that
    are no records (a snapshot's position) are left out. Sensitive values stay as they are shown.
    """
    types = table.column("type").to_numpy()
    # In a snapshot, a deleted topic's record comes before its partitions.
    for type_id in sorted(np.unique(types).tolist(), key=lambda each: (each not in _NAMING, each)):
        if type_id not in _COLUMNS:
            continue
        rows = table.take(pa.array(np.flatnonzero(types == type_id)))
        offsets = rows.column("log_offset").to_pylist()
        make: Any = TYPES[type_id]
        fields = [
            _field_values(rows, name, make._field_defaults.get(field))
            for field, name in zip(make._fields, _COLUMNS[type_id], strict=True)
        ]
        values: Iterable[tuple[Any, ...]] = zip(*fields, strict=True) if fields else (() for _ in offsets)
        for offset, row in zip(offsets, values, strict=True):
            yield offset, make._make(row)


def by_name(table: pa.Table) -> pa.Table:
    """Return a table with the columns of SCHEMA: null for those it lacks, and without those unknown here."""
    return pa.Table.from_arrays(
        [
            table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def topic_names(table: pa.Table) -> dict[bytes, TopicName]:
    """Return how the topics of a snapshot are named, by id, as its partitions say, too."""
    columns = ["topic_id", "topic_seq", "topic_name"]
    rows = table.filter(pa.compute.is_valid(table.column("topic_id"))).group_by(columns).aggregate([])
    return {
        uuid_from_text(topic_id): TopicName(topic_seq, name)
        for topic_id, topic_seq, name in zip(
            *(rows.column(name).to_pylist() for name in ("topic_id", "topic_seq", "topic_name")), strict=True
        )
    }


def _times(values: Any) -> pa.Array:
    return pa.array(np.asarray(values, dtype="datetime64[ms]").astype("datetime64[us]")).cast(
        SCHEMA.field("ts").type
    )


def _fields_of(records: Sequence[tuple[Any, ...]]) -> Sequence[list[Any]]:
    """Return the values of each field of records of one type.

    A few records at a time: while they are in the processor's caches, their fields take half the time.
    """
    fields: list[list[Any]] = [[] for _ in records[0]]
    for first in range(0, len(records), _RECORDS_IN_CACHE):
        some = zip(*records[first : first + _RECORDS_IN_CACHE], strict=True)
        for values, more in zip(fields, some, strict=True):
            values.extend(more)
    return fields


def _taken(values: Sequence[Any], name: str, rows: pa.Array) -> pa.Array:
    """Return a column of values by row; many rows may share a value."""
    of_type = SCHEMA.field(name).type
    array = pa.array(values, of_type)
    return pa.nulls(len(rows), of_type) if array.null_count == len(array) else array.take(rows)


def _json(detail: Mapping[str, object]) -> str:
    return json.dumps(detail, sort_keys=True, default=lambda value: value.hex(), separators=(",", ":"))


def _spread(parts: Sequence[tuple[Any, pa.Array]], count: int) -> pa.Array:
    """Return one column of `count` rows: each part's values at its places, null elsewhere."""
    values = pa.concat_arrays([array for _, array in parts])
    if len(values) == count and len(parts) == 1:
        return values
    rows = np.zeros(count, dtype=np.int64)
    absent = np.ones(count, dtype=np.bool_)
    at = 0
    for places, array in parts:
        rows[places] = np.arange(at, at + len(array))
        absent[places] = False
        at += len(array)
    return values.take(pa.array(rows, mask=absent))


def _field_values(rows: pa.Table, name: str | None, default: object) -> list[Any]:
    if name is None or name not in rows.column_names:
        return [default] * len(rows)
    read = _FROM_COLUMN.get(name) or (tuple if pa.types.is_list(SCHEMA.field(name).type) else _as_it_is)
    return [default if value is None else read(value) for value in rows.column(name).to_pylist()]


def _as_it_is(value: object) -> object:
    return value
