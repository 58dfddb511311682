"""Which rows have no test: `python -m tests.rows [--all]`. Exit code 1: there are some."""

import argparse
import sys

from tests.rows.scan import carried
from tests.rows.table import ROWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rows", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every row, with its tests or the reason for none")
    args = parser.parse_args()
    tests = carried()
    missing = 0
    for row_id, row in ROWS.items():
        is_missing = not row.reason and row_id not in tests
        missing += is_missing
        if is_missing:
            print(f"{row_id:5} {row.meaning}: no test")
        elif args.all:
            print(f"{row_id:5} {row.meaning}")
            for line in tests.get(row_id, ()) or [row.reason]:
                print(f"      {line}")
    not_built = sum(bool(row.not_built) for row in ROWS.values())
    untested = sum(bool(row.untested) for row in ROWS.values())
    carried_ones = len(ROWS) - not_built - untested - missing
    print(
        f"{len(ROWS)} rows: {carried_ones} have tests, {not_built} are not built, {untested} ask for no code here; "
        f"{missing} have no test and no reason",
        file=sys.stderr,
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
