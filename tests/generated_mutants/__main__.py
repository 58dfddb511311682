"""Try mutants that nobody wrote: `python -m tests.generated_mutants --sample 200 --seed 1 [--minutes M] [--again]`.

Each is tried in a copy of the repository, on the tests that call the changed function, the quickest first, until one fails.
Which test calls what is collected once. What was found is kept in the state directory, so a run that was ended goes on.
Exit code 1: a mutant survived, or the time for it was over before all its tests had run; its difference is printed.
"""

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.generated_mutants import coverage
from tests.generated_mutants.mutations import ROOMS, Generated, sample
from tests.generated_mutants.trial import Choice, Verdict, Workshop
from tests.support.arguments import positive

ROOT: Final = Path(__file__).resolve().parents[2]
QUICK: Final = (
    "-m",
    "not slow",
    "--ignore=tests/house",
    "--ignore=tests/simulation/test_mutants.py",
    "tests",
)
"""The tests that a mutant is tried on: all that need neither real processes nor long lives."""
LIVES: Final = (
    "tests/simulation/test_simulation.py::test_rough_weather[nasty-100]",
    "tests/simulation/test_simulation.py::test_other_quorums[5-nasty-1]",
    "tests/simulation/test_cluster_simulation.py::test_a_simulated_cluster_keeps_every_property[swarm-3]",
    "tests/simulation/test_cluster_simulation.py::test_a_simulated_cluster_keeps_every_property[members-3]",
    "tests/simulation/test_cluster_simulation.py::test_a_simulated_cluster_keeps_every_property[brokers-3]",
    "tests/simulation/test_cluster_simulation.py::test_any_mixture_of_faults_keeps_every_property[201]",
    "tests/simulation/test_cluster_simulation.py::test_a_data_plane_loses_no_acknowledged_record[401]",
)
"""And a few simulated lives, after all others."""


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    state: Path = args.state
    state.mkdir(parents=True, exist_ok=True)
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_bytes()
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.py"))
    }
    chosen = sample(sources, count=args.sample, seed=args.seed)
    results = state / "results.jsonl"
    known = _known(results)
    open_ = [mutant for mutant in chosen if mutant.identity not in known]
    if args.again:
        open_ += [
            mutant
            for mutant in chosen
            if mutant.identity in known and known[mutant.identity].caught_by is None
        ]
    until = math.inf if args.minutes is None else time.monotonic() + 60 * args.minutes
    if open_ and time.monotonic() < until:
        covered = _collect(state / "coverage.jsonl")
        choice, workshop = Choice(covered, sources), Workshop(ROOT, state / "copy")
        for number, mutant in enumerate(open_, start=1):
            if time.monotonic() > until:
                break
            verdict = workshop.test(mutant, choice.tests(mutant), most_s=args.most_seconds)
            known[mutant.identity] = verdict
            with results.open("a") as out:
                out.write(json.dumps(dataclasses.asdict(verdict)) + "\n")
            print(f"{number} of {len(open_)}: {_line(mutant, verdict)}", flush=True)
    tried = [mutant for mutant in chosen if mutant.identity in known]
    return _report(tried, known, sources, drawn=len(chosen))


def _known(results: Path) -> dict[str, Verdict]:
    lines = results.read_text().splitlines() if results.exists() else []
    verdicts = (Verdict(**json.loads(line)) for line in lines)
    return {verdict.identity: verdict for verdict in verdicts}


def _collect(file: Path) -> list[coverage.Covered]:
    """Run the tests that were not seen yet, and return what all of them called."""
    for tests in (QUICK, LIVES):
        plugins = ("-p", "tests.generated_mutants.coverage", "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", "-q", *plugins, *tests]
        environment = os.environ | {"PYTHONPATH": str(ROOT), coverage.VARIABLE: str(file)}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    covered = coverage.read(file)
    print(f"{len(covered)} tests, {sum(not one.passed for one in covered)} of which fail without a mutant")
    return covered


def _line(mutant: Generated, verdict: Verdict) -> str:
    in_vain = f"SURVIVED {verdict.tests} tests" if verdict.complete else "UNDECIDED: the time was over"
    how = verdict.caught_by or in_vain
    return f"{mutant.path}:{mutant.line}: {mutant.kind}: {how} ({verdict.seconds:.0f} s)"


def _report(
    chosen: Sequence[Generated], known: Mapping[str, Verdict], sources: Mapping[str, bytes], *, drawn: int
) -> int:
    undecided = [mutant for mutant in chosen if not known[mutant.identity].is_decided]
    decided = [mutant for mutant in chosen if known[mutant.identity].is_decided]
    survivors = [mutant for mutant in decided if known[mutant.identity].caught_by is None]
    for mutant in (*survivors, *undecided):
        print(f"\n{_line(mutant, known[mutant.identity])}\n{mutant.diff(sources[mutant.path])}")
    rate = _rate(len(decided) - len(survivors), len(decided))
    print(f"\n{rate} generated mutants caught, {len(undecided)} more are undecided; {drawn} were drawn")
    for title, of in (
        ("kind", lambda mutant: mutant.kind),
        ("room", lambda mutant: mutant.path.split("/")[0]),
    ):
        lost = Counter(map(of, survivors))
        for name, count in sorted(Counter(map(of, decided)).items()):
            print(f"  {title} {name}: {_rate(count - lost[name], count)}")
    return 1 if survivors or undecided else 0


def _rate(caught: int, tried: int) -> str:
    return f"{caught} of {tried} ({100 * caught / max(1, tried):.0f} %)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.generated_mutants", description=__doc__)
    parser.add_argument("--sample", type=positive, default=200, help="so many mutants (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--minutes", type=float, help="try no further mutant after so long; 0: only report")
    parser.add_argument(
        "--most-seconds", type=positive, default=120, help="of processor time, for some of a mutant's tests"
    )
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    default = Path(tempfile.gettempdir()) / "metaquorum-generated-mutants"
    parser.add_argument("--state", type=Path, default=default, help="where results are kept (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
