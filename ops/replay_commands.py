"""E: `replay digest|report`: an exported log, in Spark."""

import argparse

from ops import render
from ops.talk import fail_usage, show
from ops.when import AtOffset


def run_digest(args: argparse.Namespace) -> int:
    from metadata_log.replay.digest import state_digest

    if args.at is not None and not isinstance(args.at, AtOffset):
        fail_usage(args, "--at of an export is an end offset")
    computed = state_digest(args.export, at=None if args.at is None else args.at.offset, engine=args.engine)
    show(args, computed, table=lambda: render.fields((k, render.plain(v)) for k, v in computed.items()))
    return 0


def run_report(args: argparse.Namespace) -> int:
    from metadata_log.replay.report import report
    from metadata_log.replay.session import session

    markdown = report(session(), args.export)
    show(args, {"markdown": markdown}, table=lambda: markdown.rstrip("\n"))
    return 0
