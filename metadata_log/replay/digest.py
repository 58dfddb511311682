"""Edge: the state digest of an export, computed by Spark, by DuckDB, and by `apply`.

The two engines run one SQL text over the raw records, which shares no rule with `apply`: a GROUP BY per kind of entity,
a line each, and bit_xor per bucket. The fold makes records of the rows again and applies them, as controllers and
brokers do. Tests: tests/unit/metadata_log/replay/test_export.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pyarrow.parquet as pq

from metadata_log.apply import apply, image_of
from metadata_log.batch import NO_ENVELOPE, RecordBatch
from metadata_log.digest import EMPTY_BUCKETS, DigestBuilder, digest_of_buckets
from metadata_log.errors import WrittenByAnotherVersion
from metadata_log.image.configs import config_line, line_of_shown_config
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.configs import ConfigRecord, is_masked
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.columns import records_of
from metadata_log.replay.engines import DuckDb, Engine, Spark, rows
from metadata_log.replay.opaque import OpaqueRecord
from metadata_log.replay.state import State, state_at
from metadata_log.replay.tables import RECORDS, Export, open_export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Table = TypeVar("Table")


def state_digest(
    export: Path, *, at: int | None = None, engine: str = "spark", spark: "SparkSession | None" = None
) -> dict[str, Any]:
    """Return {"end_offset", "digest", "engine"} at `at` (exclusive; inside a batch: its beginning; None: the end).

    Raises:
        OffsetInFuture, OffsetCompacted: the export does not reach it.
        InvalidRequest: there is no export.
        WrittenByAnotherVersion: the state there may lack what unknown records changed, so that its digest would be wrong.
    """
    opened = open_export(export)
    end_offset = opened.cut(at)
    unknown = opened.unknown_below(end_offset)
    if unknown is not None:
        raise WrittenByAnotherVersion(
            f"there is no state digest at offset {end_offset}: {unknown.line}, or ask for offset "
            f"{opened.cut(unknown.first_offset)} or below",
            path=str(export),
        )
    match engine:
        case "fold":
            digest = exported_digest(folded(opened, end_offset))
        case "duckdb":
            duckdb = DuckDb(is_quick=opened.is_small)
            digest = digest_of(duckdb, state_at(duckdb, opened, end_offset))
        case _:
            if spark is None:
                from metadata_log.replay.session import session

                spark = session()
            cluster = Spark(spark)
            digest = digest_of(cluster, state_at(cluster, opened, end_offset))
    return {"end_offset": end_offset, "digest": digest, "engine": engine}


def digest_of(engine: Engine[Table], state: State[Table]) -> str:
    """Return the digest of a state of tables, all but the last hash computed by the engine."""
    told = state.parts.keys() - state.empty or {*state.parts}
    lines = engine.union(
        *(engine.analysis(f"lines_{name}", rows=part) for name, part in state.parts.items() if name in told)
    )
    buckets = list(EMPTY_BUCKETS)
    for bucket, count, x1, x2 in rows(engine.arrow(engine.analysis("state_buckets", lines=lines))):
        buckets[int(bucket, 16)] = (count, x1, x2)
    return digest_of_buckets(tuple(buckets))


def folded(export: Export, end_offset: int) -> MetadataImage:
    """Return the image that `apply` makes of the exported records below `end_offset`.

    Sensitive values in it are as they were exported: its digest is `exported_digest`.

    Raises:
        InvariantBroken: the records contradict each other.
    """
    (image,) = folded_at(export, [end_offset])
    return image


def folded_at(export: Export, end_offsets: Sequence[int]) -> Iterator[MetadataImage]:
    """Yield the image at each of some offsets between batches, in rising order; as `folded`, in one pass."""
    image, at = EMPTY, export.first_offset
    if export.first_offset > 0:
        start = export.snapshot(export.first_offset)
        assert start is not None, "an export that begins later has the snapshot it began with"
        image = image_of_snapshot(pq.read_table(start))
    for end_offset in end_offsets:
        for path in export.paths(RECORDS, first=at, below=end_offset):
            bounds = [("log_offset", ">=", at), ("log_offset", "<", end_offset)]
            table = pq.read_table(path, filters=bounds)
            records = [record for _, record in sorted(records_of(table), key=_offset)]
            last = table.slice(int(table.column("log_offset").to_numpy().argmax()), 1)
            image = apply_all(
                image,
                records,
                controller_epoch=last.column("controller_epoch")[0].as_py(),
                time_ms=0,
                crc=last.column("batch_crc")[0].as_py(),
                end_offset=last.column("batch_last_offset")[0].as_py() + 1,
            )
        at = end_offset
        yield image


def image_of_snapshot(table: pa.Table, *, position_only: bool = False) -> MetadataImage:
    """Return the image of an exported snapshot, sensitive values as they are shown; or an empty one at its position."""
    position = table.filter(pa.compute.equal(table.column("type"), 1002)).to_pylist()[0]
    header = SnapshotHeaderRecord(
        cluster_id=position["cluster_id"],
        end_offset=position["log_offset"] + 1,
        controller_epoch=position["controller_epoch"],
        last_time_ms=0,
        last_crc=position["batch_crc"],
    )
    return image_of(() if position_only else _snapshot_records(table), header=header)


def apply_all(
    image: MetadataImage,
    records: Sequence[Any],
    *,
    controller_epoch: int,
    time_ms: int,
    crc: int,
    end_offset: int | None = None,
) -> MetadataImage:
    """Return the image after the records of many batches in a row, applied as if they were one.

    Per record that is several times cheaper than batch by batch: each entity's digest line is made once. Epoch, time,
    crc and end are those of the last batch; without `end_offset` each record has an offset of its own.
    """
    batch = RecordBatch(
        base_offset=image.end_offset,
        controller_epoch=controller_epoch,
        appended_at_ms=time_ms,
        previous_crc=image.last_crc,
        crc=crc,
        envelope=NO_ENVELOPE,
        # A claim is only ever the first record of a batch, and changes nothing but the epoch.
        records=[
            *(_NO_OP if type(r) is OpaqueRecord else r for r in records[:1]),
            *(_NO_OP if type(r) in _WITHOUT_EFFECT else r for r in records[1:]),
        ],
    )
    after = apply(image, batch).image
    return after if end_offset in (None, after.end_offset) else replace(after, end_offset=end_offset)


_NO_OP: Final = NoOpRecord()
_WITHOUT_EFFECT: Final = frozenset({ControllerClaimRecord, OpaqueRecord})


def exported_digest(image: MetadataImage) -> str:
    """Return the digest of an image whose sensitive values are already as they are shown.

    `apply` took them for the secrets themselves and hashed them once more.
    """
    builder = DigestBuilder(image.digest_buckets)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            masked = ConfigRecord(resource_type, resource_name, name, value)
            if is_masked(masked):
                builder.remove(config_line(masked))
                builder.add(line_of_shown_config(masked))
    return digest_of_buckets(builder.buckets())


def _offset(pair: tuple[int, Record]) -> int:
    return pair[0]


def _snapshot_records(table: pa.Table) -> Iterator[Record]:
    for _, record in records_of(table):
        yield record
