"""Seeded bugs: each switches one rule of the shipped code off, and simulated runs or a directed test must notice.

    python -m tests.simulation --mutants [--only NAME ...] [--jobs N] [--markdown FILE]
    python -m tests.simulation --mutants --simulation-only --results FILE [--jobs N] [--minutes N] [--markdown FILE]

A mutant is a few attributes of shipped classes, replaced. It is caught by simulated runs within a bound of seeds, or, where
chance hardly comes by, by a directed test that fails under it; `Directed` names the test. Each trial is a forked copy of one
process that has imported all tests. Without a mutant the same runs and tests pass, in such a copy as well: a run or a test
that fails without one notices nothing.
"""

import gc
import importlib
import io
import json
import logging
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import pytest

from tests.simulation.mutants import (
    brokers,
    controller,
    copies,
    data,
    decisions,
    doors,
    fetch,
    kafka,
    partitions,
    raft,
    reach,
    storage,
    trust,
)
from tests.simulation.mutants.mutant import Directed, Mutant, Seeds

SECONDS: Final = 12.0
TOLD_MAX: Final = 1_000
"""Letters of a violation that are kept."""
_PLAIN: Final = ("-p", "no:cacheprovider", "--assert=plain", "--tb=no")
"""A trial asks only whether a test fails: an explanation would take most of its time."""
ALONE: Final = (
    Seeds("files", 8),
    Seeds("doors", 16),
    Seeds("forwards", 4),
    Seeds("plans", 8),
    Seeds("nasty", 4, raft_only=True),
    Seeds("nasty", 3, voters=5, raft_only=True),
    Seeds("nasty", 2, voters=1, observers=2, raft_only=True),
    Seeds("fifo", 2, raft_only=True),
    Seeds("fifo", 3, raft_only=True, hostile=True),
    Seeds("asleep", 3, raft_only=True),
    Seeds("members", 4, observers=2, raft_only=True),
    Seeds("slow-disks", 4, raft_only=True),
    Seeds("slow-links", 2, raft_only=True),
    Seeds("deposed", 2, voters=5, raft_only=True),
    Seeds("losses", 12, observers=2, raft_only=True),
    Seeds("uncommitted", 14, voters=5, observers=2, raft_only=True),
    Seeds("fifo", 1, hostile=True),
    Seeds("brokers", 2),
    Seeds("swarm", 2),
    Seeds("broad", 4),
    Seeds("asleep", 6, brokers=2, followers=3),
    Seeds("members", 1, observers=2),
    Seeds("returns", 1),
    Seeds("heavy", 2, brokers=4),
)
"""The runs that try a mutant with --simulation-only, if a directed test is what catches it; the quickest come first."""
OUTSIDE: Final = (
    "broker_agent.agent",
    "metadata_log.node.disk.data_directory",
    "metadata_log.kafka.",
    "metadata_log.replay.",
    "ops.admin.reassignment_history",
    "quorum.raft.link",
    "quorum.raft.transport",
)
"""Rooms that no run reaches: TLS and sockets, exports, Kafka's log, what is told of the past."""
ALONE_RUNS: Final = tuple((kind, seed) for kind in ALONE for seed in range(1, kind.most + 1))
MUTANTS: Final[tuple[Mutant, ...]] = (
    *raft.MUTANTS,
    *storage.MUTANTS,
    *fetch.MUTANTS,
    *controller.MUTANTS,
    *partitions.MUTANTS,
    *decisions.MUTANTS,
    *brokers.MUTANTS,
    *data.MUTANTS,
    *trust.MUTANTS,
    *kafka.MUTANTS,
    *doors.MUTANTS,
)


def named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Put a mutant in the shipped code's place."""
    holder, attribute = _holder(mutant)
    replacement = mutant.replacement(getattr(holder, attribute))
    with ExitStack() as patched:
        for each in (holder, *map(importlib.import_module, mutant.elsewhere)):
            patched.enter_context(patch.object(each, attribute, replacement))
        yield


def _holder(mutant: Mutant) -> reach.Holder:
    module, _, path = mutant.target.partition(":")
    *parts, attribute = path.split(".")
    holder: Any = importlib.import_module(module)
    for part in parts:
        holder = getattr(holder, part)
    return holder, attribute


# --- what catches them


@dataclass(frozen=True, slots=True)
class Caught:
    mutant: Mutant
    seeds: int | None
    """How many runs it took; None for a directed test, or where nothing caught it."""
    seconds: float
    how: str | None
    """What noticed; None: nothing did."""


def warm_up(mutants: Iterable[Mutant]) -> None:
    """Import the directed tests of mutants, and all that they rest on, so that each trial begins with it."""
    tests = [each.caught_by.test for each in mutants if isinstance(each.caught_by, Directed)]
    files = {test.partition("::")[0] for test in tests}
    if not files:
        return
    with redirect_stdout(io.StringIO()) as said:
        collected = pytest.main([*_PLAIN, "--collect-only", "-qq", *sorted(files)])
    assert collected == pytest.ExitCode.OK, said.getvalue()
    gc.freeze()


class _Failures:
    """A plugin of pytest that knows whether a test failed."""

    are_there = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.are_there |= report.failed


def failing(tests: Iterable[str], *, jobs: int, may_begin: Callable[[], bool]) -> set[str]:
    """Return those of some tests that fail in a copy of this process without any mutant."""
    found = copies.answers(sorted(tests), fails, jobs=jobs, may_begin=may_begin)
    return {test for test, has_failed, _ in found if has_failed is not False}


def fails(test: str) -> bool:
    """Answer whether a test fails; only for a process that ends with that."""
    # The test's module is imported once more: what it imports by name is the mutant then.
    for module in ("tests.conftest", test.partition("::")[0].removesuffix(".py").replace("/", ".")):
        sys.modules.pop(module, None)
    logging.disable(logging.NOTSET)  # some tests ask what was logged
    failures = _Failures()
    # A test that failed may leave a loop open, of which pytest complains once more at its end.
    complaints = suppress(pytest.PytestUnraisableExceptionWarning)
    with complaints, TemporaryDirectory() as folder:
        pytest.main([*_PLAIN, "-x", f"--basetemp={folder}/tests", test], plugins=[failures])
    return failures.are_there


def found_by_tests(test: str, mutant: Mutant) -> tuple[None, str] | None:
    """Return what notices the mutant if its directed test fails; only for a process that ends with that."""
    with in_place(mutant):
        return (None, str(mutant.caught_by)) if fails(test) else None


def watch_runs(called: Path) -> None:
    """Write down which runs call what the mutants replace."""
    # What is imported by name elsewhere is called unseen: such a mutant is tried on all runs.
    targets = {mutant.target: _holder(mutant) for mutant in MUTANTS if not mutant.elsewhere}
    reach.write(called, ALONE_RUNS, reach.calls(targets, ALONE_RUNS, violations_of))


def carry_out(mutant: Mutant, called: Path | None = None) -> tuple[int, str] | None:
    """Carry out one run after the other under a mutant; return after how many something was violated, and what.

    A run that violates something without the mutant, too, says nothing of it. Nor does one that never calls what the mutant
    replaces: it is left out.
    """
    runs: Sequence[tuple[Seeds, int]] = ALONE_RUNS
    known = None if called is None else reach.read(called, ALONE_RUNS)
    if isinstance(mutant.caught_by, Seeds):
        runs = [(mutant.caught_by, seed) for seed in range(1, mutant.caught_by.most + 1)]
    elif known is not None and mutant.target in known:
        runs = [ALONE_RUNS[position] for position in known[mutant.target]]
    for number, (kind, seed) in enumerate(runs, start=1):
        with in_place(mutant):
            violations = violations_of(kind, seed)
        if violations and not violations_of(kind, seed):
            return number, " ".join(violations[0].split())[:TOLD_MAX]
    return None


def violations_of(kind: Seeds, seed: int) -> list[str]:
    from tests.simulation.faults.profiles import profile_of
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.door_run import DoorRun
    from tests.simulation.world.file_run import FileRun
    from tests.simulation.world.forward_run import ForwardRun
    from tests.simulation.world.kafka_followers import KafkaWorld
    from tests.simulation.world.plan_run import PlanRun
    from tests.simulation.world.world import World

    if kind.profile == "files":
        return _violations(lambda: FileRun(seed).run())
    if kind.profile == "doors":
        return _violations(lambda: DoorRun(seed).run())
    if kind.profile == "forwards":
        return _violations(lambda: ForwardRun(seed).run())
    if kind.profile == "plans":
        return _violations(lambda: PlanRun(seed).run())
    make: Callable[..., World] = World if kind.raft_only else partial(ClusterWorld, brokers=kind.brokers)
    if kind.followers:
        make = partial(KafkaWorld, brokers=kind.brokers, followers=kind.followers)
    profile = profile_of(kind.profile, seed)
    if kind.hostile:
        profile = replace(profile, links=profile.links.among_strangers())
    return _violations(
        lambda: make(seed=seed, profile=profile, voters=kind.voters, observers=kind.observers).run(SECONDS)
    )


def _violations(run: Callable[[], list[str]]) -> list[str]:
    try:
        return run()
    except Exception as error:  # the mutant broke something that even the simulator rests on
        return [f"{type(error).__name__}: {error}"]


# --- the command


def table_of(caught: Sequence[Caught]) -> str:
    lines = ["| mutant | what is broken | caught by | seeds | s |", "|---|---|---|---:|---:|"]
    for one in caught:
        seeds = "" if one.seeds is None else str(one.seeds)
        how = "**NOT CAUGHT**" if one.how is None else str(one.mutant.caught_by)
        lines.append(f"| {one.mutant.name} | {one.mutant.breaks} | {how} | {seeds} | {one.seconds:.0f} |")
    return "\n".join(lines)


def table_of_alone(caught: Sequence[Caught], called: dict[str, list[int]]) -> str:
    """Return how many mutants runs alone caught, and which not, by what the runs have to do with them."""
    missed = [one.mutant for one in caught if one.how is None]
    outside = [mutant for mutant in missed if mutant.target.startswith(OUTSIDE)]
    uncalled = [mutant for mutant in missed if mutant not in outside and called.get(mutant.target) == []]
    unnoticed = [mutant for mutant in missed if mutant not in outside and mutant not in uncalled]
    rows = (
        ("caught", len(caught) - len(missed), ""),
        ("missed: a run calls what is replaced, and nothing is violated", len(unnoticed), _names(unnoticed)),
        ("missed: no run asks for what is replaced", len(uncalled), _names(uncalled)),
        ("missed: in rooms that no run reaches", len(outside), _names(outside)),
    )
    lines = ["| on runs alone | mutants | of those tried | |", "|---|---:|---:|---|"]
    lines += [
        f"| {what} | {count} | {100 * count / max(len(caught), 1):.0f} % | {names} |"
        for what, count, names in rows
    ]
    return "\n".join((*lines, "", f"{len(caught)} of {len(MUTANTS)} mutants were tried."))


def _names(mutants: Sequence[Mutant]) -> str:
    return ", ".join(mutant.name for mutant in mutants)


def _append(caught: Caught, results: Path) -> None:
    with results.open("a") as file:
        row = [caught.mutant.name, caught.seeds, round(caught.seconds, 1), caught.how]
        file.write(json.dumps(row) + "\n")


def _known(results: Path) -> dict[str, Caught]:
    """Read what was found; a mutant that is no more is left out."""
    rows = map(json.loads, results.read_text().splitlines())
    names = {mutant.name for mutant in MUTANTS}
    return {name: Caught(named(name), *found) for name, *found in rows if name in names}


def main(
    only: Sequence[str] | None = None,
    markdown: Path | None = None,
    *,
    simulation_only: bool = False,
    results: Path | None = None,
    jobs: int = 1,
    may_begin: Callable[[], bool] = lambda: True,
) -> int:
    """Try all mutants, or some, `jobs` at a time, and print the table; 1 if one was not caught.

    `simulation_only`: on runs alone, which takes hours, in an order that is drawn: a run that was ended has tried a fair
    sample. What is found is appended to `results`, and a mutant that has a result there is not tried again.
    """
    logging.disable(logging.CRITICAL)
    chosen = MUTANTS if only is None else tuple(map(named, only))
    known = {} if results is None or not results.exists() else _known(results)
    untried = [mutant for mutant in chosen if mutant.name not in known]
    called, unsound = None, set[str]()
    if simulation_only:
        random.Random(0).shuffle(untried)
        called = None if results is None else results.with_suffix(".called")
        if called is not None and untried and reach.read(called, ALONE_RUNS) is None:
            list(copies.answers([called], watch_runs))
    else:
        warm_up(untried)
        tests = {each.caught_by.test for each in untried if isinstance(each.caught_by, Directed)}
        unsound = failing(tests, jobs=jobs, may_begin=may_begin)
        for test in sorted(unsound):
            print(f"{test}: fails without a mutant, too", flush=True)

    def try_one(mutant: Mutant) -> tuple[int | None, str] | None:
        if isinstance(mutant.caught_by, Directed) and not simulation_only:
            test = mutant.caught_by.test
            return None if test in unsound else found_by_tests(test, mutant)
        return carry_out(mutant, called)

    for mutant, answer, seconds in copies.answers(untried, try_one, jobs=jobs, may_begin=may_begin):
        seeds, how = answer or (None, None)
        one = known[mutant.name] = Caught(mutant, seeds, seconds, how)
        if results is not None:
            _append(one, results)
        print(f"{mutant.name}: {(how or 'NOT CAUGHT')[:150]} ({seconds:.1f} s)", flush=True)
    caught = [known[mutant.name] for mutant in chosen if mutant.name in known]
    missed = [one.mutant.name for one in caught if one.how is None]
    rate = (
        f" by runs alone: {100 * (len(caught) - len(missed)) / max(len(caught), 1):.0f} %"
        if simulation_only
        else ""
    )
    print(f"{len(caught) - len(missed)} of {len(caught)} mutants caught{rate}", *missed)
    if markdown is not None and simulation_only:
        calls = None if results is None else reach.read(results.with_suffix(".called"), ALONE_RUNS)
        markdown.write_text(table_of_alone(caught, calls or {}) + "\n")
    elif markdown is not None:
        markdown.write_text(table_of(caught) + "\n")
    return 1 if missed else 0
