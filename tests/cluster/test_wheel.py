"""Edge: the wheel holds all and only what it should, and runs in an empty environment far from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.rules import ROOMS

ROOT = Path(__file__).resolve().parents[2]
PATIENT_PIP = {"PIP_RETRIES": "10", "PIP_TIMEOUT": "30"}
"""Of a package index that answers late, or not at once."""
DATA_SUFFIXES = {".sql", ".toml", ".html", ".js", ".css", ".svg", ".md", ".mod", ".sum", ".go", ".typed"}

pytestmark = pytest.mark.slow


def run(*argv: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    ran = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**(os.environ if env is None else env), **PATIENT_PIP},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"{argv} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy: setuptools would put what an older build left in `build/` into the wheel too."""
    copy = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, copy, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def test_it_has_five_top_level_names_and_every_file_of_theirs_but_the_benchmarks(wheel: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == set(ROOMS)
    wanted = {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".py", *DATA_SUFFIXES} and "__pycache__" not in path.parts
    }
    left_out = {name for name in wanted if name.startswith(("ops/bench/", "ops/kafka/", "ops/toolchain/"))}
    assert left_out
    assert sorted(wanted - set(names)) == sorted(left_out)


def test_it_runs_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Goal: nothing it needs lies in the checkout alone. Method: an environment with the wheel and what it
    asks for, entered from another directory with nothing of ours on any path.
    """
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=tmp_path)
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "METAQUORUM"))
    }
    where = run(python, "-c", "import ops.cli; print(ops.cli.__file__)", cwd=tmp_path, env=clean)
    assert Path(where.strip()).is_relative_to(environment)
    said = run(environment / "bin" / "metaquorum", "--help", cwd=tmp_path, env=clean)
    assert "controller" in said
    asked = [str(environment / "bin" / "metaquorum"), "bench", "failover", "--peer", "etcd"]
    refused = subprocess.run(asked, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "the benchmarks (ops/bench) are not in the installed package" in refused.stderr
