"""Edge: `ops/setup.sh`: what an interrupted start left is completed by the next one, and which Python it takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops import python_build

ROOT = Path(__file__).parents[3]
COPIED = ("ops/setup.sh", "ops/python_build.py", "pyproject.toml")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "ops").mkdir()
    for name in COPIED:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def run_bash(
    checkout: Path, script: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    whole = f"set -euo pipefail\nsource ops/setup.sh\n{script}"
    return subprocess.run(
        ["/bin/bash", "-c", whole],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_an_environment_whose_making_was_cut_short_is_completed(checkout: Path) -> None:
    """Method: as it is before pip is in there; instead of a gigabyte pip's own version is asked for."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    ran = run_bash(
        checkout,
        """
        pip_install() { "$VENV/bin/python" -m pip --version; }
        install replay
        """,
    )
    assert (ran.returncode, ran.stdout[:4]) == (0, "pip "), ran.stderr
    assert (checkout / ".venv" / ".installed-replay").exists()


@pytest.mark.parametrize(
    ("variables", "taken"),
    [
        ({}, "fast/python3.12"),
        ({"PYTHON": "plain/python3"}, "plain/python3"),
    ],
)
def test_an_optimised_python_is_preferred_where_none_is_named(
    checkout: Path, variables: dict[str, str], taken: str
) -> None:
    """Method: scripts on PATH that answer as a Python that is too old, one without optimisations, and one with them do."""
    for name, answers in (
        ("old/python3.11", "exit 1"),
        ("plain/python3", '[ "$1" = -c ]'),
        ("fast/python3.12", "exit 0"),
    ):
        path = checkout / name
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{answers}\n")
        path.chmod(0o755)
    path_variable = os.pathsep.join(str(checkout / each) for each in ("old", "plain", "fast"))
    environment = {name: value.replace("plain", f"{checkout}/plain") for name, value in variables.items()}
    # What setup.sh itself calls is of bash, but for dirname.
    ran = run_bash(checkout, f'PATH="{path_variable}"; find_python', {"PATH": os.defpath, **environment})
    assert (ran.returncode, ran.stdout) == (0, str(checkout / taken)), ran.stderr


@pytest.mark.parametrize(
    ("variables", "schemes", "prefix", "expected"),
    [
        ({"CONFIG_ARGS": "'--enable-shared' '--enable-optimizations' '--with-lto'"}, (), "/opt", True),
        ({"CONFIG_ARGS": "'--enable-shared'"}, (), "/usr", False),
        ({"CONFIG_ARGS": None}, (), "/usr", False),
        ({"CONFIG_ARGS": "'--enable-shared'"}, ("deb_system",), "/usr", True),
        ({"CONFIG_ARGS": "'--enable-shared'"}, ("deb_system",), "/opt", False),
        ({"CONFIG_ARGS": "'--enable-optimizations'", "Py_DEBUG": 1}, ("deb_system",), "/usr", False),
    ],
)
def test_which_builds_are_optimised(
    variables: dict[str, object],
    schemes: tuple[str, ...],
    prefix: str,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", variables.get)
    monkeypatch.setattr("sysconfig.get_scheme_names", lambda: schemes)
    monkeypatch.setattr("sys.base_prefix", prefix)
    assert python_build.is_optimised() is expected
    assert ("without" in python_build.described()) is not expected
