"""Cut the power: `python -m tests.powercut --points 20000 --seed 7 [--workload NAME] [--at OPERATIONS:VARIANT]`."""

import argparse
import logging
import sys
import time
from functools import partial

from tests.powercut.campaign import Outcome, Point, campaign
from tests.powercut.workloads import WORKLOADS, StockJournal
from tests.support.arguments import positive


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    parser.add_argument(
        "--points", type=positive, default=4_000, help="cut points in all, over all workloads"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workload", choices=[*WORKLOADS, StockJournal.name], help="this one alone")
    parser.add_argument(
        "--at", type=_point, metavar="OPERATIONS:VARIANT", help="this point alone, of one workload"
    )
    args = parser.parse_args()
    if args.at is not None and args.workload is None:
        parser.error("--at needs a --workload")
    logging.disable(logging.CRITICAL)
    chosen = {args.workload: WORKLOADS.get(args.workload, StockJournal)} if args.workload else WORKLOADS
    run = partial(campaign, seed=args.seed, points=max(1, args.points // len(chosen)), only=args.at)
    failed = 0
    for name, make in chosen.items():
        began = time.monotonic()
        outcome = run(make)
        _tell(outcome, time.monotonic() - began)
        for loss in outcome.losses:
            failed += 1
            print(f"  {type(loss.error).__name__}: {loss.error}\n{loss.story}")
            at = f"{loss.point.operations}:{loss.point.variant}"
            print(f"  again: python -m tests.powercut --seed {args.seed} --workload {name} --at {at}")
    if args.workload is None:
        began = time.monotonic()
        proof = run(StockJournal, losses_max=None)
        _tell(proof, time.monotonic() - began)
        print("  (the library's own journal: these losses prove that the cuts hurt)")
        failed += not proof.losses
    return 1 if failed else 0


def _point(text: str) -> Point:
    operations, _, variant = text.partition(":")
    if not operations.isdecimal() or not variant.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not OPERATIONS:VARIANT, two numbers")
    return Point(int(operations), int(variant))


def _tell(outcome: Outcome, seconds: float) -> None:
    print(
        f"{outcome.workload}: {outcome.points} points of {outcome.operations} operations, "
        f"{len(outcome.losses)} losses, {seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
