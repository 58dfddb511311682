"""A majority that runs, is linked and has sound disks goes on committing."""

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.rules.leadership import Majority, able_majorities, slow_seconds, stranger_seconds
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld


UNAVAILABLE_SECONDS = 6.0
"""So long a majority that could commit may commit nothing, where links lose no message, beside what is steadily slow."""
UNAVAILABLE_LOSSY_SECONDS = 30.0
"""Where each of the four messages of an election may be lost or late, one in four comes through, and but one voter may be
electable.
"""
WATCH_SECONDS = 0.1


class Availability:
    """Commits go on wherever a majority can make them."""

    available = rule("while a majority runs, is linked and has sound disks, commits go on")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.longest_standstill = 0.0
        """The longest that a majority which could commit committed nothing, in seconds."""

    async def watch(self) -> None:
        """Look until the end at how long nothing was committed."""
        world = self._world
        since, newest = world.loop.time(), world.properties.newest
        able: set[Majority] = set()
        while not world.violations and not world.is_quiet:
            await asyncio.sleep(WATCH_SECONDS)
            now = world.loop.time()
            able &= (found := able_majorities(world))
            if newest != world.properties.newest or not able:
                since, newest, able = now, world.properties.newest, found
            self.longest_standstill = max(self.longest_standstill, now - since)
            late = [some for some in able if now - since > self._most(some)]
            if late:
                majority = sorted(node_id for node_id, _ in min(late, key=sorted))
                world.violated(self.available(f"{majority} could have committed for {now - since:.1f} s"))

    def _most(self, some: Majority) -> float:
        """Return how long these may commit nothing: an election, and the time of what is slow in it."""
        world = self._world
        links = world.profile.links
        usual = UNAVAILABLE_LOSSY_SECONDS if links.lost or links.late else UNAVAILABLE_SECONDS
        nodes = [world.nodes[node_id] for node_id, _ in some]
        return usual + slow_seconds(world, some) + stranger_seconds(world, nodes)
