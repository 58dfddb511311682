"""The faults and their rates: each kind as one function on a world, and the swarm of profiles."""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from metadata_log.errors import MetadataError
from metadata_log.ids import NodeId

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode
    from tests.simulation.world.world import World

PAUSE_SECONDS_MAX = 10.0
LONG_CUT_SECONDS = 10.0
SUSPENDED_SECONDS = (1.0, 60.0)
"""Bounds of how long a machine is suspended, drawn evenly on a logarithmic scale."""
SUSPENDED_ALONE_SECONDS = (1.0, 10.0)
"""The same where it is the only one, and nothing happens meanwhile."""
WALL_CLOCK_OFF_MS_MAX = 7_200_000
"""Far more than the results of requests are kept for: a client that repeats within minutes must still find its own however
the clocks of two controllers differ.
"""


class Weather:
    """The faults of one world; each counts itself in `world.faults`."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = world.rng
        self._rolling = False
        self._cuts_new_until = 0.0

    def kinds(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return mean seconds between two faults of a kind (None: never), and what to do."""
        profile, alone = self._world.profile, len(self._world.ids) == 1
        return [
            (profile.crash_every, self._crash),
            (profile.kill_leader_every, self._kill_leader),
            (None if alone else profile.partition_every, self._partition),
            (None if alone else profile.cut_leader_every, self._cut_leader),
            (None if alone else profile.cut_new_leaders_every, self._cut_new_leaders),
            (None if alone else profile.flap_every, self._flap),
            (profile.pause_every, self._pause),
            (profile.suspend_every, self._suspend),
            (profile.long_absence_every, self._long_absence),
            (None if alone else profile.transfer_every, self._transfer),
            (profile.rolling_every, self._roll),
            (profile.full_disk_every, self._fill_disk),
            (profile.failed_sync_every, self._fail_sync),
            (profile.rot_every, self._rot),
            (profile.wall_clock_every, self._jump),
        ]

    def _count(self, kind: str) -> None:
        self._world.faults[kind] += 1

    def _any_node(self) -> "SimulatedNode":
        return self._rng.choice(list(self._world.nodes.values()))

    # --- processes

    def _crash(self) -> None:
        kind = "crash" if self._rng.random() < 0.7 else "kill"
        self._crash_for(self._rng.uniform(0.01, 2.0), kind)

    def _kill_leader(self) -> None:
        leader = next((node for node in self._world.nodes.values() if node.is_leader()), None)
        if leader is not None:
            self._count("killed leader")
            leader.crash(cuts_power=self._rng.random() < 0.5)
            self._start_later(leader, self._rng.uniform(0.05, 20.0))

    def _long_absence(self) -> None:
        self._crash_for(self._rng.uniform(8.0, 25.0), "long absence")

    def _crash_for(self, seconds: float, kind: str) -> None:
        node = self._any_node()
        if node.log is not None:
            self._count(kind)
            node.crash(cuts_power=kind != "kill")
            self._start_later(node, seconds)

    def _start_later(self, node: "SimulatedNode", seconds: float) -> None:
        self._world.loop.call_later(seconds, _start, node)

    def _pause(self) -> None:
        node = self._any_node()
        if node.log is not None and node.is_awake():
            self._count("pause")
            node.pause(self._rng.choice((0.3, 1.0, 3.0, PAUSE_SECONDS_MAX)) * self._rng.uniform(0.3, 1.0))

    def _suspend(self) -> None:
        """Suspend one machine, or the one on which all processes run: all clocks are ahead then, and no timer is due."""
        world, rng = self._world, self._rng
        if rng.random() < 0.5:
            seconds = log_uniform(rng, SUSPENDED_SECONDS)
            self._count("all suspended")
            world.sometimes("all machines suspended")
            world.tell("machine", f"is suspended with all that runs on it for {seconds:.1f} s")
            world.suspend_all(seconds)
            return
        node = self._any_node()
        if node.log is not None and node.is_awake():
            self._count("suspended")
            world.sometimes("machine suspended")
            bounds = SUSPENDED_ALONE_SECONDS if len(world.ids) == 1 else SUSPENDED_SECONDS
            node.pause(log_uniform(rng, bounds))

    def _transfer(self) -> None:
        for node in self._world.nodes.values():
            if node.log is not None and node.is_leader():
                target = self._rng.choice((None, *self._world.ids))
                with suppress(MetadataError):
                    node.log.transfer_leadership(target)
                    self._count("transfer")
                    self._world.tell(node, f"is asked to hand over to {target or 'anybody'}")

    def _roll(self) -> None:
        if not self._rolling:
            self._rolling = True
            self._count("rolling restart")
            self._world.spawn(self._roll_all)

    async def _roll_all(self) -> None:
        for node in self._world.nodes.values():
            if self._world.is_rough:
                await node.stop()
                await asyncio.sleep(self._rng.uniform(0.05, 0.5))
                _start(node)
                await asyncio.sleep(self._rng.uniform(0.2, 2.0))
        self._rolling = False

    # --- links

    def _partition(self) -> None:
        """Cut some voters off from some others, sometimes in one direction only; heal after a while."""
        world, rng = self._world, self._rng
        aside = rng.sample(world.ids, rng.randint(1, max(1, len(world.ids) // 2)))
        directions = rng.choice(((True, True), (True, False), (False, True)))
        others = [voter for voter in world.ids if voter not in aside]
        if rng.random() < 0.3:
            others = rng.sample(
                others, rng.randint(1, len(others))
            )  # a partial cut: some still hear both sides
        self._count("cut" if all(directions) else "one-way cut")
        if world.network.is_cut:
            world.sometimes("cuts overlap")
        cut = world.network.new_cut()
        for one in aside:
            for other in others:
                if directions[0]:
                    world.network.block(one, other, cut)
                if directions[1]:
                    world.network.block(other, one, cut)
        bounds = world.profile.cut_seconds
        seconds = rng.uniform(0.1, 2.0) if bounds is None else log_uniform(rng, bounds)
        if seconds > LONG_CUT_SECONDS:
            world.sometimes("cut longer than 10 s")
        world.tell("network", f"cuts {aside} from {others} for {seconds:.1f} s, out and in: {directions}")
        if bounds is None:
            world.loop.call_later(seconds, self._heal)
        else:
            world.loop.call_later(seconds, self._heal_one, cut)

    def _cut_leader(self) -> None:
        """Cut a leader off from all others, in both directions or in one; it and its clients do not know."""
        leaders = [node.node_id for node in self._world.nodes.values() if node.is_leader()]
        if leaders:
            directions = self._rng.choice(((True, True), (True, False), (False, True)))
            self._cut_off(self._rng.choice(leaders), directions, self._rng.uniform(0.1, 2.0))

    def _cut_new_leaders(self) -> None:
        """For a while, cut every leader off as soon as it is elected: terms pass in which nothing is committed."""
        self._cuts_new_until = self._world.loop.time() + self._rng.uniform(1.0, 4.0)

    def elected(self, node_id: NodeId) -> None:
        if self._world.loop.time() < self._cuts_new_until and len(self._world.ids) > 1:
            self._cut_off(node_id, (True, False), self._rng.uniform(0.2, 1.0))

    def _cut_off(self, node_id: NodeId, directions: tuple[bool, bool], seconds: float) -> None:
        world, cut = self._world, self._world.network.new_cut()
        self._count("cut" if all(directions) else "one-way cut")
        world.tell("network", f"cuts {node_id} off for {seconds:.1f} s, out and in: {directions}")
        for other in world.ids:
            if other != node_id:
                if directions[0]:
                    world.network.block(node_id, other, cut)
                if directions[1]:
                    world.network.block(other, node_id, cut)
        world.loop.call_later(seconds, self._heal_one, cut)

    def _heal_one(self, cut: int) -> None:
        self._world.tell("network", f"heals cut {cut}")
        self._world.network.unblock(cut)

    def _heal(self) -> None:
        self._world.tell("network", "heals")
        self._world.network.heal()

    def _flap(self) -> None:
        one, other = self._rng.sample(self._world.ids, 2)
        self._count("reset")
        self._world.tell("network", f"resets {one} - {other}")
        self._world.network.flap(one, other)

    # --- disks

    def _fill_disk(self) -> None:
        node = self._any_node()
        if not node.disk.is_full:
            self._count("full disk")
            self._world.tell(node, "has a full disk")
            node.disk.is_full, node.disk.no_appends = True, self._rng.random() < 0.5
            self._world.loop.call_later(self._rng.uniform(1.0, 5.0), setattr, node.disk, "is_full", False)

    def _fail_sync(self) -> None:
        node = self._any_node()
        if node.log is not None:
            self._count("failed sync")
            self._world.tell(node, "will see its next sync fail")
            node.disk.sync_fails_once = True

    def _rot(self) -> None:
        """Turn a bit of a journal while its node is stopped; while it runs nobody would read it."""
        node = self._any_node()
        if node.rots:
            return
        if self._rng.random() < 0.5 and node.rot_snapshot():
            self._count("snapshot rot")
            return
        if node.log is not None:
            node.crash()
            self._start_later(node, self._rng.uniform(0.05, 1.0))
        rot = node.disk.rot(self._rng)
        if rot is not None:
            self._count("bit rot")
            self._world.tell(node, f"rots: {rot.name} byte {rot.position} bit {rot.bit}")
            node.rots.append(rot)

    # --- clocks

    def _jump(self) -> None:
        node = self._any_node()
        node.wall_clock_ms = self._rng.randint(-WALL_CLOCK_OFF_MS_MAX, WALL_CLOCK_OFF_MS_MAX)
        self._count("wall clock jump")
        self._world.tell(node, f"has a wall clock that is {node.wall_clock_ms} ms off")


def _start(node: "SimulatedNode") -> None:
    if node.log is None and node.task is None:
        node.start()


def log_uniform(rng: random.Random, bounds: tuple[float, float]) -> float:
    """Draw a number evenly on a logarithmic scale."""
    return math.exp(rng.uniform(*map(math.log, bounds)))


def swarm(seed: int) -> dict[str, float | None]:
    """Return the mean seconds between faults of each kind for one seed: any mixture, some kinds off entirely."""
    rng = random.Random(seed ^ 0x5EED)
    usual = {
        "crash_every": 4.0,
        "partition_every": 3.0,
        "flap_every": 4.0,
        "pause_every": 12.0,
        "long_absence_every": 40.0,
        "transfer_every": 8.0,
        "rolling_every": 40.0,
        "full_disk_every": 25.0,
        "failed_sync_every": 20.0,
        "rot_every": 15.0,
        "wall_clock_every": 15.0,
        "broker_every": 3.0,
        "change_every": 4.0,
        "wipe_every": 15.0,
    }
    return {
        kind: None if rng.random() < 0.35 else every * rng.choice((0.5, 1.0, 1.0, 2.0))
        for kind, every in usual.items()
    }
