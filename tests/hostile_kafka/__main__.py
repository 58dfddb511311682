"""Forged requests against a live port of Kafka's protocol: `python -m tests.hostile_kafka --requests 1000000 --seed 1`.

Nine of ten are sent where everybody may do everything, the others by TLS without an identity. Exit code 0: held; 1:
violated.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.hostile_kafka.run import run
from tests.support.arguments import positive


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_kafka", description=__doc__)
    parser.add_argument("--requests", type=positive, default=1_000_000, metavar="N", help="default: 1000000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="empty or new; holds the controllers' files")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="hostile-kafka-"))
    is_violated = False
    for is_known, requests in ((True, args.requests * 9 // 10), (False, args.requests // 10)):
        directory = out / ("known" if is_known else "unknown")
        directory.mkdir(parents=True)
        verdict = asyncio.run(run(directory, requests=requests, seed=args.seed, is_known=is_known))
        print(verdict.summary(), flush=True)
        is_violated |= bool(verdict.violations)
    print(f"the controllers' files: {out}")
    return 1 if is_violated else 0


if __name__ == "__main__":
    sys.exit(main())
