"""The sample host of a simulated broker, as its data plane runs it."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Never, Protocol

from broker_agent.replicas import Follow, Instruction, Lead
from broker_agent.reports import DirectoryAgent, IsrAgent, directory_reports, isr_reports
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.wire.commands import AlteredPartition, ReplicaDirectory, ReportedIsr
from tests.support.sample_host import FetchedRecords, Replica, SampleHost

if TYPE_CHECKING:
    from tests.simulation.world.cluster_broker import SimulatedBroker

if TYPE_CHECKING:
    from tests.simulation.world.data_plane import DataPlane

TICK_SECONDS: Final = (0.03, 0.12)
"""Between two ticks of a host."""


class HostAgent(IsrAgent, DirectoryAgent, Protocol):
    """What a host needs of its broker."""


class DataHost(SampleHost):
    """The sample host of one process of a broker."""

    def __init__(self, data: "DataPlane", broker: "SimulatedBroker") -> None:
        self._data, self._run = data, broker.runs
        self.broker = broker
        self._submit_report: Callable[[ReportedIsr], None]
        self._submit_directory: Callable[[ReplicaDirectory], None]
        super().__init__(
            broker.broker_id,
            data.disks[broker.broker_id],
            now_ms=broker.now_ms,
            may_serve=self.is_serving,
            send=partial(data.send, broker.broker_id),
            report=self._submit,
            assign=lambda key, directory: self._submit_directory(ReplicaDirectory(directory, *key)),
            lag_max_ms=data.lag_max_ms,
        )

    @property
    def is_running(self) -> bool:
        return self.broker.session is not None and self.broker.runs == self._run

    def is_serving(self) -> bool:
        return self.is_running and self.broker.may_serve()

    async def run(self, agent: HostAgent) -> Never:
        """Report ISRs and directories until the process ends."""
        isrs = isr_reports(agent, self._answered)
        directories = directory_reports(agent, self.broker_id)
        self._submit_report, self._submit_directory = isrs.submit, directories.submit
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(directories.run())
            await isrs.run()

    def _answered(self, report: ReportedIsr, altered: AlteredPartition) -> None:
        self._data.guarded(lambda: self.isr_answered(report, altered))

    async def live(self) -> None:
        """Tick, and take what came while the broker slept."""
        rng = self._data.rng
        while self.is_running and not self._data.world.violations:
            await asyncio.sleep(rng.uniform(*TICK_SECONDS))
            await self.broker.awake()
            if self.is_running:
                for arrived in self._data.take_inbox(self):
                    arrived(self)
                self.tick()

    def on_delta(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Do nothing: `carry_out` says what a batch means for the replicas."""

    def carry_out(self, instructions: Sequence[Instruction], image: MetadataImage) -> None:
        super().carry_out(instructions, image)
        for one in instructions:
            if isinstance(one, Lead | Follow):
                self._data.takes_role(self, (one.topic_id, one.partition_id))

    def _submit(self, report: ReportedIsr) -> None:
        key = report.topic_id, report.partition_id
        self._submit_report(report)
        self._data.proposed(self, self.replicas[key], report)

    def _take_records(self, replica: Replica, fetched: FetchedRecords) -> None:
        before = self.truncated_committed
        super()._take_records(replica, fetched)
        if self.truncated_committed > before:
            self._data.truncated(self, replica.key, self.truncated_committed - before)
