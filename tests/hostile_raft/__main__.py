"""Forged Raft messages against a live quorum: `python -m tests.hostile_raft --messages 1000000 --seed 1 [--out DIR]`.

Before that, forged terms against a quorum that is founded, and against a voter that has no leader (`terms.py`).
Exit code 0: held; 1: violated.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.hostile_raft.run import run
from tests.hostile_raft.terms import run_terms
from tests.support.arguments import positive


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_raft", description=__doc__)
    parser.add_argument("--messages", type=positive, default=1_000_000, metavar="N", help="default: 1000000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="empty or new; holds the controllers' files")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="hostile-raft-"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "terms").mkdir()
    of_terms = asyncio.run(run_terms(out / "terms", seed=args.seed))
    print(
        "\n".join(f"VIOLATION: {each}" for each in of_terms)
        or "forged terms: founded, and nobody is locked out"
    )
    verdict = asyncio.run(run(out, messages=args.messages, seed=args.seed))
    print(verdict.summary())
    print(f"the controllers' files: {out / 'c'}")
    return 1 if of_terms or verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
