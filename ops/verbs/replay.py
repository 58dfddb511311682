"""Edge: `replay`: an exported log, asked: report, SQL, tables, state, differences, histories, digest."""

import argparse
from pathlib import Path
from typing import Any

from metadata_log.errors import BrokerIdNotRegistered, InvalidRequest
from metadata_log.node.credentials import dates_of
from ops import render
from ops.admin.connect import SHOWN, given_files, say_ends
from ops.arguments import Noun, Parser, add_shown, from_to, log_place, moment
from ops.row_output import check_output, show_items, show_rows
from ops.sql_prompt import answer_all
from ops.talk import fail_usage, patience, put, say, show
from ops.when import AtOffset, When


def add_parsers(noun: Noun) -> None:
    digest = _verb(
        noun,
        "digest",
        "Compute the state digest of an export.",
        run_digest,
        "replay digest --export export",
        "replay digest --export export --at 1200 --engine duckdb",
    )
    digest.add_argument("--at", type=moment, metavar="N", help="an end offset; default: the end")
    digest.add_argument(
        "--engine", choices=("spark", "duckdb", "fold"), default="spark", help="default: spark"
    )
    report = noun.verb(
        "report",
        "Tell what happened: what it cost, who did it, which brokers were lost, who led.",
        run=run_report,
        parent=None,
        examples=(
            "replay report --export export > report.md",
            "replay report --export export --from -2h -o html > report.html",
            "replay report --export /var/lib/kafka/metadata --format kafka -o html > report.html",
            "replay report --export export --topic orders --broker 11",
        ),
    )
    _add_source(report)
    report.add_argument(
        "-o", "--output", choices=("md", "html", "json"), default="md", help="default: md, which is Markdown"
    )
    report.add_argument("--json", dest="output", action="store_const", const="json", help="as -o json")
    report.add_argument("--topic", metavar="NAME", help="of topics, this one alone")
    report.add_argument(
        "--broker", type=from_to(0, 2**31 - 1), metavar="ID", help="of brokers, this one alone"
    )
    _add_engine(report)
    _add_range(report, required=False)
    sql = _verb(
        noun,
        "sql",
        "Answer a query over the tables that `replay tables` lists.",
        run_sql,
        'replay sql --export export "SELECT * FROM incidents ORDER BY duration_ms DESC LIMIT 10"',
        'replay sql --export export "SELECT * FROM fencings" -o parquet > fencings.parquet',
        "replay sql --export export",
        'replay sql --export lake "SELECT cluster, count(*) AS losses FROM fencings GROUP BY cluster"',
    )
    sql.add_argument(
        "query",
        nargs="*",
        metavar="SQL",
        help="a SELECT, DESCRIBE, SUMMARIZE or SHOW TABLES; without one, queries are read from stdin, at a terminal from a "
        "prompt",
    )
    _add_engine(sql)
    tables = noun.verb(
        "tables",
        "List the tables that can be asked, or the columns of one.",
        run=run_tables,
        parent=noun.flags.output,
        examples=("replay tables", "replay tables leader_intervals"),
    )
    tables.add_argument("name", nargs="?", metavar="TABLE")
    state = _verb(
        noun,
        "state",
        "Show one subject of the state at an offset or a time.",
        run_state,
        "replay state partitions --export export --at 500",
    )
    state.add_argument("subject", metavar="SUBJECT", help="topics, partitions, brokers, configs or quorum")
    state.add_argument("--at", type=moment, metavar="WHEN", help="an end offset or a time; default: the end")
    diff = _verb(
        noun,
        "diff",
        "Show what differs between the states at two offsets or times.",
        run_diff,
        "replay diff --export export --from 500 --to 900",
    )
    _add_range(diff, required=True)
    history = _verb(
        noun,
        "history",
        "Show what happened to a topic, partition, broker, controller, or the cluster.",
        run_history,
        "replay history orders:3 --export export",
        "replay history broker:11 --export export",
    )
    history.add_argument(
        "entity", metavar="KEY", help="topic:NAME, a partition as NAME:N, broker:ID, controller:ID, cluster"
    )


def _verb(noun: Noun, name: str, about: str, run: Any, *examples: str) -> Parser:
    parent = noun.flags.output if name == "digest" else noun.flags.rows
    verb = noun.verb(name, about, run=run, parent=parent, examples=examples)
    _add_source(verb)
    return verb


def _add_source(verb: Parser) -> None:
    source = verb.add_argument_group("log")
    source.add_argument(
        "--export",
        type=log_place,
        required=True,
        metavar="DIR|FILE|URL",
        help="an export, a data directory, a folder of segments, Kafka's metadata.log.dir, a controller; or the file of a "
        "snapshot or of Kafka's checkpoint, which is a state without a history",
    )
    source.add_argument(
        "--format", choices=("metaquorum", "kafka"), help="whose log it is; default: as its files look"
    )
    source.add_argument(
        "--skip-damaged",
        action="store_true",
        help="of damaged segment files, take the longest part that is whole; stderr says what is missing",
    )
    add_shown(source)


def _add_engine(verb: Parser) -> None:
    verb.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb", help="default: duckdb")


def _add_range(verb: Parser, *, required: bool) -> None:
    verb.add_argument("--from", dest="first", type=moment, required=required, metavar="WHEN")
    verb.add_argument("--to", dest="last", type=moment, metavar="WHEN", help="default: the end")


def run_digest(args: argparse.Namespace) -> int:
    from metadata_log.replay.digest import state_digest
    from metadata_log.replay.session import session

    if args.at is not None and not isinstance(args.at, AtOffset):
        fail_usage("--at of an export is an end offset")
    with patience("the digest is being computed"):
        log = _log(args, engine="duckdb")
        position = log.position(_at(args.at))
        spark = session(quick=log.is_small) if args.engine == "spark" else None
        computed = state_digest(log.export.directory, at=position.end_offset, engine=args.engine, spark=spark)
    if args.at is not None:
        say(position.note)
    show(args, computed, table=lambda: render.fields((k, render.plain(v)) for k, v in computed.items()))
    return 0


def run_report(args: argparse.Namespace) -> int:
    from metadata_log.replay.report import report_of

    with patience("the report is being computed"):
        log = _log(args)
        if args.first is not None or args.last is not None:
            log = log.between(_at(args.first), _at(args.last))
        if args.topic is not None:
            log = log.about(args.topic)
        if args.broker is not None and not _names_broker(log, args.broker):
            raise BrokerIdNotRegistered(
                f"the log names no broker {args.broker} in these offsets", broker_id=args.broker
            )
        text = report_of(log, args.output, broker=args.broker)
    put(text.rstrip("\n"), output=args.output)
    return 0


def _names_broker(log: Any, broker_id: int) -> bool:
    tables = ("broker_changes", "brokers")
    named = " UNION ALL ".join(
        f"SELECT 1 AS found FROM {name} WHERE broker_id = {broker_id}"  # noqa: S608 names of ours
        for name in tables
    )
    return bool(log.engine.answer(log.sql(named)).num_rows)


def run_sql(args: argparse.Namespace) -> int:
    """Answer the query that was given, else those on stdin, over a log that is opened once."""
    check_output(args)
    with patience("the log is being opened"):
        log = _log(args, or_lake=True)

    def answer(query: str) -> None:
        with patience("the query runs"):
            rows = log.engine.answer(log.sql(query))
        show_rows(args, rows)

    if not args.query:
        return answer_all(log, answer)
    answer(" ".join(args.query))
    return 0


def run_tables(args: argparse.Namespace) -> int:
    from metadata_log.replay.catalog import TABLES, described

    if args.name is None:
        items = [{"table": name, "about": described(name).about} for name in TABLES]
    elif args.name in TABLES:
        items = [column._asdict() for column in described(args.name).columns]
    else:
        fail_usage(f"there is no table {args.name!r}; `replay tables` lists them")
    show_items(args, items)
    return 0


def run_state(args: argparse.Namespace) -> int:
    from metadata_log.replay.catalog import STATE

    if args.subject not in STATE:
        fail_usage(f"{args.subject!r} is no subject: {', '.join(STATE)}")
    check_output(args)
    with patience("the state is being computed"):
        log = _log(args)
        state = log.state_at(_at(args.at))
        answer = log.engine.answer(state[args.subject])
    say(state.position.note)
    show_rows(args, answer)
    return 0


def run_diff(args: argparse.Namespace) -> int:
    check_output(args)
    with patience("the states are being compared"):
        log = _log(args)
        notes = [log.position(_at(moment)).note for moment in (args.first, args.last)]
        answer = log.engine.answer(log.diff(_at(args.first), _at(args.last)))
    say(f"from: {notes[0]}; to: {notes[1]}")
    show_rows(args, answer)
    return 0


def run_history(args: argparse.Namespace) -> int:
    check_output(args)
    with patience("the history is being read"):
        log = _log(args)
        answer = log.engine.answer(log.history(args.entity))
    if not answer.num_rows:
        export = log.export
        raise InvalidRequest(
            f"the log tells nothing of {args.entity} in the offsets {export.first_offset} up to {export.end_offset}"
        )
    show_rows(args, answer)
    return 0


def _log(args: argparse.Namespace, *, engine: str | None = None, or_lake: bool = False) -> Any:
    """Open the log that is asked; `or_lake`: the logs of all clusters, where a lake is named."""
    from metadata_log import replay
    from metadata_log.replay.controller_client import Shown
    from metadata_log.replay.kinds import Kind, kind_of

    given = given_files({name: getattr(args, name) for name in SHOWN})
    engine = engine or getattr(args, "engine", "duckdb")
    if or_lake and isinstance(args.export, Path) and kind_of(args.export) is Kind.LAKE:
        return replay.lake(args.export, engine)
    if isinstance(args.export, str) and "ca" in given:  # a controller's URL
        say_ends(dates_of(given.get("cert"), given["ca"]), say)
    log = replay.open(
        args.export,
        engine,
        format=args.format,
        skip_damaged=args.skip_damaged,
        shown=Shown(**given, insecure=args.insecure),
    )
    log.warns_of_cuts = False  # the verbs say themselves which batch boundary they show
    for line in log.missing:
        say(line)
    return log


def _at(moment: When | None) -> Any:
    from datetime import UTC, datetime

    if moment is None or isinstance(moment, AtOffset):
        return None if moment is None else moment.offset
    return datetime.fromtimestamp(moment.unix_ms / 1000, UTC)
