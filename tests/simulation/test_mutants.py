"""Seeded bugs are noticed. All of them: `python -m tests.simulation --mutants`; here every sixth."""

from pathlib import Path

import pytest

from tests.simulation.mutant import Directed, Mutant
from tests.simulation.mutants import MUTANTS, catch, in_place

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_it_replaces_is_there(mutant: Mutant) -> None:
    with in_place(mutant):
        pass
    if isinstance(mutant.caught_by, Directed):
        file, _, test = mutant.caught_by.test.partition("::")
        text = (ROOT / file).read_text()
        assert not test or f"def {test.partition('[')[0]}(" in text


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS[::6], ids=lambda mutant: mutant.name)
def test_it_is_noticed(mutant: Mutant) -> None:
    assert catch(mutant).how is not None


def test_the_table_has_a_row_for_each() -> None:
    table = (ROOT / "docs/mutants.md").read_text().split("<!-- table -->\n")[1].split("<!-- end")[0]
    rows = [line.removeprefix("| ").split(" | ")[:3] for line in table.splitlines()[2:]]
    assert rows == [[mutant.name, mutant.breaks, str(mutant.caught_by)] for mutant in MUTANTS]


def test_names_are_distinct_and_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
