"""Edge: the wheel holds all and only what it should; what the Containerfile installs is small, and runs anywhere."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.rules import ROOMS
from tests.support import yaml_subset
from tests.support.containerfile import stages
from tests.support.processes import poll_until

ROOT = Path(__file__).resolve().parents[2]
PATIENT_PIP = {"PIP_RETRIES": "10", "PIP_TIMEOUT": "30"}
"""Of a package index that answers late, or not at once."""
CORE_BYTES_MAX = 80_000_000
"""Of a node and the command line with all that they import, compiled; 45 MB in this version."""
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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what ops/container/Containerfile puts at /opt/metaquorum: its steps, carried out without a container.

    Its Python is that of the tests; the user, the volume and the read-only root are left out.
    """
    root = tmp_path_factory.mktemp("image")
    source, installed = root / "source", root / "opt" / "metaquorum"
    build, _ = stages((ROOT / "ops/container/Containerfile").read_text())
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for step in build:
        if step.keyword == "COPY":
            *copied, to = step.words
            for name in copied:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / name, ignore=unwanted, dirs_exist_ok=True)
                else:
                    target = source / to / Path(name).name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, target)
        if step.keyword == "RUN":
            command = step.rest.replace("/opt/metaquorum", str(installed))
            command = re.sub(r"^python ", f"{sys.executable} ", command)
            run("/bin/sh", "-euc", command, cwd=source, env=clean())
    return installed


def clean() -> dict[str, str]:
    """Return an environment with nothing of ours on any path."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "METAQUORUM"))
    }


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def test_it_has_five_top_level_names_and_every_file_of_theirs_but_the_benchmarks(wheel: Path) -> None:
    names = [
        name for name in zipfile.ZipFile(wheel).namelist() if not re.search(r"\.(?:dist-info|data)/", name)
    ]
    assert {name.split("/")[0] for name in names} == set(ROOMS)
    wanted = {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".py", *DATA_SUFFIXES} and "__pycache__" not in path.parts
    }
    left_out = {
        name
        for name in wanted
        if name.startswith(("ops/bench/", "ops/kafka/", "ops/stories/", "ops/toolchain/"))
    }
    assert left_out
    assert sorted(wanted - set(names)) == sorted(left_out)


def test_it_brings_what_packages_need(wheel: Path) -> None:
    data = {
        name.partition(".data/data/")[2]
        for name in zipfile.ZipFile(wheel).namelist()
        if ".data/data/" in name
    }
    assert data == {
        *("lib/systemd/system/metaquorum-broker.service", "lib/systemd/system/metaquorum-controller.service"),
        *("lib/sysusers.d/metaquorum.sysusers.conf", "share/bash-completion/completions/metaquorum.bash"),
        *("share/fish/vendor_completions.d/metaquorum.fish", "share/zsh/site-functions/_metaquorum"),
    }


def test_it_runs_outside_the_checkout_without_spark_and_is_small(image: Path, tmp_path: Path) -> None:
    """Goal: nothing it needs lies in the checkout alone. Method: an environment with the core and what it asks for,
    entered from another directory with nothing of ours on any path.
    """
    assert size_of(image) <= CORE_BYTES_MAX
    python = image / "bin" / "python"
    where = run(python, "-c", "import ops.cli; print(ops.cli.__file__)", cwd=tmp_path, env=clean())
    assert Path(where.strip()).is_relative_to(image)
    run(python, "-c", "import ops.takeover.taking_over, ops.takeover.giving_back", cwd=tmp_path, env=clean())
    for name in ("pyspark", "pyarrow", "duckdb", "pandas", "pip", "setuptools"):
        assert not list(image.glob(f"lib/python*/site-packages/{name}")), name
    said = run(image / "bin" / "metaquorum", "--help", cwd=tmp_path, env=clean())
    assert "controller" in said
    for words, code, named in (
        ("bench failover --peer etcd", 2, "the benchmarks (ops/bench) are not in the installed package"),
        ("learn acks", 2, "what runs Kafka's brokers is not in the installed package"),
        ("replay report --export .", 6, "pip install 'metaquorum[duckdb]'"),
    ):
        asked = [str(image / "bin" / "metaquorum"), *words.split()]
        refused = subprocess.run(
            asked, cwd=tmp_path, env=clean(), capture_output=True, text=True, check=False
        )
        assert refused.returncode == code
        assert named in refused.stderr


def test_the_settings_of_the_containers_are_sound_and_kept(image: Path, tmp_path: Path) -> None:
    """Method: what compose.yaml runs first runs here, is interrupted, and runs again."""
    script = image / "share" / "metaquorum-settings.sh"
    environment = {**clean(), "PATH": f"{image / 'bin'}:{os.defpath}"}
    data = tmp_path / "data"
    data.mkdir()
    run("/bin/sh", script, data, cwd=tmp_path, env=environment)
    files = sorted(data.glob("*.toml"))
    before = {file.name: file.read_text() for file in files}
    assert list(before) == ["console.toml", *(f"controller-{node}.toml" for node in (1, 2, 3))]
    (data / "complete").unlink()
    (data / "console.toml").unlink()
    run("/bin/sh", script, data, cwd=tmp_path, env=environment)
    assert {file.name: file.read_text() for file in sorted(data.glob("*.toml"))} == before
    for file in files:
        run(image / "bin" / "metaquorum", "config", "check", file, cwd=tmp_path, env=environment)


def test_the_health_check_of_the_image_knows_a_node_that_lives(image: Path, tmp_path: Path) -> None:
    """Method: the installed core runs a cluster; its controller is frozen, and ends. The check is that of compose.yaml, with
    the folders of this image and this cluster instead of the container's.
    """
    cluster = tmp_path / "cluster"
    up = ("up", "--controllers", "1", "--brokers", "1", "--dir", cluster, "-o", "jsonl")
    python = image / "bin" / "python"
    data = cluster / "controller-1"
    services = yaml_subset.parsed((ROOT / "ops/container/compose.yaml").read_text())["services"]
    places = {"/opt/metaquorum/bin/python": str(python), "/var/lib/metaquorum/controller-1": str(data)}
    kind, *words = services["controller-1"]["healthcheck"]["test"]
    assert kind == "CMD" and places.keys() <= set(words)
    check = [places.get(word, word) for word in words]

    def code() -> int:
        return subprocess.run(check, cwd=tmp_path, env=clean(), capture_output=True, check=False).returncode

    command = [str(image / "bin" / "metaquorum"), *map(str, up)]
    process = subprocess.Popen(command, cwd=tmp_path, env=clean(), stdout=subprocess.DEVNULL)
    try:
        poll_until(lambda: code() == 0, deadline_s=60, what="the controller answers")
        poll_until(lambda: b'"ready"' in (cluster / "cluster.json").read_bytes(), deadline_s=60, what="ready")
        controller = json.loads((data / "process.json").read_bytes())["pid"]
        os.kill(controller, signal.SIGSTOP)
        assert code() == 1
        os.kill(controller, signal.SIGCONT)
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert code() == 1
