"""Pure: what the loss of controllers, or a restart of one after the other, does to the quorum: the exact records, and
whether it still writes.

A controller that does not lead writes nothing when it goes. Where the leader goes, the next one claims. Which of those that
have the whole log that is, an election decides: the records are those of the first of them.
Tests: tests/unit/quorum/whatif/test_controllers.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from metadata_log.ids import NodeId, random_uuid
from metadata_log.records.registry import Record
from metadata_log.wire.commands import RegisterController
from quorum.decide.quorum import claim
from quorum.whatif.cluster import Cluster

LOST: Final = "lost"
STOPPED: Final = "stopped"
BACK: Final = "back"


class ControllerStep(NamedTuple):
    """What one step writes, and what holds after it. Voters without a majority that runs write nothing."""

    what: str
    controller_id: NodeId
    led: bool
    successors: tuple[NodeId, ...]
    """Of a leader: who may lead next; none where too few voters are left."""
    running: int
    majority: int
    records: tuple[Record, ...]

    @property
    def writes(self) -> bool:
        return self.running >= self.majority


class QuorumOf:
    """The voters of a cluster that is played: which of them run, and which leads."""

    def __init__(self, cluster: Cluster, *, running: Iterable[NodeId], leader_id: NodeId | None) -> None:
        """`running` are voters that run and have the whole log."""
        self._cluster = cluster
        self._voters = cluster.image.quorum.voters or ()
        known = {voter.node_id for voter in self._voters}
        self._running = {node_id for node_id in running if node_id in known}
        self._leader_id = leader_id if leader_id in self._running else None

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """All voters, in the order in which a roll restarts them: the leader last."""
        return tuple(
            sorted(
                (voter.node_id for voter in self._voters), key=lambda each: (each == self._leader_id, each)
            )
        )

    def lose(self, controller_ids: Iterable[NodeId]) -> Iterator[ControllerStep]:
        """Let controllers go without a word, one after the other, and yield what each means."""
        for controller_id in controller_ids:
            yield self._gone(LOST, controller_id)

    def roll(self, controller_ids: Sequence[NodeId]) -> Iterator[ControllerStep]:
        """Stop and start controllers one after the other, and yield what each of the two means.

        One that leads asks another to lead before it stops, and one that is back registers.
        """
        for controller_id in controller_ids:
            yield self._gone(STOPPED, controller_id)
            self._running.add(controller_id)
            if self._writes:
                self._elected(is_handed_over=False)  # where a roll began without a majority
                self._registers(controller_id)
            yield self._step(BACK, controller_id, led=False, successors=())

    @property
    def _majority(self) -> int:
        return len(self._voters) // 2 + 1

    @property
    def _writes(self) -> bool:
        return len(self._running) >= self._majority

    def _gone(self, what: str, controller_id: NodeId) -> ControllerStep:
        led = controller_id == self._leader_id
        self._running.discard(controller_id)
        successors: tuple[NodeId, ...] = ()
        if led:
            self._leader_id = None
            successors = self._elected(is_handed_over=what == STOPPED)
        return self._step(what, controller_id, led=led, successors=successors)

    def _elected(self, *, is_handed_over: bool) -> tuple[NodeId, ...]:
        """Have the first of those that may lead claim, unless one leads; return all that may."""
        if self._leader_id is not None or not self._writes:
            return ()
        candidates = tuple(sorted(self._running))
        cluster = self._cluster
        self._leader_id = candidates[0]
        claimed = claim(
            cluster.image,
            node_id=self._leader_id,
            cluster_id=cluster.cluster_id,
            voters=self._voters,
            is_handed_over=is_handed_over,
        )
        cluster.write(claimed.records, claimed.cause)
        return candidates

    def _registers(self, controller_id: NodeId) -> None:
        known = self._cluster.image.controllers.get(controller_id)
        if known is not None:
            self._cluster.decide(
                RegisterController(
                    cluster_id=self._cluster.cluster_id,
                    controller_id=controller_id,
                    incarnation_id=random_uuid(self._cluster.rng),
                    endpoints=known.endpoints,
                    features=known.features,
                )
            ).result()

    def _step(
        self, what: str, controller_id: NodeId, *, led: bool, successors: tuple[NodeId, ...]
    ) -> ControllerStep:
        records = tuple(record for batch in self._cluster.take_written() for record in batch.records)
        return ControllerStep(
            what, controller_id, led, successors, len(self._running), self._majority, records
        )
