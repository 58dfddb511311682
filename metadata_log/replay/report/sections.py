"""Edge: the sections of the report, in order: a new one is an entry of `SECTIONS`.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

from collections.abc import Iterable
from typing import Final

from metadata_log.replay.catalog import STATE, TABLES
from metadata_log.replay.report.events import TELLS, timeline, topic_verb
from metadata_log.replay.report.section import Row, Section
from metadata_log.replay.report.start import SERVING, begun
from metadata_log.replay.report.summary import head, summary
from metadata_log.replay.report.words import cause, duration, lasted, moment, place, stepped

_WHAT: Final = {
    "broker": "broker {node_id}: {verdict}",
    "controller": "controller {node_id} took over",
    "partitions": "partitions lost their leaders",
    "before": "partitions had no leader already",
}


def _incident(row: Row, _first: int) -> Iterable[object]:
    is_lost = row["trigger"] == "broker" and row["verdict"] not in {"stopped", "stopped or lost", "disk"}
    return (
        row["incident"],
        row["from_offset"],
        moment(row["from_ts"]),
        f"broker {row['node_id']} lost" if is_lost else _WHAT[row["trigger"]].format(**row),
        row["verdict"],
        f"{row['leaders_moved']:,}",
        f"{row['left_leaderless']:,}",
        duration(row["leaderless_ms"]),
        "not yet" if row["whole_isr_ms"] is None else duration(row["whole_isr_ms"]),
        _how_long(row),
    )


def _how_long(incident: Row) -> str:
    if incident["trigger"] == "controller":
        gap_ms = incident["write_gap_at_most_ms"]
        return "" if gap_ms is None else f"at most {duration(gap_ms)}"
    return lasted(incident, so_far=incident["to_ts"] is None)


def _claim(row: Row, _first: int) -> Iterable[object]:
    return (
        row["controller_epoch"],
        row["controller_id"],
        row["kind"],
        row["first_offset"],
        moment(row["ts"]),
        "" if row["silent_ms"] is None else duration(row["silent_ms"]),
        lasted(row, "tenure_ms", so_far=row["lasting"]),
        f"{row['record_count']:,}",
    )


def _voters(row: Row, first: int) -> Iterable[object]:
    is_change = row["log_offset"] >= first
    return (
        *place(row["log_offset"], row["ts"], first),
        ", ".join(map(str, row["voter_ids"])),
        *(", ".join(map(str, row[name])) if is_change else "" for name in ("added", "removed")),
        cause(row["cause_code"], None),
    )


def _availability(row: Row, _first: int) -> Iterable[object]:
    return (
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


def _interval(row: Row, first: int) -> Iterable[object]:
    return (
        row["broker_id"],
        row["state"],
        *place(row["from_offset"], row["from_ts"], first),
        lasted(row, so_far=row["lasting"]),
        cause(row["cause_code"], row["cause_detail"]),
    )


def _churn(row: Row, _first: int) -> Iterable[object]:
    counts = (row[name] for name in ("leader_changes", "losses", "isr_shrinks", "isr_expands"))
    return row["topic_name"], cause(row["cause_code"], None) or "not told", *(f"{n:,}" for n in counts)


def _election(row: Row, _first: int) -> Iterable[object]:
    return (
        row["topic_name"],
        cause(row["cause_code"], None) or "not told",
        row["kind"],
        f"{row['elections']:,}",
    )


def _reassignment(row: Row, _first: int) -> Iterable[object]:
    return (
        "before" if row["begun_offset"] is None else row["begun_offset"],
        "" if row["begun_ts"] is None else moment(row["begun_ts"]),
        f"{row['topic_name']}:{row['partition']}",
        *(", ".join(map(str, row[name] or ())) for name in ("from_replicas", "to_replicas")),
        row["actor"] or "",
        row["ended"] or ("under way" if row["why_stuck"] is None else f"stuck: {row['why_stuck']}"),
        "" if row["duration_ms"] is None else duration(row["duration_ms"]),
    )


def _unavailable(row: Row, _first: int) -> Iterable[object]:
    return (
        row["topic_name"],
        f"{row['partition_count']:,}",
        f"{row['episodes']:,}",
        duration(int(row["total_ms"])) + stepped(row),
        duration(row["unknown_ms"]) if row["unknown_ms"] else "",
        duration(row["longest_ms"]),
        f"{row['lasting']:,}",
    )


def _refusal(row: Row, _first: int) -> Iterable[object]:
    broker = "" if row["broker_id"] is None else f", broker {row['broker_id']}"
    return (
        row["topic_name"],
        (cause(row["cause_code"], None) or "not told") + broker,
        f"{row['partition_count']:,}",
        f"{row['spells']:,}",
        duration(row["total_ms"]) + stepped(row),
        duration(row["unknown_ms"]) if row["unknown_ms"] else "",
        moment(row["from_ts"]),
        "it lasts" if row["lasting"] or row["to_ts"] is None else moment(row["to_ts"]),
        row["isr_size"],
        row["min_isr"],
    )


def _topic(row: Row, _first: int) -> Iterable[object]:
    return (
        row["log_offset"],
        moment(row["ts"]),
        row["topic_name"],
        topic_verb(row),
        row["topic_id"],
        row["actor"] or "",
        row["request_id"] or "",
    )


def _opaque(row: Row, _first: int) -> Iterable[object]:
    return row["type_name"], f"{row['record_count']:,}", row["first_offset"], row["last_offset"]


SECTIONS: Final = (
    Section(writes=head, also_reads=(*STATE, "records")),
    Section(writes=summary, also_reads=("incidents", "unavailability", "broker_availability", "actions")),
    Section(writes=begun),
    Section(
        reads="incidents",
        title="Incidents",
        columns=(
            *("no", "offset", "at", "what", "verdict", "leaders moved", "left leaderless", "without leader"),
            *("whole ISR after", "for"),
        ),
        cells=_incident,
        by=lambda row: (-(row["duration_ms"] or 0) - (row["unknown_ms"] or 0), row["from_offset"]),
        order="by how long the losses took",
        none="No broker was lost and no controller took over in these offsets.",
    ),
    Section(writes=timeline, also_reads=("repeated_registrations", *TELLS)),
    Section(
        reads="controller_takeovers",
        title="Controllers",
        columns=(
            *(
                "epoch",
                "controller",
                "how",
                "from offset",
                "at",
                "silence before",
                "in charge for",
                "records",
            ),
        ),
        cells=_claim,
        order="the oldest first",
        none="No controller took over in these offsets.",
    ),
    Section(
        reads="voters_over_time",
        title="Voters",
        columns=("from offset", "at", "voters", "added", "removed", "cause"),
        cells=_voters,
        order="the oldest first",
        none="No record names the voters.",
    ),
    Section(
        reads="broker_availability",
        title="Availability of brokers",
        columns=(
            *(
                "broker",
                "served",
                "of known",
                "percent",
                "unknown",
                "outages",
                "longest",
                "processes",
                "state",
            ),
        ),
        cells=_availability,
        by=lambda row: (row["availability_percent"] or 0, row["broker_id"]),
        order="the least available first",
        none="No broker registered.",
    ),
    Section(
        reads="broker_state_intervals",
        title="Broker states",
        columns=("broker", "state", "from offset", "at", "for", "cause"),
        cells=_interval,
        by=lambda row: (row["state"] in SERVING, -row["duration_ms"], row["from_offset"]),
        order="those out of service first, by how long",
        none="No broker registered.",
    ),
    Section(
        reads="topic_churn",
        title="Leader and ISR changes",
        columns=("topic", "cause", "leader changes", "left leaderless", "ISR shrinks", "ISR expands"),
        cells=_churn,
        order="by leader changes",
        none="No partition changed.",
    ),
    Section(
        reads="elections",
        title="Elections",
        columns=("topic", "cause", "how", "elections"),
        cells=_election,
        order="by topic",
        none="None after the creation of a topic.",
    ),
    Section(
        reads="reassignments",
        title="Reassignments",
        columns=("offset", "at", "partition", "from", "to", "by", "how it ended", "took"),
        cells=_reassignment,
        order="the oldest first",
        none="None.",
    ),
    Section(
        reads="unavailability",
        title="Time without a leader",
        columns=(
            *("topic", "partitions", "episodes", "partition time", "unknown", "longest", "still leaderless"),
        ),
        cells=_unavailable,
        order="by time",
        none="No partition was without a leader.",
    ),
    Section(
        reads="under_min_isr",
        also_reads=("under_min_isr_spells", "partition_changes"),
        title="Under min.insync.replicas",
        columns=(
            *("topic", "because of", "partitions", "spells", "partition time", "unknown", "from", "to"),
            *("least in sync", "needed"),
        ),
        cells=_refusal,
        order="by partition time",
        none="No partition was under min.insync.replicas: none refused writes with acks=all.",
    ),
    Section(
        reads="topic_events",
        title="Topics created and deleted",
        columns=("offset", "at", "topic", "what", "topic id", "by", "request"),
        cells=_topic,
        order="the oldest first",
        none="None.",
    ),
    Section(
        reads="opaque_records",
        in_json=False,
        title="Records that are not looked into",
        columns=("type", "records", "from offset", "to offset"),
        cells=_opaque,
        order="by type",
    ),
    Section(reads="fencings"),
    Section(reads="config_changes"),
    Section(reads="leadership_balance"),
    Section(reads="log_health"),
)
"""Those without a title are tables of the JSON alone."""
_JSON_BEGINS: Final = (
    *("incidents", "fencings", "controller_takeovers", "voters_over_time", "broker_availability"),
    *("broker_state_intervals", "unavailability", "topic_churn", "elections", "reassignments"),
    *("topic_events", "config_changes", "leadership_balance", "log_health", "under_min_isr"),
)
_IN_JSON: Final = {section.reads for section in SECTIONS if section.in_json and section.reads}
READ: Final = tuple(
    name
    for section in SECTIONS
    if section.title or section.writes
    for name in (section.reads, *section.also_reads)
    if name in TABLES
)
"""The tables of the catalog that the sections are made of, in the order in which these want them."""
JSON_TABLES: Final = (*_JSON_BEGINS, *sorted(_IN_JSON - {*_JSON_BEGINS}))
"""The tables of the JSON: programs find those of older releases in their order, and further ones after them."""
READ_BY_JSON: Final = (*(name for name in JSON_TABLES if name in TABLES), "under_min_isr_spells", *STATE)
"""The tables of the catalog that the JSON is made of."""
