"""Seeded bugs are noticed. `python -m tests.simulation --mutants` tries all of them; here it is every twelfth, if few runs
notice it.
"""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation.mutants import copies
from tests.simulation.mutants.mutant import Directed
from tests.simulation.mutants.reach import calls, read, write
from tests.simulation.mutants.trial import MUTANTS, OUTSIDE, Caught, in_place, table_of_alone

ROOT = Path(__file__).resolve().parents[2]


RUNS_MAX = 4
"""A run takes some seconds of a processor."""


DIRECTED = [each.name for each in MUTANTS[::12] if isinstance(each.caught_by, Directed)]
DIRECTED.append("old-principals")  # its test asks what was logged
BY_FEW_RUNS = [
    each.name
    for each in MUTANTS
    if not isinstance(each.caught_by, Directed) and each.caught_by.most <= RUNS_MAX
][::12]


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
@pytest.mark.parametrize("names", [DIRECTED, *([name] for name in BY_FEW_RUNS)], ids=lambda names: names[0])
def test_they_are_noticed(names: list[str]) -> None:
    command = (sys.executable, "-m", "tests.simulation", "--mutants", "--jobs", "1", "--only", *names)
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_a_trial_leaves_nothing_behind_and_answers_though_its_process_ends() -> None:
    done: list[int] = []

    def work(item: int) -> int:
        done.append(item)
        assert done == [item], "each begins as the one before did"
        if item == 2:
            os._exit(1)
        return item if item != 3 else int("no number")

    found = {item: answer for item, answer, _ in copies.answers([1, 2, 3, 4], work, jobs=2)}
    assert (found, done) == ({1: 1, 2: None, 3: None, 4: 4}, [])
    begun = iter([True, False])
    assert [item for item, *_ in copies.answers([1, 4], work, may_begin=lambda: next(begun, False))] == [1]


@pytest.mark.slow
def test_a_copy_that_takes_too_long_is_given_up_with_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "TIMEOUT_S", 0.1)

    def work(_item: int) -> int:
        if os.fork() == 0:
            time.sleep(20)  # it holds the pipe
            os._exit(0)
        time.sleep(60)
        return 1

    (found,) = copies.answers([1], work)
    assert found[1] is None and found[2] < 15


COPY = """
import os, time
from tests.simulation.mutants.copies import answers
shared = os.dup(1)
list(answers([1], lambda _: (os.write(shared, b"b"), time.sleep(20))))
"""
CAMPAIGN = """
import os, time
from tests.simulation.campaign import campaign
def carry_out(_):
    os.write(1, b"b")
    time.sleep(20)
campaign.carry_out = carry_out
list(campaign.outcomes([1, 2], jobs=2, may_begin=lambda: True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [COPY, CAMPAIGN], ids=["copy", "campaign"])
def test_what_a_process_forked_ends_with_it(code: str) -> None:
    """Method: the process is killed, and what it forked shares its pipe."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"b"
        process.kill()
        began = time.monotonic()
        process.stdout.read()
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_a_test_that_fails_without_a_mutant_notices_none(tmp_path: Path) -> None:
    """Method: in a process of its own, as trials are; one of the tests fails always."""
    (tmp_path / "test_some.py").write_text("def test_a():\n    assert False\n\n\ndef test_b():\n    pass\n")
    code = (
        "from tests.simulation.mutants.trial import failing\n"
        f"tests = ['{tmp_path}/test_some.py::' + name for name in ('test_a', 'test_b')]\n"
        "print(sorted(each.rsplit(':')[-1] for each in failing(tests, jobs=1, may_begin=lambda: True)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert told.stdout == "['test_a']\n"


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
