"""Edge: try one generated mutant: in a copy of the repository, on the tests that call the changed function, until one fails.

As a plugin of pytest (`-p tests.generated_mutants.trial`) this module keeps the tests that a file names, in that order,
and ends the run once it took its share of processor time.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.generated_mutants.coverage import Covered
from tests.generated_mutants.mutations import Generated, users_of

VARIABLE: Final = "METAQUORUM_CHOSEN_TESTS"
"""Names a file: how many seconds, and which tests, quickest first."""
PACES_S: Final = (0.1, 1.0)
"""Tests that take less than the first are tried before those that take less than the second, and these before all others."""
FIRST: Final = 120
"""So many tests are tried first: most mutants fall to them, and the others' files need not be read."""
HANG_S: Final = 240
"""A test of a moment that takes as long hangs, however busy the machine is."""
BUSY: Final = 20
"""A run may last for so many times the processor time that it may take."""
TIME_IS_OVER: Final = "the time for this mutant is over"
LEFT_OUT: Final = (".git", ".venv", ".tools", "__pycache__", ".hypothesis", "metaquorum-data", ".*_cache")


@dataclass(frozen=True, slots=True)
class Verdict:
    identity: str
    caught_by: str | None
    """The test that failed, or what else ended the run; None: nothing noticed."""
    tests: int
    """How many tests were to be tried."""
    complete: bool
    """Whether all of them were tried within the time."""
    seconds: float

    @property
    def is_decided(self) -> bool:
        return self.caught_by is not None or self.complete


class Choice:
    """Which tests call what: those of the changed function, or of the functions that read a changed name."""

    def __init__(self, covered: Sequence[Covered], sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._seconds = {one.test: one.seconds for one in covered if one.passed}
        self._callers: dict[str, set[str]] = {}
        for one in covered:
            for function in one.functions if one.passed else ():
                self._callers.setdefault(function, set()).add(one.test)

    def tests(self, mutant: Generated) -> list[str]:
        """Return the tests to try: quick ones first, and of those the ones in the file that is named after the module."""
        chosen = set[str]()
        if mutant.function is not None:
            chosen = self._callers.get(f"{mutant.path}:{mutant.function}", set())
        elif mutant.name is not None:
            for function in users_of(mutant.name, self._sources):
                chosen = chosen | self._callers.get(function, set())
        chosen = chosen or self._of_module(mutant.path)
        name = f"/test_{Path(mutant.path).stem}.py::"
        order = sorted(
            chosen, key=lambda test: (self._pace(test), name not in test, self._seconds[test], test)
        )
        # Tests of a file follow each other, as they share what they prepare.
        first: dict[tuple[int, str], int] = {}
        for place, test in enumerate(order):
            first.setdefault((self._pace(test), test.partition("::")[0]), place)
        return sorted(order, key=lambda test: first[self._pace(test), test.partition("::")[0]])

    def _pace(self, test: str) -> int:
        return bisect_right(PACES_S, self._seconds[test])

    def _of_module(self, path: str) -> set[str]:
        """Return the tests that call anything of a module, or, if none does, of the modules that import it."""
        own = self._calling({path})
        dotted = path.removesuffix(".py").replace("/", ".")
        package, _, stem = dotted.rpartition(".")
        imports = (f"import {dotted}".encode(), f"from {dotted} ".encode(), f"from {package} import".encode())
        return own or self._calling(
            {
                other
                for other, source in self._sources.items()
                if imports[0] in source
                or imports[1] in source
                or (imports[2] in source and stem.encode() in source)
            }
        )

    def _calling(self, paths: set[str]) -> set[str]:
        callers = (tests for key, tests in self._callers.items() if key.rpartition(":")[0] in paths)
        return set[str]().union(*callers)


class Workshop:
    """A copy of the repository in which one mutant after the other stands."""

    def __init__(self, root: Path, copy: Path) -> None:
        self._root = root
        self._copy = copy
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for name in (".venv", ".tools"):
            if (root / name).exists():
                (copy / name).symlink_to((root / name).resolve())

    def test(self, mutant: Generated, tests: Sequence[str], *, most_s: float) -> Verdict:
        """Put a mutant in place and run its tests. A run that hangs notices it, too."""
        began = time.monotonic()
        outcome: str | None = None
        with self._in_place(mutant):
            for some in (tests[:FIRST], tests[FIRST:]):
                if outcome is None and some:
                    outcome = self._run(some, most_s)
        seconds = round(time.monotonic() - began, 1)
        in_vain = outcome in (None, TIME_IS_OVER)
        return Verdict(
            mutant.identity, None if in_vain else outcome, len(tests), outcome != TIME_IS_OVER, seconds
        )

    def _in_place(self, mutant: Generated) -> "_InPlace":
        return _InPlace(self._copy / mutant.path, mutant)

    def _run(self, tests: Sequence[str], most_s: float) -> str | None:
        """Return what noticed, TIME_IS_OVER, or None: nothing did."""
        chosen = self._copy / "chosen.json"
        chosen.write_text(json.dumps({"seconds": most_s, "tests": list(tests)}))
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.generated_mutants.trial"]
        options = ["-p", "no:cacheprovider", "--hypothesis-seed=0", "-o", f"faulthandler_timeout={HANG_S}"]
        environment = os.environ | {"PYTHONPATH": str(self._copy), VARIABLE: str(chosen)}
        try:
            done = subprocess.run(
                [*command, *options, *files],
                cwd=self._copy,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=BUSY * most_s + HANG_S,
            )
        except subprocess.TimeoutExpired:
            return TIME_IS_OVER
        if done.returncode in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return None
        lines = done.stdout.splitlines()
        named = (line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/")))
        unnamed = f"exit code {done.returncode}"
        if done.returncode == pytest.ExitCode.INTERRUPTED and TIME_IS_OVER in done.stdout:
            unnamed = TIME_IS_OVER
        elif "Timeout (" in done.stderr:
            unnamed = "a test that hangs"
        return next(named, unnamed).split(" - ")[0][:200]


class _InPlace:
    def __init__(self, file: Path, mutant: Generated) -> None:
        self._file = file
        self._mutant = mutant
        self._source = file.read_bytes()

    def __enter__(self) -> None:
        self._write(self._mutant.applied_to(self._source))

    def __exit__(self, *_args: object) -> None:
        self._write(self._source)

    def _write(self, source: bytes) -> None:
        """Write a source, and drop its compiled form: its time of a second and its size may be those of the other."""
        self._file.write_bytes(source)
        Path(importlib.util.cache_from_source(str(self._file))).unlink(missing_ok=True)


# --- the plugin


class _Chosen:
    def __init__(self, tests: Sequence[str], seconds: float) -> None:
        self._tests = tests
        self._until = time.process_time() + seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        place = {test: number for number, test in enumerate(self._tests)}
        items[:] = sorted(
            (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if time.process_time() > self._until:
                item.session.shouldstop = TIME_IS_OVER


def pytest_configure(config: pytest.Config) -> None:
    file = os.environ.get(VARIABLE)
    if file is not None:
        chosen = json.loads(Path(file).read_text())
        config.pluginmanager.register(_Chosen(chosen["tests"], chosen["seconds"]))
