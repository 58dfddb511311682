"""Edge: what the log says of the time between two changes: who led, which broker was in what state, who was in charge."""

from typing import Any, TypeVar

import pyarrow.parquet as pq

from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.engines import Engine
from metadata_log.replay.tables import (
    BROKER_CHANGES,
    PARTITION_CHANGES,
    RECORDS,
    Export,
    records_below,
)

Table = TypeVar("Table")


def leader_intervals(engine: Engine[Table], export: Export) -> Table:
    """Return who led each partition from when to when; see analyses/leader_intervals.sql for the columns."""
    return engine.analysis(
        "leader_intervals",
        {"end_ms": end_ms(export)},
        partition_changes=engine.parquet(export.paths(PARTITION_CHANGES)),
        initial=_initial(engine, export),
    )


def broker_state_intervals(engine: Engine[Table], export: Export) -> Table:
    """Return in which state each broker was from when to when: OFFLINE, FENCED, ONLINE or STOPPING."""
    return engine.analysis(
        "broker_state_intervals",
        {"end_ms": end_ms(export)},
        broker_changes=engine.parquet(export.paths(BROKER_CHANGES)),
        initial=_initial(engine, export),
    )


def reassignments(engine: Engine[Table], export: Export) -> Table:
    """Return each reassignment: who began it, from which replicas to which, and how it ended, or why it is stuck."""
    state = export.snapshot(export.end_offset)
    assert state is not None, "an export ends in a snapshot"
    return engine.analysis(
        "reassignments",
        {"end_ms": end_ms(export)},
        partition_changes=engine.parquet(export.paths(PARTITION_CHANGES)),
        records=engine.parquet(export.paths(RECORDS), schema=SCHEMA),
        initial=_initial(engine, export),
        state=engine.parquet([state], schema=SCHEMA),
    )


def controller_failovers(engine: Engine[Table], export: Export) -> Table:
    """Return each claim, with the silence before it and its tenure."""
    return engine.analysis(
        "controller_failovers",
        {"end_ms": end_ms(export), "end_offset": export.end_offset},
        records=engine.parquet(export.paths(RECORDS), schema=SCHEMA),
    )


def end_ms(export: Export) -> int:
    """Return the time of the export's last batch: intervals that last are counted up to it."""
    path = export.snapshot(export.end_offset)
    assert path is not None, "an export ends in a snapshot"
    times: Any = pq.read_table(
        path, columns=["ts"], filters=[("type", "==", 1002)], partitioning=None
    ).column("ts")
    return int(times[0].value) // 1000


def _initial(engine: Engine[Table], export: Export) -> Table:
    """Return the state where the export begins; no row where that is offset 0."""
    return records_below(engine, export, export.first_offset)
