"""Edge: a host without data: whatever a replica of its partitions lacks, there is nothing to copy.

So each replica whose broker may serve is in sync. The broker that leads a partition reports it for the ISR, as a broker of
Kafka's does once a follower has caught up.

A broker that is fenced in parts leaves the ISRs of many partitions before its registration changes. Until then it looks as
if it may serve, but controllers refuse each report that has it. So while brokers that may serve leave ISRs, the host waits.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Never

from broker_agent.replicas import Instruction, Lead
from broker_agent.reports import IsrAgent, isr_reports
from metadata_log.errors import IneligibleReplica
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.node.pace import next_turn
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import AlteredPartition, IsrMember, ReportedIsr

VISITS_PER_TURN: Final = 1_000
"""Partitions looked at before others have the loop: some 3 ms."""
PAUSE_S: Final = 1.0
"""After a broker that may serve has left ISRs, or was refused as a member. A change of any registration ends the pause."""


class DatalessHost:
    """Keeps the ISRs of the partitions that one broker leads whole: it notes what may lack a member, and `run` reports that.

    The cost of a change is that of the partitions it touches; of a broker's return, that of the partitions on this broker.
    """

    known_offset = 0

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._image = EMPTY
        self._due: dict[PartitionKey, None] = {}
        """Partitions that may lack a member, the one that has waited longest first."""
        self._walked_to: PartitionKey | None = None
        self._must_walk = False
        self._news = asyncio.Event()
        self._must_pause = False
        self._registrations_changed = asyncio.Event()

    def held(self) -> tuple[PartitionKey, ...]:
        return ()

    def carry_out(self, instructions: Sequence[Instruction], image: MetadataImage) -> None:
        before, self._image = self._image, image
        led = [one for one in instructions if isinstance(one, Lead) and _may_lack_a_member(one.partition)]
        if led:
            self._note((one.topic_id, one.partition_id) for one in led)
            # A batch takes one broker out of all these ISRs, so that one of them shows it.
            if _loses_a_broker_that_may_serve(before, image, led[0]):
                self._pause()

    def on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Note that a broker returned: it may join any ISR; it is `BrokerAgent`'s `on_delta`."""
        if delta is None or not delta.brokers:
            return
        self._registrations_changed.set()
        if any(after.is_active(broker_id) and not before.is_active(broker_id) for broker_id in delta.brokers):
            self._must_walk, self._walked_to = True, None
            self._due.clear()  # the walk comes to them
            self._news.set()

    async def run(self, agent: IsrAgent) -> Never:
        """Report what lacks a member, until cancelled."""
        reports = isr_reports(
            agent,
            self._answered,
            renew=lambda old: self._wanted((old.topic_id, old.partition_id)),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reports.run())
            while True:
                if not (self._must_walk or self._due):
                    self._news.clear()
                    await self._news.wait()
                while self._must_pause:
                    self._must_pause = False
                    with suppress(TimeoutError):
                        async with asyncio.timeout(PAUSE_S):
                            await self._registrations_changed.wait()
                await reports.room()
                if self._must_walk and not self._due:
                    self._walk()
                for key in [*islice(self._due, VISITS_PER_TURN)]:
                    del self._due[key]
                    if (wanted := self._wanted(key)) is not None:
                        reports.submit(wanted)
                await next_turn()

    def _answered(self, report: ReportedIsr, answer: AlteredPartition) -> None:
        """Note what to report again: a controller that takes a broker out of service in parts may yet leave it there."""
        if answer.error == IneligibleReplica.error:
            self._pause()
            self._note([(report.topic_id, report.partition_id)])

    def _pause(self) -> None:
        self._registrations_changed.clear()
        self._must_pause = True

    def _walk(self) -> None:
        """Visit some more of the partitions on this broker, after those visited; the image may be another one by now."""
        behind = self._image.topics.partitions_on(self._broker_id, after=self._walked_to)
        visited = [*islice(behind, VISITS_PER_TURN)]
        self._note(
            (topic_id, partition_id)
            for topic_id, partition_id, partition in visited
            if partition.leader == self._broker_id and _may_lack_a_member(partition)
        )
        if len(visited) == VISITS_PER_TURN:
            self._walked_to = visited[-1][:2]
        else:
            self._must_walk, self._walked_to = False, None

    def _note(self, keys: Iterable[PartitionKey]) -> None:
        self._due.update(dict.fromkeys(keys))
        if self._due:
            self._news.set()

    def _wanted(self, key: PartitionKey) -> ReportedIsr | None:
        """Return the ISR that a partition should have; None if it has that, or this broker does not lead it."""
        image, (topic_id, partition_id) = self._image, key
        partition = image.topics.partition(key)
        if partition is None or partition.leader != self._broker_id or not image.is_active(self._broker_id):
            return None
        missing = [
            broker_id
            for broker_id in partition.replicas
            if broker_id not in partition.isr and image.is_active(broker_id)
        ]
        if not missing and partition.leader_recovery_state == RECOVERED:
            return None
        return ReportedIsr(
            topic_id=topic_id,
            partition_id=partition_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(
                IsrMember(broker_id=broker_id, broker_epoch=image.brokers[broker_id].broker_epoch)
                for broker_id in (*partition.isr, *missing)
            ),
            leader_recovery_state=RECOVERED,
        )


def _may_lack_a_member(partition: PartitionImage) -> bool:
    """Answer whether a partition's leader has something to report once all brokers of its replicas may serve."""
    return len(partition.isr) < len(partition.replicas) or partition.leader_recovery_state != RECOVERED


def _loses_a_broker_that_may_serve(before: MetadataImage, after: MetadataImage, led: Lead) -> bool:
    partition = before.topics.partition((led.topic_id, led.partition_id))
    return partition is not None and any(
        broker_id not in led.partition.isr and after.is_active(broker_id) for broker_id in partition.isr
    )
