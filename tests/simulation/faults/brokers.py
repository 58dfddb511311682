"""Faults of brokers, and of what controllers do for them: brokers sleep, crash, are cut off, stranded and unregistered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from metadata_log.ids import NodeId
from quorum.decide.brokers import UnregisterBroker
from tests.simulation.faults.random_faults import log_uniform
from tests.simulation.world.cluster_broker import SimulatedBroker
from tests.simulation.world.cluster_node import POOLS, ClusterNode

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld

AIMED_BEFORE_SECONDS = 1.5
"""A leader that sleeps is asked at most so long before it wakes, since whoever asks waits for two seconds."""
SATURATED_SECONDS = (0.5, 10.0)
"""Bounds of how long a pool has no free thread, drawn evenly on a logarithmic scale."""


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """A link between a broker and a controller on which something is lost."""

    what: str
    """`request` or `answer`."""


class BrokerFaults:
    """What happens to the brokers of one world."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world

    def kinds(self) -> list[tuple[float | None, Callable[[], None]]]:
        """Return each kind with its mean time between two; None: it does not happen."""
        profile, has_brokers = self._world.profile, bool(self._world.brokers)
        return [
            (profile.broker_every if has_brokers else None, self._trouble_broker),
            (profile.unregister_every if has_brokers else None, self._unregister),
            (profile.aimed_read_every, self._aim_reads),
            (profile.saturate_every, self._saturate),
        ]

    def _trouble_broker(self) -> None:
        broker, rng = self._world.rng.choice(self._world.brokers), self._world.rng
        kinds = ["sleep", "crash", "stop", "cut", "slow"]
        kinds += [] if self._world.profile.is_heavy else ["stranded"]
        kinds += [] if self._world.data is None else ["power"]
        kind = rng.choice(kinds)
        seconds = rng.choice((0.5, 2.0, 6.0, 9.0)) * rng.uniform(0.3, 1.0)
        self._world.faults[f"broker: {kind}"] += 1
        if kind == "sleep":
            self._world.tell(broker, f"sleeps for {seconds:.1f} s")
            broker.asleep_until = self._world.loop.time() + seconds
        elif kind == "slow":
            self._world.tell(broker, f"reads slowly for {seconds:.1f} s")
            broker.slow_until = self._world.loop.time() + seconds
        elif kind == "cut":
            nodes = rng.sample(self._world.ids, rng.randint(1, len(self._world.ids)))
            what = rng.choice(("request", "answer"))
            if self._world.profile.cut_seconds is not None:
                seconds = log_uniform(rng, self._world.profile.cut_seconds)
            self._world.tell(broker, f"is cut off from {nodes}: {what}s are lost for {seconds:.1f} s")
            self._cut(broker, nodes, what, seconds)
        elif kind == "stranded":
            self._strand(broker)
        elif kind == "stop" and broker.session is not None:
            self._world.tell(broker, "is asked to stop")
            broker.session.want_shut_down = True
            self._world.loop.call_later(3.0, self._world.start_broker, broker, broker.runs)
        elif kind in ("crash", "power") and broker.session is not None:
            broker.crash(cuts_power=kind == "power" or (broker.disk is not None and rng.random() < 0.4))
            if (
                kind == "power"
                and self._world.data is not None
                and self._world.data.may_lose_power(broker.broker_id)
            ):
                self._world.data.lose_power(broker.broker_id)
            self._world.loop.call_later(seconds, self._world.start_broker, broker, broker.runs)

    def _cut(self, broker: SimulatedBroker, nodes: Sequence[NodeId], what: str, seconds: float) -> None:
        for node_id in nodes:
            self._world.cuts[broker.broker_id, node_id] = cut = Cut(what)
            self._world.loop.call_later(seconds, self._heal, (broker.broker_id, node_id), cut)

    def _heal(self, link: tuple[int, NodeId], cut: "Cut") -> None:
        if self._world.cuts.get(link) is cut:  # else a later one has taken its place
            del self._world.cuts[link]

    def _unregister(self) -> None:
        """Let an operator unregister a broker, whatever it does."""
        broker = self._world.rng.choice(self._world.brokers)
        self._world.faults["broker: unregistered"] += 1
        self._world.tell(broker, "is unregistered")

        async def ask() -> None:
            await self._world.attempt(UnregisterBroker(broker_id=broker.broker_id))

        self._world.spawn(ask)

    def _aim_reads(self) -> None:
        """Read from each leader that is deposed and does not know it, or that is about to wake."""
        now, newest = self._world.loop.time(), max(self._world.checks.leaders, default=0)
        for node in self._world.nodes.values():
            if not node.is_leader() or node.paused_until > now + AIMED_BEFORE_SECONDS:
                continue
            assert node.log is not None
            is_deposed = node.log._node.engine.term < newest
            if is_deposed or not node.is_awake():
                self._world.sometimes(
                    "read asked of a deposed leader" if is_deposed else "read waits at a sleeping leader"
                )
                client = self._world.rng.choice(self._world.clients)
                self._world.spawn(partial(client.read, client.key(), node))

    def _saturate(self) -> None:
        """Let a pool of a controller have no free thread for seconds."""
        node, pool = self._world.rng.choice(list(self._world.nodes.values())), self._world.rng.choice(POOLS)
        assert isinstance(node, ClusterNode)
        if node.log is not None:
            self._world.faults["saturated pool"] += 1
            node.saturate(pool, log_uniform(self._world.rng, SATURATED_SECONDS))

    def _strand(self, broker: SimulatedBroker) -> None:
        """Let the leader sleep, and leave a broker nobody else to ask: the leader that wakes may no longer be one."""
        for node in self._world.nodes.values():
            if node.is_leader():
                others = [voter for voter in self._world.ids if voter != node.node_id]
                self._world.tell(broker, f"reaches {node.node_id} alone, of {self._world.ids}")
                self._cut(broker, others, "request", 8.0)
                node.pause(self._world.rng.uniform(2.0, 6.0))
                return
