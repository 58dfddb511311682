"""Edge: each commit runs a third of the long tests that vary one another (tests/support/turns.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.turns import ONE_IN, waiting

TESTS = Path(__file__).parents[2]
NAMES = [f"test_{number}" for number in range(10)]
FILE = """
import pytest

@pytest.mark.in_turn("long")
@pytest.mark.parametrize("number", range(6))
def test_long(number):
    pass

@pytest.mark.in_turn("lone")
def test_of_a_group_of_one():
    pass

def test_of_none():
    pass
"""


def test_each_turn_has_a_third_and_few_turns_have_all() -> None:
    turns = [{*NAMES} - waiting(NAMES, f"{turn}") for turn in range(30)]
    assert {len(turn) for turn in turns} == {4}
    assert set.union(*turns) == {*NAMES}
    assert waiting(reversed(NAMES), "0") == waiting(NAMES, "0")
    for few in range(1, ONE_IN + 1):
        assert len(waiting(NAMES[:few], "0")) == few - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turn", "told"), [({"TEST_TURN": "a1b2c3"}, "4 passed, 4 deselected"), ({}, "8 passed")]
)
def test_what_waits_is_left_out_and_counted(tmp_path: Path, turn: dict[str, str], told: str) -> None:
    (tmp_path / "test_some.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = in_turn\n")
    shutil.copy(TESTS / "support/turns.py", tmp_path / "conftest.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_some.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TEST_TURN"}
        | turn
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert told in ran.stdout
