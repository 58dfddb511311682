"""Try mutants that nobody wrote: `python -m tests.generated_mutants --sample 200 --seed 1 [--minutes M] [--again]`.

Each is tried in a copy of the repository, on the tests that call the changed function, the quickest first, until one fails.
Which test calls what is collected once. What was found is kept in the state directory, so a run that was ended goes on.
`--drawn-from` goes on with the sample of an earlier commit: its mutants are tried where their lines stand now.
Exit code 1: a mutant survived, or the time for it was over before all its tests had run; its difference is printed.
"""

import argparse
import dataclasses
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.generated_mutants import coverage
from tests.generated_mutants.mutations import ROOMS, Generated, carried, sample
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
SLOW: Final = ("-m", "slow", "tests/unit")
"""Those that are slow because they write exports and reports, or try each of very many inputs."""
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
    chosen, gone = _drawn(args, sources)
    results = state / "results.jsonl"
    known = _known(results)
    open_ = [drawn for drawn in chosen if drawn not in known]
    if args.again:
        open_ += [drawn for drawn in chosen if drawn in known and known[drawn].caught_by is None]
    until = math.inf if args.minutes is None else time.monotonic() + 60 * args.minutes
    if open_ and time.monotonic() < until:
        covered = _collect(state / "coverage.jsonl")
        choice, workshop = Choice(covered, sources), Workshop(ROOT, state / "copy")
        for number, drawn in enumerate(open_, start=1):
            if time.monotonic() > until:
                break
            mutant = chosen[drawn]
            verdict = workshop.test(mutant, choice.tests(mutant), most_s=args.most_seconds)
            known[drawn] = verdict = dataclasses.replace(verdict, identity=drawn)
            with results.open("a") as out:
                out.write(json.dumps(dataclasses.asdict(verdict)) + "\n")
            print(f"{number} of {len(open_)}: {_line(mutant, verdict)}", flush=True)
    for mutant in gone:
        print(f"{mutant.path}:{mutant.line}: {mutant.kind}: its line has changed since it was drawn")
    tried = {drawn: mutant for drawn, mutant in chosen.items() if drawn in known}
    return _report(tried, known, sources, drawn=len(chosen) + len(gone))


def _drawn(
    args: argparse.Namespace, sources: Mapping[str, bytes]
) -> tuple[dict[str, Generated], list[Generated]]:
    """Return the sample as it can be tried now, by what each was when it was drawn; and those whose lines have changed."""
    before = sources if args.drawn_from is None else _sources_of(args.drawn_from)
    chosen, gone = dict[str, Generated](), list[Generated]()
    for mutant in sample(before, count=args.sample, seed=args.seed):
        now = carried(mutant, before[mutant.path], sources.get(mutant.path, b""))
        if now is None:
            gone.append(mutant)
        else:
            chosen[mutant.identity] = now
    return chosen, gone


def _sources_of(commit: str) -> dict[str, bytes]:
    archive = subprocess.run(["git", "archive", commit, *ROOMS], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    sources = {}
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as members:
        for member in members:
            file = members.extractfile(member)
            if file is not None and member.name.endswith(".py"):
                sources[member.name] = file.read()
    return sources


def _known(results: Path) -> dict[str, Verdict]:
    lines = results.read_text().splitlines() if results.exists() else []
    verdicts = (Verdict(**json.loads(line)) for line in lines)
    return {verdict.identity: verdict for verdict in verdicts}


def _collect(file: Path) -> list[coverage.Covered]:
    """Run the tests that were not seen yet, and return what all of them called."""
    for tests in (QUICK, SLOW, LIVES):
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
    chosen: Mapping[str, Generated], known: Mapping[str, Verdict], sources: Mapping[str, bytes], *, drawn: int
) -> int:
    verdicts = [(mutant, known[identity]) for identity, mutant in chosen.items()]
    undecided = [(mutant, verdict) for mutant, verdict in verdicts if not verdict.is_decided]
    decided = [mutant for mutant, verdict in verdicts if verdict.is_decided]
    lived = [
        (mutant, verdict) for mutant, verdict in verdicts if verdict.is_decided and verdict.caught_by is None
    ]
    survivors = [mutant for mutant, _ in lived]
    for mutant, verdict in (*lived, *undecided):
        print(f"\n{_line(mutant, verdict)}\n{mutant.diff(sources[mutant.path])}")
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
    parser.add_argument("--drawn-from", metavar="COMMIT", help="draw from the sources of an earlier commit")
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
