"""Edge: several processes with the same tests share out the files among them, and leave the names of what failed.

Tests: tests/unit/support/test_sharing_out.py, tests/unit/ops/test_lanes.py.
"""

import os
from pathlib import Path

import pytest

TAKEN = os.environ.pop("TEST_FILES_TAKEN", None)
"""A folder for what processes with the same tests, in the same order, have taken: each takes the next file that none has.
No process that a test starts knows of it.
"""


FAILURES = os.environ.pop("TEST_FAILURES", None)
"""A folder in which each process with tests leaves the names of those that failed, once it has come to its last test."""
_failed: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish(exitstatus: int) -> None:
    if FAILURES is not None and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        (Path(FAILURES) / os.environ.get("PYTEST_XDIST_WORKER", "gw0")).write_text(
            "".join(f"{name}\n" for name in _failed)
        )


def _unit_of(item: pytest.Item) -> Path:
    """Return what is taken whole: a file, or a folder whose tests share what its own conftest makes."""
    folder = item.path.parent
    return folder if (folder / "conftest.py").exists() else item.path


def _takes(folder: Path, unit: Path) -> bool:
    name = unit.as_posix().replace("/", "+")
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what no other process has taken. The next file is taken before the last test of a file, which knows then what is
    torn down behind it.
    """
    if TAKEN is None or session.config.option.collectonly:
        return None
    if session.testsfailed:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    ours: dict[Path, bool] = {}

    def is_ours(item: pytest.Item) -> bool:
        unit = _unit_of(item)
        if unit not in ours:
            ours[unit] = _takes(Path(TAKEN), unit.relative_to(session.config.rootpath / "tests"))
        return ours[unit]

    items = filter(is_ours, session.items)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
