"""For all tests: the same examples in each run, however fast the machine; a SIGINT that works; ports of their own.

Several processes may share out the files of tests among them, as `ops/check` has them do (tests/support/lanes.py).
"""

import asyncio
import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from ops.local import layout
from tests.support.lanes import (  # noqa: F401 hooks of pytest
    pytest_runtest_logreport,
    pytest_runtestloop,
    pytest_sessionfinish,
)
from tests.support.preloaded import copy_nodes

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
_is_free = layout._is_free
layout._is_free = lambda port: port % WORKERS == WORKER and _is_free(port)


copy_nodes()


HANGS = 0.8
"""The share of pytest's own bound, faulthandler_timeout, after which a coroutine fails alone."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own, or on that of the fixture `runner` (an asyncio.Runner). One that
    hangs fails alone, before pytest ends the whole run.
    """
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(HANGS * float(pyfuncitem.config.getini("faulthandler_timeout"))):
            await pyfuncitem.obj(**arguments)

    runner = pyfuncitem.funcargs.get("runner")
    run = runner.run if isinstance(runner, asyncio.Runner) else asyncio.run
    run(bounded())
    return True
