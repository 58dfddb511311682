"""Edge: what a broker reports of its replicas: ISRs that it leads, and directories that they lie in.

Of each replica the newest report waits. One request is in flight; it takes what waits, up to reports that may write
REPORTS_MAX records. A request that fails is made again after a pause, and so is the report of a replica whose error may
pass. Any other error is handed to the host once: the log has, or will have, what holds instead.

Source: Kafka's DefaultAlterPartitionManager and AssignmentsManager; Partition.handleAlterPartitionError for the errors.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Generic, Never, Protocol, TypeVar

from metadata_log.errors import (
    BrokerNotAvailable,
    Fault,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    MetadataError,
    NewLeaderElected,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.limits import ISR_CHANGES_MAX
from metadata_log.node.pace import next_turn
from metadata_log.wire.commands import AlteredPartition, ReplicaDirectory, ReplicaPlaced, ReportedIsr

log = logging.getLogger(__name__)

REPORTS_MAX: Final = ISR_CHANGES_MAX
RETRY_MIN_S: Final = 0.05
"""Kafka's pause after a report that failed."""
RETRY_MAX_S: Final = 1.0
"""An ISR that shrinks holds acknowledgements up: it is not left alone for longer."""
FINAL_ERRORS: Final = frozenset(
    error.error
    for error in (
        FencedLeaderEpoch,
        IneligibleReplica,
        InvalidRequest,
        InvalidUpdateVersion,
        NewLeaderElected,
        UnknownTopicId,
        UnknownTopicOrPartition,
    )
)
"""Errors of an ISR that the same report meets again. NOT_CONTROLLER is none: that controller is behind this broker."""


class OfReplica(Protocol):
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partition_id(self) -> int: ...


class Answered(OfReplica, Protocol):
    @property
    def error(self) -> str | None: ...


class IsrAgent(Protocol):
    """What reports of ISRs need of a BrokerAgent."""

    def may_serve(self) -> bool: ...
    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]: ...


class DirectoryAgent(Protocol):
    """What reports of directories need of a BrokerAgent."""

    @property
    def image(self) -> MetadataImage: ...
    async def place_replicas(self, replicas: Sequence[ReplicaDirectory]) -> tuple[ReplicaPlaced, ...]: ...


Report = TypeVar("Report", bound=OfReplica)
Answer = TypeVar("Answer", bound=Answered)


class Reports(Generic[Report, Answer]):
    """Reports that wait to be sent: `submit` adds one, `run` sends them until cancelled."""

    def __init__(
        self,
        what: str,
        send: Callable[[Sequence[Report]], Awaitable[Sequence[Answer]]],
        *,
        renew: Callable[[Report], Report | None],
        may_pass: Callable[[str], bool],
        on_answer: Callable[[Report, Answer], None],
        records_each: int = 1,
    ) -> None:
        """`records_each` is how many records the controller may write for one report."""
        self._what = what
        self._records_each = records_each
        self._send = send
        self._renew = renew
        self._may_pass = may_pass
        self._on_answer = on_answer
        self._waiting: dict[PartitionKey, Report] = {}
        """One a replica at most, the one that has waited longest first."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        """Return how many wait to be sent."""
        return len(self._waiting)

    def submit(self, report: Report) -> None:
        """Send a report soon, in place of one of the same replica that still waits."""
        self._waiting[report.topic_id, report.partition_id] = report
        self._news.set()

    async def room(self) -> None:
        """Wait until fewer reports wait than a request holds; for hosts that walk over many replicas."""
        while len(self._waiting) >= REPORTS_MAX:
            self._room.clear()
            await self._room.wait()

    async def run(self) -> Never:
        """Send what is submitted.

        Raises:
            Fault: of the agent; the broker must end.
        """
        retry_s = RETRY_MIN_S
        while True:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
            if await self._send_some():
                retry_s = RETRY_MIN_S
            else:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _send_some(self) -> bool:
        """Send what one request may hold; answer whether nothing of it must be sent again."""
        reports = [*islice(self._waiting.values(), max(REPORTS_MAX // self._records_each, 1))]
        for report in reports:
            del self._waiting[report.topic_id, report.partition_id]
        self._room.set()
        wanted = [now for report in reports if (now := self._renew(report)) is not None]
        if not wanted:
            await next_turn()  # there may be many of these
            return True
        try:
            answers = await self._send(wanted)
        except Fault:
            raise
        except MetadataError as error:
            log.info(
                "report_failed",
                extra={"what": self._what, "replicas": len(wanted), "reason": error.message},
            )
            self._again(wanted)
            return False
        again: list[Report] = []
        for report, answer in zip(wanted, answers, strict=True):
            if answer.error is not None and self._may_pass(answer.error):
                again.append(report)
            else:
                self._on_answer(report, answer)
        log.info(
            "reported", extra={"what": self._what, "replicas": len(wanted) - len(again), "again": len(again)}
        )
        self._again(again)
        return not again

    def _again(self, reports: Sequence[Report]) -> None:
        for report in reports:  # a newer one that came meanwhile stays
            self._waiting.setdefault((report.topic_id, report.partition_id), report)


def isr_reports(
    agent: IsrAgent,
    on_answer: Callable[[ReportedIsr, AlteredPartition], None],
    *,
    renew: Callable[[ReportedIsr], ReportedIsr | None] = lambda report: report,
    final_errors: frozenset[str] = FINAL_ERRORS,
) -> Reports[ReportedIsr, AlteredPartition]:
    """Return the reports of the ISRs that a host wants; a broker that must not serve leads nothing, and reports nothing.

    `renew` returns a report as it should be now, just before it is sent; None: nothing is to be reported any more.
    """

    async def send(isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        if not agent.may_serve():
            raise BrokerNotAvailable("this broker may not serve now")
        return await agent.alter_partitions(isrs)

    return Reports(
        "isrs",
        send,
        renew=renew,
        may_pass=lambda error: error not in final_errors,
        on_answer=on_answer,
    )


def directory_reports(agent: DirectoryAgent, broker_id: BrokerId) -> Reports[ReplicaDirectory, ReplicaPlaced]:
    """Return the reports of the directories that replicas lie in: each is sent until it is taken, or the replica is gone."""

    def renew(report: ReplicaDirectory) -> ReplicaDirectory | None:
        partition = agent.image.topics.partition((report.topic_id, report.partition_id))
        return report if partition is not None and broker_id in partition.replicas else None

    return Reports(
        "directories",
        agent.place_replicas,
        renew=renew,
        may_pass=lambda _: True,
        on_answer=lambda _report, _answer: None,
        records_each=2,  # it moved, and its directory is not online
    )
