"""A majority that runs, is linked and has sound disks soon has a leader: however slow these disks and links steadily are.

The bound, from the last moment at which somebody led, or at which a node, link or disk of that majority was out of order:

    the silence is noticed              one longest election timeout, 0.6 s, where no link's end tells of it sooner
    somebody stands in vain, once       another: votes split, or a candidate goes down, or lacks entries
    a sync under way ends               one sync, before the candidacy or the vote can be written
    another job of the disk's thread    one sync: the journal's next file, or the pointer to a snapshot
    candidacy and votes are synced      one sync, in parallel
    so much again for the vain attempt  three syncs; and the first entry of the new term, which a change waits for, some more
    messages                            pre-vote, its answer, the request, the vote: two round trips for each attempt

`SYNCS` and `ROUND_TRIPS` are that, rounded up. The time of a sync and of a way are those that this run drew (`slowness`);
behind what fills a narrow link a message waits, and that counts as well.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Final

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_STRANGER_TIMEOUTS
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode
    from tests.simulation.world.world import World


SYNCS: Final = 10
ROUND_TRIPS: Final = 6
TIMEOUTS_SECONDS: Final = 1.0
USUAL_SYNC_SECONDS: Final = 0.02
"""Of a disk on which nothing is slow: one sync in two hundred takes longer."""
LOSSY_SECONDS: Final = 30.0
"""Where links lose, double or delay messages: each of the four messages of an election may need several attempts."""
STALL_SECONDS: Final = 0.1
"""A sync that takes longer than two on this disk do, and this, is a stall: nothing is expected of its node meanwhile."""
BACKLOG_BYTES: Final = 100_000
"""What a follower may lack of a run's log after an absence, and one that needs a snapshot of its tail."""
WATCH_SECONDS: Final = 0.05

Majority = frozenset[tuple[NodeId, int]]
"""Nodes, and the number of the process that runs on each."""


class Leadership:
    """Somebody leads wherever a majority can elect."""

    nobody_falls_silent = rule("where controllers, links and disks have no faults, the first leader leads on")
    led = rule("a majority that could elect a leader soon has one")

    def __init__(self, world: "World") -> None:
        self._world = world
        self.nearest = 0.0
        """The largest part of the bound that passed without a leader."""
        self.longest_seconds = 0.0

    async def watch(self) -> None:
        """Look until the calm at how long nobody led."""
        world = self._world
        since = world.loop.time()
        able: dict[Majority, float] = {}
        while not world.violations and world.is_rough:
            await asyncio.sleep(WATCH_SECONDS)
            now = world.loop.time()
            if any(map(_leads, world.nodes.values())):
                since, able = now, {}
                continue
            found = able_majorities(world)
            # The slowest way of a majority so far: what fills a link now may have passed when its time is up.
            able = {
                each: max(ways, able.get(each, 0.0))
                for each, ways in ((each, _slowest_way(world, each)) for each in found)
                if each in able or not able
            }
            if not able:
                since = now
                continue
            self._judge(now - since, able)

    def _judge(self, seconds: float, able: Mapping[Majority, float]) -> None:
        world = self._world
        majority, most = min(
            ((each, self._bound(each, way)) for each, way in able.items()), key=lambda item: item[1]
        )
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.nearest = max(self.nearest, seconds / most)
        if seconds > most:
            names = sorted(node_id for node_id, _ in majority)
            world.violated(
                self.led(f"{names} could have elected a leader for {seconds:.1f} s, {most:.1f} are enough")
            )

    def _bound(self, majority: Majority, way: float) -> float:
        world = self._world
        links = world.profile.links
        nodes = [world.nodes[node_id] for node_id, _ in majority]
        sync = max(steady_sync(world, node) for node in world.nodes.values() if node.log is not None)
        lossy = LOSSY_SECONDS if links.lost or links.late or links.duplicated or links.flipped else 0.0
        return (
            TIMEOUTS_SECONDS + SYNCS * sync + ROUND_TRIPS * 2 * way + lossy + stranger_seconds(world, nodes)
        )


def _leads(node: "SimulatedNode") -> bool:
    return node.is_awake() and node.is_leader()


def _slowest_way(world: "World", majority: Majority) -> float:
    ids = [node_id for node_id, _ in majority]
    return max(
        (world.network.way_seconds(one, other) for one in ids for other in ids if one != other), default=0.0
    )


def steady_sync(world: "World", node: "SimulatedNode") -> float:
    """Return how long a sync takes on a node's disk, where nothing stalls."""
    return USUAL_SYNC_SECONDS + world.slowness.syncs.get(node.node_id, 0.0)


def stranger_seconds(world: "World", nodes: Iterable["SimulatedNode"]) -> float:
    """Return how long one of these may wait before it believes another, of whom its log does not know that it votes."""
    some = list(nodes)
    for node in some:
        if node.log is None or not node.has_engine():
            continue
        if not all(node.log._guard.belief.is_member(other.member) for other in some):
            return RAFT_STRANGER_TIMEOUTS * world.settings.election_timeout_max_ms / 1000
    return 0.0


def slow_seconds(world: "World", majority: Majority) -> float:
    """Return how much longer a majority may take to commit something in this run than where nothing is slow.

    It may have to elect, and a leader's entries reach a follower behind all that it lacks, perhaps behind a snapshot.
    """
    slowness, ids = world.slowness, [node_id for node_id, _ in majority]
    links = [frozenset(pair) for pair in combinations(ids, 2)]
    rates = [slowness.bandwidths[link] for link in links if link in slowness.bandwidths]
    ways = max((slowness.latencies.get(link, 0.0) for link in links), default=0.0)
    download = 0.0 if slowness.download_seconds is None else slowness.download_seconds[1]
    return (
        SYNCS * max(slowness.syncs.values(), default=0.0)
        + ROUND_TRIPS * 2 * ways
        + (2 * BACKLOG_BYTES / min(rates) if rates else 0.0)
        + download
    )


def able_majorities(world: "World") -> set[Majority]:
    """Return the majorities that run, are awake and linked with each other, and whose disks do what they are asked."""
    able = [node for node in world.nodes.values() if _is_able(world, node)]
    found: set[Majority] = set()
    for size in range(1, len(able) + 1):
        for some in combinations(able, size):
            members = {node.member for node in some}
            if all(
                2 * len(members & set(voters.items())) > len(voters)
                for voters in world.checks.newest_voters()
            ) and all(_are_linked(world, one, other) for one, other in combinations(some, 2)):
                found.add(frozenset((node.node_id, node.incarnation) for node in some))
    return found


def _is_able(world: "World", node: "SimulatedNode") -> bool:
    if not node.has_engine() or not node.is_awake() or node.is_stopping or node.disk.is_full:
        return False
    stalled = 2 * world.slowness.syncs.get(node.node_id, 0.0) + STALL_SECONDS
    return node.writing is None or world.loop.time() - node.writing_since <= stalled


def _are_linked(world: "World", one: "SimulatedNode", other: "SimulatedNode") -> bool:
    network, (a, b) = world.network, (one.node_id, other.node_id)
    return (
        network.is_open(a, b)
        and network.is_open(b, a)
        and b in one.transport.links
        and a in other.transport.links
    )
