"""A simulated quorum that a test steps through, without weather."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.model import Model
from tests.simulation.world.node import SimulatedNode
from tests.simulation.world.world import World


def is_settled(node: SimulatedNode) -> bool:
    """Answer whether a running node has proposed and applied all that was given to it."""
    log = node.log
    return log is not None and not log._node.proposals.waiting and not log._applied.has_tail()


class Quorum:
    """A world without weather that a test steps through."""

    def __init__(self, voters: int = 3, observers: int = 0, seed: int = 1) -> None:
        self.world = World(seed=seed, profile=PROFILES["calm"], voters=voters, observers=observers)
        self.loop = self.world.loop

    def start(self) -> None:
        self.run(self._start())

    async def _start(self) -> None:
        for node in self.world.nodes.values():
            node.start()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def until(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, "the condition never came true"
            self.wait(0.001)

    @property
    def nodes(self) -> list[SimulatedNode]:
        return list(self.world.nodes.values())

    def leader(self) -> SimulatedNode:
        self.until(lambda: sum(node.is_leader() for node in self.nodes) == 1)
        node = next(node for node in self.nodes if node.is_leader())
        self.until(lambda: node.listener.is_leader)  # type: ignore[attr-defined]
        return node

    def write(self, count: int = 1) -> None:
        """Append frames at the leader, and wait until they are applied everywhere."""
        node = self.leader()
        assert node.log is not None and isinstance(node.listener, Model)
        for _ in range(count):
            node.log.append(self.world.next_frame())
        self.until(lambda: is_settled(node))
        goal = node.listener.frames
        self.until(lambda: all(frames_of(other) >= goal for other in self.nodes if other.log is not None))

    def end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.wait(0.001)
        self.loop.close()


def frames_of(node: SimulatedNode) -> int:
    assert isinstance(node.listener, Model)
    return node.listener.frames
