"""Kafka's brokers under faults: `python -m tests.kafka (--minutes 10 | --kills 50) [--seed 1] [--out DIR]`.

With `--kills` nothing happens but kill -9 of the active controller, so often. Exit code 0: no acknowledged record was lost
or doubled, none failed, and no broker found a fault; 1: otherwise.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.kafka.faults import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, metavar="N", help="of the active controller, and no other fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="empty or new; holds the data of all nodes")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp(prefix="kafka-"))
    verdict = asyncio.run(run(out, minutes=asked.minutes, kills=asked.kills, seed=asked.seed))
    print(verdict.text())
    print(f"logs: {out}")
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
