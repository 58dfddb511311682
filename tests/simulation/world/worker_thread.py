"""The thread of a simulated node that writes its journal and its pointer: one job at a time, whose syncs take a while."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from metadata_log.errors import MetadataError
from quorum.raft.journal_sync import Ended

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode


class WorkerThread:
    """The thread of one process of a node."""

    def __init__(self, node: "SimulatedNode") -> None:
        self._node = node
        self._one_job = asyncio.Lock()

    def begin(self, incarnation: int, work: Callable[[], None], ended: Ended) -> None:
        job = self._node.world.loop.create_task_of(None, self._run(incarnation, work))
        self._node.own(job)
        self._node.own(self._node.world.loop.create_task(self._tell_ended(job, ended)))

    async def _tell_ended(self, job: "asyncio.Task[None]", ended: Ended) -> None:
        """Call back, in a turn of this process, once a job of its thread has ended."""
        failure: MetadataError | None = None
        try:
            await job
        except MetadataError as error:
            failure = error
        ended(failure)

    async def _run(self, incarnation: int, work: Callable[[], None]) -> None:
        node = self._node
        async with self._one_job:
            writes_journal = isinstance(work, partial) and work.func == node.journal.write
            if writes_journal:
                node.writing, node.writing_since = node.journal.frozen, node.world.loop.time()
                node.parts = node.journal.parts
            before = node.disk.syncs_total
            work()
            await asyncio.sleep(node._sync_seconds() + self._first_sync_seconds(is_journals=writes_journal))
            for _ in range(node.disk.syncs_total - before - 1):
                await node._next_sync()
            await node.awake()
            if incarnation != node.incarnation or node.log is None:
                return
            node.disk.settle()
            if writes_journal:
                assert node.writing is not None
                node.durable, node.writing = node.writing, None

    def _first_sync_seconds(self, *, is_journals: bool) -> float:
        """Return how much longer the first sync on a disk takes; the power may go meanwhile."""
        world, rng = self._node.world, self._node.world.rng
        is_slow = world.profile.new_disks_are_slow and world.is_rough
        if not is_journals or self._node.journal.is_begun or not is_slow:
            return 0.0
        seconds = rng.choice((0.0, 0.0, 1.0, 2.0)) * rng.random()
        if self._node.wipes and rng.random() < 0.5:
            world.loop.call_later(seconds * rng.random(), self._end_early, self._node.incarnation)
        return seconds

    def _end_early(self, incarnation: int) -> None:
        """Lose power before the first sync has ended, and start again."""
        node, world = self._node, self._node.world
        if node.incarnation == incarnation and world.is_rough:
            node.crash()
            world.loop.call_later(world.rng.uniform(0.05, 1.0), node.mend_and_start, node.incarnation)
