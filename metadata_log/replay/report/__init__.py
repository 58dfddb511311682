"""Edge: a page of Markdown, or HTML, or JSON, that tells what happened to a cluster, from its exported log alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.printable import json_text, without_controls, without_markup
from metadata_log.replay.catalog import SHARED
from metadata_log.replay.engines import DuckDb, Engine, engine_of, rows
from metadata_log.replay.library import Log
from metadata_log.replay.page import charts, page
from metadata_log.replay.plain import plain_rows, plain_rows_of
from metadata_log.replay.report import events as told
from metadata_log.replay.report import sections
from metadata_log.replay.report.focus import Focus
from metadata_log.replay.report.impact import impact, refusals, under_min_isr
from metadata_log.replay.report.start import begun, start_of
from metadata_log.replay.report.summary import head, steps_back, summary, verified
from metadata_log.replay.tables import open_export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            start = start_of(log, brokers)
            digest, is_same = verified(log)
            first, last = log.marks
            unknown_ms, steps = last.unknown_ms - first.unknown_ms, steps_back(log)
            under = focus.of("under_min_isr_spells", plain_rows_of(under_min_isr(log)))
            tables = {name: focus.of(name, plain_rows(log, log.table(name))) for name in JSON_TABLES}
            about = {
                "cluster_id": log.export.cluster_id,
                "from": log.first._asdict(),
                "to": log.last._asdict(),
                "time": {
                    "known_ms": last.known_ms - first.known_ms,
                    "unknown_ms": unknown_ms,
                    "clock_steps_back": steps._asdict(),
                },
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
            about["impact"] = impact(
                tables["unavailability"], under, unknown_ms, alarming_steps=steps.alarm
            ).strip("*")
            tables["under_min_isr"] = under
            return json_text(about | tables, indent=1) + "\n"
        case "html":
            return without_controls(page(_sections(log, focus, brokers), charts(log, broker=broker)))
        case _:
            return without_markup("\n\n".join(_sections(log, focus, brokers))) + "\n"


def _fetch(engine: Engine[Any], table: Any) -> list[dict[str, Any]]:
    return _rows_of(engine.arrow(table))


def _rows_of(computed: pa.Table) -> list[dict[str, Any]]:
    return [dict(zip(computed.column_names, row, strict=True)) for row in rows(computed)]


def _sections(log: Log, focus: Focus, brokers: list[dict[str, Any]]) -> list[str]:
    def fetched(name: str) -> list[dict[str, Any]]:
        return focus.of(name, _fetch(log.engine, log.named_table_of(name)))

    claims = fetched("controller_takeovers")
    topics = fetched("topic_events")
    incidents = fetched("incidents")
    unavailable = fetched("unavailability")
    availability = fetched("broker_availability")
    under = focus.of("under_min_isr_spells", _rows_of(under_min_isr(log)))
    start = start_of(log, brokers)
    events = [
        *told.claimed(claims),
        *told.broker_events(brokers, fetched("repeated_registrations"), log.first.end_offset),
        *told.topic_events(topics),
        *told.config_events(fetched("config_changes")),
        *told.cluster_events(fetched("cluster_events")),
        *told.moved(fetched("leader_moves")),
    ]
    return [
        head(log, focus),
        summary(
            log,
            start,
            incidents=incidents,
            unavailable=unavailable,
            availability=availability,
            under=under,
        ),
        *([] if start is None else [begun(start, focus)]),
        sections.incidents(incidents),
        told.timeline(events),
        sections.controllers(claims),
        sections.voters(fetched("voters_over_time"), log.first.end_offset),
        sections.availability(availability),
        sections.brokers(brokers, log.first.end_offset),
        sections.leaderships(fetched("topic_churn")),
        sections.elections(fetched("elections")),
        sections.reassignments(fetched("reassignments")),
        sections.unavailability(unavailable),
        refusals(under),
        sections.topics(topics),
        *sections.opaque(fetched("opaque_records")),
    ]
