"""Edge: the report's tables in Markdown, each made of rows of the catalog's tables.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from metadata_log.replay.report.events import topic_verb
from metadata_log.replay.report.start import SERVING
from metadata_log.replay.report.words import cause, duration, lasted, moment, place, stepped, table

_WHAT: Final = {
    "broker": "broker {node_id}: {verdict}",
    "controller": "controller {node_id} took over",
    "partitions": "partitions lost their leaders",
    "before": "partitions had no leader already",
}


def incidents(incidents: Sequence[dict[str, Any]]) -> str:
    return table(
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
                moment(row["from_ts"]),
                f"broker {row['node_id']} lost"
                if row["trigger"] == "broker" and row["verdict"] not in {"stopped", "stopped or lost", "disk"}
                else _WHAT[row["trigger"]].format(**row),
                row["verdict"],
                f"{row['leaders_moved']:,}",
                f"{row['left_leaderless']:,}",
                duration(row["leaderless_ms"]),
                "not yet" if row["whole_isr_ms"] is None else duration(row["whole_isr_ms"]),
                _how_long(row),
            )
            for row in sorted(
                incidents,
                key=lambda row: (-(row["duration_ms"] or 0) - (row["unknown_ms"] or 0), row["from_offset"]),
            )
        ),
        none="No broker was lost and no controller took over in these offsets.",
        order="by how long the losses took",
    )


def _how_long(incident: dict[str, Any]) -> str:
    if incident["trigger"] == "controller":
        gap_ms = incident["write_gap_at_most_ms"]
        return "" if gap_ms is None else f"at most {duration(gap_ms)}"
    return lasted(incident, so_far=incident["to_ts"] is None)


def voters(changes: Sequence[dict[str, Any]], first_offset: int) -> str:
    return table(
        "## Voters",
        ("from offset", "at", "voters", "added", "removed", "cause"),
        (
            (
                *place(row["log_offset"], row["ts"], first_offset),
                ", ".join(map(str, row["voter_ids"])),
                *(
                    ", ".join(map(str, row[name])) if row["log_offset"] >= first_offset else ""
                    for name in ("added", "removed")
                ),
                cause(row["cause_code"], None),
            )
            for row in changes
        ),
        none="No record names the voters.",
        order="the oldest first",
    )


def availability(brokers: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Availability of brokers",
        ("broker", "served", "of known", "percent", "unknown", "outages", "longest", "processes", "state"),
        (
            (
                row["broker_id"],
                duration(row["serving_ms"]),
                duration(row["known_ms"]),
                "" if row["availability_percent"] is None else f"{row['availability_percent']:.2f}",
                (duration(row["unknown_ms"]) if row["unknown_ms"] else "") + stepped(row),
                row["outages"],
                duration(row["longest_outage_ms"]),
                row["processes"],
                row["state"],
            )
            for row in sorted(brokers, key=lambda row: (row["availability_percent"] or 0, row["broker_id"]))
        ),
        none="No broker registered.",
        order="the least available first",
    )


def controllers(claims: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Controllers",
        ("epoch", "controller", "how", "from offset", "at", "silence before", "in charge for", "records"),
        (
            (
                claim["controller_epoch"],
                claim["controller_id"],
                claim["kind"],
                claim["first_offset"],
                moment(claim["ts"]),
                "" if claim["silent_ms"] is None else duration(claim["silent_ms"]),
                lasted(claim, "tenure_ms", so_far=claim["lasting"]),
                f"{claim['record_count']:,}",
            )
            for claim in claims
        ),
        none="No controller took over in these offsets.",
        order="the oldest first",
    )


def brokers(intervals: Sequence[dict[str, Any]], first_offset: int) -> str:
    ordered = sorted(
        intervals,
        key=lambda interval: (
            interval["state"] in SERVING,
            -interval["duration_ms"],
            interval["from_offset"],
        ),
    )
    return table(
        "## Broker states",
        ("broker", "state", "from offset", "at", "for", "cause"),
        (
            (
                interval["broker_id"],
                interval["state"],
                *place(interval["from_offset"], interval["from_ts"], first_offset),
                lasted(interval, so_far=interval["lasting"]),
                cause(interval["cause_code"], interval["cause_detail"]),
            )
            for interval in ordered
        ),
        none="No broker registered.",
        order="those out of service first, by how long",
    )


def leaderships(churn: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Leader and ISR changes",
        ("topic", "cause", "leader changes", "left leaderless", "ISR shrinks", "ISR expands"),
        (
            (
                row["topic_name"],
                cause(row["cause_code"], None) or "not told",
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


def elections(elections: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Elections",
        ("topic", "cause", "how", "elections"),
        (
            (
                row["topic_name"],
                cause(row["cause_code"], None) or "not told",
                row["kind"],
                f"{row['elections']:,}",
            )
            for row in elections
        ),
        none="None after the creation of a topic.",
        order="by topic",
    )


def reassignments(found: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Reassignments",
        ("offset", "at", "partition", "from", "to", "by", "how it ended", "took"),
        (
            (
                "before" if one["begun_offset"] is None else one["begun_offset"],
                "" if one["begun_ts"] is None else moment(one["begun_ts"]),
                f"{one['topic_name']}:{one['partition']}",
                *(", ".join(map(str, one[name] or ())) for name in ("from_replicas", "to_replicas")),
                one["actor"] or "",
                one["ended"] or ("under way" if one["why_stuck"] is None else f"stuck: {one['why_stuck']}"),
                "" if one["duration_ms"] is None else duration(one["duration_ms"]),
            )
            for one in found
        ),
        none="None.",
        order="the oldest first",
    )


def unavailability(unavailable: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Time without a leader",
        ("topic", "partitions", "episodes", "partition time", "unknown", "longest", "still leaderless"),
        (
            (
                row["topic_name"],
                f"{row['partition_count']:,}",
                f"{row['episodes']:,}",
                duration(int(row["total_ms"])) + stepped(row),
                duration(row["unknown_ms"]) if row["unknown_ms"] else "",
                duration(row["longest_ms"]),
                f"{row['lasting']:,}",
            )
            for row in unavailable
        ),
        none="No partition was without a leader.",
        order="by time",
    )


def topics(topics: Sequence[dict[str, Any]]) -> str:
    return table(
        "## Topics created and deleted",
        ("offset", "at", "topic", "what", "topic id", "by", "request"),
        (
            (
                topic["log_offset"],
                moment(topic["ts"]),
                topic["topic_name"],
                topic_verb(topic),
                topic["topic_id"],
                topic["actor"] or "",
                topic["request_id"] or "",
            )
            for topic in topics
        ),
        none="None.",
        order="the oldest first",
    )


def opaque(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    if found:
        yield table(
            "## Records that are not looked into",
            ("type", "records", "from offset", "to offset"),
            (
                (row["type_name"], f"{row['record_count']:,}", row["first_offset"], row["last_offset"])
                for row in found
            ),
            none="None.",
            order="by type",
        )
