"""Edge: one page of Markdown that tells what happened to a cluster, from its exported log alone."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.ids import NO_LEADER
from metadata_log.records.configs import CLUSTER_DEFAULT, TOPIC
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.digest import digest_of
from metadata_log.replay.engines import DuckDb, Engine, engine_of, rows
from metadata_log.replay.state import state_at
from metadata_log.replay.tables import (
    BROKER_CHANGES,
    PARTITION_CHANGES,
    RECORDS,
    Export,
    open_export,
)
from metadata_log.replay.timeline import (
    broker_state_intervals,
    controller_failovers,
    end_ms,
    leader_intervals,
    reassignments,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS_MAX: Final = 200
"""Lines of the timeline; of more, the newest are shown."""
ROWS_MAX: Final = 50
"""Rows of each table."""
SETTINGS_SHOWN: Final = 3
"""Settings that one event names; of a change of more, the first."""
VALUE_CHARS_MAX: Final = 80
"""Characters of a setting's value that are shown; a secret's hash is shorter."""


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
}


def report(spark: "SparkSession | DuckDb", export: Path) -> str:
    """Return the report of an export, computed by Spark, or by DuckDB where no JVM is wanted.

    Raises:
        InvalidRequest, DamagedFile: there is no whole export.
    """
    opened = open_export(export)
    engine: Engine[Any] = engine_of(spark)
    return "\n\n".join(_sections(engine, opened)) + "\n"


def _sections(engine: Engine[Any], export: Export) -> Iterable[str]:
    records = engine.parquet(export.paths(RECORDS), schema=SCHEMA)
    changes = engine.parquet(export.paths(PARTITION_CHANGES))
    broker_changes = engine.parquet(export.paths(BROKER_CHANGES))
    brokers = _fetch(engine, broker_state_intervals(engine, export))
    claims = _fetch(engine, controller_failovers(engine, export))
    repeated = _fetch(engine, engine.analysis("repeated_registrations", broker_changes=broker_changes))
    topics = _fetch(engine, engine.analysis("topic_events", records=records))
    configs = _fetch(engine, engine.analysis("config_events", records=records))
    moves = _fetch(engine, engine.analysis("leader_moves", partition_changes=changes))
    elections = _fetch(engine, engine.analysis("elections", partition_changes=changes))
    reassigned = _fetch(engine, reassignments(engine, export))
    of_cluster = _fetch(engine, engine.analysis("cluster_events", records=records))
    churn = _fetch(engine, engine.analysis("topic_churn", partition_changes=changes))
    unavailable = _fetch(
        engine, engine.analysis("unavailability", leader_intervals=leader_intervals(engine, export))
    )
    yield _head(engine, export)
    yield _timeline(
        [
            *_claimed(claims),
            *_broker_events(brokers, repeated),
            *_topic_events(topics),
            *_config_events(configs),
            *_cluster_events(of_cluster),
            *_moved(moves),
        ]
    )
    yield _controllers(claims)
    yield _brokers(brokers)
    yield _leaderships(churn)
    yield _elections(elections)
    yield _reassignments(reassigned)
    yield _unavailability(unavailable)
    yield _topics(topics)


def _head(engine: Engine[Any], export: Export) -> str:
    digest = digest_of(engine, state_at(engine, export))
    name = engine.name.capitalize() if engine.name == "spark" else "DuckDB"
    verdict = (
        "the same as the log's own fold"
        if digest == export.digest
        else f"**NOT the log's own, which is `{export.digest}`**"
    )
    ended = _moment(datetime.fromtimestamp(end_ms(export) / 1000, UTC))
    return "\n".join(
        [
            f"# Cluster {export.cluster_id}",
            "",
            f"- Offsets {export.first_offset:,} to {export.end_offset:,} (exclusive), up to {ended} UTC",
            f"- State digest by {name}: `{digest}`, {verdict}",
        ]
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
            text = f"the cluster was founded; controller {claim['controller_id']} took charge with epoch 1"
        yield _Event(claim["first_offset"], claim["ts"], text)


def _broker_events(
    intervals: Sequence[dict[str, Any]], repeated: Sequence[dict[str, Any]]
) -> Iterable[_Event]:
    """Tell of each change of a broker's state, and of registrations that were repeated, which seldom change one."""
    repeated_at = {registration["log_offset"] for registration in repeated}
    last: dict[int, dict[str, Any]] = {}
    for interval in intervals:
        broker_id = interval["broker_id"]
        before, last[broker_id] = last.get(broker_id), interval
        if interval["from_offset"] >= 0 and interval["from_offset"] not in repeated_at:
            yield _Event(interval["from_offset"], interval["from_ts"], _broker_text(interval, before))
    for registration in repeated:
        text = f"broker {registration['broker_id']} registered once more, by the same process"
        if registration["state"] != registration["prev_state"]:
            text += f": {registration['state'].lower()}, no longer {registration['prev_state'].lower()}"
        yield _Event(registration["log_offset"], registration["ts"], text)


def _broker_text(interval: dict[str, Any], before: dict[str, Any] | None) -> str:
    broker = f"broker {interval['broker_id']}"
    why = _cause(interval["cause_code"], interval["cause_detail"])
    if interval["from_offset"] == interval["broker_epoch"]:
        detail = json.loads(interval["cause_detail"] or "{}")
        ending = ", after a clean stop" if detail.get("clean") else ", after an unclean stop"
        if before is None or before["cause_code"] == "BROKER_UNREGISTERED":
            ending = ""
        return f"{broker} registered {'for the first time' if before is None else 'again'}{ending}"
    match interval["state"]:
        case "ONLINE":
            if before is None:
                return f"{broker} is online"
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
    """Tell of each batch which settings of each resource it changed."""
    groups: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for setting in settings:
        of = (setting["batch_base"], setting["resource_type"], setting["resource_name"])
        groups.setdefault(of, []).append(setting)
    for (_, resource_type, resource_name), group in groups.items():
        if resource_type == TOPIC:
            whose = f"topic {resource_name}"
        else:
            whose = "all brokers" if resource_name == CLUSTER_DEFAULT else f"broker {resource_name}"
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
        ("epoch", "controller", "from offset", "at", "silence before", "in charge for", "records"),
        (
            (
                claim["controller_epoch"],
                claim["controller_id"],
                claim["first_offset"],
                _moment(claim["ts"]),
                "" if claim["silent_ms"] is None else _duration(claim["silent_ms"]),
                _duration(claim["tenure_ms"]) + (" so far" if claim["lasting"] else ""),
                f"{claim['record_count']:,}",
            )
            for claim in claims
        ),
        none="No controller took over in these offsets.",
    )


def _brokers(intervals: Sequence[dict[str, Any]]) -> str:
    ordered = sorted(intervals, key=lambda interval: (interval["broker_id"], interval["from_offset"]))
    return _table(
        "## Broker states",
        ("broker", "state", "from offset", "at", "for", "cause"),
        (
            (
                interval["broker_id"],
                interval["state"],
                max(interval["from_offset"], 0),
                _moment(interval["from_ts"]),
                _duration(interval["duration_ms"]) + (" so far" if interval["lasting"] else ""),
                _cause(interval["cause_code"], interval["cause_detail"]),
            )
            for interval in ordered
        ),
        none="No broker registered.",
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
        none="No partition was ever without a leader.",
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
    )


def _table(title: str, names: Sequence[str], body: Iterable[Sequence[object]], *, none: str) -> str:
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in body]
    if not lines:
        return f"{title}\n\n{none}"
    head = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    more = [] if len(lines) <= ROWS_MAX else ["", f"The first {ROWS_MAX} of {len(lines):,} rows."]
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
