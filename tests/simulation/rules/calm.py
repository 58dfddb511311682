"""Liveness and convergence in the calm at the end of a simulated cluster's run."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from metadata_log.errors import MetadataError, OutcomeUnknown, Unavailable
from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.partitions import RECOVERING
from quorum.controller.controller import Controller
from quorum.decide.partitions import ElectLeaders
from quorum.decide.topics import CreateTopic, DeleteTopic
from tests.simulation.rules.leadership import Leadership
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster_controller import SimulatedController
from tests.simulation.world.voter_changes import addition, carry_out, removal

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.node import SimulatedNode


LIVENESS_SECONDS = 15.0
"""After the last fault: a sync under way may take 5 s more, then a broker's session must run out (3 s) before another
incarnation may have its id, and a client may sit out a timeout (2 s) at each node.
"""
CATCH_UP_PER_SECOND = 50
"""So many records at least a broker comes closer in a second, though its answers hold few and the writes go on."""
CHANGES = 4
"""So often each partition of a broker that is not online may change while others wait. The broker leaves the ISR, by the
stop or the fencing of its former process or as another one registers. A leader is elected as that one comes, it returns to
the ISR, and the leadership moves back to the first replica. All parts of one change may come after those of another.
"""
CONVERGENCE_SECONDS = 8.0
"""Leaderships go back to first replicas with the next sweep."""
LAST_CHANGES = 3
"""So often each partition may change after the last write: an election, the return of a replica, and that sweep."""
WINDOW_MS_MAX = 5_000
"""A window so long is waited for."""
WINDOW_SECONDS = 12.0
"""Such a window has passed by then: the controller looks every two seconds, and its clock may be behind the last one's."""
ELECTION_SECONDS = 1.0
"""At rest a new leader leads within so long."""
CHANGE_SECONDS = 5.0
"""Within so long the quorum, at rest, changes its voters."""


class Calm:
    """The end of a run: the faults are over, and all must be well soon."""

    acknowledged_is_durable = rule("what was answered is in the log, at the offset that was answered")
    windows_pass = rule("once the clients rest, deleted topics go, though the log is quiet")
    liveness = rule("LIVENESS_SECONDS after the last fault one controller is active and all is well")
    convergence = rule("once the clients rest, all controllers and brokers have the same end offset")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.recovered_after: float | None = None
        """Seconds from the last fault until all was well."""

    async def check(self) -> None:
        """Liveness and convergence."""
        profile = self._world.profile
        has_sound_links = not profile.links.flipped  # a message whose bits flipped costs its link
        if profile.is_heavy and has_sound_links and len(self._world.checks.leaders) > 1:
            self._world.violated(
                Leadership.nobody_falls_silent(f"these led, term by term: {self._world.checks.leaders}")
            )
        self._world.is_rough = False
        self._world.forgery.is_over = True
        self._world.network.faults = type(self._world.network.faults)()
        self._world.network.heal()
        self._world.cuts.clear()
        if self._world.data is not None:
            self._world.data.cuts.clear()
            self._world.data.directories.end_faults()
        self._world.end_faults()
        if self._world.network.meddled["rotten"]:
            self._world.faults["rotten batch"] = self._world.network.meddled["rotten"]
        for broker in self._world.brokers:
            broker.asleep_until = broker.slow_until = 0.0
            if broker.session is not None and broker.session.want_shut_down:
                broker.crash()
            if broker.session is None:
                broker.start(keep_cache=True)
        self._world.tell("weather", "is calm from now on")
        acknowledged = [client.acknowledged for client in self._world.clients]
        began = self._world.loop.time()
        patience = self.liveness_seconds()
        trouble = await self._world.within(patience, lambda: self._not_live(acknowledged))
        if trouble is not None:
            self._world.violated(self.liveness(f"{patience:.0f} s after the last fault {trouble}"))
            return
        self.recovered_after = self._world.loop.time() - began
        self._world.is_quiet = True
        await self.elect_stranded()
        if self._world.data is not None and (broken := await self._world.data.end()) is not None:
            self._world.violated(broken)
            return
        if len(self._world.ids) > 1 and not await self._change_voters_at_rest():
            return
        for key in sorted({operation.key for operation in self._world.history[-300:]}):
            await self._world.clients[0].read(key)
        await self._delete_for_a_time()
        trouble = await self._world.within(WINDOW_SECONDS, self._deleted_for_good)
        if trouble is not None:
            self._world.violated(self.windows_pass(f"{WINDOW_SECONDS:.0f} s after the last write {trouble}"))
            return
        # The last topic that was restored may have lost its last replica in sync while it was deleted.
        await self.elect_stranded()
        patience = self.convergence_seconds()
        trouble = await self._world.within(patience, self._not_converged)
        if trouble is not None:
            self._world.violated(self.convergence(f"{patience:.0f} s after the last write {trouble}"))
            return
        self._check_acknowledged()
        self._world.writes_acknowledged = len(self._world.acknowledged)

    def _catch_up_seconds(self) -> float:
        """Return how long the brokers need for what they lack."""
        newest = self._world.properties.newest
        behind = max((newest - broker.follower.image.end_offset for broker in self._world.brokers), default=0)
        return behind / CATCH_UP_PER_SECOND

    def liveness_seconds(self) -> float:
        """Return how long it may take from now on until all is well.

        In most runs each change of a broker's partitions fits into one part, and parts cost no time beside LIVENESS_SECONDS.
        In a heavy one a part changes one partition and holds the loop for tens of milliseconds, and the parts of all changes
        are made in turn. Polls are answered in between, so a broker with small answers comes no closer to the end of the log
        meanwhile: both times add up. So does the time of a broker that is online: it may fall silent behind these parts, is
        fenced, and comes back.
        """
        topics = self._world.image.topics
        replicas = [sum(1 for _ in topics.partitions_on(each.broker_id)) for each in self._world.brokers]
        changes = CHANGES * sum(map(self._parts_seconds, replicas))
        return LIVENESS_SECONDS + self._catch_up_seconds() + changes

    def convergence_seconds(self) -> float:
        """Return how long it may take from the last write on until nothing changes any more; see `liveness_seconds`."""
        changes = LAST_CHANGES * self._parts_seconds(self._world.image.topics.counts.partitions)
        return CONVERGENCE_SECONDS + self._catch_up_seconds() + changes

    def changes_seconds(self) -> float:
        """Return how long all partitions go on to change in parts if a broker leaves, comes back and leads again."""
        return CHANGES * self._parts_seconds(self._world.image.topics.counts.partitions)

    def _parts_seconds(self, partitions: int) -> float:
        """Return how long a change of so many partitions goes on in this run after its first part."""
        per_part = max(Controller.records_per_part_max - 1, 1)
        return self._world.costs.rates.change_seconds(partitions, per_part=per_part)

    def _not_online(self) -> list[BrokerId]:
        image = self._world.image
        return [
            b.broker_id for b in self._world.brokers if not image.is_active(b.broker_id) or not b.may_serve()
        ]

    async def elect_stranded(self) -> None:
        """Do what `docs/limits.md` asks of an operator where nobody can be elected cleanly any more."""
        until = self._world.loop.time() + CHANGE_SECONDS
        while (
            (stranded := self.stranded()) and not self._world.violations and self._world.loop.time() < until
        ):
            await self._world.attempt(ElectLeaders(unclean=True, partitions=tuple(stranded)))
            self._world.consequences["unclean elections by an operator"] += 1
            await asyncio.sleep(0.1)

    def stranded(self) -> list[tuple[str, int]]:
        """Return the partitions without a leader whose ISR is empty, and no replica of which is eligible.

        Every broker is online: nothing is to be waited for.
        """
        return sorted(
            (topic.name, number)
            for topic in self._world.image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == NO_LEADER
            and not partition.isr
            and not set(partition.eligible_leader_replicas) & set(partition.replicas)
        )

    async def _change_voters_at_rest(self) -> bool:
        """Let one controller vote more, or one less: whatever was interrupted before, a change can be made."""
        until = self._world.loop.time() + CHANGE_SECONDS
        refused = "nobody leads"
        while self._world.loop.time() < until and not self._world.violations:
            leader = next((node for node in self._world.nodes.values() if node.is_leader()), None)
            if leader is not None:
                assert leader.log is not None
                before = leader.log.status().voters
                fresh = [n.member for n in self._world.nodes.values() if n.member not in before.items()]
                gone = [
                    voter for voter, disk in before.items() if self._world.nodes[voter].directory_id != disk
                ]
                others = [voter for voter in before if voter != leader.node_id]
                command = removal(before, (gone or others)[0]) if gone or not fresh else addition(fresh[0])
                try:
                    await self._world.remote(leader, partial(carry_out, command))
                except (MetadataError, ConnectionError) as error:
                    refused = str(error)
                    if await self._has_held_an_election(leader):
                        until = self._world.loop.time() + CHANGE_SECONDS
                else:
                    return True
            await asyncio.sleep(0.1)
        if self._world.violations:
            return False
        self._world.violated(
            self.liveness(f"no change of voters within {CHANGE_SECONDS:.0f} s at rest: {refused}")
        )
        return False

    async def _has_held_an_election(self, leader: "SimulatedNode") -> bool:
        """Have an election where an observer's term is above the leader's, as `docs/limits.md` asks; answer if it was so."""
        log = leader.log
        if log is None:
            return False
        voters = log.status().voters.items()
        observers = [node for node in self._world.nodes.values() if node.member not in voters]
        terms = [node.log._node.engine.term for node in observers if node.log is not None]
        if log._node.engine.term >= max(terms, default=0):
            return False
        self._world.consequences["elections for an observer's term"] += 1
        if len(voters) > 1:
            with suppress(MetadataError):
                log.transfer_leadership(None)
        else:
            await leader.stop()
            leader.start()
        await asyncio.sleep(ELECTION_SECONDS)
        return True

    def _not_live(self, acknowledged: list[int]) -> str | None:
        active = [controller for controller in self._controllers() if controller.is_active]
        if len(active) != 1 or len(self._controllers()) != len(self._world.nodes):
            return f"{len(active)} controllers are active, {len(self._controllers())} run"
        if offline := self._not_online():
            return f"brokers {offline} are not online"
        pending = [
            node.node_id
            for node in self._world.nodes.values()
            if node.log is not None and node.log.status().change_pending
        ]
        if pending:
            return f"a change of voters is pending on {pending}"
        waiting = [
            client.number
            for client, before in zip(self._world.clients, acknowledged, strict=True)
            if client.acknowledged <= before
        ]
        return f"clients {waiting} have found no answer" if waiting else None

    async def _delete_for_a_time(self) -> None:
        """Delete a topic that can be restored for a short time, if topics of this run can."""
        if not (self._world.brokers and 0 < self._world.undelete_window_ms <= WINDOW_MS_MAX):
            return
        created = CreateTopic(
            name="passing",
            partitions=1,
            replication_factor=1,
            assignment=None,
            configs={},
            validate_only=False,
        )
        for command in (created, DeleteTopic(name="passing")):
            until = self._world.loop.time() + CHANGE_SECONDS
            while self._world.loop.time() < until and not self._world.violations:
                leader = next((node for node in self._world.nodes.values() if node.is_leader()), None)
                with suppress(Unavailable, OutcomeUnknown, ConnectionError):
                    if leader is not None:
                        await self._world.submit(leader, command, None)
                        break
                await asyncio.sleep(0.1)

    def _deleted_for_good(self) -> str | None:
        """Return which topics can be restored though their windows, as far as they are short, have passed."""
        kept = [
            each.topic.name
            for each in self._world.image.topics.deleted.values()
            if each.grace_ms <= WINDOW_MS_MAX
        ]
        return f"{sorted(kept)} can be restored" if kept else None

    def _not_converged(self) -> str | None:
        ends = {f"controller {c.node.node_id}": c.committed.end_offset for c in self._controllers()}
        ends |= {str(broker): broker.follower.image.end_offset for broker in self._world.brokers}
        if len(set(ends.values())) == 1 and min(ends.values()) >= self._world.properties.newest:
            return self._lacking_a_member()
        return f"these offsets were reached: {ends}, and {self._world.properties.newest} by somebody"

    def _lacking_a_member(self) -> str | None:
        """Return which partitions are not as they shall be while every broker is online, and none has data."""
        image = self._world.brokers[0].follower.image if self._world.brokers else EMPTY
        lacking = [
            f"{topic.name}-{number}"
            for topic in image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if set(partition.isr) != set(partition.replicas)
        ]
        if lacking:
            return f"the ISRs of {lacking} are not whole"
        # As in Kafka, a replica that a first reassignment adds and a second one takes away is waited for, for ever.
        restless = [
            f"{topic.name}-{number}: {partition}"
            for topic in image.topics.by_id.values()
            for number, partition in enumerate(topic.partitions)
            if not set(partition.adding_replicas) & set(partition.removing_replicas)
            and (
                partition.leader != partition.replicas[0]
                or partition.leader_recovery_state == RECOVERING
                or partition.adding_replicas
                or partition.removing_replicas
            )
        ]
        return f"these have no rest: {restless[:3]}" if restless else None

    def _check_acknowledged(self) -> None:
        for request_id, base_offset in self._world.acknowledged.items():
            if base_offset not in self._world.properties.requests.get(request_id, ()):
                self._world.violated(
                    self.acknowledged_is_durable(f"{request_id.hex()} was answered at {base_offset}")
                )

    def _controllers(self) -> list[SimulatedController]:
        return [
            n.listener
            for n in self._world.nodes.values()
            if n.log is not None and isinstance(n.listener, SimulatedController)
        ]
