"""What ops/up and ops/check install is written down: each version with its hashes, and none that pyproject.toml excludes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "ops/lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def entries(name: str) -> list[tuple[Requirement, str]]:
    """Return what a lock installs, with the text of its hashes."""
    joined = (LOCKS / f"{name}.txt").read_text().replace("\\\n", "")
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(Requirement(line.partition(" --hash")[0]), line) for line in lines]


@pytest.mark.parametrize("extras", ["", "replay", "replay,kafka", "replay,dev"])
def test_a_lock_has_what_the_project_asks_for(extras: str) -> None:
    locked = {found.name: found for found, _ in entries(extras.replace(",", "-") or "core")}
    asked = [*PROJECT["dependencies"]]
    for extra in filter(None, extras.split(",")):
        asked += PROJECT["optional-dependencies"][extra]
    for wanted in map(Requirement, asked):
        (pinned,) = locked[wanted.name].specifier
        assert pinned.operator == "==", wanted
        assert wanted.specifier.contains(pinned.version), (wanted, pinned.version, "run ops/update-lock")


@pytest.mark.parametrize("name", sorted(path.stem for path in LOCKS.glob("*.txt")))
def test_each_file_that_is_installed_has_a_hash(name: str) -> None:
    for found, line in entries(name):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), found


@pytest.mark.parametrize("name", ["core", "replay", "replay-kafka"])
def test_what_is_added_later_replaces_nothing(name: str) -> None:
    """Method: what a smaller lock has is in the larger ones, in the same version."""
    largest = {found.name: found.specifier for found, _ in entries("replay-dev")}
    assert {found.name: found.specifier for found, _ in entries(name)}.items() <= largest.items()


def test_the_scripts_install_by_these_locks() -> None:
    """A lock that no script names would be forgotten, and a script without a lock fails on a new machine alone."""
    scripts = "".join((ROOT / "ops" / name).read_text() for name in ("check", "up", "add-spark", "setup.sh"))
    named = set(re.findall(r"(?:extras=|install )(core|replay(?:,\w+)?)\b", scripts))
    assert {each.replace(",", "-") for each in named} | {"build"} == {
        path.stem for path in LOCKS.glob("*.txt")
    }
