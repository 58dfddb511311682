"""Damage every kind of file: `python -m tests.corruption --flips 12000 --seed 1 [--markdown docs/corruption.md]`."""

import argparse
import logging
import sys
import time
from pathlib import Path

from tests.corruption.campaign import OUTCOMES, Report, campaign
from tests.support.arguments import positive


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption", description=__doc__)
    parser.add_argument("--flips", type=positive, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table between its marks there")
    args = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    began = time.monotonic()
    report = campaign(seed=args.seed, flips=args.flips)
    table = table_of(report)
    print(table)
    print(f"{report.total} damages in {time.monotonic() - began:.0f} s, {len(report.wrong)} wrong")
    for damage, error in report.wrong[:10]:
        print(f"  {damage}: {type(error).__name__}: {error}")
    if report.total == 0:
        print("nothing was damaged: --flips is shared out among all kinds of files", file=sys.stderr)
        return 2
    if args.markdown is not None:
        text = args.markdown.read_text()
        begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
        head, tail = text.split(begin)[0], text.split(end)[1]
        command = f"`python -m tests.corruption --flips {args.flips} --seed {args.seed}`: {report.total} damages\n\n"
        args.markdown.write_text(f"{head}{begin}{command}{table}\n{end}{tail}")
    return 1 if report.wrong else 0


def table_of(report: Report) -> str:
    """Return the counts as a Markdown table: a line for each kind of file and damage."""
    lines = [f"| file | damage | {' | '.join(OUTCOMES)} |", f"|---|---|{'---:|' * len(OUTCOMES)}"]
    for kind, damage in sorted({(kind, damage) for kind, damage, _ in report.counts}):
        counts = " | ".join(str(report.counts[kind, damage, outcome] or "") for outcome in OUTCOMES)
        lines.append(f"| {kind} | {damage} | {counts} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
