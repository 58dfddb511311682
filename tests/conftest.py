"""For all tests: the same examples in each run, however fast the machine; a SIGINT that works; ports of their own.

Several processes may share out the files of tests among them, as `ops/check` has them do.
"""

import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ops import cluster_layout

settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# A shell lets its background jobs ignore SIGINT. The processes of the tests would inherit that, and some are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A walk over all that was imported and collected takes tenths of a second, and finds nothing. Python would begin hundreds.
gc.set_threshold(20_000, 20, 20)

os.environ["METAQUORUM_CONTEXT"] = ""  # no test asks a cluster of the person who runs it

# Two processes with tests must not choose the same free port: each has a share. `ops/check` and pytest-xdist number them.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_is_free = cluster_layout._is_free
cluster_layout._is_free = lambda port: port % WORKERS == WORKER and _is_free(port)


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
        (Path(FAILURES) / f"gw{WORKER}").write_text("".join(f"{name}\n" for name in _failed))


def _unit_of(item: pytest.Item) -> Path:
    """Return what is taken whole: a file, or a folder whose tests share what its own conftest makes."""
    folder = item.path.parent
    return folder if (folder / "conftest.py").exists() else item.path


def _takes(folder: Path, unit: Path) -> bool:
    name = unit.relative_to(Path(__file__).parent).as_posix().replace("/", "+")
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
            ours[unit] = _takes(Path(TAKEN), unit)
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


HANGS = 0.8
"""The share of pytest's own bound, faulthandler_timeout, after which a coroutine fails alone."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own. One that hangs fails alone, before pytest ends the whole run."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(HANGS * float(pyfuncitem.config.getini("faulthandler_timeout"))):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True
