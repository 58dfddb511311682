"""Edge: sample hosts under lost, late and reordered messages, crashes and isolation: no acknowledged record is ever lost."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_agent import replicas
from broker_agent.replicas import Instruction, Lead, LocalReplicas, Phase
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.wire.commands import AlteredPartition, AlterPartition, ReportedIsr
from quorum.decide.partitions import PartitionsAltered
from tests.support.decisions import World, invariants_hold, registration, word_uuid
from tests.support.replica_log import Disks
from tests.support.sample_host import Message, SampleHost

BROKERS = (BrokerId(1), BrokerId(2), BrokerId(3))
TICK_MS = 20
LAG_MAX_MS = 300


class Process:
    """One run of a broker: its image lags behind the log, and its host lives as long as the process."""

    def __init__(self, cluster: "Cluster", broker_id: BrokerId, at: int) -> None:
        self.cluster = cluster
        self.at = at
        """How many batches of the history it has applied."""
        self.broker_id = broker_id
        self.is_cut_off = False
        self.unanswered: dict[PartitionKey, ReportedIsr] = {}
        self.local = LocalReplicas(broker_id)
        self.host = SampleHost(
            broker_id,
            cluster.disks[broker_id],
            now_ms=lambda: cluster.now_ms,
            may_serve=self.may_serve,
            send=partial(cluster.send, self),
            report=partial(cluster.report, self),
            lag_max_ms=LAG_MAX_MS,
        )

    @property
    def image(self) -> MetadataImage:
        return self.cluster.history[self.at - 1][1]

    def may_serve(self) -> bool:
        return not self.is_cut_off and self.image.is_active(self.broker_id)

    def follow_log(self) -> None:
        """Apply one batch more, or go on with the start."""
        if self.at < len(self.cluster.history):
            before, after, delta = self.cluster.history[self.at]
            self.at += 1
            told = self.local.on_delta(before, after, delta)
            if self.local.phase is not Phase.CATCHING_UP:
                self.carry_out(told)
            return
        own = self.image.brokers[self.broker_id]
        self.local.answered(self.image.end_offset)
        if self.local.may_start(self.image, own.broker_epoch):
            self.local.start(self.image, self.host.held(), known_offset=self.host.known_offset)
        if self.local.phase is Phase.STARTING:
            self.carry_out(self.local.next_slice(self.image))

    def carry_out(self, told: list[Instruction]) -> None:
        self.host.carry_out(told, self.image)
        for one in told:
            if isinstance(one, Lead):
                self.cluster.check_leader(self, (one.topic_id, one.partition_id))


class Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed=seed)
        self.history: list[tuple[MetadataImage, MetadataImage, Delta]] = []
        self.world.watchers.append(lambda *batch: self.history.append(batch))
        self.now_ms = 0
        self.loss = self.rng.choice((0.0, 0.1, 0.3))
        self.delays_ms: tuple[int, ...] = (0, 1, 5, 40, 400)
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.is_calm = False
        self.runs = 0
        self.disks = {broker_id: Disks((word_uuid(f"d{broker_id}a"),)) for broker_id in BROKERS}
        self.processes: dict[BrokerId, Process] = {}
        self.acknowledged: dict[PartitionKey, dict[str, int]] = {}
        self.values = 0
        for broker_id in BROKERS:
            self.start(broker_id)
        for _ in range(3):
            self.beat()
        self.world.run("create t on=1,2,3/2,3,1 min.insync.replicas=2")
        topic_id = self.world.image.topics.ids["t"]
        self.keys = [(topic_id, 0), (topic_id, 1)]

    # --- the brokers

    def start(self, broker_id: BrokerId) -> None:
        self.runs += 1
        own = self.world.image.brokers.get(broker_id)
        if own is not None:
            self.world.expire(broker_id, own.broker_epoch)
        self.world.decide(registration(broker_id, incarnation_id=word_uuid(f"run {self.runs}")))
        self.processes[broker_id] = Process(self, broker_id, self.rng.randint(1, len(self.history)))

    def kill(self, broker_id: BrokerId) -> None:
        process = self.processes.pop(broker_id, None)
        if process is not None:
            process.is_cut_off = True

    def beat(self) -> None:
        """Let whoever is linked apply some of the log and send a heartbeat."""
        for broker_id, process in sorted(self.processes.items()):
            for _ in range(self.rng.randint(1, 6)):
                if not process.is_cut_off:
                    process.follow_log()
            if not process.is_cut_off:
                self.world.heartbeat(
                    broker_id,
                    applied_offset=process.image.end_offset,
                    want_fence=process.local.phase is not Phase.FOLLOWING,
                )

    # --- what travels

    def later(self, what: Callable[[], None]) -> None:
        if self.rng.random() >= self.loss:
            self.sequence += 1
            delay = self.rng.choice(self.delays_ms)
            self.due.append((self.now_ms + delay, self.sequence, what))

    def send(self, sender: Process, to: BrokerId, message: Message) -> None:
        def arrives() -> None:
            if to in self.processes:
                self.processes[to].host.receive(message)

        self.later(arrives)

    def report(self, process: Process, isr: ReportedIsr) -> None:
        """Send a report, and send it again until it is answered."""
        process.unanswered[isr.topic_id, isr.partition_id] = isr
        own = process.image.brokers[process.broker_id]
        command = AlterPartition(
            broker_id=process.broker_id, broker_epoch=own.broker_epoch, partitions=(isr,)
        )

        def arrives() -> None:
            if self.processes.get(process.broker_id) is not process or process.is_cut_off:
                return
            decision = self.world.decide(command)
            if decision.refusal is None:
                assert isinstance(decision.outcome, PartitionsAltered)
                altered = AlteredPartition(**decision.outcome.results[0]._asdict())
                if altered.error != "NOT_CONTROLLER":
                    self.later(partial(self.answered, process, isr, altered))

        self.later(arrives)

    def answered(self, process: Process, isr: ReportedIsr, altered: AlteredPartition) -> None:
        if self.processes.get(process.broker_id) is process:
            if process.unanswered.get((isr.topic_id, isr.partition_id)) is isr:
                del process.unanswered[isr.topic_id, isr.partition_id]
            process.host.isr_answered(isr, altered)

    # --- what is done

    def append(self, process: Process, key: PartitionKey) -> None:
        self.values += 1
        value = f"v{self.values}"

        def done(error: str | None) -> None:
            if error is None:
                self.acknowledged.setdefault(key, {})[value] = self.values

        process.host.append(key, value, done)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += TICK_MS
            due = sorted(one[:2] for one in self.due if one[0] <= self.now_ms)
            arriving = [one for one in self.due if one[:2] in due]
            self.due = [one for one in self.due if one[:2] not in due]
            for _, _, what in sorted(arriving, key=lambda one: one[:2]):
                what()
            if not self.is_calm:
                self.disturb()
            if self.rng.random() < 0.5:
                self.beat()
            for process in [*self.processes.values()]:
                process.host.tick()
                for isr in [*process.unanswered.values()]:
                    if self.rng.random() < 0.2:
                        self.report(process, isr)
                if self.rng.random() < 0.5:
                    self.append(process, self.rng.choice(self.keys))
            invariants_hold(self.world.image)

    def disturb(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        process, chance = self.processes.get(broker_id), self.rng.random()
        if process is None:
            if chance < 0.05:
                self.start(broker_id)
        elif process.is_cut_off:
            if chance < 0.05:
                self.kill(broker_id)
        elif chance < 0.01:
            self.kill(broker_id)
            self.world.expire(broker_id, self.world.image.brokers[broker_id].broker_epoch)
        elif chance < 0.02:
            process.is_cut_off = True  # it still talks to the other brokers
            self.world.expire(broker_id, self.world.image.brokers[broker_id].broker_epoch)

    def settle(self) -> None:
        self.loss, self.delays_ms, self.is_calm = 0.0, (0, 1, 5), True
        for broker_id in BROKERS:
            if broker_id not in self.processes or self.processes[broker_id].is_cut_off:
                self.kill(broker_id)
                self.start(broker_id)
        self.run(150)

    # --- what must be true

    def check_leader(self, process: Process, key: PartitionKey) -> None:
        """A leader has all that was acknowledged before it began: all elections here are clean."""
        replica = process.host.replicas[key]
        if replica.leading is not None and replica.leader_epoch == self._leader_epoch(key):
            missing = self.acknowledged.get(key, {}).keys() - {one.value for one in replica.log.records}
            assert not missing, f"{len(missing)} acknowledged records are lost"

    def _leader_epoch(self, key: PartitionKey) -> int:
        return self.world.image.topics.by_id[key[0]].partitions[key[1]].leader_epoch

    def check_end(self) -> None:
        for key in self.keys:
            partition = self.world.image.topics.by_id[key[0]].partitions[key[1]]
            assert sorted(partition.isr) == [*BROKERS], "every replica is in sync again"
            hosts = [self.processes[broker_id].host for broker_id in BROKERS]
            committed = [host.committed(key) for host in hosts]
            shortest = min(map(len, committed))
            assert all(one[:shortest] == committed[0][:shortest] for one in committed)
            longest = max(committed, key=len)
            assert self.acknowledged.get(key, {}).keys() <= set(longest)
            assert sum(host.truncated_committed for host in hosts) == 0


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_acknowledged_record_is_lost_and_every_isr_is_whole_again(seed: int) -> None:
    """With acks=all, min.insync.replicas=2 and clean elections alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "VISITS_PER_SLICE", 1)
        cluster = Cluster(seed)
        cluster.run(300)
        cluster.settle()
        cluster.check_end()
        assert cluster.acknowledged
