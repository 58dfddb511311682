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
        is_missing = not row.untested and row_id not in tests
        missing += is_missing
        if is_missing:
            print(f"{row_id:5} {row.meaning}: no test")
        elif args.all:
            print(f"{row_id:5} {row.meaning}")
            for line in tests.get(row_id, ()) or [f"none: {row.untested}"]:
                print(f"      {line}")
    print(f"{missing} of {len(ROWS)} rows have no test", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
