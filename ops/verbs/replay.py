"""Edge: `replay digest|report`: an exported log, in Spark."""

import argparse
from pathlib import Path
from typing import Any, Final

from ops import render
from ops.talk import fail_usage, show
from ops.when import AtOffset

QUICK_RECORDS: Final = 100_000
"""Up to so many, starting Spark takes longer than its work: it is started for speed at the start."""


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
