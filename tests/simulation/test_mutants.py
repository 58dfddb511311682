"""Seeded bugs are noticed. `python -m tests.simulation --mutants` tries all of them; here it is every twelfth, if few runs
notice it.
"""

import importlib
from pathlib import Path

import pytest

from tests.simulation.mutants.mutant import Directed, Mutant
from tests.simulation.mutants.reach import calls, read, write
from tests.simulation.mutants.trial import MUTANTS, OUTSIDE, Caught, catch, in_place, table_of_alone

ROOT = Path(__file__).resolve().parents[2]


RUNS_MAX = 4
"""A run takes some seconds of a processor."""


def is_soon_noticed(mutant: Mutant) -> bool:
    return isinstance(mutant.caught_by, Directed) or mutant.caught_by.most <= RUNS_MAX


def test_what_each_replaces_is_there() -> None:
    texts: dict[str, str] = {}
    for mutant in MUTANTS:
        try:
            with in_place(mutant):
                pass
        except Exception as error:
            raise AssertionError(mutant.name) from error
        if isinstance(mutant.caught_by, Directed):
            file, _, test = mutant.caught_by.test.partition("::")
            if file not in texts:
                texts[file] = (ROOT / file).read_text()
            assert not test or f"def {test.partition('[')[0]}(" in texts[file], mutant.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS[::12] if is_soon_noticed(mutant)], ids=lambda mutant: mutant.name
)
def test_it_is_noticed(mutant: Mutant) -> None:
    assert catch(mutant).how is not None


def test_names_are_distinct_and_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_a_mutant_stands_wherever_its_target_is_imported_by_name() -> None:
    for mutant in (mutant for mutant in MUTANTS if mutant.elsewhere):
        module, _, attribute = mutant.target.partition(":")
        places = [importlib.import_module(each) for each in (module, *mutant.elsewhere)]
        shipped = getattr(places[0], attribute)
        assert all(getattr(place, attribute) is shipped for place in places)
        with in_place(mutant):
            (stands,) = {getattr(place, attribute) for place in places}
            assert stands is not shipped


def test_runs_are_left_out_that_never_call_what_is_replaced(tmp_path: Path) -> None:
    class Shipped:
        bound = 7

        def method(self) -> int:
            return self.bound

        @staticmethod
        def static() -> int:
            return 1

        @property
        def shown(self) -> int:
            return 2

    runs = [("calls", 1), ("calls", 2), ("rests", 1)]
    shipped = Shipped()

    def carry_out(kind: str, seed: int) -> None:
        if kind == "calls":
            assert (shipped.method(), Shipped.static()) == (7, 1)
            assert seed == 1 or shipped.shown == 2

    names = ("method", "static", "shown", "bound")
    found = calls({name: (Shipped, name) for name in names}, runs, carry_out)
    assert found == {"method": [0, 1], "static": [0, 1], "shown": [1]}, "a bound may be read unseen"
    write(tmp_path / "called", runs, found)
    assert read(tmp_path / "called", runs) == found
    assert read(tmp_path / "called", runs[:2]) is None
    assert read(tmp_path / "none", runs) is None


def test_the_table_of_runs_alone_has_a_class_for_rooms_that_no_run_reaches() -> None:
    outside = next(mutant for mutant in MUTANTS if mutant.target.startswith(OUTSIDE))
    caught, unnoticed, uncalled = [mutant for mutant in MUTANTS if not mutant.target.startswith(OUTSIDE)][:3]
    tried = [
        Caught(caught, 3, 1.0, "noticed"),
        *(Caught(each, None, 1.0, None) for each in (unnoticed, uncalled, outside)),
    ]
    table = table_of_alone(tried, {unnoticed.target: [1], uncalled.target: [], outside.target: []})
    assert [row.split(" | ")[1:] for row in table.splitlines()[2:6]] == [
        ["1", "25 %", " |"],
        ["1", "25 %", f"{unnoticed.name} |"],
        ["1", "25 %", f"{uncalled.name} |"],
        ["1", "25 %", f"{outside.name} |"],
    ]
