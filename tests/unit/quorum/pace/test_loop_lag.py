"""Edge: the metrics show a turn of the loop that takes long."""

import asyncio
import time

import pytest

from quorum.pace.loop_lag import keep_measuring_loop_lag
from quorum.views.metrics import ControllerMetrics


async def test_a_turn_that_takes_long_is_counted() -> None:
    metrics = ControllerMetrics()
    task = asyncio.create_task(keep_measuring_loop_lag(metrics))
    await asyncio.sleep(0)
    time.sleep(0.12)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    longest = metrics.registry.get_sample_value("metaquorum_loop_lag_longest_seconds")
    assert longest is not None and longest >= 0.09
    assert metrics.registry.get_sample_value("metaquorum_loop_lag_seconds_bucket", {"le": "0.05"}) != (
        metrics.registry.get_sample_value("metaquorum_loop_lag_seconds_count")
    )
