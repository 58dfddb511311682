"""The campaigns that were run, a JSON line each; `python -m tests.simulation.campaign.ledger` writes the page of totals.

The seeds of a line, run by its command on its commit, repeat the same hours; a plus after the commit says that the tree held
changes that were not committed.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

LEDGER: Final = Path(__file__).with_name("ledger.jsonl")
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "simulation.md"


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign.

    `counted` are the runs with at least 30 acknowledged writes and 0.3 faults for each simulated second; `hours` are theirs,
    since a run in which nothing goes wrong proves little. `violations` are the runs, of all, in which a rule was broken.
    `simulated_s_per_s` is for each second of one processor. `markers` are the rare states that were reached; older
    campaigns did not count them.
    """

    date: str
    commit: str
    command: str
    profile: str
    controllers: str
    brokers: str
    seeds: str
    runs: int
    counted: int
    hours: float
    writes_per_s: float
    faults_per_s: float
    simulated_s_per_s: float
    violations: int
    markers: str | None

    @property
    def kind(self) -> str:
        """Its profile, or how many it mixed, and whether strangers forged messages."""
        profiles = self.profile.split(", ")
        name = profiles[0] if len(profiles) == 1 else f"{len(profiles)} profiles in turn"
        return f"{name}, hostile" if "--hostile" in self.command else name


def read(path: Path = LEDGER) -> list[Campaign]:
    return [msgspec.json.decode(line, type=Campaign) for line in path.read_bytes().splitlines()]


def append(path: Path, campaign: Campaign) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(campaign) + b"\n")


def page(campaigns: Sequence[Campaign]) -> str:
    """Return the page of totals."""
    rows = [_row(kind, list(some)) for kind, some in groupby(sorted(campaigns, key=_kind), key=_kind)]
    newest = max(each.date for each in campaigns)
    return f"""# Simulated hours

`python -m tests.simulation` runs the shipped controllers, brokers and files under faults, on simulated time
([testing.md](testing.md)). This page is made from `tests/simulation/campaign/ledger.jsonl` by
`python -m tests.simulation.campaign.ledger`; the file names the commit, the command and the seeds of each campaign.

Only runs with at least 30 acknowledged writes and 0.3 faults for each simulated second are counted. A violation is a run in
which a rule was broken, by a mistake of what is shipped or of the simulator; the commit that mended it tells which, and its
seed is tried again there.

| profile | campaigns | runs | counted | hours | violations |
|---|---:|---:|---:|---:|---:|
{"".join(rows)}{_row("**all**", campaigns)}
The newest campaign is of {newest}.
"""


def _kind(campaign: Campaign) -> str:
    return campaign.kind


def _row(name: str, campaigns: Sequence[Campaign]) -> str:
    def total(values: Iterable[int]) -> str:
        return f"{sum(values):,}"

    cells = (
        name,
        str(len(campaigns)),
        total(each.runs for each in campaigns),
        total(each.counted for each in campaigns),
        f"{sum(each.hours for each in campaigns):.1f}",
        total(each.violations for each in campaigns),
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(read()))
    print(f"{PAGE} was written", file=sys.stderr)
