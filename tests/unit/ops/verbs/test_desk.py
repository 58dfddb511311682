"""Edge: help and completion: what an operator finds without a page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops import cli
from ops.verbs.desk import SHELLS, VARIABLE

ROOT = Path(cli.__file__).parents[1]


@pytest.mark.parametrize("words", [[], ["topics"], ["topics", "create"], ["version"]])
def test_help_is_what_the_flag_shows(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert cli.main(["help", *words]) == 0
    helped = capsys.readouterr().out
    assert cli.main([*words, "--help"]) == 0
    assert helped == capsys.readouterr().out and "usage: metaquorum" in helped


def test_help_of_nothing_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "topics", "creat"]) == 2
    assert cli.main(["help", "version", "x"]) == 2
    assert "there is no 'version x'" in capsys.readouterr().err


def test_each_shell_gets_a_script_that_asks_us(capsys: pytest.CaptureFixture[str]) -> None:
    assert VARIABLE == cli.COMPLETE_VARIABLE
    for shell in SHELLS:
        assert cli.main(["completion", shell]) == 0
        shown = capsys.readouterr().out
        assert f"{VARIABLE}={shell}_complete" in shown and "metaquorum" in shown


def test_bash_completes_verbs_by_it(tmp_path: Path) -> None:
    """Method: the script is sourced by a real bash, which then asks for what begins with `topics cre`."""
    program = tmp_path / "metaquorum"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ops.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    script = """
        eval "$(metaquorum completion bash)"
        COMP_WORDS=(metaquorum topics cre) COMP_CWORD=2
        _metaquorum_completion metaquorum
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert ran.stdout.split() == ["create"], ran.stderr
