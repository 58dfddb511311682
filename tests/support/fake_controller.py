"""Edge: fake controllers without a quorum: one scripted log behind any number of HTTP endpoints.

Enough of the rules to register, unfence, fence and let go a broker; every request is kept for the test to look at.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from aiohttp import web

from metadata_log.apply import apply
from metadata_log.batch import NO_ENVELOPE, Envelope
from metadata_log.codec import FrameHeader, encode, read_header
from metadata_log.errors import (
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    MetadataError,
    NotController,
    SnapshotNotFound,
    StaleBrokerEpoch,
)
from metadata_log.ids import BrokerId, NodeId, TopicId
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import (
    SESSION_TIMEOUT_HEADER,
    BrokerState,
    Diverging,
    FetchAnswer,
    FetchKind,
    FetchRequest,
    SnapshotOffer,
    encode_fetch_body,
)
from snapshots.snapshot_file import snapshot_frames, snapshot_id

CLUSTER_ID = "fake-cluster-000000000"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STATUS = {"NOT_CONTROLLER": 421, "SNAPSHOT_NOT_FOUND": 404}


class FakeLog:
    """Frames and the image they lead to; `unix_ms` rises by 1 a batch."""

    def __init__(self, *, cluster_id: str = CLUSTER_ID, unix_ms: int = 1_700_000_000_000) -> None:
        self.cluster_id = cluster_id
        self.image: MetadataImage = EMPTY
        self.frames: list[tuple[FrameHeader, bytes]] = []
        self.images: list[MetadataImage] = [EMPTY]
        self.log_start_offset = 0
        self._unix_ms = unix_ms
        self.claim()

    def append(
        self, *records: Record, controller_epoch: int | None = None, envelope: Envelope = NO_ENVELOPE
    ) -> int:
        """Append one batch and return its base offset."""
        image = self.image
        self._unix_ms += 1
        batch, frame = encode(
            base_offset=image.end_offset,
            controller_epoch=image.controller_epoch if controller_epoch is None else controller_epoch,
            appended_at_ms=self._unix_ms,
            previous_crc=image.last_crc,
            envelope=envelope,
            records=records,
        )
        self.image = apply(image, batch).image
        self.frames.append((read_header(frame), frame))
        self.images.append(self.image)
        return batch.base_offset

    def claim(self) -> None:
        epoch = self.image.controller_epoch + 1
        self.append(ControllerClaimRecord(NodeId(1), epoch, self.cluster_id), controller_epoch=epoch)

    def fill(self, end_offset: int) -> None:
        """Append NoOps until the log ends at `end_offset`."""
        while self.image.end_offset < end_offset:
            self.append(*[NoOpRecord()] * min(10, end_offset - self.image.end_offset))

    def topic(
        self, name: str, *, partitions: int = 1, replicas: Sequence[BrokerId] = (BrokerId(11),)
    ) -> None:
        topic_id = TopicId(hashlib.sha256(name.encode()).digest()[:16])
        nowhere = bytes(15) + b"\x01"
        rows = [
            PartitionRecord(
                topic_id, at, tuple(replicas), tuple(replicas), replicas[0], 0, 0, 0, (), (), (), (),
                (nowhere,) * len(replicas),  # type: ignore[arg-type]
            )
            for at in range(partitions)
        ]  # fmt: skip
        self.append(TopicRecord(topic_id, name), *rows)

    def image_at(self, end_offset: int) -> MetadataImage:
        return next(image for image in self.images if image.end_offset == end_offset)

    def after(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        for header, frame in self.frames:
            if header.base_offset >= offset:
                if found and sum(map(len, found)) + len(frame) > max_bytes:
                    break
                found.append(frame)
        return b"".join(found)


@dataclass
class FakeCluster:
    """What all controllers share, and what a test may turn."""

    log: FakeLog = field(default_factory=FakeLog)
    session_timeout_ms: int = 3_000
    duplicate: bool = False
    """Every registration meets another live incarnation."""
    keeps_fenced: bool = False
    grants_shut_down: bool = True
    snapshot_at: int | None = None
    """The end offset of the only snapshot there is."""
    registrations: list[RegisterBroker] = field(default_factory=list)
    fetches: list[FetchRequest] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    placed: list[dict[str, Any]] = field(default_factory=list)
    """The reports of directories, as they came."""
    active: "FakeController | None" = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wake the parked fetches."""
        self.news.set()
        self.news = asyncio.Event()

    def append(self, *records: Record) -> int:
        base_offset = self.log.append(*records)
        self.tell()
        return base_offset

    def fence(self, broker_id: int) -> None:
        broker = self.log.image.brokers[BrokerId(broker_id)]
        self.append(BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True))

    def snapshot(self) -> tuple[SnapshotOffer, bytes]:
        assert self.snapshot_at is not None
        image = self.log.image_at(self.snapshot_at)
        data = b"".join(snapshot_frames(image))
        name = snapshot_id(image.end_offset, image.controller_epoch)
        offer = SnapshotOffer(
            id=name,
            end_offset=image.end_offset,
            controller_epoch=image.controller_epoch,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        return offer, data


class FakeController:
    """One endpoint. `knows_active` False: it names nobody when it refuses. `cut_at`: a download breaks off there, once."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = NodeId(node_id)
        self.url = ""
        self.knows_active = True
        self.cut_at: int | None = None
        self.withholds_snapshots = False
        self.damages_frames = 0
        self.requests = 0

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator["FakeController"]:
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/brokers/register", self._answered(self._register)),
                web.post("/v1/metadata/fetch", self._answered(self._fetch)),
                web.post("/v1/partitions/directories", self._answered(self._place)),
                web.get("/v1/metadata/snapshots/{id}", self._answered(self._snapshot)),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def _answered(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            self.requests += 1
            try:
                return await handler(request)
            except MetadataError as error:
                body = {"error": error.error, "message": error.message}
                url = error.context.get("controller_url")
                return web.Response(
                    body=msgpack.packb(body),
                    status=STATUS.get(error.error, 409),
                    content_type="application/msgpack",
                    headers={} if url is None else {"X-Controller": str(url)},
                )

        return answer

    def _check_active(self) -> None:
        active = self.cluster.active
        if active is not self:
            url = active.url if active is not None and self.knows_active else None
            raise NotController("not me", controller_url=url)

    async def _register(self, request: web.Request) -> web.Response:
        command = RegisterBroker.from_map(unpack(await request.read()))
        cluster = self.cluster
        self._check_active()
        if command.cluster_id != cluster.log.cluster_id:
            raise InconsistentClusterId(f"this is cluster {cluster.log.cluster_id}")
        cluster.registrations.append(command)
        if cluster.duplicate:
            raise DuplicateBrokerRegistration("incarnation XYZ of 10.0.0.7:9092 has a live session")
        broker = cluster.log.image.brokers.get(command.broker_id)
        if broker is None or broker.incarnation_id != command.incarnation_id:
            cluster.append(
                RegisterBrokerRecord(
                    command.broker_id,
                    command.incarnation_id,
                    cluster.log.image.end_offset,
                    command.endpoints,
                    command.features,
                    command.rack,
                    True,
                    False,
                    command.log_dirs,
                    None,
                )
            )
        registered = Registered(
            broker_epoch=cluster.log.image.brokers[command.broker_id].broker_epoch,
            controller_id=self.node_id,
            controller_epoch=cluster.log.image.controller_epoch,
            high_watermark=cluster.log.image.end_offset,
            session_timeout_ms=cluster.session_timeout_ms,
            max_wait_ms=cluster.session_timeout_ms // 3,
        )
        return web.Response(body=msgpack.packb(registered.to_map()), content_type="application/msgpack")

    async def _place(self, request: web.Request) -> web.Response:
        report = unpack(await request.read())
        self._check_active()
        self.cluster.placed.append(report)
        answer = {"replicas": [replica | {"error": None} for replica in report["replicas"]]}
        return web.Response(body=msgpack.packb(answer), content_type="application/msgpack")

    async def _fetch(self, request: web.Request) -> web.Response:
        fetch = FetchRequest.from_map(unpack(await request.read()))
        cluster = self.cluster
        self._check_active()
        cluster.fetches.append(fetch)
        broker = cluster.log.image.brokers.get(fetch.broker_id)
        if broker is None or (broker.broker_epoch, broker.incarnation_id) != (
            fetch.broker_epoch,
            fetch.incarnation_id,
        ):
            raise StaleBrokerEpoch("register again")
        should_shut_down = self._heartbeat(fetch)
        news = cluster.news
        if not should_shut_down and self._kind(fetch) is FetchKind.DELTA and not self._frames(fetch):
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), fetch.max_wait_ms / 1000)
            self._check_active()
        kind = self._kind(fetch)
        frames = self._frames(fetch) if kind is FetchKind.DELTA else b""
        if frames and self.damages_frames:
            self.damages_frames -= 1
            frames = frames[:-1] + bytes([frames[-1] ^ 1])
        answer = FetchAnswer(
            kind=kind,
            high_watermark=cluster.log.image.end_offset,
            log_start_offset=cluster.log.log_start_offset,
            controller_id=self.node_id,
            controller_epoch=cluster.log.image.controller_epoch,
            broker_state=BrokerState.FENCED,
            should_shut_down=should_shut_down,
            snapshot=cluster.snapshot()[0] if kind is FetchKind.IMAGE else None,
            diverging=self._common(fetch) if kind is FetchKind.DIVERGING else None,
        )
        return web.Response(
            body=encode_fetch_body(answer, frames),
            content_type="application/msgpack",
            headers={SESSION_TIMEOUT_HEADER: str(cluster.session_timeout_ms)},
        )

    def _heartbeat(self, fetch: FetchRequest) -> bool:
        """Write what the fetch changes; answer whether the broker may go."""
        cluster = self.cluster
        broker = cluster.log.image.brokers[fetch.broker_id]
        change = BrokerRegistrationChangeRecord(fetch.broker_id, fetch.broker_epoch)
        if fetch.want_shut_down:
            if broker.fenced:
                return True
            if not broker.in_controlled_shutdown:
                cluster.append(change._replace(in_controlled_shutdown=True))
            if cluster.grants_shut_down:
                cluster.append(change._replace(fenced=True))
                return True
        elif (
            broker.fenced
            and not cluster.keeps_fenced
            and not fetch.want_fence
            and fetch.applied_offset > fetch.broker_epoch
        ):
            cluster.append(change._replace(fenced=False))
        return False

    def _kind(self, fetch: FetchRequest) -> FetchKind:
        log = self.cluster.log
        if fetch.fetch_offset < log.log_start_offset:
            return FetchKind.IMAGE
        return FetchKind.DELTA if self._knows(fetch) else FetchKind.DIVERGING

    def _knows(self, fetch: FetchRequest) -> bool:
        return (fetch.fetch_offset, fetch.last_epoch, fetch.last_crc) in {
            (image.end_offset, image.controller_epoch if image.end_offset else -1, image.last_crc)
            for image in self.cluster.log.images
        }

    def _common(self, fetch: FetchRequest) -> Diverging:
        ends = [image for image in self.cluster.log.images if image.end_offset < fetch.fetch_offset]
        common = [image for image in ends if image.controller_epoch <= fetch.last_epoch][-1]
        return Diverging(offset=common.end_offset, controller_epoch=common.controller_epoch)

    def _frames(self, fetch: FetchRequest) -> bytes:
        return self.cluster.log.after(fetch.fetch_offset, fetch.bytes_wanted)

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        cluster = self.cluster
        if (
            self.withholds_snapshots
            or cluster.snapshot_at is None
            or cluster.snapshot()[0].id != request.match_info["id"]
        ):
            raise SnapshotNotFound("not here")
        offer, data = cluster.snapshot()
        cluster.ranges.append(request.headers.get("Range", ""))
        wanted = request.http_range
        start = wanted.start or 0
        stop = min(wanted.stop or len(data), len(data))
        headers = {"ETag": f'"{offer.sha256}"', "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        if self.cut_at is not None and start <= self.cut_at < stop:
            response = web.StreamResponse(status=206, headers=headers)
            response.content_length = stop - start
            await response.prepare(request)
            await response.write(data[start : self.cut_at])
            self.cut_at = None
            assert request.transport is not None
            request.transport.abort()
            return response
        return web.Response(status=206, body=data[start:stop], headers=headers)


def format_broker(path: Path, *, broker_id: int = 11, cluster_id: str = CLUSTER_ID) -> Path:
    """Make a broker's data directory, as `metaquorum storage format` does."""
    import random

    from metadata_log.node.disk.data_directory import format_directory

    format_directory(
        path, role="broker", node_id=NodeId(broker_id), cluster_id=cluster_id, rng=random.Random(broker_id)
    )
    return path
