"""Real processes under faults: `python -m tests.robustness --minutes 10 --seed 1 [--secure] [--out DIR]`.

Exit code 0: held; 1: violated; 2: void, because the run was too easy.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.robustness.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--secure", action="store_true", help="with TLS and identity")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="empty or new; holds the history and all logs"
    )
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="robustness-"))
    out.mkdir(parents=True, exist_ok=True)
    verdict = asyncio.run(run(out, minutes=args.minutes, seed=args.seed, secure=args.secure))
    print(verdict.summary())
    print(f"history: {out / 'history.jsonl'}; logs: {out / 'c'}")
    if verdict.violations:
        return 1
    return 2 if verdict.below_the_floors() else 0


if __name__ == "__main__":
    sys.exit(main())
