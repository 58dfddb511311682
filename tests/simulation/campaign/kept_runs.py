"""Runs that reached a rare state, kept in a file: a campaign runs them again with other ends.

Up to a moment shortly before the state was reached, a varied run is the kept one. From there on chance is another. So what
follows a rare state is tried many times, and not only once in many hours. Only seeds are kept: where the code has changed
since, a run may be another one, and may reach its state no more.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.simulation.campaign.campaign import Outcome, Plan, Run

RUNS_PER_MARKER: Final = 2
"""A run is kept if fewer kept ones reached a marker that it reached."""
TAIL_SECONDS: Final = 10.0
"""A varied run differs from a moment on that lies at most so long before its marker."""
RAREST: Final = 5.0
"""Mean rank of the marker for which a run is varied; the rarest one has rank 0."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    seed: int
    variations: tuple[tuple[float, int], ...]
    first_at: dict[str, float]
    """The markers for which it is kept, and when it reached each."""


class KeptRuns:
    """The file, and the markers that its runs reach."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self._path = path
        self._rng = rng
        self._kept: list[KeptRun] = []
        self._kept_for: Counter[str] = Counter()
        self._reached: Counter[str] = Counter()
        """In how many runs of this campaign each marker was reached."""
        self._varied = 0
        for line in path.read_text().splitlines() if path.exists() else ():
            read = json.loads(line)
            self._keep(KeptRun(read["seed"], tuple((at, by) for at, by in read["vary"]), read["first_at"]))

    def _keep(self, kept: KeptRun) -> None:
        self._kept.append(kept)
        self._kept_for.update(kept.first_at.keys())

    def take(self, outcome: Outcome) -> None:
        """Keep a run if it reached what few kept ones did."""
        self._reached.update(outcome.first_at.keys())
        rare = {
            name: round(at, 1)
            for name, at in outcome.first_at.items()
            if self._kept_for[name] < RUNS_PER_MARKER
        }
        if rare and not outcome.violations:
            self._keep(kept := KeptRun(outcome.run.seed, outcome.run.variations, rare))
            line = {"seed": kept.seed, "vary": kept.variations, "first_at": kept.first_at}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def with_variations(self, fresh: Iterator[Run], plan: Plan) -> Iterator[Run]:
        """Yield the fresh runs, and behind each one a variation of a kept run."""
        for run in fresh:
            yield run
            if self._kept:
                yield self._variation(plan)

    def _variation(self, plan: Plan) -> Run:
        """Vary a run that reached one of the markers that are rarest in this campaign."""
        rng = self._rng
        names = sorted({*self._kept_for}, key=lambda name: (self._reached[name], name))
        name = names[min(int(rng.expovariate(1 / RAREST)), len(names) - 1)]
        kept = rng.choice([kept for kept in self._kept if name in kept.first_at])
        earliest = kept.variations[-1][0] if kept.variations else 0.0
        at = max(kept.first_at[name] - rng.uniform(0.0, TAIL_SECONDS), earliest)
        self._varied += 1
        (run,) = plan.runs([kept.seed])
        variation = (round(at, 1), rng.getrandbits(20))
        return replace(run, variations=(*kept.variations, variation))
