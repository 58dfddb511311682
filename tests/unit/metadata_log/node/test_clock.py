"""The clock that decides goes on while the machine is suspended."""

import time
from collections.abc import Callable

import pytest

import broker_agent.agent
from metadata_log.node.clock import monotonic_ms
from quorum.node import server


@pytest.mark.parametrize("now_ms", [monotonic_ms, server._now_ms, broker_agent.agent.now_ms])
def test_a_suspended_machine_finds_on_waking_how_long_it_slept(
    now_ms: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: its sessions and leases are over then. Method: the controller's clock and the broker's are CLOCK_BOOTTIME."""
    asked: list[int] = []

    def clock_gettime_ns(clock: int) -> int:
        asked.append(clock)
        return 5_000_000_000

    monkeypatch.setattr(time, "clock_gettime_ns", clock_gettime_ns)
    assert now_ms() == 5_000
    assert asked == [time.CLOCK_BOOTTIME]
