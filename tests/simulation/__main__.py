"""Run many seeds: `python -m tests.simulation --seeds 1..300 --seconds 37 --profile wild [--cluster]`."""

import argparse
import logging
import sys
import time

from tests.simulation.cluster import ClusterWorld
from tests.simulation.world import PROFILES, World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1..20", help="first..last, or one seed")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated seconds of weather per seed")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="fifo")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument(
        "--cluster", action="store_true", help="shipped controllers, brokers and clients on top"
    )
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first, _, last = args.seeds.partition("..")
    began, simulated, failed = time.monotonic(), 0.0, 0
    for seed in range(int(first), int(last or first) + 1):
        make = ClusterWorld if args.cluster else World
        world = make(seed=seed, profile=PROFILES[args.profile], voters=args.voters)
        violations = world.run(args.seconds)
        simulated += world.loop.time()
        if violations:
            failed += 1
            print(f"seed {seed}: {violations[0]}")
            print(
                f"  replay: python -m tests.simulation --seeds {seed} --seconds {args.seconds} "
                f"--profile {args.profile} --voters {args.voters}{' --cluster' if args.cluster else ''}"
            )
        else:
            print(
                f"seed {seed}: ok, {world.writes_acknowledged} writes, {world.reads_answered} reads, "
                f"{len(world.checks.leaders)} leaderships, {world.snapshots_fetched} snapshots fetched, "
                f"{world.network.messages_total} messages, trace {world.network.trace:08x}"
            )
    rate = simulated / max(time.monotonic() - began, 1e-9)
    print(f"{failed} seeds failed; {rate:.0f} simulated seconds per second")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
