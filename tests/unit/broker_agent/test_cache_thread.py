"""Edge: the thread of the broker's cache: what is appended is synced, and a due snapshot waits for a quiet moment."""

import asyncio
from pathlib import Path

import pytest

from broker_agent import cache_thread
from broker_agent.cache import Cache
from broker_agent.cache_thread import CacheThread
from tests.support.fake_controller import CLUSTER_ID, format_broker


class BusyCache(Cache):
    """A cache with a snapshot due, into which more is appended for a number of syncs."""

    def __init__(self, directory: Path, *, busy_for: int) -> None:
        format_broker(directory)
        super().__init__(directory, cluster_id=CLUSTER_ID)
        self.busy_for = busy_for
        self.syncs = 0
        self.written_after: int | None = None
        self.thread = CacheThread(self)

    def sync(self) -> None:
        self.syncs += 1

    @property
    def is_snapshot_due(self) -> bool:
        return self.written_after is None

    def write_due_snapshot(self) -> bool:
        if self.written_after is None:
            self.written_after = self.syncs
        return True

    def to_remove(self) -> None:
        return None


@pytest.mark.parametrize(("busy_for", "waits_max_s", "after"), [(0, 60.0, 1), (5, 60.0, 6), (100, 3.0, 3)])
async def test_a_snapshot_waits_for_a_second_without_frames_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_for: int, waits_max_s: float, after: int
) -> None:
    monkeypatch.setattr(cache_thread, "SNAPSHOT_WAITS_MAX_S", waits_max_s)
    rest = asyncio.sleep
    cache = BusyCache(tmp_path, busy_for=busy_for)

    async def sleep(_: float) -> None:
        if cache.syncs <= cache.busy_for:
            cache.thread.frames_appended()
        await rest(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    cache.open()
    cache.thread.frames_appended()
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(cache.thread.keep_durable())
        while cache.written_after is None:
            await rest(0.001)
        keeping.cancel()
    cache.thread.shut_down()
    cache.close()
    assert cache.written_after == after
