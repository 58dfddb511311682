"""A short run under faults, and what the verdict makes of histories and runs that are not right."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.robustness.clients import Operation, check, write_history
from tests.robustness.faults import Fault
from tests.robustness.run import Verdict, run


@pytest.mark.slow
def test_a_short_run_holds(tmp_path: Path) -> None:
    verdict = asyncio.run(run(tmp_path, minutes=0.5, seed=7))
    assert verdict.violations == []
    assert verdict.below_the_floors() == []
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == verdict.checked > 300
    assert set(json.loads(lines[0])) == {
        "client",
        "op",
        "key",
        "value",
        "expected",
        "ok",
        "call",
        "return",
        "result",
    }


def write(value: str, call: int, returned: int | None) -> Operation:
    return Operation(1, "write", "r1", value, None if returned is None else True, call, returned, None)


def read(value: str | None, call: int, returned: int) -> Operation:
    return Operation(2, "read", "r1", None, True, call, returned, value)


@pytest.mark.parametrize(
    ("history", "contradicts"),
    [
        pytest.param([write("a", 0, 1), read("a", 2, 3)], False, id="in-order"),
        pytest.param([write("a", 0, 1), read(None, 2, 3)], True, id="stale"),
        pytest.param([write("a", 0, 5), read(None, 2, 3), read("a", 4, 6)], False, id="while-it-is-written"),
        pytest.param([write("a", 0, 9), read("a", 2, 3), read(None, 4, 5)], True, id="back-again"),
        pytest.param([write("a", 0, None), read("a", 50, 60)], False, id="unknown-and-it-happened"),
        pytest.param([write("a", 0, None), read(None, 50, 60)], False, id="unknown-and-it-did-not"),
        pytest.param(
            [write("a", 0, 1), write("b", 0, None), read("b", 2, 3), read("a", 4, 5)],
            True,
            id="unknown-undone",
        ),
        pytest.param([read("x", 0, 1)], True, id="never-written"),
    ],
)
def test_what_contradicts(history: list[Operation], contradicts: bool) -> None:
    assert (check(history) is not None) == contradicts


def test_a_lost_write_in_a_real_history_is_found(tmp_path: Path) -> None:
    """Take one read of a long sound history back to the value before."""
    history = []
    for number in range(200):
        history.append(write(f"v{number}", 10 * number, 10 * number + 3))
        history.append(read(f"v{number}", 10 * number + 4, 10 * number + 6))
    assert check(history) is None
    history[301] = replace(history[301], result="v149")
    assert check(history) is not None
    write_history(history, tmp_path / "h.jsonl")
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 400


def test_a_run_that_was_too_easy_is_void() -> None:
    verdict = Verdict(10, 1)
    verdict.history = [replace(read("a", 0, 1), client=number, in_fault=True) for number in range(9)]
    verdict.faults = [Fault("cut", "somewhere", 0, 1) for _ in range(50)]
    floors = " ".join(verdict.below_the_floors())
    assert "share of writes" in floors
    assert "kinds of faults" in floors
    assert "clients" not in floors
    assert "VOID" in verdict.summary()
