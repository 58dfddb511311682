"""Pure: the codes that --accept of a routine takes: all that health has, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from metadata_log import errors
from ops import cli
from ops.admin.health import CODES
from ops.admin.moving import NAME_UNKNOWN
from quorum.raft.handshake import REFUSALS

ROOT: Final = Path(__file__).resolve().parents[4]
ROOMS: Final = ("quorum", "broker_agent", "metadata_log/node", "snapshots", "ops/admin")
"""Where nodes and clients give reasons: as a pair of code and detail, or as a `Reason`."""
CODE: Final = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
ERRORS: Final = {getattr(each, "error", None) for each in vars(errors).values()}


def given() -> Iterator[str]:
    """Yield the codes that the source gives, but for errors and the options of sockets."""
    for path in (file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Tuple(elts=[first, _]):
                    yield from _codes(first)
                case ast.Call(func=ast.Name(id="Reason"), args=[_, second, _]):
                    yield from _codes(second)
                case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr="warnings"), slice=key)]):
                    yield from _codes(key)


def _codes(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and CODE.fullmatch(each.value):
            yield each.value


@pytest.mark.slow
def test_every_code_that_a_node_gives_can_be_accepted_and_has_a_step_in_the_runbooks() -> None:
    found = {code for code in given() if code not in ERRORS and not code.startswith("TCP_")}
    assert "DISK_STALLED" in found and "VOTER_BEHIND" in found and "CACHE_SET_ASIDE" in found
    no_codes = {"NETWORK_EXCEPTION", "NOT_YET_VALID"}  # an error of the client, and a part of codes
    assert found - CODES == no_codes
    assert REFUSALS <= CODES, "a controller reports the error of a refused link as a reason"
    steps = (ROOT / "ops/runbooks/README.md").read_text()
    assert {code for code in CODES if f"`{code}`" not in steps} == set()


@pytest.mark.parametrize(
    "words",
    [
        ["roll", "all", "--restart", "true"],
        ["move", "controller", "1", "--http", "http://h:1", "--restart", "true"],
        ["certificates", "rotate", "nodes"],
    ],
    ids=lambda words: words[0],
)
def test_a_code_that_does_not_exist_is_refused_with_those_that_do(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--dry-run", "--accept", "DISK_FULL"]) == 2
    said = capsys.readouterr().err
    assert "'DISK_FULL' is none of" in said and all(code in said for code in CODES)
    assert (NAME_UNKNOWN in said) is (words[0] == "move")
