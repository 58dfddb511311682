"""Run many seeds: `python -m tests.simulation --minutes 10 --seeds 1..100 --profile swarm`.

Without --seeds it takes seeds from 1 on until the minutes are over. Ctrl-C ends it early, with the totals of what was run.
In runs of the profile `broad` the seed draws how many controllers and brokers there are, unless that is said.
Exit code 1: a property was violated, or a campaign of the profile `broad` of an hour or more reached a marker too seldom;
2: nothing was run.
"""

import argparse
import os
import random
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.simulation.campaign import ledger
from tests.simulation.campaign.campaign import PROFILE_NAMES, Plan, Run, Totals, outcomes
from tests.simulation.campaign.kept_runs import KeptRuns
from tests.simulation.mutants import trial as mutants
from tests.support.arguments import positive, seeds

BROKERS_MAX = 20


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    if args.mutants:
        return mutants.main(
            args.only,
            args.markdown,
            simulation_only=args.simulation_only,
            results=args.results,
            jobs=args.jobs,
            may_begin=_until(args.minutes),
        )
    first, last = args.seeds
    chosen = range(first, last + 1) if last is not None else count(first) if args.minutes else [first]
    plan = Plan(
        profiles=PROFILE_NAMES if args.profile == "all" else (args.profile,),
        controllers=args.controllers,
        observers=args.observers,
        brokers=args.brokers,
        seconds=args.seconds,
        raft_only=args.raft_only,
        hostile=args.hostile,
    )
    totals, began = Totals(plan), time.monotonic()
    runs: Iterator[Run] = (replace(run, variations=tuple(args.vary)) for run in plan.runs(chosen))
    kept = None if args.kept is None else KeptRuns(args.kept, random.Random(first))
    if kept is not None:
        runs = kept.with_variations(runs, plan)
    for outcome in outcomes(runs, jobs=args.jobs, may_begin=_until(args.minutes)):
        totals.add(outcome)
        if kept is not None:
            kept.take(outcome)
        print(outcome.line(), flush=True)
        if outcome.violations:
            print(outcome.report(), flush=True)
    print(totals.text())
    speed = totals.simulated / (time.monotonic() - began)
    print(f"{speed:.1f} simulated seconds per second, with {args.jobs} at a time")
    if args.ledger is not None:
        command = shlex.join(("python", "-m", "tests.simulation", *_without_ledger(argv)))
        ledger.append(args.ledger, totals.campaign(command))
    if not totals.runs:
        print("nothing was run", file=sys.stderr)
        return 2
    return 1 if totals.failed or totals.missing else 0


def _until(minutes: float | None) -> Callable[[], bool]:
    """Answer whether a run may begin: not after so many minutes, nor once somebody asked for the end."""
    until = float("inf") if minutes is None else time.monotonic() + minutes * 60
    asked = threading.Event()

    def ask(number: int, _frame: object) -> None:
        asked.set()
        print("ends with the runs under way; again: at once", file=sys.stderr, flush=True)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return lambda: not asked.is_set() and time.monotonic() < until


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=seeds,
        default=(1, None),
        metavar="FIRST[..LAST]",
        help="first..last, or the first of as many as --minutes allow",
    )
    parser.add_argument("--minutes", type=float, help="begin no seed, and no mutant, after so long")
    parser.add_argument("--seconds", type=float, default=120.0, help="simulated seconds of weather per seed")
    parser.add_argument("--profile", choices=(*PROFILE_NAMES, "all"), default="swarm")
    parser.add_argument(
        "--controllers",
        type=_numbers,
        help="1, 3, 5, or several: 1,3,5",
    )
    parser.add_argument(
        "--observers", type=int, choices=range(5), help="controllers that begin without a vote"
    )
    parser.add_argument("--brokers", type=_brokers, help=f"at most {BROKERS_MAX}")
    parser.add_argument("--raft-only", action="store_true", help="frames instead of controllers and brokers")
    parser.add_argument(
        "--hostile", action="store_true", help="strangers on the Raft ports, and flipped bits on links"
    )
    parser.add_argument(
        "--mutants", action="store_true", help="try the seeded bugs: every one must be noticed"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[mutant.name for mutant in mutants.MUTANTS],
        help="these mutants",
    )
    parser.add_argument(
        "--simulation-only", action="store_true", help="try them on simulated runs alone, and print the rate"
    )
    parser.add_argument(
        "--results", type=Path, help="append what each mutant came to; what is there is not tried again"
    )
    parser.add_argument("--markdown", type=Path, help="write the table of mutants there")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--jobs",
        type=positive,
        default=cores,
        help="processes (default: one for each core, here %(default)s)",
    )
    parser.add_argument(
        "--kept", type=Path, help="vary the runs in this file, and add those that reach rare states"
    )
    parser.add_argument(
        "--vary",
        type=_variation,
        action="append",
        default=[],
        metavar="SECONDS:NUMBER",
        help="draw all anew from there on; as often as needed",
    )
    parser.add_argument(
        "--ledger",
        type=Path,
        help="append what this campaign was to a file",
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(positive, text.split(",")))


def _variation(text: str) -> tuple[float, int]:
    at, _, number = text.partition(":")
    return float(at), int(number)


def _brokers(text: str) -> int:
    if not 0 <= int(text) <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"0 to {BROKERS_MAX} brokers")
    return int(text)


def _without_ledger(argv: list[str]) -> list[str]:
    """Return the arguments that decide what is run."""
    if "--ledger" not in argv:
        return argv
    at = argv.index("--ledger")
    return argv[:at] + argv[at + 2 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
