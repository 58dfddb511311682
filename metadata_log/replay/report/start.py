"""Edge: what was so when the part of the log that is reported of began.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.printable import printable
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import TYPE_IDS
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log
from metadata_log.replay.report.words import ROWS_MAX, cause, counted, moment
from metadata_log.replay.tables import RECORDS

if TYPE_CHECKING:
    from metadata_log.replay.report.section import Told

CLAIM: Final = TYPE_IDS[ControllerClaimRecord]


SERVING: Final = frozenset({"ONLINE", "STOPPING"})


SPELLS: Final = {
    "leaderless_spells": "without a leader",
    "under_min_isr_spells": "under min.insync.replicas",
    "under_replicated_spells": "under-replicated",
}
"""Tables of spells, and what a partition is in one."""


class Start(NamedTuple):
    """What was so when the part that is reported of began."""

    controller_id: int | None
    """The controller in charge; None where the log does not say."""
    out: list[tuple[dict[str, Any], str]]
    """The intervals of brokers that did not serve, and how each ended, in words."""
    spells: dict[str, int]
    """How many spells of each table had begun before."""


def start_of(log: Log, brokers: Sequence[dict[str, Any]]) -> Start | None:
    """Return what was so when a part of the log began; None where that is the log's own beginning."""
    first = log.first.end_offset
    if first == 0:
        return None
    # A record before, or the first one if it is no claim, names who was in charge.
    near = log.engine.parquet(
        log.export.paths(RECORDS, first=first - 1, below=first + 1) or log.export.paths(RECORDS)[:1],
        schema=SCHEMA,
        where=f"log_offset IN ({first - 1}, {first}) AND (log_offset < {first} OR type <> {CLAIM}) "
        "AND coalesce(cause_code, '') <> 'TOLD_BY_ANOTHER'",
    )
    found = rows(
        log.engine.arrow(
            log.engine.query("SELECT min_by(controller_id, log_offset) AS id FROM near", {"near": near})
        )
    )
    out = [
        (row, _return_of(row, brokers))
        for row in brokers
        if row["from_offset"] < first and row["state"] not in SERVING
    ]
    return Start(found[0][0], out, {table: _begun_before(log, table) for table in SPELLS})


def _return_of(out: dict[str, Any], brokers: Sequence[dict[str, Any]]) -> str:
    """Say how an interval without service that reached into a part ended."""
    later = [
        row
        for row in brokers
        if row["broker_id"] == out["broker_id"] and row["from_offset"] > out["from_offset"]
    ]
    for row in later:
        if row["state"] in SERVING:
            return f"back at offset {row['from_offset']}"
        if row["cause_code"] == "BROKER_UNREGISTERED":
            return f"removed at offset {row['from_offset']}"
    return "still out at the end"


def _begun_before(log: Log, table: str) -> int:
    query = f"SELECT count(*) AS n FROM spells WHERE from_offset < {log.first.end_offset}"  # noqa: S608 a number
    ((count,),) = rows(log.engine.arrow(log.engine.query(query, {"spells": log.table_of(table)})))
    return int(count)


def begun(told: "Told") -> str | None:
    """Return what was so; None where the log itself begins."""
    start, focus = told.start, told.focus
    if start is None:
        return None
    lines = [
        "- The log does not say which controller was in charge"
        if start.controller_id is None
        else f"- Controller {start.controller_id} was in charge",
        *([] if start.out or focus.broker is not None else ["- Every registered broker served"]),
    ]
    for row, ending in start.out[:ROWS_MAX]:
        why = cause(row["cause_code"], row["cause_detail"])
        since = "" if row["from_offset"] < 0 else f" since {moment(row['from_ts'])}"
        lines.append(
            f"- Broker {row['broker_id']} was {row['state'].lower()}{since}{f' ({printable(why)})' if why else ''}: {ending}"
        )
    if len(start.out) > ROWS_MAX:
        lines.append(f"- {len(start.out) - ROWS_MAX:,} more brokers did not serve")
    counts = (
        f"{counted(count, 'partition', 'partitions')} {SPELLS[table]}"
        for table, count in start.spells.items()
        if count
    )
    lines.append(f"- {', '.join(counts) or 'Every partition had a leader and its whole ISR'}")
    return "\n".join(["## When it began", "", *lines])
