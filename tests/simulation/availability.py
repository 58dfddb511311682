"""A majority that runs, is linked and has sound disks goes on committing."""

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_STRANGER_TIMEOUTS
from tests.simulation.world import SimulatedNode

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterWorld

UNAVAILABLE_SECONDS = 6.0
"""So long a majority that could commit may commit nothing, where links lose no message."""
UNAVAILABLE_LOSSY_SECONDS = 30.0
"""Where each of the four messages of an election may be lost or late, one in four comes through, and but one voter may be
electable.
"""
WATCH_SECONDS = 0.1


class Availability:
    """Commits go on wherever a majority can make them."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.longest_standstill = 0.0
        """The longest that a majority which could commit committed nothing, in seconds."""

    async def watch(self) -> None:
        """Look until the end at how long nothing was committed."""
        links = self._world.profile.links
        most = UNAVAILABLE_LOSSY_SECONDS if links.lost or links.late else UNAVAILABLE_SECONDS
        since, newest = self._world.loop.time(), self._world.properties.newest
        able: set[frozenset[NodeId]] = set()
        writing: dict[NodeId, object] = {}
        while not self._world.violations and not self._world.is_quiet:
            await asyncio.sleep(WATCH_SECONDS)
            now = self._world.loop.time()
            able &= (found := self._able_majorities(writing))
            writing = {node.node_id: node.writing for node in self._world.nodes.values()}
            if newest != self._world.properties.newest or not able:
                since, newest, able = now, self._world.properties.newest, found
            self.longest_standstill = max(self.longest_standstill, now - since)
            if now - since <= most:
                continue
            late = [some for some in able if now - since > most + self._stranger_seconds(some)]
            if late:
                majority = sorted(min(late, key=sorted))
                self._world.violated(f"available: {majority} could have committed for {now - since:.1f} s")

    def _stranger_seconds(self, some: frozenset[NodeId]) -> float:
        """Return how long one of these may wait before it believes another, of whom its log does not know that it votes."""
        nodes = [self._world.nodes[node_id] for node_id in some]
        for node in nodes:
            if node.log is None or not node.has_engine():
                continue
            if not all(node.log._guard.belief.is_member(other.member) for other in nodes):
                return RAFT_STRANGER_TIMEOUTS * self._world.settings.election_timeout_max_ms / 1000
        return 0.0

    def _able_majorities(self, writing: dict[NodeId, object]) -> set[frozenset[NodeId]]:
        """Return the majorities that run, are awake and linked with each other, and whose disks do what they are asked.

        `writing`: what each was making durable a while ago; a sync that lasts for so long is a stalled disk.
        """
        able = [
            node
            for node in self._world.nodes.values()
            if node.log is not None
            and node.is_awake()
            and not node.is_stopping
            and not node.disk.is_full
            and (node.writing is None or node.writing is not writing.get(node.node_id))
        ]
        found: set[frozenset[NodeId]] = set()
        for size in range(1, len(able) + 1):
            for some in combinations(able, size):
                members = {node.member for node in some}
                if all(
                    2 * len(members & set(voters.items())) > len(voters)
                    for voters in self._world.checks.newest_voters()
                ) and all(self._are_linked(one, other) for one, other in combinations(some, 2)):
                    found.add(frozenset(node.node_id for node in some))
        return found

    def _are_linked(self, one: SimulatedNode, other: SimulatedNode) -> bool:
        network, (a, b) = self._world.network, (one.node_id, other.node_id)
        return (
            network.is_open(a, b)
            and network.is_open(b, a)
            and b in one.transport.links
            and a in other.transport.links
        )
