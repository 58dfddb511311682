"""Edge: a page of Markdown, or HTML, or JSON, that tells what happened to a cluster, from its exported log alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metadata_log.errors import InvalidRequest
from metadata_log.printable import json_text, without_controls, without_markup
from metadata_log.replay.catalog import SHARED
from metadata_log.replay.engines import DuckDb, engine_of
from metadata_log.replay.library import Log
from metadata_log.replay.report.focus import Focus
from metadata_log.replay.report.impact import impact
from metadata_log.replay.report.section import Told
from metadata_log.replay.report.sections import JSON_TABLES, READ, READ_BY_JSON, SECTIONS
from metadata_log.replay.report.start import start_of
from metadata_log.replay.report.summary import steps_back, verified
from metadata_log.replay.tables import open_export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    log.begin(*(READ_BY_JSON if form == "json" else READ))
    told = Told(log, Focus(log.topic, None))
    brokers = told.rows("broker_state_intervals")
    if broker is not None:
        if all(row["broker_id"] != broker for row in brokers):
            raise InvalidRequest(f"the log names no broker {broker} in these offsets")
        told = Told(log, Focus(log.topic, broker))
        brokers = told.rows("broker_state_intervals")
    told = told.from_there(start_of(log, brokers))
    if form == "json":
        return json_text(_as_json(told), indent=1) + "\n"
    sections = [text for section in SECTIONS if (text := section.markdown(told)) is not None]
    if form == "html":
        from metadata_log.replay.page import charts, page

        return without_controls(page(sections, charts(log, broker=broker)))
    return without_markup("\n\n".join(sections)) + "\n"


def _as_json(told: Told) -> dict[str, Any]:
    log, focus, start = told.log, told.focus, told.start
    digest, is_same = verified(log)
    first, last = log.marks
    unknown_ms, steps = last.unknown_ms - first.unknown_ms, steps_back(log)
    tables = {name: told.plain(name) for name in JSON_TABLES}
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
        "impact": impact(
            tables["unavailability"], tables["under_min_isr"], unknown_ms, alarming_steps=steps.alarm
        ).strip("*"),
    }
    return about | tables
