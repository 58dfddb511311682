"""Edge: the head of the report, and its summary: what happened, what it cost, and who did it.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from metadata_log.printable import printable
from metadata_log.replay.catalog import STATE
from metadata_log.replay.digest import digest_of
from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log
from metadata_log.replay.report.impact import impact
from metadata_log.replay.report.section import Told
from metadata_log.replay.report.start import Start
from metadata_log.replay.report.words import counted, duration, moment, stepped
from metadata_log.replay.state import State

KAFKAS: Final = (
    "- The log of an Apache Kafka cluster, which says neither who asked for a change nor why: causes are inferred from the "
    "records beside it. Its last records may not be committed yet"
)


def verified(log: Log) -> tuple[str | None, bool | None]:
    """Return the digest of the state at the end, and whether the log's own is the same; None: the log goes on.

    After records that this release does not know there is no digest: the state may lack what they changed.
    """
    if log.unknown is not None:
        return None, None
    parts = {name: log.table_of(name) for name in STATE}
    digest = digest_of(log.engine, State(end_offset=log.last.end_offset, parts=parts))
    is_whole = log.last.end_offset == log.export.end_offset
    return digest, digest == log.export.digest if is_whole else None


def head(told: Told) -> str:
    log, engine, export = told.log, told.log.engine, told.log.export
    digest, is_same = verified(log)
    name = engine.name.capitalize() if engine.name == "spark" else "DuckDB"
    match is_same:
        case None:
            verdict = "not compared: the log goes on"
        case True:
            verdict = "the same as the log's own fold"
        case False:
            verdict = f"**NOT the log's own, which is `{export.digest}`**"
    first, last = log.marks
    known_ms, unknown_ms = last.known_ms - first.known_ms, last.unknown_ms - first.unknown_ms
    span = duration(known_ms + unknown_ms) + (
        f", of which {duration(unknown_ms)} are unknown" if unknown_ms else ""
    )
    began, ended = (moment(datetime.fromtimestamp(ms / 1000, UTC)) for ms in _times(log))
    return "\n".join(
        [
            f"# Cluster {export.cluster_id}",
            "",
            f"- Offsets {log.first.end_offset:,} to {log.last.end_offset:,} (exclusive)",
            f"- From {began} to {ended} UTC: {span}",
            *(
                f"- {end.note}"
                for end in (log.first, log.last)
                if any(words in end.note for words in ("lies inside", "up to", "no record of the log"))
            ),
            *told.focus.lines(),
            *(f"- Damaged: {printable(line)}" for line in log.missing),
            f"- State digest by {name}: `{digest}`, {verdict}"
            if log.unknown is None
            else f"- State digest: none, as records from offset {log.unknown.first_offset} on are unknown",
            *([KAFKAS] if export.log_format == "kafka" else []),
        ]
    )


def _times(log: Log) -> tuple[int, int]:
    """Return the least and the greatest time of what is looked at."""
    ((least, greatest),) = rows(
        log.engine.arrow(
            log.engine.query(
                "SELECT unix_millis(min(ts)) AS a, unix_millis(max(ts)) AS b FROM records",
                {"records": log.table_of("records")},
            )
        )
    )
    # More than the log has begins with its first record.
    asked_ms = log.first.time_ms if log.first.end_offset > 0 else 0
    begun_ms = asked_ms or log.timeline.time_at(log.first.end_offset)
    known = [ms for ms in (begun_ms, log.last.time_ms, least, greatest) if ms is not None]
    return min(known), max(known)


STEP_MS: Final = 1_000
"""Steps that add up to less than this are reported without a warning."""


class Steps(NamedTuple):
    """How often clocks stepped back, how far at most, and how far together."""

    times: int
    largest_ms: int
    total_ms: int

    @property
    def alarm(self) -> bool:
        return self.total_ms >= STEP_MS


def steps_back(log: Log) -> Steps:
    return Steps(*log.timeline.steps_back(log.first.end_offset, log.last.end_offset))


def summary(told: Told) -> str:
    """Tell in a few lines what happened, what it cost, and who did it."""
    log, start, incidents = told.log, told.start, told.rows("incidents")
    unavailable, under = told.rows("unavailability"), told.rows("under_min_isr")
    first, last = log.marks
    lines = [
        f"- {impact(unavailable, under, last.unknown_ms - first.unknown_ms, alarming_steps=steps_back(log).alarm)}",
        *([] if log.unknown is None else [f"- **{log.unknown.line}**"]),
        *_of_time(log),
        f"- {_what_happened(incidents)}",
    ]
    if still := sum(row["to_ts"] is None for row in incidents):
        lines.append(f"- {still:,} of these {'has' if still == 1 else 'have'} not recovered yet")
    if start is not None and start.out:
        shown = ", ".join(f"broker {row['broker_id']} ({ending})" for row, ending in start.out[:8])
        more = f" and {len(start.out) - 8:,} more" if len(start.out) > 8 else ""
        lines.append(f"- Out of service already when it began: {shown}{more}")
    lines += [
        _spells("without a leader", "leaderless_spells", unavailable, "episodes", start),
        _spells("under min.insync.replicas", "under_min_isr_spells", under, "spells", start),
        *_served(told.rows("broker_availability")),
    ]
    actors = rows(
        log.engine.arrow(
            log.engine.query(
                "SELECT actor, replace(operation, '.many', '') AS named, count(*) AS n FROM actions "
                "WHERE coalesce(operation, '') <> 'completeActivation' AND (actor IS NULL OR (actor NOT LIKE 'Broker:%' "
                "AND actor NOT LIKE 'Controller:%')) GROUP BY actor, named ORDER BY n DESC, actor, named",
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


_STOPS: Final = ("stopped", "stopped or lost")


def _what_happened(incidents: Sequence[dict[str, Any]]) -> str:
    """Count losses of brokers, stops that took leaders, ends that may be either, and takeovers, each apart."""
    of_brokers = [row for row in incidents if row["trigger"] == "broker"]
    losses = [row for row in of_brokers if row["verdict"] not in _STOPS]
    verdicts = Counter(row["verdict"] for row in losses)
    stops, either = (sum(row["verdict"] == verdict for row in of_brokers) for verdict in _STOPS)
    leaderless = sum(row["trigger"] in {"partitions", "before"} for row in incidents)
    takeovers = [row for row in incidents if row["trigger"] == "controller"]
    kinds = (
        f" ({', '.join(f'{verdict}: {n:,}' for verdict, n in sorted(verdicts.items()))})" if losses else ""
    )
    return ", ".join(
        [
            counted(len(losses), "loss of a broker", "losses of brokers") + kinds,
            *(
                [
                    counted(stops, "stop of a broker", "stops of brokers")
                    + " that left partitions without a leader"
                ]
                if stops
                else []
            ),
            *(
                [counted(either, "stop or loss", "stops or losses") + ", the log does not tell which"]
                if either
                else []
            ),
            *(
                [counted(leaderless, "other time", "other times") + " when partitions had no leader"]
                if leaderless
                else []
            ),
            counted(len(takeovers), "takeover of a controller", "takeovers of controllers")
            + _longest_gap(takeovers),
        ]
    )


def _of_time(log: Log) -> Iterator[str]:
    """Say of how much time the log proves nothing, and how clocks stepped."""
    first, last = log.marks
    if unknown_ms := last.unknown_ms - first.unknown_ms:
        yield (
            f"- Unknown for {duration(unknown_ms)}, known for {duration(last.known_ms - first.known_ms)}: without a record "
            "nothing proves that a controller was there, and what brokers did; no percentage counts it"
        )
    steps = steps_back(log)
    if steps.times:
        mark = "**" if steps.alarm else ""
        yield (
            f"- {mark}Clocks stepped back {counted(steps.times, 'time', 'times')}{mark}, by "
            f"{duration(steps.largest_ms)} at most"
            + (f", {duration(steps.total_ms)} together" if steps.times > 1 else "")
            + ": durations across a step are marked, and not to be trusted to that extent"
        )


def _spells(what: str, table: str, found: Sequence[dict[str, Any]], counts: str, start: Start | None) -> str:
    if not found:
        return f"- No partition was {what}"
    count = sum(row[counts] for row in found)
    known_ms, unknown_ms = (sum(int(row[name]) for row in found) for name in ("total_ms", "unknown_ms"))
    unknown = f", beside {duration(unknown_ms)} unknown" if unknown_ms else ""
    return (
        f"- Partitions {what}: {counted(count, 'spell', 'spells')}{_from_before(start, table)}, "
        f"{duration(known_ms)} of partition time{unknown}{stepped(*found)}"
    )


def _served(availability: Sequence[dict[str, Any]]) -> Iterator[str]:
    rated = [row for row in availability if row["availability_percent"] is not None]
    if not rated:
        return
    worst = min(rated, key=lambda row: row["availability_percent"])
    served = sum(row["serving_ms"] for row in rated) / max(1, sum(row["known_ms"] for row in rated))
    unknown_ms = sum(row["unknown_ms"] for row in availability)
    time = f"the known time, {duration(sum(row['known_ms'] for row in rated))}" if unknown_ms else "the time"
    each = "" if len(rated) == 1 else " in all"
    beside = f"; {duration(unknown_ms)}{each} are unknown" if unknown_ms else ""
    yield (
        f"- Broker {worst['broker_id']} served {served:.2%} of {time}{beside}"
        if len(rated) == 1
        else f"- Brokers served {served:.2%} of {time}{each if unknown_ms else ''}; least broker {worst['broker_id']}, "
        f"{worst['availability_percent']:.2f} %{beside}"
    )


def _from_before(start: Start | None, table: str) -> str:
    return "" if start is None or not start.spells[table] else f" ({start.spells[table]:,} from before)"


def _longest_gap(takeovers: Sequence[dict[str, Any]]) -> str:
    """Say how long the log was silent before a takeover: idle time is part of it, so it bounds the write gap."""
    known = [row["write_gap_at_most_ms"] for row in takeovers if row["write_gap_at_most_ms"] is not None]
    return f"; write gaps of at most {duration(max(known))} before takeovers" if known else ""
