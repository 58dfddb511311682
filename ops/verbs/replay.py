"""Edge: `replay`: an exported log, asked: report, SQL, tables, state, differences, histories, digest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from metadata_log.errors import BrokerIdNotRegistered, InvalidRequest
from metadata_log.node.identity.credentials import dates_of
from ops.admin.connect import given_files, say_ends
from ops.command_line.options import (
    Noun,
    Output,
    R,
    argument,
    declaring,
    flag,
    option,
    output,
    output_as,
    rows,
    sharing,
    shown_files,
)
from ops.command_line.row_output import check_output, show_items, show_rows
from ops.command_line.sql_prompt import answer_all
from ops.command_line.talk import fail_usage, patience, put, say
from ops.command_line.values import from_to, log_place, moment
from ops.given import SHOWN
from ops.when import AtOffset, When

NOUN: Final = Noun()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Output):
    """A log that is asked, and how the answer is shown."""

    export: Path | str
    form: str | None
    skip_damaged: bool
    ca: str | None
    cert: str | None
    key: str | None
    token_file: str | None
    insecure: bool
    engine: Literal["duckdb", "spark"] = "duckdb"

    def log(self, *, or_lake: bool = False, is_for_spark: bool = False) -> Any:
        """Open the log; `or_lake`: the logs of all clusters, where a lake is named."""
        from metadata_log import replay
        from metadata_log.replay.arrow_alone import load_arrow_alone
        from metadata_log.replay.controller_client import Shown
        from metadata_log.replay.kinds import Kind, kind_of
        from metadata_log.replay.live_log import LiveLog

        given = given_files({name: getattr(self, name) for name in SHOWN})
        if or_lake and isinstance(self.export, Path) and kind_of(self.export) is Kind.LAKE:
            return replay.lake(self.export, self.engine)
        if isinstance(self.export, str) and "ca" in given:  # a controller's URL
            say_ends(dates_of(given.get("cert"), given["ca"]), say)
        shown = Shown(**given, insecure=self.insecure)
        # Controllers are asked while what reads their log is imported.
        export = LiveLog(self.export, shown) if isinstance(self.export, str) else self.export
        if self.engine == "duckdb" and not is_for_spark:
            load_arrow_alone()
        if isinstance(export, LiveLog):
            export.check()
        log = replay.open(
            export,
            self.engine,
            format=self.form,
            skip_damaged=self.skip_damaged,
        )
        log.warns_of_cuts = False  # the verbs say themselves which batch boundary they show
        for line in log.missing:
            say(line)
        return log


_EXPORT: Final = (
    "an export, a data directory, a folder of segments, Kafka's metadata.log.dir, a controller; or the file of a "
    "snapshot or of Kafka's checkpoint, which is a state without a history"
)
_SKIP: Final = "of damaged segment files, take the longest part that is whole; stderr says what is missing"


def _source(run: R) -> R:
    """Declare which log is asked: the verb gets it as `asked`, a Source."""
    place = {"section": "log"}
    for declare in (
        declaring(*shown_files("log")),
        flag("--skip-damaged", help=_SKIP, **place),
        option(
            "--format",
            "form",
            choices=("metaquorum", "kafka"),
            help="whose log it is; default: as its files look",
            **place,
        ),
        option("--export", read=log_place, required=True, metavar="DIR|FILE|URL", help=_EXPORT, **place),
    ):
        run = declare(run)
    return sharing(Source)(run)


_engine: Final = option("--engine", choices=("duckdb", "spark"), default="duckdb", help="default: duckdb")
_to: Final = option("--to", "last", read=moment, metavar="WHEN", help="default: the end")


@NOUN.verb(
    "digest",
    "Compute the state digest of an export.",
    "replay digest --export export",
    "replay digest --export export --at 1200 --engine duckdb",
)
@option("--at", read=moment, metavar="N", help="an end offset; default: the end")
@option("--engine", "how", choices=("spark", "duckdb", "fold"), default="spark", help="default: spark")
@_source
@output
def run_digest(asked: Source, *, at: When | None, how: Literal["spark", "duckdb", "fold"]) -> int:
    if at is not None and not isinstance(at, AtOffset):
        fail_usage("--at of an export is an end offset")
    with patience("the digest is being computed"):
        log = asked.log(is_for_spark=how == "spark")
        from metadata_log.replay.digest import state_digest
        from metadata_log.replay.session import session

        position = log.position(_at(at))
        spark = session(quick=log.export.is_small) if how == "spark" else None
        computed = state_digest(log.export.directory, at=position.end_offset, engine=how, spark=spark)
    if at is not None:
        say(position.note)
    asked.show_fields(computed)
    return 0


@NOUN.verb(
    "report",
    "Tell what happened: what it cost, who did it, which brokers were lost, who led.",
    "replay report --export export > report.md",
    "replay report --export export --from -2h -o html > report.html",
    "replay report --export /var/lib/kafka/metadata --format kafka -o html > report.html",
    "replay report --export export --topic orders --broker 11",
)
@option("--topic", metavar="NAME", help="of topics, this one alone")
@option("--broker", read=from_to(0, 2**31 - 1), metavar="ID", help="of brokers, this one alone")
@option("--from", "first", read=moment, metavar="WHEN")
@_to
@_engine
@_source
@output_as("md", "html", "json", default="md", told="md, which is Markdown")
def run_report(
    asked: Source, *, topic: str | None, broker: int | None, first: When | None, last: When | None
) -> int:
    with patience("the report is being computed"):
        log = asked.log()
        if first is not None or last is not None:
            log = log.between(_at(first), _at(last))
        if topic is not None:
            log = log.about(topic)
        if broker is not None and not _names_broker(log, broker):
            raise BrokerIdNotRegistered(
                f"the log names no broker {broker} in these offsets", broker_id=broker
            )
        from metadata_log.replay.report import report_of

        text = report_of(log, asked.output, broker=broker)
    put(text.rstrip("\n"), output=asked.output)
    return 0


def _names_broker(log: Any, broker_id: int) -> bool:
    tables = ("broker_changes", "brokers")
    named = " UNION ALL ".join(
        f"SELECT 1 AS found FROM {name} WHERE broker_id = {broker_id}"  # noqa: S608 names of ours
        for name in tables
    )
    return bool(log.engine.answer(log.sql(named)).num_rows)


@NOUN.verb(
    "sql",
    "Answer a query over the tables that `replay tables` lists.",
    'replay sql --export export "SELECT * FROM incidents ORDER BY duration_ms DESC LIMIT 10"',
    'replay sql --export export "SELECT * FROM fencings" -o parquet > fencings.parquet',
    "replay sql --export export",
    'replay sql --export lake "SELECT cluster, count(*) AS losses FROM fencings GROUP BY cluster"',
)
@argument(
    "query",
    "SQL...",
    nargs=-1,
    help="a SELECT, DESCRIBE, SUMMARIZE or SHOW TABLES; without one, queries are read from stdin, at a terminal from a "
    "prompt",
)
@_engine
@_source
@rows
def run_sql(asked: Source, *, query: Sequence[str]) -> int:
    """Answer the query that was given, else those on stdin, over a log that is opened once."""
    check_output(asked)
    with patience("the log is being opened"):
        log = asked.log(or_lake=True)

    def answer(one: str) -> None:
        with patience("the query runs"):
            found = log.engine.answer(log.sql(one))
        show_rows(asked, found)

    if not query:
        return answer_all(log, answer)
    answer(" ".join(query))
    return 0


@NOUN.verb(
    "tables",
    "List the tables that can be asked, or the columns of one.",
    "replay tables",
    "replay tables leader_intervals",
)
@argument("name", "TABLE", required=False)
@output
def run_tables(asked: Output, *, name: str | None) -> int:
    from metadata_log.replay.catalog import TABLES, described

    if name is None:
        items = [{"table": each, "about": described(each).about} for each in TABLES]
    elif name in TABLES:
        items = [column._asdict() for column in described(name).columns]
    else:
        fail_usage(f"there is no table {name!r}; `replay tables` lists them")
    show_items(asked, items)
    return 0


@NOUN.verb(
    "state",
    "Show one subject of the state at an offset or a time.",
    "replay state partitions --export export --at 500",
)
@argument("subject", "SUBJECT", help="topics, partitions, brokers, configs or quorum")
@option("--at", read=moment, metavar="WHEN", help="an end offset or a time; default: the end")
@_source
@rows
def run_state(asked: Source, *, subject: str, at: When | None) -> int:
    from metadata_log.replay.catalog import STATE

    if subject not in STATE:
        fail_usage(f"{subject!r} is no subject: {', '.join(STATE)}")
    check_output(asked)
    with patience("the state is being computed"):
        log = asked.log()
        state = log.state_at(_at(at))
        answer = log.engine.answer(state[subject])
    say(state.position.note)
    show_rows(asked, answer)
    return 0


@NOUN.verb(
    "diff",
    "Show what differs between the states at two offsets or times.",
    "replay diff --export export --from 500 --to 900",
)
@option("--from", "first", read=moment, required=True, metavar="WHEN")
@_to
@_source
@rows
def run_diff(asked: Source, *, first: When, last: When | None) -> int:
    check_output(asked)
    with patience("the states are being compared"):
        log = asked.log()
        notes = [log.position(_at(moment)).note for moment in (first, last)]
        answer = log.engine.answer(log.diff(_at(first), _at(last)))
    say(f"from: {notes[0]}; to: {notes[1]}")
    show_rows(asked, answer)
    return 0


@NOUN.verb(
    "history",
    "Show what happened to a topic, partition, broker, controller, or the cluster.",
    "replay history orders:3 --export export",
    "replay history broker:11 --export export",
)
@argument("entity", "KEY", help="topic:NAME, a partition as NAME:N, broker:ID, controller:ID, cluster")
@_source
@rows
def run_history(asked: Source, *, entity: str) -> int:
    from metadata_log.replay.plain import plain_rows_of

    check_output(asked)
    with patience("the history is being read"):
        log = asked.log()
        answer = log.engine.answer(log.history(entity))
    if not answer.num_rows:
        export = log.export
        raise InvalidRequest(
            f"the log tells nothing of {entity} in the offsets {export.first_offset} up to {export.end_offset}"
        )
    if asked.is_text:
        show_items(asked, _with_operations(log, plain_rows_of(answer)))
        return 0
    show_rows(asked, answer)
    return 0


def _with_operations(log: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a history with the operation as the cause of what was asked for."""
    from metadata_log.replay.plain import plain_rows_of

    asked_for = [row["log_offset"] for row in rows if row["cause_code"] is None]
    if not asked_for:
        return rows
    found = log.engine.answer(
        log.sql(
            "SELECT DISTINCT log_offset, replace(operation, '.many', '') AS operation FROM records "  # noqa: S608 ours
            f"WHERE log_offset IN ({', '.join(map(str, asked_for))})"
        )
    )
    operations = {each["log_offset"]: each["operation"] for each in plain_rows_of(found)}
    return [row | {"cause_code": row["cause_code"] or operations.get(row["log_offset"])} for row in rows]


def _at(moment: When | None) -> Any:
    from datetime import UTC, datetime

    if moment is None or isinstance(moment, AtOffset):
        return None if moment is None else moment.offset
    return datetime.fromtimestamp(moment.unix_ms / 1000, UTC)
