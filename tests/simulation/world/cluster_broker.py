"""The shipped broker session and follower, with a host, on a simulated broker."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from broker_agent.config import BrokerSettings
from broker_agent.dataless_host import DatalessHost
from broker_agent.follower import Follower
from broker_agent.replicas import LocalReplicas, Phase
from broker_agent.session import Call, Fetched, Refused, Session, WaitUntil
from metadata_log.errors import (
    BrokerNotAvailable,
    DuplicateBrokerRegistration,
    MetadataError,
    StaleBrokerEpoch,
)
from metadata_log.ids import BrokerId, NodeId, TopicId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.limits import FETCH_BYTES_DEFAULT
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.sliced import at_once
from metadata_log.wire.commands import (
    AlteredPartition,
    AlterPartition,
    AssignReplicasToDirs,
    Command,
    Registered,
    ReplicaDirectory,
    ReplicaPlaced,
    ReportedIsr,
)
from metadata_log.wire.fetch import FetchKind, FetchRequest, decode_fetch_body, encode_fetch_body
from quorum.decide.brokers import BrokerRegistered
from quorum.decide.directories import ReplicasAssigned
from quorum.decide.partitions import PartitionsAltered
from tests.simulation.rules.answers import check_answer
from tests.simulation.rules.rule import rule
from tests.simulation.world.broker_cache import BrokerDisk
from tests.simulation.world.cluster_controller import SimulatedController
from tests.simulation.world.cluster_node import CLOCK_RATES, CLUSTER_ID, uuid
from tests.simulation.world.data_host import DataHost
from tests.simulation.world.virtual_loop import Processor
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld


ANSWER_BYTES = (2_000, 20_000, FETCH_BYTES_DEFAULT)
"""At most so much is in one answer to a broker, or one batch: some catch up in many steps."""


FINAL_ERRORS = ("FENCED_LEADER_EPOCH", "INVALID_UPDATE_VERSION", "UNKNOWN_TOPIC_ID")
"""The log has gone on behind the report of an ISR: the same one is refused for ever."""
REFUSED_MAX = 3
"""So often a broker may report the same, with an image that has not gone on: other brokers' returns have it look again."""


class _RunIsOver(Exception):
    """The broker's process has ended since."""


class _Reporter:
    """What a host sees of its broker while one run lasts."""

    def __init__(self, broker: "SimulatedBroker", run: int) -> None:
        self._broker = broker
        self._run = run

    def may_serve(self) -> bool:
        if self._run != self._broker.runs:
            raise _RunIsOver
        return self._broker.may_serve()

    @property
    def image(self) -> MetadataImage:
        return self._broker.follower.image

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        return await self._broker.alter_partitions(self._run, isrs)

    async def place_replicas(self, replicas: Sequence[ReplicaDirectory]) -> tuple[ReplicaPlaced, ...]:
        if self._run != self._broker.runs:
            raise _RunIsOver
        return await self._broker.place_replicas(self._run, replicas)


class SimulatedBroker:
    """The shipped session and follower, polling over a wire that loses requests and answers."""

    refused_for_good_once = rule("a report that was refused for good is not sent once more")

    def __init__(self, world: "ClusterWorld", broker_id: int) -> None:
        self.world = world
        self.broker_id = BrokerId(broker_id)
        self.runs = 0
        self.asleep_until = 0.0
        self.slow_until = 0.0
        self.reports_held_until = 0.0
        """Until then its reports are on their way, and do not arrive."""
        self.clock_rate = world.rng.uniform(*CLOCK_RATES)
        self.clock_offset = world.rng.uniform(0.0, 1e6)
        # Where a poll stands for thirty, a broker with the smallest answers would never catch up with the writes.
        self.answer_bytes = world.rng.choice(ANSWER_BYTES[1:] if world.profile.is_weighty else ANSWER_BYTES)
        self.follower = Follower()
        self.session: Session | None = None
        self.processor = Processor(lambda _work: None)
        self.previous_epoch = -1
        self._who = f"broker {broker_id}"
        self.disk = BrokerDisk(self) if world.profile.has_caches else None

    def __str__(self) -> str:
        return self._who

    def start(self, *, keep_cache: bool) -> None:
        self.runs += 1
        self._reports_refused: Counter[tuple[TopicId, int, int, int]] = Counter()
        self.processor = Processor(lambda _work: None)
        self.asleep_until = self.slow_until = self.reports_held_until = 0.0
        if self.disk is None:
            self.follower = Follower(self.follower.image) if keep_cache else Follower()
        else:
            if not keep_cache:
                self.disk.format()
            self.follower = Follower(self.disk.open(CLUSTER_ID))
            self.previous_epoch = self.disk.cache.take_clean_stop()
            if self.follower.image.end_offset:
                self.world.sometimes("broker's cache opened with a log")
        data = self.world.data
        log_dirs = (uuid(900 + self.broker_id),) if data is None else data.directories.open(self)
        self.session = Session(
            BrokerSettings(
                cluster_id=CLUSTER_ID,
                broker_id=self.broker_id,
                data_dir=Path("/nowhere"),
                rack=None,
                controllers=tuple(f"http://{node_id}" for node_id in self.world.ids),
                registration_timeout_ms=self.world.profile.registration_timeout_ms,
                shutdown_timeout_ms=10_000,
                listen_http=("127.0.0.1", 1),
            ),
            incarnation_id=uuid(10_000 * self.runs + self.broker_id),
            log_dirs=log_dirs,
            endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + self.broker_id, 0),),
            previous_broker_epoch=self.previous_epoch,
            rng=random.Random(self.world.rng.getrandbits(64)),
        )
        self.previous_epoch = -1
        self.host: DatalessHost | DataHost
        if data is None:
            self.host = DatalessHost(self.broker_id)
        else:
            self.host = data.host_of(self)
            self.session.cordoned_log_dirs = data.directories.cordoned(self.broker_id)
        self.replicas = LocalReplicas(self.broker_id)
        self.session.want_fence = True
        self.world.tell(self, "starts")
        self.world.spawn(partial(self._run, self.runs, self.session), self.processor)
        self.world.spawn(partial(self._report_isrs, self.runs, self.host), self.processor)

    def crash(self, *, cuts_power: bool = False) -> None:
        self.world.tell(self, "loses power" if cuts_power else "crashes")
        if self.disk is not None:
            self.disk.end(cuts_power=cuts_power)
        self._end()

    def _end(self) -> None:
        self.runs += 1
        self.session = None
        self.world.loop.end(self.processor)

    def now_ms(self) -> int:
        return int(self.world.loop.time() * 1000 * self.clock_rate + self.clock_offset)

    def may_serve(self) -> bool:
        return self.session is not None and self.session.may_serve(self.now_ms(), self.follower.image)

    async def _report_isrs(self, run: int, host: DatalessHost | DataHost) -> None:
        try:
            await host.run(_Reporter(self, run))
        except* _RunIsOver:
            pass

    async def alter_partitions(self, run: int, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        session = self.registered()
        assert session.broker_epoch is not None
        report = AlterPartition(
            broker_id=self.broker_id, broker_epoch=session.broker_epoch, partitions=tuple(isrs)
        )
        outcome = await self._report(run, session, report)
        assert isinstance(outcome, PartitionsAltered)
        self._check_refused(isrs, outcome)
        self.world.consequences["isrs reported"] += len(outcome.results)
        if any(altered.error is not None for altered in outcome.results):
            self.world.sometimes("report of an ISR refused")
        return tuple(AlteredPartition(**altered._asdict()) for altered in outcome.results)

    def _check_refused(self, isrs: Sequence[ReportedIsr], outcome: PartitionsAltered) -> None:
        """Check that what was refused for good is not reported again and again."""
        for report, altered in zip(isrs, outcome.results, strict=True):
            if altered.error in FINAL_ERRORS:
                key = report.topic_id, report.partition_id, report.leader_epoch, report.partition_epoch
                self._reports_refused[key] += 1
                if self._reports_refused[key] > REFUSED_MAX:
                    self.world.violated(
                        self.refused_for_good_once(
                            f"{self} reports partition {report.partition_id} at epoch "
                            f"{report.partition_epoch} again: {altered.error}"
                        )
                    )

    async def place_replicas(
        self, run: int, replicas: Sequence[ReplicaDirectory]
    ) -> tuple[ReplicaPlaced, ...]:
        session = self.registered()
        assert session.broker_epoch is not None
        report = AssignReplicasToDirs(
            broker_id=self.broker_id, broker_epoch=session.broker_epoch, replicas=tuple(replicas)
        )
        outcome = await self._report(run, session, report)
        assert isinstance(outcome, ReplicasAssigned)
        self.world.consequences["directories reported"] += len(outcome.results)
        return tuple(ReplicaPlaced(**placed._asdict()) for placed in outcome.results)

    def registered(self) -> Session:
        if self.session is None or self.session.broker_epoch is None:
            raise BrokerNotAvailable("not registered")
        return self.session

    async def _report(self, run: int, session: Session, report: Command) -> object:
        """Report as the shipped agent does; whatever happens on the way, it learns in time that nobody answered."""

        async def serve(controller: SimulatedController) -> object:
            written = await controller.submit(report, anybody())
            return written.outcome

        node = self.world.nodes[NodeId(int(session.controller_url.removeprefix("http://")))]
        while (left := self.reports_held_until - self.world.loop.time()) > 0:
            await asyncio.sleep(left)
        try:
            async with asyncio.timeout(2.0):
                outcome = await self.world.remote(node, serve, caller=self.broker_id)
        except (TimeoutError, ConnectionError) as error:
            raise BrokerNotAvailable("no answer") from error
        finally:
            await self.awake()
        if run != self.runs:
            raise _RunIsOver
        return outcome

    def is_awake(self) -> bool:
        return self.asleep_until <= self.world.loop.time()

    async def awake(self) -> None:
        while not self.is_awake():
            await asyncio.sleep(min(self.asleep_until - self.world.loop.time(), 0.25))

    async def _run(self, run: int, session: Session) -> None:
        while run == self.runs and not self.world.violations:
            await self.awake()
            if self.slow_until > self.world.loop.time():
                await asyncio.sleep(self.world.rng.uniform(0.1, 0.8))
            step = session.next_step(self.now_ms(), self.follower.position)
            if isinstance(step, WaitUntil):
                await asyncio.sleep(max(step.at_ms - self.now_ms(), 1) / 1000)
                continue
            try:
                async with asyncio.timeout(step.silence_max_ms / 1000):
                    answer = await self._call(step)
            except (TimeoutError, ConnectionError):
                await self.awake()
                if run == self.runs:
                    session.on_unreachable(self.now_ms())
                continue
            except MetadataError as error:
                await self.awake()
                if run == self.runs:
                    self._refused(session, error)
                continue
            await self.awake()
            if run == self.runs:
                await self._take(session, step, answer)

    def _refused(self, session: Session, error: MetadataError) -> None:
        match error:
            case DuplicateBrokerRegistration():
                self.world.sometimes("broker waits for its former process")
            case StaleBrokerEpoch():
                self.world.sometimes("broker's epoch no longer known")
        url = error.context.get("controller_url")
        refused = Refused(error=error, controller_url=None if url is None else str(url))
        try:
            session.on_refused(self.now_ms(), refused)
        except DuplicateBrokerRegistration:
            # Each new controller gives the process before this one a whole session, and in rough weather none may last
            # for as long. So this one ends, as it should, and is started again; liveness asks for the rest.
            self.world.consequences["broker gave up registering"] += 1
            self.world.sometimes("broker gives up registering")
            self.crash()
            self.world.loop.call_later(1.0, self.world.start_broker, self, self.runs)

    async def _call(self, step: Call) -> Registered | Fetched:
        node = self.world.nodes[NodeId(int(step.url.removeprefix("http://")))]
        request = step.request

        async def serve(controller: SimulatedController) -> Registered | Fetched:
            if isinstance(request, FetchRequest):
                asked = structs.replace(request, max_bytes=self.answer_bytes)
                reply = await controller.fetches.fetch(asked, anybody())
                answer, frames = decode_fetch_body(encode_fetch_body(reply.answer, reply.frames))
                received = self.world.received(frames)
                first_offset = received[0].batch.base_offset if received else None
                check_answer(self.world, asked, answer, frames, first_offset)
                return Fetched(answer=answer, frames=frames)
            written = await controller.submit(request, anybody())
            assert isinstance(written.outcome, BrokerRegistered)
            timing = self.world.timing
            return Registered(
                broker_epoch=written.outcome.broker_epoch,
                controller_id=node.node_id,
                controller_epoch=controller.committed.controller_epoch,
                high_watermark=controller.committed.end_offset,
                session_timeout_ms=timing.session_timeout_ms,
                max_wait_ms=timing.max_wait_ms,
            )

        is_poll = isinstance(request, FetchRequest)
        return await self.world.remote(node, serve, caller=self.broker_id, is_poll=is_poll)

    async def _take(self, session: Session, step: Call, answer: Registered | Fetched) -> None:
        if isinstance(answer, Registered):
            session.on_registered(answer)
            return
        if session.deadline_ms is not None and not session.is_alive(self.now_ms()):
            self.world.sometimes("broker's session ended before its answer")
        session.on_fetched(self.now_ms(), step, answer)
        run, before = self.runs, self.follower.image.end_offset
        match answer.answer.kind:
            case FetchKind.DELTA:
                self.replicas.answered(answer.answer.high_watermark)
                for frame, header, batch in self.world.received(answer.frames):
                    before_batch = self.follower.image
                    applied = at_once(self.follower.making(batch))
                    if self.disk is not None:
                        self.disk.cache.append(frame, header)
                    self.follower.take(batch, applied)
                    if self.disk is not None:
                        self.disk.cache.applied(header, applied.image)
                        self.disk.thread.frames_appended()
                    self._changed(before_batch, *applied)
                    self.world.properties.applied(self._who, batch, applied.image)
            case FetchKind.IMAGE:
                assert answer.answer.snapshot is not None
                if answer.answer.snapshot.end_offset <= before:
                    session.on_unreachable(self.now_ms())  # it leads nowhere new
                    return
                image = await self.world.download(answer.answer.snapshot, self.disk)
                if image is None or run != self.runs:
                    return
                self.world.tell(self, f"takes the snapshot at {image.end_offset}")
                self.world.sometimes("broker takes a snapshot")
                before_image = self.follower.image
                self.follower.replace(image)
                self._changed(before_image, image, None)
            case FetchKind.DIVERGING:
                self.world.violated(f"broker {self.broker_id} was told that its history diverges")
        if self.follower.image.end_offset < before:
            self.world.violated(f"broker {self.broker_id} went back from offset {before}")
        await self._start_replicas(run, session)
        if run != self.runs:
            return
        self.world.properties.check_silent(self)
        if answer.answer.should_shut_down and session.want_shut_down:
            self.stop_in_order()

    def stop_in_order(self) -> None:
        """End, as a controller's answer allows."""
        session = self.session
        assert session is not None
        self.world.tell(self, "may go, and stops")
        self.world.sometimes("broker stops in order")
        if self.disk is None:
            self.previous_epoch = session.broker_epoch if session.broker_epoch is not None else -1
        else:
            assert session.broker_epoch is not None, "a stop is granted to who is registered"
            self.disk.stop(session.broker_epoch)
        self._end()

    def _changed(self, before: MetadataImage, after: MetadataImage, delta: Delta | None) -> None:
        """Tell the host of a batch, or that the image was replaced, as the shipped agent does."""
        instructions = self.replicas.on_delta(before, after, delta)
        if self.replicas.phase is not Phase.CATCHING_UP:
            self.host.carry_out(instructions, after)
        self.host.on_delta(before, after, delta)

    async def _start_replicas(self, run: int, session: Session) -> None:
        """Tell the host of all its replicas, if the image has just caught up; then the broker may be unfenced."""
        if self.replicas.may_start(self.follower.image, session.broker_epoch):
            self.replicas.start(self.follower.image, self.host.held(), known_offset=self.host.known_offset)
        while self.replicas.phase is Phase.STARTING and run == self.runs:
            self.host.carry_out(self.replicas.next_slice(self.follower.image), self.follower.image)
            await asyncio.sleep(0)
            await self.awake()
        if self.replicas.phase is Phase.FOLLOWING:
            session.want_fence = False
