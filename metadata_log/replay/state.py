"""E: the state at an offset, as tables."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from metadata_log.replay.engines import Engine
from metadata_log.replay.tables import Export, records_below

Table = TypeVar("Table")


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Generic[Table]):
    """What the records below `end_offset` add up to; the columns are those of the records."""

    end_offset: int
    topics: Table
    partitions: Table
    brokers: Table
    configs: Table
    cluster: Table


def state_at(engine: Engine[Table], export: Export, end_offset: int | None = None) -> State[Table]:
    """Return the state at `end_offset` (exclusive; inside a batch: its beginning; None: the end).

    Raises:
        OffsetInFuture, OffsetCompacted: the export does not reach it.
    """
    end_offset = export.cut(end_offset)
    return state_of(engine, records_below(engine, export, end_offset), end_offset=end_offset)


def state_of(engine: Engine[Table], records: Table, *, end_offset: int) -> State[Table]:
    """Return what rows of records, or of a snapshot and the records after it, add up to."""
    topics = engine.analysis("state_topics", records=records)
    heads = engine.kept(engine.analysis("partition_heads", records=records))
    return State(
        end_offset=end_offset,
        topics=topics,
        partitions=engine.analysis("state_partitions", records=records, heads=heads),
        brokers=engine.analysis("state_brokers", records=records),
        configs=engine.analysis("state_configs", records=records, topics=topics),
        cluster=engine.analysis("state_cluster", records=records),
    )
