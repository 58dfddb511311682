"""Edge: one page of Markdown that tells what happened to a cluster, from its exported log alone."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NO_LEADER
from metadata_log.records.configs import CLUSTER_DEFAULT
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import TYPE_IDS
from metadata_log.replay.catalog import SHARED
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.digest import digest_of
from metadata_log.replay.engines import DuckDb, Engine, engine_of, rows
from metadata_log.replay.library import Log, plain_rows
from metadata_log.replay.page import charts, page
from metadata_log.replay.state import state_at
from metadata_log.replay.subjects.registry import CHANGES
from metadata_log.replay.tables import RECORDS, open_export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_MAX: Final = 200
"""Lines of the timeline; of more, the newest are shown."""
ROWS_MAX: Final = 50
"""Rows of each table."""
SETTINGS_SHOWN: Final = 3
"""Settings that one event names; of a change of more, the first."""
VALUE_CHARS_MAX: Final = 80
"""Characters of a setting's value that are shown; a secret's mask is shorter."""


class _Event(NamedTuple):
    log_offset: int
    time: datetime
    text: str


_CAUSES: Final = {
    "SESSION_EXPIRED": "session expired",
    "FENCE_REQUESTED": "at its own wish",
    "SHUTDOWN_GRANTED": "let go after its shutdown",
    "CONTROLLED_SHUTDOWN": "controlled shutdown",
    "BROKER_REGISTERED": "registered anew",
    "BROKER_UNREGISTERED": "removed",
    "BROKER_UNFENCED": "caught up",
    "LOG_DIR_OFFLINE": "log directory failed",
    "LOG_DIR_CORDONED": "log directory cordoned",
    "DIRECTORIES_REPORTED": "directories reported",
    "ISR_REPORTED": "reported by the leader",
    "LEADERS_BALANCED": "balanced",
    "PREFERRED_ELECTION_REQUESTED": "preferred election asked for",
    "REASSIGNMENT_REQUESTED": "reassignment asked for",
    "TOPIC_DELETED": "topic deleted",
    "TOPIC_UNDELETED": "topic restored",
    "UNCLEAN_ELECTION_REQUESTED": "unclean election asked for",
    "UNCLEAN_SWEEP": "topic accepts losses",
    "CONTROLLER_CLAIMED": "new controller",
    "PREFERRED_ELECTION": "preferred election",
    "TOLD_BY_ANOTHER": "told by the record at this offset",
}


KAFKAS: Final = (
    "- The log of an Apache Kafka cluster, which says neither who asked for a change nor why: causes are inferred from the "
    "records beside it. Its last records may not be committed yet"
)
_RESOURCES: Final = {
    "TOPIC": "topic",
    "BROKER": "broker",
    "CLIENT_METRICS": "client metrics",
    "GROUP": "group",
}
"""Kafka's types of resources that have settings."""

CLAIM: Final = TYPE_IDS[ControllerClaimRecord]
SERVING: Final = frozenset({"ONLINE", "STOPPING"})
SPELLS: Final = {
    "leaderless_spells": "without a leader",
    "under_min_isr_spells": "under min.insync.replicas",
    "under_replicated_spells": "under-replicated",
}
"""Tables of spells, and what a partition is in one."""

JSON_TABLES: Final = (
    *("incidents", "fencings", "controller_takeovers", "voters_over_time", "broker_availability"),
    *(
        "broker_state_intervals",
        "unavailability",
        "topic_churn",
        "elections",
        "reassignments",
        "topic_events",
    ),
    *("config_changes", "leadership_balance", "log_health"),
)


class Focus(NamedTuple):
    """What alone is reported of: one topic, one broker, or both; None: all. Controllers are always reported of."""

    topic: str | None
    broker: int | None

    def of(self, table: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows of a table that belong here; those of a family, whose files are read in any order, by offset."""
        mine = [row for row in found if self._has_broker(table, row) and self._has_topic(table, row)]
        return sorted(mine, key=itemgetter("log_offset")) if table in CHANGES else mine

    def _has_broker(self, table: str, row: dict[str, Any]) -> bool:
        if self.broker is None:
            return True
        match table:
            case "incidents":
                return bool(row["trigger"] != "broker" or row["node_id"] == self.broker)
            case "leader_moves":
                return self.broker in {row["prev_leader"], row["leader"]}
            case "reassignments":
                return self.broker in {*(row["from_replicas"] or ()), *(row["to_replicas"] or ())}
            case "config_changes":
                return row["resource_type"] != "BROKER" or row["resource_name"] in {
                    CLUSTER_DEFAULT,
                    str(self.broker),
                }
            case _:
                return row.get("broker_id") in {None, self.broker}

    def _has_topic(self, table: str, row: dict[str, Any]) -> bool:
        if self.topic is None:
            return True
        if table == "config_changes":
            return bool(row["resource_type"] != "TOPIC" or row["resource_name"] == self.topic)
        return row.get("topic_name") in {None, self.topic}

    def lines(self) -> list[str]:
        """Return what the head of the report says of it."""
        others = "counts by topic, by partition and by who asked are those of all brokers"
        return [
            *([] if self.topic is None else [f"- Of topics and their partitions, only `{self.topic}`"]),
            *([] if self.broker is None else [f"- Of brokers, only {self.broker}; {others}"]),
        ]


def report(spark: "SparkSession | DuckDb", export: Path) -> str:
    """Return the report of an export in Markdown, computed by Spark, or by DuckDB where no JVM is wanted.

    Raises:
        InvalidRequest, DamagedFile: there is no whole export.
    """
    return report_of(Log(engine_of(spark), open_export(export)))


def report_of(log: Log, form: str = "md", *, broker: int | None = None) -> str:
    """Return the report of a log, or of a part of it, as Markdown ("md"), one self-contained page ("html"), or "json".

    With `broker`, rows about another broker are left out; what is counted by topic, by partition or by who asked, is
    counted for all brokers.

    Raises:
        InvalidRequest: the log has no such broker in these offsets.
    """
    log.keep(*SHARED)
    focus = Focus(log.topic, broker)
    brokers = _fetch(log.engine, log.table_of("broker_state_intervals"))
    if broker is not None and all(row["broker_id"] != broker for row in brokers):
        raise InvalidRequest(f"the log names no broker {broker} in these offsets")
    brokers = focus.of("broker_state_intervals", brokers)
    match form:
        case "json":
            start = _start_of(log, brokers)
            digest, is_same = _verified(log)
            tables = {name: focus.of(name, plain_rows(log, log.table(name))) for name in JSON_TABLES}
            about = {
                "cluster_id": log.export.cluster_id,
                "from": log.first._asdict(),
                "to": log.last._asdict(),
                "topic": focus.topic,
                "broker": focus.broker,
                "missing": list(log.missing),
                "unknown": log.unknown and log.unknown._asdict(),
                "digest": digest,
                "is_digest_the_logs_own": is_same,
                "began": start
                and {
                    "controller_id": start.controller_id,
                    "brokers_out": [row["broker_id"] for row, _ in start.out],
                    **start.spells,
                },
            }
            return json.dumps(about | tables, indent=1, ensure_ascii=False) + "\n"
        case "html":
            return page(_sections(log, focus, brokers), charts(log, broker=broker))
        case _:
            return "\n\n".join(_sections(log, focus, brokers)) + "\n"


class _Start(NamedTuple):
    """What was so when the part that is reported of began."""

    controller_id: int | None
    """Who was in charge; None where the log does not say."""
    out: list[tuple[dict[str, Any], str]]
    """The intervals of brokers that did not serve, and how each ended, in words."""
    spells: dict[str, int]
    """How many spells of each table had begun before."""


def _start_of(log: Log, brokers: Sequence[dict[str, Any]]) -> _Start | None:
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
    return _Start(found[0][0], out, {table: _begun_before(log, table) for table in SPELLS})


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


def _begun(start: _Start, focus: Focus) -> str:
    lines = [
        "- The log does not say which controller was in charge"
        if start.controller_id is None
        else f"- Controller {start.controller_id} was in charge",
        *([] if start.out or focus.broker is not None else ["- Every registered broker served"]),
    ]
    for row, ending in start.out[:ROWS_MAX]:
        why = _cause(row["cause_code"], row["cause_detail"])
        since = "" if row["from_offset"] < 0 else f" since {_moment(row['from_ts'])}"
        lines.append(
            f"- Broker {row['broker_id']} was {row['state'].lower()}{since}{f' ({why})' if why else ''}: {ending}"
        )
    if len(start.out) > ROWS_MAX:
        lines.append(f"- {len(start.out) - ROWS_MAX:,} more brokers did not serve")
    counts = (
        f"{_counted(count, 'partition', 'partitions')} {SPELLS[table]}"
        for table, count in start.spells.items()
        if count
    )
    lines.append(f"- {', '.join(counts) or 'Every partition had a leader and its whole ISR'}")
    return "\n".join(["## When it began", "", *lines])


def _sections(log: Log, focus: Focus, brokers: list[dict[str, Any]]) -> list[str]:
    def fetched(name: str) -> list[dict[str, Any]]:
        return focus.of(name, _fetch(log.engine, log.named_table_of(name)))

    claims = fetched("controller_takeovers")
    topics = fetched("topic_events")
    incidents = fetched("incidents")
    unavailable = fetched("unavailability")
    availability = fetched("broker_availability")
    start = _start_of(log, brokers)
    events = [
        *_claimed(claims),
        *_broker_events(brokers, fetched("repeated_registrations"), log.first.end_offset),
        *_topic_events(topics),
        *_config_events(fetched("config_changes")),
        *_cluster_events(fetched("cluster_events")),
        *_moved(fetched("leader_moves")),
    ]
    return [
        _head(log, focus),
        _summary(log, incidents, unavailable, availability, start),
        *([] if start is None else [_begun(start, focus)]),
        _incidents(incidents),
        _timeline(events),
        _controllers(claims),
        _voters(fetched("voters_over_time"), log.first.end_offset),
        _availability(availability),
        _brokers(brokers, log.first.end_offset),
        _leaderships(fetched("topic_churn")),
        _elections(fetched("elections")),
        _reassignments(fetched("reassignments")),
        _unavailability(unavailable),
        _topics(topics),
        *_opaque(fetched("opaque_records")),
    ]


def _verified(log: Log) -> tuple[str | None, bool | None]:
    """Return the digest of the state at the end, and whether the log's own is the same; None: the log goes on.

    Behind records that this release does not know there is no digest: the state may lack what they changed.
    """
    if log.unknown is not None:
        return None, None
    digest = digest_of(log.engine, state_at(log.engine, log.export, log.last.end_offset))
    is_whole = log.last.end_offset == log.export.end_offset
    return digest, digest == log.export.digest if is_whole else None


def _head(log: Log, focus: Focus) -> str:
    engine, export = log.engine, log.export
    digest, is_same = _verified(log)
    name = engine.name.capitalize() if engine.name == "spark" else "DuckDB"
    match is_same:
        case None:
            verdict = "not compared: the log goes on"
        case True:
            verdict = "the same as the log's own fold"
        case False:
            verdict = f"**NOT the log's own, which is `{export.digest}`**"
    began_ms = _began_ms(log)
    began, ended = (_moment(datetime.fromtimestamp(ms / 1000, UTC)) for ms in (began_ms, log.last.time_ms))
    span = _duration(max(0, log.last.time_ms - began_ms))
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
            *(f"- Damaged: {line}" for line in log.missing),
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


def _summary(
    log: Log,
    incidents: Sequence[dict[str, Any]],
    unavailable: Sequence[dict[str, Any]],
    availability: Sequence[dict[str, Any]],
    start: _Start | None,
) -> str:
    """Tell in a few lines what happened, what it cost, and who did it."""
    losses = [row for row in incidents if row["trigger"] == "broker"]
    takeovers = [row for row in incidents if row["trigger"] == "controller"]
    verdicts = Counter(row["verdict"] for row in losses)
    lines = [
        *([] if log.unknown is None else [f"- **{log.unknown.line}**"]),
        "- "
        + _counted(len(losses), "loss of a broker", "losses of brokers")
        + (
            f" ({', '.join(f'{verdict}: {n:,}' for verdict, n in sorted(verdicts.items()))})"
            if losses
            else ""
        )
        + ", "
        + _counted(len(takeovers), "takeover of a controller", "takeovers of controllers")
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
        f"- Partitions without a leader: {_counted(episodes, 'spell', 'spells')}"
        f"{_from_before(start, 'leaderless_spells')}, {_duration(total_ms)} of partition time"
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
        f"- Partitions under min.insync.replicas: {_counted(count, 'spell', 'spells')}"
        f"{_from_before(start, 'under_min_isr_spells')}, {_duration(lost_ms)} of partition time"
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
        f"{actor or 'somebody'} {operation or 'without an operation'} {_counted(n, 'time', 'times')}"
        for actor, operation, n in actors[:8]
    )
    more = f" and {len(actors) - 8:,} more" if len(actors) > 8 else ""
    lines.append(f"- Asked for by people and programs: {shown or 'nothing'}{more}")
    return "\n".join(["## Summary", "", *lines])


def _from_before(start: _Start | None, table: str) -> str:
    return "" if start is None or not start.spells[table] else f" ({start.spells[table]:,} from before)"


def _longest_gap(takeovers: Sequence[dict[str, Any]]) -> str:
    """Say how long the log was silent before a takeover: idle time is part of it, so it bounds the write gap."""
    known = [row["write_gap_at_most_ms"] for row in takeovers if row["write_gap_at_most_ms"] is not None]
    return f"; write gaps of at most {_duration(max(known))}" if known else ""


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _incidents(incidents: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Incidents",
        (
            "no",
            "offset",
            "at",
            "what",
            "verdict",
            "leaders moved",
            "left leaderless",
            "without leader",
            "whole ISR after",
            "for",
        ),
        (
            (
                row["incident"],
                row["from_offset"],
                _moment(row["from_ts"]),
                f"broker {row['node_id']} lost"
                if row["trigger"] == "broker"
                else f"controller {row['node_id']} took over",
                row["verdict"],
                f"{row['leaders_moved']:,}",
                f"{row['left_leaderless']:,}",
                _duration(row["leaderless_ms"]),
                "not yet" if row["whole_isr_ms"] is None else _duration(row["whole_isr_ms"]),
                _how_long(row),
            )
            for row in sorted(incidents, key=lambda row: (-(row["duration_ms"] or 0), row["from_offset"]))
        ),
        none="No broker was lost and no controller took over in these offsets.",
        order="by how long the losses took",
    )


def _how_long(incident: dict[str, Any]) -> str:
    if incident["trigger"] == "controller":
        gap_ms = incident["write_gap_at_most_ms"]
        return "" if gap_ms is None else f"at most {_duration(gap_ms)}"
    return _duration(incident["duration_ms"]) + ("" if incident["to_ts"] is not None else " so far")


def _voters(changes: Sequence[dict[str, Any]], first_offset: int) -> str:
    return _table(
        "## Voters",
        ("from offset", "at", "voters", "added", "removed", "cause"),
        (
            (
                *_place(row["log_offset"], row["ts"], first_offset),
                ", ".join(map(str, row["voter_ids"])),
                *(
                    ", ".join(map(str, row[name])) if row["log_offset"] >= first_offset else ""
                    for name in ("added", "removed")
                ),
                row["cause_code"] or "",
            )
            for row in changes
        ),
        none="No record names the voters.",
        order="the oldest first",
    )


def _availability(brokers: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Availability of brokers",
        ("broker", "served", "of", "percent", "outages", "longest", "processes", "state"),
        (
            (
                row["broker_id"],
                _duration(row["serving_ms"]),
                _duration(row["known_ms"]),
                "" if row["availability_percent"] is None else f"{row['availability_percent']:.2f}",
                row["outages"],
                _duration(row["longest_outage_ms"]),
                row["processes"],
                row["state"],
            )
            for row in sorted(brokers, key=lambda row: (row["availability_percent"] or 0, row["broker_id"]))
        ),
        none="No broker registered.",
        order="the least available first",
    )


# --- what happened


def _timeline(events: Sequence[_Event]) -> str:
    ordered = sorted(events)
    newest = ordered[-EVENTS_MAX:]
    lines = ["## What happened", ""]
    if len(newest) < len(ordered):
        lines.append(f"The newest {len(newest)} of {len(ordered):,} events.\n")
    day = None
    for event in newest:
        if event.time.date() != day:
            day = event.time.date()
            lines += ["", f"**{day.isoformat()}**", ""] if len(lines) > 2 else [f"**{day.isoformat()}**", ""]
        lines.append(f"- {_clock(event.time)} offset {event.log_offset}: {event.text}")
    return "\n".join(lines)


def _claimed(claims: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for place, claim in enumerate(claims):
        text = f"controller {claim['controller_id']} took over with epoch {claim['controller_epoch']}"
        if place and claim["silent_ms"] is not None:
            text += f", {_duration(claim['silent_ms'])} after the last record before"
        elif claim["first_offset"] == 0:
            text = f"the cluster was founded; controller {claim['controller_id']} took charge"
            text += f" with epoch {claim['controller_epoch']}"
        yield _Event(claim["first_offset"], claim["ts"], text)


def _broker_events(
    intervals: Sequence[dict[str, Any]], repeated: Sequence[dict[str, Any]], first_offset: int
) -> Iterable[_Event]:
    """Tell of each change of a broker's state from an offset on, and of registrations that were repeated, which seldom
    change one.
    """
    repeated_at = {registration["log_offset"] for registration in repeated}
    last: dict[int, dict[str, Any]] = {}
    for interval in intervals:
        broker_id = interval["broker_id"]
        before, last[broker_id] = last.get(broker_id), interval
        if interval["from_offset"] >= first_offset and interval["from_offset"] not in repeated_at:
            yield _Event(
                interval["from_offset"], interval["from_ts"], _broker_text(interval, before, first_offset)
            )
    for registration in repeated:
        text = f"broker {registration['broker_id']} registered once more, by the same process"
        if registration["state"] != registration["prev_state"]:
            text += f": {registration['state'].lower()}, no longer {registration['prev_state'].lower()}"
        yield _Event(registration["log_offset"], registration["ts"], text)


def _broker_text(interval: dict[str, Any], before: dict[str, Any] | None, first_offset: int) -> str:
    broker = f"broker {interval['broker_id']}"
    why = _cause(interval["cause_code"], interval["cause_detail"])
    is_new = before is None or before["broker_epoch"] != interval["broker_epoch"]
    # In Kafka's log the epoch is the offset of the registration's batch.
    if interval["from_offset"] == interval["broker_epoch"] or (
        is_new and interval["cause_code"] == "BROKER_REGISTERED"
    ):
        detail = json.loads(interval["cause_detail"] or "{}")
        ending = ", after a clean stop" if detail.get("clean") else ", after an unclean stop"
        if before is not None and before["cause_code"] == "BROKER_UNREGISTERED":
            ending = ""
        if before is None:
            # A broker that was removed before a part of the log is as unknown in it as a new one.
            return f"{broker} registered{'' if first_offset else ' for the first time'}"
        return f"{broker} registered again{ending}"
    match interval["state"]:
        case "ONLINE":
            if before is None:
                return f"{broker} is online"
            if before["from_offset"] < first_offset:
                return (
                    f"{broker} unfenced: online; it was {before['state'].lower()} from before these offsets"
                )
            return f"{broker} unfenced: online after {_duration(before['duration_ms'])} {before['state'].lower()}"
        case "STOPPING":
            return f"{broker} asked to stop: its leaderships move away"
        case "OFFLINE" if interval["cause_code"] == "BROKER_UNREGISTERED":
            return f"{broker} removed from the cluster"
        case "OFFLINE" if interval["cause_code"] == "SHUTDOWN_GRANTED":
            return f"{broker} stopped cleanly"
        case _:
            return f"{broker} fenced ({why})"


def _topic_events(topics: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for topic in topics:
        verb = _topic_verb(topic)
        yield _Event(topic["log_offset"], topic["ts"], f"topic {topic['topic_name']} {verb}{_by(topic)}")


def _topic_verb(topic: dict[str, Any]) -> str:
    match topic["type_name"]:
        case "Topic":
            return "created"
        case "TopicTombstone":
            return f"deleted, and can be restored for {_duration(topic['grace_ms'])}"
        case "TopicRestore":
            return "restored"
        case _ if topic["cause_code"] == "UNDELETE_WINDOW_PASSED":
            return "gone: the time in which it could be restored has passed"
        case _:
            return "deleted"


def _config_events(settings: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    """Tell of each batch which settings of each resource it changed; what goes with its topic is told of the topic."""
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    for setting in settings:
        if setting["op"] == "delete":
            continue
        of = (setting["batch_base"], setting["resource_type"], setting["resource_name"])
        groups.setdefault(of, []).append(setting)
    for (_, resource_type, resource_name), group in groups.items():
        if resource_type == "BROKER" and resource_name == CLUSTER_DEFAULT:
            whose = "all brokers"
        else:
            whose = f"{_RESOURCES.get(resource_type, f'resource {resource_type}')} {resource_name}"
        changes = ", ".join(
            f"{setting['config_name']} deleted"
            if setting["config_value"] is None
            else f"{setting['config_name']}={_shown(setting['config_value'])}"
            for setting in group[:SETTINGS_SHOWN]
        )
        if len(group) > SETTINGS_SHOWN:
            changes += f" and {len(group) - SETTINGS_SHOWN:,} more"
        s = "" if len(group) == 1 else "s"
        first = group[0]
        yield _Event(
            first["log_offset"], first["ts"], f"setting{s} of {whose} changed{_by(first)}: {changes}"
        )


def _cluster_events(events: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    for event in events:
        text = (
            f"feature {event['feature_name']} finalized at {event['feature_level']}{_by(event)}"
            if event["type_name"] == "FeatureLevel"
            else f"broker {event['broker_id']} got producer ids below {event['next_producer_id']:,}"
        )
        yield _Event(event["log_offset"], event["ts"], text)


def _moved(moves: Sequence[dict[str, Any]]) -> Iterable[_Event]:
    """Tell of each batch how many leaderships left each broker, and where to."""
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for move in moves:
        groups.setdefault((move["batch_base"], move["prev_leader"]), []).append(move)
    for (_, prev_leader), group in groups.items():
        count = sum(move["partition_count"] for move in group)
        takers = ", ".join(
            f"{move['partition_count']} left without a leader"
            if move["leader"] == NO_LEADER
            else f"{move['partition_count']} to broker {move['leader']}"
            for move in group
        )
        s = "" if count == 1 else "s"
        what = (
            f"{count} leaderless partition{s} got a leader"
            if prev_leader == NO_LEADER
            else f"broker {prev_leader} lost {count} leadership{s}"
        )
        why = _cause(group[0]["cause_code"], group[0]["cause_detail"])
        yield _Event(
            min(move["log_offset"] for move in group),
            min(move["ts"] for move in group),
            f"{what}: {takers}" + (f" ({why})" if why else ""),
        )


# --- tables


def _controllers(claims: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Controllers",
        ("epoch", "controller", "how", "from offset", "at", "silence before", "in charge for", "records"),
        (
            (
                claim["controller_epoch"],
                claim["controller_id"],
                claim["kind"],
                claim["first_offset"],
                _moment(claim["ts"]),
                "" if claim["silent_ms"] is None else _duration(claim["silent_ms"]),
                _duration(claim["tenure_ms"]) + (" so far" if claim["lasting"] else ""),
                f"{claim['record_count']:,}",
            )
            for claim in claims
        ),
        none="No controller took over in these offsets.",
        order="the oldest first",
    )


def _brokers(intervals: Sequence[dict[str, Any]], first_offset: int) -> str:
    ordered = sorted(
        intervals,
        key=lambda interval: (
            interval["state"] in SERVING,
            -interval["duration_ms"],
            interval["from_offset"],
        ),
    )
    return _table(
        "## Broker states",
        ("broker", "state", "from offset", "at", "for", "cause"),
        (
            (
                interval["broker_id"],
                interval["state"],
                *_place(interval["from_offset"], interval["from_ts"], first_offset),
                _duration(interval["duration_ms"]) + (" so far" if interval["lasting"] else ""),
                _cause(interval["cause_code"], interval["cause_detail"]),
            )
            for interval in ordered
        ),
        none="No broker registered.",
        order="those out of service first, by how long",
    )


def _leaderships(churn: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Leader and ISR changes",
        ("topic", "cause", "leader changes", "left leaderless", "ISR shrinks", "ISR expands"),
        (
            (
                row["topic_name"],
                _cause(row["cause_code"], None) or "not told",
                f"{row['leader_changes']:,}",
                f"{row['losses']:,}",
                f"{row['isr_shrinks']:,}",
                f"{row['isr_expands']:,}",
            )
            for row in churn
        ),
        none="No partition changed.",
        order="by leader changes",
    )


def _elections(elections: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Elections",
        ("topic", "cause", "how", "elections"),
        (
            (
                row["topic_name"],
                _cause(row["cause_code"], None) or "not told",
                row["kind"],
                f"{row['elections']:,}",
            )
            for row in elections
        ),
        none="None after the creation of a topic.",
        order="by topic",
    )


def _reassignments(found: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Reassignments",
        ("offset", "at", "partition", "from", "to", "by", "how it ended", "took"),
        (
            (
                "before" if one["begun_offset"] is None else one["begun_offset"],
                "" if one["begun_ts"] is None else _moment(one["begun_ts"]),
                f"{one['topic_name']}:{one['partition']}",
                *(", ".join(map(str, one[name] or ())) for name in ("from_replicas", "to_replicas")),
                one["actor"] or "",
                one["ended"] or ("under way" if one["why_stuck"] is None else f"stuck: {one['why_stuck']}"),
                "" if one["duration_ms"] is None else _duration(one["duration_ms"]),
            )
            for one in found
        ),
        none="None.",
        order="the oldest first",
    )


def _unavailability(unavailable: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Time without a leader",
        ("topic", "partitions", "episodes", "partition time", "longest", "still leaderless"),
        (
            (
                row["topic_name"],
                f"{row['partition_count']:,}",
                f"{row['episodes']:,}",
                _duration(int(row["total_ms"])),
                _duration(row["longest_ms"]),
                f"{row['lasting']:,}",
            )
            for row in unavailable
        ),
        none="No partition was without a leader.",
        order="by time",
    )


def _topics(topics: Sequence[dict[str, Any]]) -> str:
    return _table(
        "## Topics created and deleted",
        ("offset", "at", "topic", "what", "topic id", "by", "request"),
        (
            (
                topic["log_offset"],
                _moment(topic["ts"]),
                topic["topic_name"],
                _topic_verb(topic),
                topic["topic_id"],
                topic["actor"] or "",
                topic["request_id"] or "",
            )
            for topic in topics
        ),
        none="None.",
        order="the oldest first",
    )


def _opaque(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    if found:
        yield _table(
            "## Records that are not looked into",
            ("type", "records", "from offset", "to offset"),
            (
                (row["type_name"], f"{row['record_count']:,}", row["first_offset"], row["last_offset"])
                for row in found
            ),
            none="None.",
            order="by type",
        )


def _table(
    title: str,
    names: Sequence[str],
    body: Iterable[Sequence[object]],
    *,
    none: str,
    order: str = "as ordered here",
) -> str:
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in body]
    if not lines:
        return f"{title}\n\n{none}"
    head = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    more = [] if len(lines) <= ROWS_MAX else ["", f"The first {ROWS_MAX} of {len(lines):,}, {order}."]
    return "\n".join([title, "", *head, *lines[:ROWS_MAX], *more])


# --- words


def _fetch(engine: Engine[Any], table: Any) -> list[dict[str, Any]]:
    computed = engine.arrow(table)
    return [dict(zip(computed.column_names, row, strict=True)) for row in rows(computed)]


def _cause(code: str | None, detail: str | None) -> str:
    if not code:
        return ""
    text = _CAUSES.get(code, code)
    silent_ms = json.loads(detail).get("silent_ms") if detail else None
    return f"{text}, silent {silent_ms:,} ms" if isinstance(silent_ms, int) else text


def _by(event: dict[str, Any]) -> str:
    return (f" by {event['actor']}" if event["actor"] else "") + (
        f" (request {event['request_id']})" if event["request_id"] else ""
    )


def _shown(value: str) -> str:
    """Return a setting's value on one line, a long one's beginning."""
    line = " ".join(value.split()) or '""'
    return line if len(line) <= VALUE_CHARS_MAX else f"{line[:VALUE_CHARS_MAX]}..."


def _place(log_offset: int, time: datetime, first_offset: int) -> tuple[object, str]:
    """Return where and when something began, as cells of a table: "before" the part that is reported of."""
    return ("before", "") if log_offset < first_offset else (log_offset, _moment(time))


def _clock(time: datetime) -> str:
    return time.strftime("%H:%M:%S.") + f"{time.microsecond // 1000:03d}"


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%d ") + _clock(time)


def _duration(ms: int) -> str:
    """Return "340 ms", "12.3 s", "4 min 10 s", "3 h 20 min" or "2 d 5 h"."""
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{ms / 1_000:.1f} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"
