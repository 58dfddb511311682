"""Edge: processes that run the same tests share out the files among them (tests/support/lanes.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
FILE = """
import pytest

@pytest.fixture(scope="module")
def made():
    print("{name} begins")
    yield
    print("{name} ends")

@pytest.mark.parametrize("number", [1, 2])
def test_it(made, number):
    print("{name}", number)
"""


@pytest.mark.slow
def test_a_file_that_another_process_has_taken_is_left_out_and_the_next_is_taken(tmp_path: Path) -> None:
    """The file with a conftest beside it is taken together with its folder, once for all files there."""
    names = ("a/test_first.py", "a/test_taken.py", "b/test_one.py", "b/test_two.py", "c/test_last.py")
    for name in names:
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FILE.format(name=name))
    shutil.copy(TESTS / "support/lanes.py", tmp_path / "tests/conftest.py")
    (tmp_path / "tests/b/conftest.py").write_text("")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "a+test_taken.py").touch()
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            "tests",
        ],
        cwd=tmp_path,
        env=os.environ | {"TEST_FILES_TAKEN": str(taken), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line.removeprefix(".") for line in ran.stdout.splitlines() if "test_" in line]
    assert lines == [
        f"{name}{word}" for name in names if "taken" not in name for word in (" begins", " 1", " 2", " ends")
    ]
    assert {path.name for path in taken.iterdir()} == {
        "a+test_first.py",
        "a+test_taken.py",
        "b",
        "c+test_last.py",
    }
