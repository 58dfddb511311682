"""Edge: `ops/lanes.sh`: tests in several processes, and what failed there once more alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[3]
SCRIPT: Final = """
set -euo pipefail
source ops/setup.sh
source ops/lanes.sh
VENV=$1 scratch=$2
[ ! -d tests/unit ] || in_workers -p xdist tests/unit || { say "ended in the workers"; exit 1; }
in_lanes tests/real || { say "ended in the lanes"; exit 1; }
failed_alone || { say "ended alone"; exit 1; }
say_unsteady
"""
SOUND: Final = "def test_sound(): pass\n"
UNSTEADY: Final = """
import os, pytest
@pytest.fixture(scope="module")
def cluster():
    assert "PYTEST_XDIST_WORKER" not in os.environ
@pytest.mark.parametrize("which", [f"no {number}: [a::b]" for number in range(9)])
def test_alone(cluster, which):
    pass
"""
"""Its module's fixture fails beside others, and with it each test."""
UNSTEADY_UNIT: Final = """
import os
def test_alone(): assert "PYTEST_XDIST_WORKER" not in os.environ
"""
LATER: Final = """
left = []
def test_first(): left.append(1)
def test_later(): assert not left
"""
"""A test that fails behind another one, and by itself would pass."""
BROKEN: Final = "def test_broken(): assert False\n"
ENDS: Final = "import os\ndef test_ends(): os._exit(1)\n"
ENDS_LATE: Final = "import atexit, os\ndef test_ends(): atexit.register(os._exit, 139)\n"


def run(checkout: Path, *, unit: str | None = None, **files: str) -> subprocess.CompletedProcess[str]:
    """Run what ops/check does with unit tests, if any, and with tests of real processes: these and two sound ones."""
    for name in ("ops", "scratch", "tests/real"):
        (checkout / name).mkdir(parents=True)
    for name in ("ops/setup.sh", "ops/lanes.sh"):
        shutil.copy(ROOT / name, checkout / name)
    shutil.copy(ROOT / "tests/support/lanes.py", checkout / "tests/conftest.py")
    (checkout / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    for name, content in {"one": SOUND, "two": SOUND, **files}.items():
        (checkout / "tests" / "real" / f"test_{name}.py").write_text(content)
    if unit is not None:
        (checkout / "tests/unit").mkdir()
        (checkout / "tests/unit/test_unit.py").write_text(unit)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        ["/bin/bash", "-c", SCRIPT, "check", Path(sys.executable).parents[1], checkout / "scratch"],
        cwd=checkout,
        # Each of the processes imports what it needs for this, and nothing else.
        env=outside | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_passes_beside_others_is_not_run_again(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert len(re.findall("passed in|no tests ran in", ran.stdout)) == 3


def test_what_passes_alone_is_named_as_unsteady(tmp_path: Path) -> None:
    """Goal: a cluster that did not start is one fault, however many tests share it. Their names have any characters."""
    ran = run(tmp_path, unsteady=UNSTEADY)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = " ".join(f"tests/real/test_unsteady.py::test_alone[no {number}: [a::b]]" for number in range(9))
    assert ran.stderr.splitlines() == [
        f"9 tests failed beside others: {names}",
        "their files run once more when all else has ended: tests/real/test_unsteady.py",
        f"unsteady: 9 tests failed beside others and passed alone: {names}",
    ]
    assert "9 errors" in ran.stdout and ran.stdout.splitlines()[-1].startswith("9 passed")


def test_unit_tests_run_again_with_those_of_real_processes(tmp_path: Path) -> None:
    ran = run(tmp_path, unit=UNSTEADY_UNIT, unsteady=UNSTEADY_UNIT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = "tests/unit/test_unit.py::test_alone tests/real/test_unsteady.py::test_alone"
    assert ran.stderr.splitlines() == [
        "1 tests failed beside others: tests/unit/test_unit.py::test_alone",
        "their files run once more when all else has ended: tests/unit/test_unit.py",
        f"2 tests failed beside others: {names}",
        "their files run once more when all else has ended: tests/real/test_unsteady.py tests/unit/test_unit.py",
        f"unsteady: 2 tests failed beside others and passed alone: {names}",
    ]


def test_a_unit_test_that_fails_again_fails(tmp_path: Path) -> None:
    ran = run(tmp_path, unit=BROKEN)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ended alone"), ran.stdout + ran.stderr


@pytest.mark.parametrize("failing", [BROKEN, LATER], ids=["by itself", "behind another one"])
def test_what_fails_again_fails(tmp_path: Path, failing: str) -> None:
    ran = run(tmp_path, failing=failing)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ended alone"), ran.stdout + ran.stderr
    assert ran.stdout.count("1 failed") == 2


@pytest.mark.parametrize(("count", "ended"), [(4, "ended alone"), (5, "ended in the lanes")])
def test_failures_in_more_than_four_files_are_not_run_again(tmp_path: Path, count: int, ended: str) -> None:
    ran = run(tmp_path, **{f"broken_{number}": BROKEN for number in range(count)})
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, ended), ran.stdout + ran.stderr


@pytest.mark.parametrize("ends", [ENDS, ENDS_LATE], ids=["before its last test", "behind it"])
def test_nothing_is_run_again_where_a_process_ended_by_itself(tmp_path: Path, ends: str) -> None:
    """Its tests that were not run would be forgotten, or why it ended."""
    ran = run(tmp_path, broken=BROKEN, ends=ends)
    assert (ran.returncode, ran.stderr.splitlines()) == (1, ["ended in the lanes"]), ran.stdout + ran.stderr
