"""Kept runs: which are kept, and how they are varied."""

import random
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.simulation.campaign.campaign import Outcome, Plan, carry_out
from tests.simulation.campaign.kept_runs import RUNS_PER_MARKER, TAIL_SECONDS, KeptRuns

PLAN = Plan(profiles=("broad",), seconds=0.5, raft_only=True)


def _outcome(seed: int, **first_at: float) -> Outcome:
    (run,) = PLAN.runs([1])
    outcome = carry_out(run)
    return replace(
        outcome,
        run=replace(run, seed=seed),
        violations=(),
        first_at=first_at,
        reached=Counter(first_at.keys()),
    )


@pytest.mark.slow
def test_runs_are_kept_for_what_few_reach_and_varied_from_shortly_before(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    kept = KeptRuns(path, random.Random(1))
    for seed in range(1, 6):
        kept.take(_outcome(seed, often=float(seed), rare=50.0) if seed == 5 else _outcome(seed, often=1.0))
    assert [line.split(",")[0] for line in path.read_text().splitlines()] == [
        f'{{"seed": {seed}' for seed in (*range(1, RUNS_PER_MARKER + 1), 5)
    ]
    runs = KeptRuns(path, random.Random(2)).with_variations(PLAN.runs(range(100, 200)), PLAN)
    fresh, *others = islice(runs, 100)
    assert fresh.seed == 100 and not fresh.variations
    varied = [run for run in others if run.variations]
    assert len(varied) == 50
    at = [run.variations[0][0] for run in varied if run.seed == 5]
    assert at
    assert all(50.0 - TAIL_SECONDS <= each <= 50.0 for each in at)
    assert {run.seed for run in varied} <= {1, 2, 5}
