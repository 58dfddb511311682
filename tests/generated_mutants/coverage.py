"""Edge: which functions each test calls, and how long it takes: a plugin of pytest that appends a line for each test.

    METAQUORUM_COVERAGE=FILE python -m pytest -p tests.generated_mutants.coverage -m "not slow"

A function is named by its file and the line where it begins, decorators included. Tests that are in the file already are
left out, so a collection that was cut short goes on. Functions that run in other processes are not seen.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import pytest

VARIABLE: Final = "METAQUORUM_COVERAGE"
"""Names the file that the plugin appends to."""
ROOT: Final = Path(__file__).resolve().parents[2]


class Covered(NamedTuple):
    """What one test did."""

    test: str
    seconds: float
    passed: bool
    functions: frozenset[str]
    """path:line of each function of the rooms that was called."""


def read(file: Path) -> list[Covered]:
    """Read what was collected; a line that was cut short is none."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            test, seconds, passed, functions = json.loads(line)
        except ValueError:
            continue
        found.append(Covered(test, seconds, passed, frozenset(functions)))
    return found


class _Plugin:
    def __init__(self, file: Path, rooms: tuple[str, ...]) -> None:
        self._file = file
        self._known = {covered.test for covered in read(file)}
        self._prefixes = tuple(f"{ROOT / room}{os.sep}" for room in rooms)
        self._called: dict[int, CodeType] = {}
        self._seconds = 0.0
        self._passed = True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._known]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._called.clear()
        self._seconds, self._passed = 0.0, True
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._append(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds += report.duration
        self._passed = self._passed and report.outcome != "failed"

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> None:
        code = frame.f_code
        self._called[id(code)] = code  # by id: a code object is hashed by all that it holds

    def _append(self, test: str) -> None:
        functions = {
            f"{Path(code.co_filename).relative_to(ROOT).as_posix()}:{code.co_firstlineno}"
            for code in list(self._called.values())
            if code.co_filename.startswith(self._prefixes)
        }
        with self._file.open("a") as out:
            out.write(json.dumps([test, round(self._seconds, 3), self._passed, sorted(functions)]) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    from tests.generated_mutants.mutations import ROOMS

    file = os.environ.get(VARIABLE)
    if file is not None:
        config.pluginmanager.register(_Plugin(Path(file), ROOMS))
