"""Packages, units and containers: each file is what the code and the documents say it is."""

import json
import re
import shutil
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
import pytest

from ops import cli
from ops.cli import NOUNS
from tests import commands_page
from tests.house.rules import ROOMS
from tests.support import containerfile, json_schema, yaml_subset

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
CONTAINER: Final = ROOT / "ops/container"
UNITS: Final = sorted((ROOT / "ops/systemd").glob("*.service"))
COMPLETIONS: Final = {"bash": "metaquorum.bash", "zsh": "_metaquorum", "fish": "metaquorum.fish"}
EXPOSURE_MAX: Final = 20
"""In tenths, as systemd-analyze takes it: up to 2.0 it says OK."""
_LINK: Final = re.compile(r"\]\(([^)#\s]+\.md)\b")


def test_the_page_of_commands_is_what_the_code_says() -> None:
    """Write it with `python -m tests.commands_page`."""
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.page()
    assert set(commands_page.MORE) <= set(NOUNS)


def test_every_verb_and_route_has_a_page_two_steps_from_the_start_page() -> None:
    """Goal: who begins at docs/README.md finds them. Method: links are followed twice."""
    first = _links(DOCS / "README.md")
    second = first | {further for page in first for further in _links(page)}
    assert commands_page.PAGE in first
    for noun, _, _ in commands_page.verbs():
        for page in commands_page.MORE.get(noun, ("formats.md",)):
            assert (DOCS / page).resolve() in second, page
    everything = {page for page in DOCS.glob("*.md") if page.name != "README.md"}
    assert everything <= second, "no way leads there from docs/README.md"


def _links(page: Path) -> set[Path]:
    return {(page.parent / link).resolve() for link in _LINK.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_what_packages_bring_for_a_shell_is_what_the_command_prints(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write it with `metaquorum completion SHELL`."""
    assert cli.main(["completion", shell]) == 0
    assert (ROOT / "ops/completion" / COMPLETIONS[shell]).read_text() == capsys.readouterr().out


def test_the_wheel_has_the_files_of_packages() -> None:
    places = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    placed = {file for globs in places.values() for pattern in globs for file in ROOT.glob(pattern)}
    assert placed == {*(ROOT / "ops/completion").iterdir(), *(ROOT / "ops/systemd").iterdir()}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_says_what_systemd_knows_and_exposes_little(unit: Path, tmp_path: Path) -> None:
    """Method: `systemd-analyze` on a copy whose command is there. Without it: sections and keys in the right form, and the
    lines that matter most.
    """
    text = unit.read_text()
    role = unit.stem.removeprefix("metaquorum-")
    keys = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]\w+=", line))
    assert (
        keys["ExecStart"] == f"/opt/metaquorum/bin/metaquorum {role} run --config /etc/metaquorum/{role}.toml"
    )
    assert keys["StateDirectory"] == f"metaquorum/{role}"
    assert {"2", "3", "6"} == set(keys["RestartPreventExitStatus"].split()), "what does not pass by itself"
    assert (keys["User"], keys["NoNewPrivileges"], keys["ProtectSystem"]) == ("metaquorum", "yes", "strict")
    assert keys["CapabilityBoundingSet"] == ""
    for line in filter(None, text.splitlines()):
        assert re.match(r"#|\[(?:Unit|Service|Install)\]$|[A-Z][A-Za-z]+=", line), line
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    copy = tmp_path / unit.name
    copy.write_text(text.replace("/opt/metaquorum/bin/metaquorum", "/bin/true"))
    for asked in (("verify", "--man=no"), ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}")):
        ran = subprocess.run([analyze, *asked, copy], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Unknown" not in ran.stderr, ran.stderr


def test_the_containerfile_is_sound() -> None:
    text = (CONTAINER / "Containerfile").read_text()
    assert list(containerfile.faults(text)) == []
    (build, _) = containerfile.stages(text)
    taken = containerfile.copied(build)
    assert set(ROOMS) <= set(taken)
    ignore = (ROOT / ".dockerignore").read_text()
    for each in taken:
        assert (ROOT / each).exists(), each
        assert not containerfile.ignored(each, ignore), each
    for unwanted in (".git", ".venv", "tests", "metaquorum-data", "ops/__pycache__/cli.pyc"):
        assert containerfile.ignored(unwanted, ignore), unwanted


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        ("USER 10001:10001", "USER root", "does not run as a user"),
        ("python:3.13-slim-bookworm AS build", "python:latest AS build", "no version"),
        ("--require-hashes --requirement ops/lock/core.txt", "metaquorum", "not by the lock"),
        ('CMD ["controller", "run",', 'CMD ["controller" "run",', "takes its signals"),
        ("STOPSIGNAL SIGTERM", "", "no STOPSIGNAL"),
    ],
)
def test_what_is_wrong_with_a_containerfile_is_found(was: str, now: str, named: str) -> None:
    text = (CONTAINER / "Containerfile").read_text()
    assert was in text
    assert any(named in fault for fault in containerfile.faults(text.replace(was, now)))


def assert_is_a_command(words: list[str]) -> None:
    """Check that our command line takes these words, without running them."""
    command: click.Command = cli.ROOT
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, list(words))


def assert_is_a_module(words: list[str]) -> None:
    """Check that this starts a module of ours with the image's Python."""
    python, flag, module, *_ = words
    assert (python, flag) == ("/opt/metaquorum/bin/python", "-m")
    assert find_spec(module) is not None, module


def test_the_containers_own_command_and_check_are_ours() -> None:
    _, final = containerfile.stages((CONTAINER / "Containerfile").read_text())
    of = {each.keyword: each.rest for each in final}
    assert json.loads(of["ENTRYPOINT"]) == ["/opt/metaquorum/bin/metaquorum"]
    assert_is_a_command(json.loads(of["CMD"]))
    assert_is_a_module(json.loads(of["HEALTHCHECK"].partition(" CMD ")[2]))
    assert "--format docker" in (DOCS / "containers.md").read_text(), "an image of OCI has no health check"


def _faults_of_compose(text: str) -> list[str]:
    # Of github.com/compose-spec/compose-go/v2 v2.8.1 (Apache License 2.0), which docker compose reads files with; without
    # its descriptions.
    schema = json.loads((ROOT / "tests/house/compose-spec.json").read_text())
    return list(json_schema.faults(yaml_subset.parsed(text), schema, schema))


def test_the_schema_of_compose_allows_the_file_as_it_is() -> None:
    assert _faults_of_compose((CONTAINER / "compose.yaml").read_text()) == []


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        ("read_only: true", "readonly: true", "readonly is not described"),
        ('cap_drop: ["ALL"]', 'cap_drop: "ALL"', "is no array"),
        ('cap_drop: ["ALL"]', 'cap_drop: ["ALL", "ALL"]', "there twice"),
        ("condition: service_completed_successfully", "condition: service_done", "service_done"),
        ("disable: true", 'disable: ["true"]', "disable"),
    ],
)
def test_what_compose_would_refuse_is_found(was: str, now: str, named: str) -> None:
    text = (CONTAINER / "compose.yaml").read_text()
    assert was in text
    assert any(named in fault for fault in _faults_of_compose(text.replace(was, now)))


def test_compose_runs_three_controllers_and_a_console_without_rights() -> None:
    compose = yaml_subset.parsed((CONTAINER / "compose.yaml").read_text())
    services: dict[str, Any] = compose["services"]
    assert set(services) == {"settings", "controller-1", "controller-2", "controller-3", "console"}
    settings = (CONTAINER / "settings.sh").read_text()
    build, final = containerfile.stages((CONTAINER / "Containerfile").read_text())
    (volume,) = (each.rest for each in final if each.keyword == "VOLUME")
    installed = {
        script for each in build for script in re.findall(r"(\S+) (/opt/metaquorum/share/\S+)", each.rest)
    }
    assert set(compose["volumes"]) == {"cluster"}
    for name, service in services.items():
        assert service["volumes"] == [f"cluster:{volume}"], name
        assert (service["user"], service["read_only"], service["cap_drop"]) == (
            "10001:10001",
            True,
            ["ALL"],
        ), name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).exists()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), (
            "insecure: loopback alone"
        )
        if name != "settings":
            assert service["command"][-1] == f"/var/lib/metaquorum/{name}.toml"
            assert service["healthcheck"]["test"][-1] == f"/var/lib/metaquorum/{name}"
            assert service["depends_on"] == {"settings": {"condition": "service_completed_successfully"}}
            assert_is_a_command(service["command"])
            assert_is_a_module(service["healthcheck"]["test"][1:])
    shell, script = services["settings"]["entrypoint"]
    assert (shell, services["settings"]["command"]) == ("/bin/sh", [volume])
    assert ("ops/container/settings.sh", script) in installed
    assert services["console"]["ports"] == ["127.0.0.1:9101:9101"] and "http://0.0.0.0:9101" in settings
