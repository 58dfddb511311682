"""Edge: the state at an offset, as tables."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from metadata_log.replay.engines import Engine
from metadata_log.replay.tables import Export, records_below

Table = TypeVar("Table")

_NOT_OF_PARTITIONS: Final = "type IN (0, 1, 2, 4, 9, 12, 15, 17, 1004, 1005)"
"""A hundredth of a large log, in row groups of its own. Told by what it is, not by what it is not: so a reader can tell
from a row group's statistics and dictionary that it has none of these."""


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
    others = engine.kept(records, where=_NOT_OF_PARTITIONS, in_one_piece=True)
    topics = engine.analysis("state_topics", records=others)
    return State(
        end_offset=end_offset,
        topics=topics,
        partitions=engine.analysis("state_partitions", records=records, others=others),
        brokers=engine.analysis("state_brokers", records=others),
        configs=engine.analysis("state_configs", records=others, topics=topics),
        cluster=engine.analysis("state_cluster", records=others),
    )
