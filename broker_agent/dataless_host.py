"""Edge: a host without data: whatever a replica of its partitions lacks, there is nothing to copy.

So each replica whose broker may serve is in sync. The broker that leads a partition reports it for the ISR, as a broker of
Kafka's does once a follower has caught up.
"""

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice
from typing import Final, Never, Protocol

from metadata_log.errors import Fault, IneligibleReplica, MetadataError, NotController
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.limits import ISR_CHANGES_MAX
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import AlteredPartition, IsrMember, ReportedIsr

log = logging.getLogger(__name__)

VISITS_PER_TURN: Final = 1_000
"""Partitions looked at before others have the loop: some 3 ms."""
RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 2.0


class Reporter(Protocol):
    """What the host needs of its BrokerAgent."""

    def may_serve(self) -> bool: ...

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]: ...


class DatalessHost:
    """Keeps the ISRs of the partitions that one broker leads whole: `on_delta` notes what may lack a member, `run` reports.

    The cost of a change is that of the partitions it touches; of a broker's return, that of the partitions on this broker.
    """

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._image = EMPTY
        self._due: dict[PartitionKey, None] = {}
        """Partitions that may lack a member, the one that has waited longest first."""
        self._walked_to: PartitionKey | None = None
        self._must_walk = False
        self._news = asyncio.Event()

    def on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Note what a batch means for the ISRs of this broker's partitions; it is `BrokerAgent`'s `on_delta`."""
        self._image = after
        if delta is None or any(
            after.is_active(broker_id) and not before.is_active(broker_id) for broker_id in delta.brokers
        ):
            self._must_walk, self._walked_to = True, None
        else:
            self._due.update(
                dict.fromkeys(sorted(key for key in delta.partitions if self._wanted(key) is not None))
            )
        if self._must_walk or self._due:
            self._news.set()

    async def run(self, agent: Reporter) -> Never:
        """Report what lacks a member, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            retry_s = RETRY_MIN_S
            while self._must_walk or self._due:
                if self._must_walk and len(self._due) < ISR_CHANGES_MAX:
                    self._walk()
                    await asyncio.sleep(0)
                elif await self._report(agent):
                    retry_s = RETRY_MIN_S
                else:
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, RETRY_MAX_S)

    def _walk(self) -> None:
        """Visit some more of the partitions on this broker, behind those visited; the image may be another one by now."""
        behind = self._image.topics.partitions_on(self._broker_id, after=self._walked_to)
        keys = [(topic_id, partition_id) for topic_id, partition_id, _ in islice(behind, VISITS_PER_TURN)]
        self._due.update(dict.fromkeys(key for key in keys if self._wanted(key) is not None))
        if len(keys) == VISITS_PER_TURN:
            self._walked_to = keys[-1]
        else:
            self._must_walk, self._walked_to = False, None

    async def _report(self, agent: Reporter) -> bool:
        """Report what is due, as much as one request may hold; answer whether nothing of it must be tried again."""
        if not agent.may_serve():
            return False
        keys = list(islice(self._due, ISR_CHANGES_MAX))
        isrs = [isr for key in keys if (isr := self._wanted(key)) is not None]
        for key in keys:
            del self._due[key]
        if not isrs:
            return True
        try:
            altered = await agent.alter_partitions(isrs)
        except Fault:
            raise
        except MetadataError as error:
            log.info("isrs_not_reported", extra={"partitions": len(isrs), "reason": error.message})
            self._due.update(dict.fromkeys(keys))
            return False
        log.info("isrs_reported", extra={"partitions": len(isrs)})
        # After any other refusal the partition changes, or has changed, and the next delta shows it.
        again = [(one.topic_id, one.partition_id) for one in altered if one.error in _TRY_AGAIN]
        self._due.update(dict.fromkeys(again))
        return not again

    def _wanted(self, key: PartitionKey) -> ReportedIsr | None:
        """Return the ISR that a partition should have; None if it has that, or this broker does not lead it."""
        image, (topic_id, partition_id) = self._image, key
        topic = image.topics.by_id.get(topic_id)
        if topic is None or partition_id >= len(topic.partitions):
            return None
        partition = topic.partitions[partition_id]
        if partition.leader != self._broker_id or not image.is_active(self._broker_id):
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


_TRY_AGAIN: Final = (NotController.error, IneligibleReplica.error)
"""A controller behind this broker, or one that is taking a broker out of service in parts and may yet leave it there."""
