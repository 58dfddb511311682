"""Simulated clusters: the shipped controller, fetch service, broker session and follower over the simulated quorum.

Clients write with request ids and read; brokers poll, are cut off, sleep, die and come back. Checked all the time:

    offsets_never_regress       no controller's and no broker's end offset goes back while it runs
    same_offset_same_digest     whoever has applied up to an offset has the same state there
    one_claim_per_epoch         an epoch belongs to one controller
    applied_once                a request id stands at one offset
    acknowledged_is_durable     what was answered is in the log, at the offset that was answered
    linearizable                no read is older than any write or read that was answered before it began
    no_fenced_leader            no fenced broker leads
    silent_brokers_serve_nobody a broker fenced for silence had stopped serving when its fencing was committed
    deltas_have_no_gap          a broker's follower takes every batch it is sent
    liveness, convergence       after the last fault all brokers come online, and all states are one
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from broker_agent.config import BrokerSettings
from broker_agent.follower import Follower, read_frames
from broker_agent.session import Call, Fetched, Refused, Session, WaitUntil
from metadata_log.batch import RecordBatch
from metadata_log.codec import FrameHeader, read_header
from metadata_log.delta import Delta
from metadata_log.errors import MetadataError, NotController, OutcomeUnknown, Rejected
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.protocol import (
    AlterConfigs,
    Command,
    CreateTopic,
    FetchKind,
    FetchRequest,
    Registered,
    SnapshotOffer,
    decode_fetch_body,
)
from metadata_log.records.brokers import BrokerEndpoint, BrokerRegistrationChangeRecord
from metadata_log.records.configs import BROKER
from quorum.config import ControllerSettings, TimingSettings, VoterSettings
from quorum.controller import AppliedListener, Controller, Outcome, Request
from quorum.fetch_service import FetchService
from tests.simulation.world import Profile, SimulatedNode, Violation, World

T = TypeVar("T")
CLUSTER_ID = "S" * 22
SESSION_TIMEOUT_MS = 3_000
SNAPSHOT_RECORDS = 150
CALL_SECONDS = 0.0005


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16))


class MemoryLog(AppliedListener):
    """The committed log of one run of one node; what a crash leaves of it is the snapshot it starts from."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.end_offset = 0
        self.bytes_total = 0
        self._start = (-1, 0)
        self._frames: list[tuple[FrameHeader, bytes]] = []
        self._ends: dict[int, tuple[int, int]] = {}

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        self._frames.append((read_header(frame), frame))
        self._ends[image.end_offset] = (batch.controller_epoch, batch.crc)
        self.end_offset = image.end_offset
        self.bytes_total += len(frame)

    def on_restored(self, image: MetadataImage) -> None:
        self._frames.clear()
        self._ends.clear()
        self.log_start_offset = self.end_offset = image.end_offset
        self._start = (image.controller_epoch, image.last_crc)
        self.bytes_total = 0

    def position_before(self, offset: int) -> tuple[int, int] | None:
        if offset == 0:
            return (-1, 0)
        return self._start if offset == self.log_start_offset else self._ends.get(offset)

    def common_end(self, *, epoch: int, offset: int) -> tuple[int, int]:
        for header, _ in reversed(self._frames):
            if header.end_offset <= offset and header.controller_epoch <= epoch:
                return header.end_offset, header.controller_epoch
        return self.log_start_offset, max(self._start[0], 0)

    def read(self, from_offset: int, *, max_bytes: int, until: int | None = None) -> bytes:
        found = b""
        for header, frame in self._frames:
            if header.end_offset > from_offset and (not found or len(found) + len(frame) <= max_bytes):
                found += frame
        return found


class SimulatedController(Controller):
    """The shipped controller on a simulated node, watched after every batch."""

    def __init__(self, world: "ClusterWorld", node: SimulatedNode) -> None:
        super().__init__(
            settings=world.controller_settings(node.node_id),
            now_ms=lambda: int(node.now_ms()),
            unix_ms=lambda: 1_700_000_000_000 + int(world.loop.time() * 1000),
            rng=random.Random(world.rng.getrandbits(64)),
            load_snapshot=lambda snapshot_id: world.images[snapshot_id],
        )
        self.world = world
        self.node = node
        self.incarnation = node.incarnation
        self.memory_log = MemoryLog()
        self.fetches = FetchService(
            settings=world.controller_settings(node.node_id),
            controller=self,
            committed_log=self.memory_log,  # type: ignore[arg-type]  # the part of CommittedLog that is asked
            newest_snapshot=self.newest_snapshot,
            now_ms=lambda: int(node.now_ms()),
        )
        world.loop.call_soon(self._attach)

    def _attach(self) -> None:
        if self.node.log is not None:
            self.attach(self.node.log, [self.memory_log, _Watcher(self), self.fetches])
            self.world.spawn(self._check_sessions())

    @property
    def is_running(self) -> bool:
        return self.node.log is not None and self.incarnation == self.node.incarnation

    async def _check_sessions(self) -> None:
        while self.is_running:
            again = self.check_sessions()
            await asyncio.sleep(0.01 if again else SESSION_TIMEOUT_MS / 8 / 1000)

    def newest_snapshot(self) -> SnapshotOffer | None:
        fitting = [name for name in sorted(self.node.store) if int(name) <= self.committed.end_offset]
        if not fitting:
            return None
        image = self.world.images[fitting[-1]]
        return SnapshotOffer(
            id=fitting[-1],
            end_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            bytes=1000,
            sha256="",
        )


class _Watcher(AppliedListener):
    """Checks every batch that a controller applies, and takes snapshots."""

    def __init__(self, controller: SimulatedController) -> None:
        self._controller = controller

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        world, node = self._controller.world, self._controller.node
        world.applied(f"controller {node.node_id}", batch, image)
        if image.end_offset // SNAPSHOT_RECORDS > batch.base_offset // SNAPSHOT_RECORDS:
            position = self._controller.raft.applied_position()
            name = f"{image.end_offset:020d}"
            world.images[name] = image
            delay = world.rng.uniform(0.005, 0.1)
            world.loop.call_later(delay, node._stored, node.incarnation, position, name, image.end_offset)


class SimulatedBroker:
    """The shipped session and follower, polling over a wire that loses requests and answers."""

    def __init__(self, world: "ClusterWorld", broker_id: int) -> None:
        self.world = world
        self.broker_id = BrokerId(broker_id)
        self.runs = 0
        self.asleep_until = 0.0
        self.follower = Follower()
        self.session: Session | None = None

    def start(self, *, keep_cache: bool) -> None:
        self.runs += 1
        self.follower = Follower(self.follower.image) if keep_cache else Follower()
        self.session = Session(
            BrokerSettings(
                cluster_id=CLUSTER_ID,
                broker_id=self.broker_id,
                data_dir=Path("/nowhere"),
                rack=None,
                controllers=tuple(f"http://{node_id}" for node_id in self.world.voters),
                registration_timeout_ms=60_000,
                shutdown_timeout_ms=10_000,
                listen_http=("127.0.0.1", 1),
            ),
            incarnation_id=uuid(10_000 * self.runs + self.broker_id),
            log_dirs=(uuid(900 + self.broker_id),),
            endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + self.broker_id, 0),),
            previous_broker_epoch=-1,
            rng=random.Random(self.world.rng.getrandbits(64)),
        )
        self.world.spawn(self._live(self.runs, self.session))

    def crash(self) -> None:
        self.runs += 1
        self.session = None

    def now_ms(self) -> int:
        return int(self.world.loop.time() * 1000)

    def may_serve(self) -> bool:
        return self.session is not None and self.session.may_serve(self.now_ms(), self.follower.image)

    async def _live(self, run: int, session: Session) -> None:
        while run == self.runs and not self.world.violations:
            while self.asleep_until > self.world.loop.time():
                await asyncio.sleep(min(self.asleep_until - self.world.loop.time(), 0.1))
            step = session.next_step(self.now_ms(), self.follower.position)
            if isinstance(step, WaitUntil):
                await asyncio.sleep(max(step.at_ms - self.now_ms(), 1) / 1000)
                continue
            try:
                async with asyncio.timeout(step.silence_max_ms / 1000):
                    answer = await self._call(step)
            except (TimeoutError, ConnectionError):
                if run == self.runs:
                    session.on_unreachable(self.now_ms())
                continue
            except MetadataError as error:
                if run == self.runs:
                    session.on_refused(self.now_ms(), self._refusal(error))
                continue
            if run == self.runs:
                self._take(session, step, answer)

    def _refusal(self, error: MetadataError) -> Refused:
        url = error.context.get("controller_url")
        return Refused(error=error, controller_url=None if url is None else str(url))

    async def _call(self, step: Call) -> Registered | Fetched:
        node = self.world.nodes[NodeId(int(step.url.removeprefix("http://")))]
        request = step.request

        async def serve(controller: SimulatedController) -> Registered | Fetched:
            if isinstance(request, FetchRequest):
                answer, frames = decode_fetch_body(await controller.fetches.fetch(request))
                return Fetched(answer=answer, frames=frames)
            outcome = await controller.submit(request, actor=f"Broker:{request.broker_id}", request=None)
            timing = self.world.timing
            return Registered(
                broker_epoch=outcome.answer["broker_epoch"],
                controller_id=node.node_id,
                controller_epoch=controller.committed.controller_epoch,
                high_watermark=controller.committed.end_offset,
                session_timeout_ms=timing.session_timeout_ms,
                max_wait_ms=timing.max_wait_ms,
            )

        return await self.world.remote(node, serve)

    def _take(self, session: Session, step: Call, answer: Registered | Fetched) -> None:
        if isinstance(answer, Registered):
            session.on_registered(answer)
            return
        session.on_fetched(step)
        before = self.follower.image.end_offset
        match answer.answer.kind:
            case FetchKind.DELTA:
                for received in read_frames(answer.frames):
                    applied = self.follower.take(received.batch)
                    self.world.applied(f"broker {self.broker_id}", received.batch, applied.image)
            case FetchKind.IMAGE:
                assert answer.answer.snapshot is not None
                self.follower.replace(self.world.images[answer.answer.snapshot.id])
            case FetchKind.DIVERGING:
                self.world.violated(f"broker {self.broker_id} was told that its history diverges")
        if self.follower.image.end_offset < before:
            self.world.violated(f"broker {self.broker_id} went back from offset {before}")


class SimulatedClient:
    """Writes its own setting again and again, each value under one request id until it is answered."""

    def __init__(self, world: "ClusterWorld", number: int) -> None:
        self.world = world
        self.key = f"k{number}"
        self.number = number
        self.acknowledged = 0
        self.floor = 0
        """No read may find less."""

    async def live(self) -> None:
        rng, value = self.world.rng, 0
        while not self.world.violations:
            await asyncio.sleep(rng.expovariate(12.0))
            value += 1
            request = Request(request_id=uuid((self.number << 32) + value), sha256=value.to_bytes(32))
            command = AlterConfigs(
                resource_type=BROKER, resource_name="", set={self.key: str(value)}, unset=()
            )
            while not self.world.violations:
                node = rng.choice(list(self.world.nodes.values()))
                with suppress(TimeoutError, ConnectionError, NotController, OutcomeUnknown, Rejected):
                    async with asyncio.timeout(2.0):
                        outcome = await self.world.submit(node, command, request)
                    self.world.acknowledged[request.request_id] = outcome.base_offset
                    self.acknowledged = value
                    self.floor = max(self.floor, value)
                    break
                await asyncio.sleep(rng.uniform(0.005, 0.05))

    def _value(self, image: MetadataImage) -> int:
        settings = image.configs.get((BROKER, ""))
        return 0 if settings is None else int(settings.get(self.key, "0"))

    async def read(self) -> None:
        floor = self.floor
        node = self.world.rng.choice(list(self.world.nodes.values()))
        with suppress(TimeoutError, ConnectionError, NotController):
            async with asyncio.timeout(2.0):
                value = await self.world.remote(node, lambda controller: controller.read(self._value))
            self.world.reads_answered += 1
            if value < floor:
                self.world.violated(f"linearizable: {self.key} read as {value} after {floor} was answered")
            self.floor = max(self.floor, value)


class ClusterWorld(World):
    """A quorum of shipped controllers with brokers and clients."""

    def __init__(
        self, *, seed: int, profile: Profile, voters: int = 3, brokers: int = 3, clients: int = 3
    ) -> None:
        self.timing = TimingSettings(session_timeout_ms=SESSION_TIMEOUT_MS, commit_timeout_ms=1_500)
        super().__init__(seed=seed, profile=profile, voters=voters, make_listener=self._controller)
        self.images: dict[str, MetadataImage] = {}
        self.brokers = [SimulatedBroker(self, 11 + number) for number in range(brokers)]
        self.clients = [SimulatedClient(self, 1 + number) for number in range(clients)]
        self.acknowledged: dict[Uuid, int] = {}
        self.fencings = 0
        self._states: dict[int, int] = {}
        self._claims: dict[int, int] = {}
        self._requests: dict[Uuid, int] = {}
        self._newest = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def _controller(self, node: SimulatedNode) -> SimulatedController:
        return SimulatedController(self, node)

    def controller_settings(self, node_id: NodeId) -> ControllerSettings:
        return ControllerSettings(
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            data_dir=Path("/nowhere"),
            listen_http=("127.0.0.1", 1),
            listen_raft=("127.0.0.1", 1),
            voters=tuple(
                VoterSettings(
                    id=voter,
                    raft=("127.0.0.1", 9000 + voter),
                    http=f"http://{voter}",
                    directory_id=uuid(voter),
                )
                for voter in self.voters
            ),
            timing=self.timing,
        )

    def spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # a task that dies of anything is a finding
                self.violated(f"{type(error).__name__}: {error}")

        task = self.loop.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def submit(self, node: SimulatedNode, command: Command, request: Request | None) -> Outcome:
        async def serve(controller: SimulatedController) -> Outcome:
            return await controller.submit(command, actor=None, request=request)

        return await self.remote(node, serve)

    async def remote(self, node: SimulatedNode, serve: Callable[[SimulatedController], Awaitable[T]]) -> T:
        """Ask a node over a wire: it takes a while, and loses the request or the answer at times."""
        faults = self.network.faults
        await asyncio.sleep(self.rng.uniform(0.5, 2.0) * CALL_SECONDS)
        controller = node.listener if node.log is not None else None
        if (
            not isinstance(controller, SimulatedController)
            or self.rng.random() < faults.lost
            or not hasattr(controller, "raft")
        ):
            raise ConnectionError("refused")
        answer = await serve(controller)
        await asyncio.sleep(self.rng.uniform(0.5, 2.0) * CALL_SECONDS)
        if not controller.is_running or self.rng.random() < faults.lost:
            raise ConnectionError("the answer was lost")
        return answer

    # --- properties

    def applied(self, who: str, batch: RecordBatch, image: MetadataImage) -> None:
        state = hash((batch.crc, image.digest_buckets))
        if self._states.setdefault(image.end_offset, state) != state:
            raise Violation(f"same_offset_same_digest: {who} at offset {image.end_offset}")
        if image.end_offset <= self._newest:
            return
        self._newest = image.end_offset
        if batch.claim is not None:
            claimed = batch.claim
            if (
                self._claims.setdefault(batch.controller_epoch, claimed.controller_id)
                != claimed.controller_id
            ):
                raise Violation(f"one_claim_per_epoch: epoch {batch.controller_epoch}")
        request_id = batch.envelope.request_id
        if request_id is not None:
            if request_id in self._requests:
                raise Violation(f"applied_once: request {request_id.hex()} at {batch.base_offset}")
            self._requests[request_id] = batch.base_offset
        self._check_leaders(image)
        cause = batch.envelope.cause
        for record in batch.records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced:
                self.fencings += 1
                if cause is not None and cause.code == "SESSION_EXPIRED":
                    self._check_silent(record.broker_id, record.broker_epoch)

    def _check_leaders(self, image: MetadataImage) -> None:
        for topic in image.topics.values():
            for partition in topic.partitions:
                leader = partition.leader
                if leader >= 0 and (leader not in image.brokers or image.brokers[leader].fenced):
                    raise Violation(f"no_fenced_leader: {leader} leads {topic.name} at {image.end_offset}")

    def _check_silent(self, broker_id: BrokerId, broker_epoch: int) -> None:
        broker = next(broker for broker in self.brokers if broker.broker_id == broker_id)
        session = broker.session
        if session is not None and session.broker_epoch == broker_epoch and broker.may_serve():
            raise Violation(f"silent_brokers_serve_nobody: {broker_id} serves while it is fenced")

    # --- a run

    async def _live(self, seconds: float, settle_seconds: float) -> None:
        for broker in self.brokers:
            broker.start(keep_cache=False)
        for client in self.clients:
            self.spawn(client.live())
        self.spawn(self._create_topics())
        self.spawn(self._broker_weather(seconds))
        await super()._live(seconds, settle_seconds)

    async def _create_topics(self) -> None:
        for number in range(1000):
            await asyncio.sleep(self.rng.expovariate(0.7))
            node = self.rng.choice(list(self.nodes.values()))
            command = CreateTopic(
                name=f"t{number}",
                partitions=3,
                replication_factor=2,
                assignment=None,
                configs={},
                validate_only=False,
            )
            with suppress(TimeoutError, ConnectionError, NotController, OutcomeUnknown, Rejected):
                async with asyncio.timeout(2.0):
                    await self.submit(node, command, None)

    async def _broker_weather(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        if self.profile.crash_every is None:
            return
        while self.loop.time() < end:
            await asyncio.sleep(self.rng.expovariate(1 / (2 * self.profile.crash_every)))
            if self.loop.time() >= end:
                return
            broker = self.rng.choice(self.brokers)
            if self.rng.random() < 0.5:
                broker.asleep_until = self.loop.time() + self.rng.uniform(0.5, 6.0)
            else:
                broker.crash()
                await asyncio.sleep(self.rng.uniform(0.01, 5.0))
                if broker.session is None:
                    broker.start(keep_cache=self.rng.random() < 0.7)

    def _write(self) -> None:
        """The clients write by themselves."""

    def _read(self) -> None:
        self.spawn(self.rng.choice(self.clients).read())

    async def _calm(self, settle_seconds: float) -> None:
        """Liveness and convergence."""
        self.network.faults = type(self.network.faults)()
        self.network.heal()
        for node in self.nodes.values():
            if node.log is None:
                node.start()
        for broker in self.brokers:
            broker.asleep_until = 0.0
            if broker.session is None:
                broker.start(keep_cache=True)
        acknowledged = [client.acknowledged for client in self.clients]
        await asyncio.sleep(settle_seconds + 2.5 * SESSION_TIMEOUT_MS / 1000)
        if self.violations:
            return
        if not all(
            client.acknowledged > before for client, before in zip(self.clients, acknowledged, strict=True)
        ):
            self.violated("liveness: a client's write found no answer in calm weather")
        active = [c for c in self._controllers() if c.is_active]
        if len(active) != 1:
            self.violated(f"liveness: {len(active)} controllers are active in calm weather")
            return
        image = active[0].committed
        offline = [b.broker_id for b in self.brokers if not image.is_active(b.broker_id) or not b.may_serve()]
        if offline:
            self.violated(f"liveness: brokers {offline} are not online in calm weather")
        for request_id, base_offset in self.acknowledged.items():
            if self._requests.get(request_id) != base_offset:
                self.violated(f"acknowledged_is_durable: {request_id.hex()} was answered at {base_offset}")
        for client in self.clients:
            if int(image.configs[BROKER, ""][client.key]) < client.acknowledged:
                self.violated(f"acknowledged_is_durable: {client.key} is behind {client.acknowledged}")
        slowest = min(c.committed.end_offset for c in self._controllers())
        if slowest < image.end_offset - 50:
            self.violated(
                f"convergence: a controller stands at {slowest}, the active one at {image.end_offset}"
            )
        self.writes_acknowledged = len(self.acknowledged)

    def _controllers(self) -> list[SimulatedController]:
        return [
            n.listener
            for n in self.nodes.values()
            if n.log is not None and isinstance(n.listener, SimulatedController)
        ]
