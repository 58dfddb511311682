"""Edge: the head of the report, and its summary: what happened, what it cost, and who did it."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from metadata_log.printable import printable
from metadata_log.replay.digest import digest_of
from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log
from metadata_log.replay.report.focus import Focus
from metadata_log.replay.report.start import Start
from metadata_log.replay.report.words import counted, duration, moment
from metadata_log.replay.state import state_at

KAFKAS: Final = (
    "- The log of an Apache Kafka cluster, which says neither who asked for a change nor why: causes are inferred from the "
    "records beside it. Its last records may not be committed yet"
)


def verified(log: Log) -> tuple[str | None, bool | None]:
    """Return the digest of the state at the end, and whether the log's own is the same; None: the log goes on.

    Behind records that this release does not know there is no digest: the state may lack what they changed.
    """
    if log.unknown is not None:
        return None, None
    digest = digest_of(log.engine, state_at(log.engine, log.export, log.last.end_offset))
    is_whole = log.last.end_offset == log.export.end_offset
    return digest, digest == log.export.digest if is_whole else None


def head(log: Log, focus: Focus) -> str:
    engine, export = log.engine, log.export
    digest, is_same = verified(log)
    name = engine.name.capitalize() if engine.name == "spark" else "DuckDB"
    match is_same:
        case None:
            verdict = "not compared: the log goes on"
        case True:
            verdict = "the same as the log's own fold"
        case False:
            verdict = f"**NOT the log's own, which is `{export.digest}`**"
    began_ms = _began_ms(log)
    began, ended = (moment(datetime.fromtimestamp(ms / 1000, UTC)) for ms in (began_ms, log.last.time_ms))
    span = duration(max(0, log.last.time_ms - began_ms))
    return "\n".join(
        [
            f"# Cluster {export.cluster_id}",
            "",
            f"- Offsets {log.first.end_offset:,} to {log.last.end_offset:,} (exclusive)",
            f"- From {began} to {ended} UTC: {span}",
            *(
                f"- {end.note}"
                for end in (log.first, log.last)
                if "lies inside" in end.note or "up to" in end.note
            ),
            *focus.lines(),
            *(f"- Damaged: {printable(line)}" for line in log.missing),
            f"- State digest by {name}: `{digest}`, {verdict}"
            if log.unknown is None
            else f"- State digest: none, as records from offset {log.unknown.first_offset} on are unknown",
            *([KAFKAS] if export.log_format == "kafka" else []),
        ]
    )


def _began_ms(log: Log) -> int:
    """Return the time from which intervals are counted: of the batch before a part, or else of the first batch."""
    if log.first.time_ms:
        return log.first.time_ms
    if log.first.end_offset < log.last.end_offset:
        return log.export.batch_of(log.first.end_offset)[2]
    return log.last.time_ms


def summary(
    log: Log,
    incidents: Sequence[dict[str, Any]],
    unavailable: Sequence[dict[str, Any]],
    availability: Sequence[dict[str, Any]],
    start: Start | None,
) -> str:
    """Tell in a few lines what happened, what it cost, and who did it."""
    losses = [row for row in incidents if row["trigger"] == "broker"]
    takeovers = [row for row in incidents if row["trigger"] == "controller"]
    verdicts = Counter(row["verdict"] for row in losses)
    lines = [
        *([] if log.unknown is None else [f"- **{log.unknown.line}**"]),
        "- "
        + counted(len(losses), "loss of a broker", "losses of brokers")
        + (
            f" ({', '.join(f'{verdict}: {n:,}' for verdict, n in sorted(verdicts.items()))})"
            if losses
            else ""
        )
        + ", "
        + counted(len(takeovers), "takeover of a controller", "takeovers of controllers")
        + _longest_gap(takeovers),
    ]
    if still := sum(row["to_ts"] is None for row in incidents):
        lines.append(f"- {still:,} of these {'has' if still == 1 else 'have'} not recovered yet")
    if start is not None and start.out:
        shown = ", ".join(f"broker {row['broker_id']} ({ending})" for row, ending in start.out[:8])
        more = f" and {len(start.out) - 8:,} more" if len(start.out) > 8 else ""
        lines.append(f"- Out of service already when it began: {shown}{more}")
    total_ms = sum(int(row["total_ms"]) for row in unavailable)
    episodes = sum(row["episodes"] for row in unavailable)
    lines.append(
        f"- Partitions without a leader: {counted(episodes, 'spell', 'spells')}"
        f"{_from_before(start, 'leaderless_spells')}, {duration(total_ms)} of partition time"
        if episodes
        else "- No partition was without a leader"
    )
    ((count, lost_ms),) = rows(
        log.engine.arrow(
            log.engine.query(
                "SELECT count(*) AS n, CAST(coalesce(sum(duration_ms), 0) AS BIGINT) AS ms FROM spells",
                {"spells": log.table_of("under_min_isr_spells")},
            )
        )
    )
    lines.append(
        f"- Partitions under min.insync.replicas: {counted(count, 'spell', 'spells')}"
        f"{_from_before(start, 'under_min_isr_spells')}, {duration(lost_ms)} of partition time"
        if count
        else "- No partition was under min.insync.replicas"
    )
    rated = [row for row in availability if row["availability_percent"] is not None]
    if rated:
        worst = min(rated, key=lambda row: row["availability_percent"])
        served = sum(row["serving_ms"] for row in rated) / max(1, sum(row["known_ms"] for row in rated))
        lines.append(
            f"- Broker {worst['broker_id']} served {served:.2%} of the time"
            if len(rated) == 1
            else f"- Brokers served {served:.2%} of the time; least broker {worst['broker_id']}, "
            f"{worst['availability_percent']:.2f} %"
        )
    actors = rows(
        log.engine.arrow(
            log.engine.query(
                "SELECT actor, operation, count(*) AS n FROM actions WHERE actor IS NULL OR (actor NOT LIKE 'Broker:%' "
                "AND actor NOT LIKE 'Controller:%') GROUP BY actor, operation ORDER BY n DESC, actor, operation",
                {"actions": log.table_of("actions")},
            )
        )
    )
    shown = ", ".join(
        f"{actor or 'somebody'} {operation or 'without an operation'} {counted(n, 'time', 'times')}"
        for actor, operation, n in actors[:8]
    )
    more = f" and {len(actors) - 8:,} more" if len(actors) > 8 else ""
    lines.append(f"- Asked for by people and programs: {shown or 'nothing'}{more}")
    return "\n".join(["## Summary", "", *map(printable, lines)])


def _from_before(start: Start | None, table: str) -> str:
    return "" if start is None or not start.spells[table] else f" ({start.spells[table]:,} from before)"


def _longest_gap(takeovers: Sequence[dict[str, Any]]) -> str:
    """Say how long the log was silent before a takeover: idle time is part of it, so it bounds the write gap."""
    known = [row["write_gap_at_most_ms"] for row in takeovers if row["write_gap_at_most_ms"] is not None]
    return f"; write gaps of at most {duration(max(known))}" if known else ""
