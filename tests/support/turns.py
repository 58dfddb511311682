"""Edge: long tests that vary one another take turns: each commit runs a third of them, and any commit may run all.

A test marked `in_turn("GROUP")` takes turns with the others of its group. `ops/check` names the turn by its commit in
TEST_TURN. Where none is named, all tests run. Tests: tests/unit/support/test_turns.py.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable
from math import ceil
from typing import Final

import pytest

ONE_IN: Final = 3
_VARIABLE: Final = "TEST_TURN"


def waiting(names: Iterable[str], turn: str) -> set[str]:
    """Return the tests of a group whose turn it is not. A third of them has its turn, and at least one."""
    drawn = sorted(names, key=lambda name: hashlib.sha256(f"{turn} {name}".encode()).digest())
    return {*drawn[ceil(len(drawn) / ONE_IN) :]}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = os.environ.get(_VARIABLE)
    if turn is None:
        return
    groups = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("in_turn"):
            (group,) = marker.args
            groups[group].append(item.nodeid)
    left = {name for names in groups.values() for name in waiting(names, turn)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]
