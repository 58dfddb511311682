"""Edge: `replay digest|report`: an exported log, in Spark."""

import argparse
from pathlib import Path
from typing import Any, Final

from ops import render
from ops.arguments import Noun, directory, moment
from ops.talk import fail_usage, show
from ops.when import AtOffset

QUICK_RECORDS: Final = 100_000
"""Up to so many, starting Spark takes longer than its work: it is started for speed at the start."""


def add_parsers(noun: Noun) -> None:
    digest = noun.verb(
        "digest",
        "Compute the state digest of an export.",
        run=run_digest,
        parent=noun.flags.output,
        examples=("replay digest --export export", "replay digest --export export --at 1200 --engine duckdb"),
    )
    digest.add_argument("--at", type=moment, metavar="N", help="an end offset; default: the end")
    digest.add_argument(
        "--engine", choices=("spark", "duckdb", "fold"), default="spark", help="default: spark"
    )
    report = noun.verb(
        "report",
        "Tell in Markdown what happened: who led, which brokers were fenced, what it came to.",
        run=run_report,
        parent=noun.flags.output,
        examples=("replay report --export export > report.md",),
    )
    for verb in (digest, report):
        verb.add_argument("--export", type=directory, required=True, metavar="DIR")


def run_digest(args: argparse.Namespace) -> int:
    from metadata_log.replay.digest import state_digest

    if args.at is not None and not isinstance(args.at, AtOffset):
        fail_usage(args, "--at of an export is an end offset")
    spark = _spark(args.export) if args.engine == "spark" else None
    at = None if args.at is None else args.at.offset
    computed = state_digest(args.export, at=at, engine=args.engine, spark=spark)
    show(args, computed, table=lambda: render.fields((k, render.plain(v)) for k, v in computed.items()))
    return 0


def run_report(args: argparse.Namespace) -> int:
    from metadata_log.replay.report import report

    markdown = report(_spark(args.export), args.export)
    show(args, {"markdown": markdown}, table=lambda: markdown.rstrip("\n"))
    return 0


def _spark(directory: Path) -> Any:
    """Return a Spark session fit for an export; replay/ alone knows its type."""
    from metadata_log.replay.session import session
    from metadata_log.replay.tables import open_export

    export = open_export(directory)  # before a JVM is started for nothing
    return session(quick=export.end_offset - export.first_offset <= QUICK_RECORDS)
