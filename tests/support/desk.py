"""The HTTP face of one controller of a lab."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from metadata_log.ids import NodeId
from metadata_log.limits import LOGINS_UNFINISHED_MAX
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.body_buffers import BodyBuffers
from metadata_log.node.http.caller import OwnNames
from metadata_log.node.http.server import ConnectionBound
from metadata_log.node.identity.access import Access
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.node.threads import Threads
from quorum.fetch.service import FetchService
from quorum.http.app import DoorRunner, door_to
from quorum.http.door import Door
from quorum.kafka.kafka_log import KafkaLog
from quorum.log.committed_log import CommittedLog
from quorum.log.past import Past
from quorum.log.repair import LogRepair
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.log.topic_feeds import TopicFeeds
from quorum.log.watchers import Watchers
from quorum.node.config import AclSettings
from quorum.node.parts import Parts
from quorum.raft.handshake import Refusal
from quorum.views.since import Since
from quorum.views.status import QuorumStatus
from snapshots.store import SnapshotStore
from tests.support.lab import Lab, settings, uuid

FOUNDERS = {NodeId(node_id): uuid(500 + node_id) for node_id in (1, 2, 3)}


NO_ACLS = AclSettings()


class Desk:
    """The HTTP face of controller 1 of a lab; all its parts are real, on a directory of the test's."""

    def __init__(
        self, lab: Lab, directory: Path, *, principals: Path | None = None, acls: AclSettings = NO_ACLS
    ) -> None:
        self.lab = lab
        self.controller = lab.controllers[1]
        self.directory_id = FOUNDERS[NodeId(1)]
        self.refused: dict[NodeId, Refusal] = {}
        self.room = 1 << 30
        self.client: TestClient[web.Request, web.Application] | None = None
        """Asks it, within `at_desk`."""
        own = replace(settings(1, undelete_window_ms=lab.undelete_window_ms, kafka=lab.kafka), acls=acls)
        committed_log = CommittedLog(SegmentedLog.open(directory / "log", segment_bytes=1 << 20))
        self.store = store = SnapshotStore(directory / "snapshots", directory / "quarantine")
        self.keeper = keeper = SnapshotKeeper(
            settings=own,
            controller=self.controller,
            committed_log=committed_log,
            store=store,
            run_in_thread=asyncio.to_thread,
            unix_ms=lambda: 0,
        )
        fetches = FetchService(
            settings=own,
            controller=self.controller,
            committed_log=committed_log,
            newest_snapshot=keeper.newest,
            now_ms=lambda: lab.now_ms,
        )
        self.access = Access(principals, cluster_id=own.cluster_id, by_acls=acls.by_acls)
        self.status = QuorumStatus(
            settings=own,
            controller=self.controller,
            committed_log=committed_log,
            fetches=fetches,
            keeper=keeper,
            repair=LogRepair(
                committed=committed_log.segments,
                peers=tuple,
                session=aiohttp.ClientSession,
                run_in_thread=asyncio.to_thread,
            ),
            directory_id=self.directory_id,
            address={4: "10.0.0.4:9093"}.get,
            url={2: "http://10.0.0.2:8080", 4: "http://10.0.0.4:8080"}.get,
            refused=self.refused.copy,
            foreign_bytes_total=lambda: 7,
            links_outdated=lambda: 0,
            free_bytes=lambda: self.room,
            recent=RecentWarnings(),
            access=self.access,
        )
        self.kafka_log = KafkaLog(
            settings=own,
            controller=self.controller,
            committed_log=committed_log,
            keeper=keeper,
            store=store,
            now_ms=lambda: lab.now_ms,
            run_in_thread=asyncio.to_thread,
        )
        self.faults: list[Exception] = []
        reads = Threads("reads", threads=1, unfinished_max=8)
        parts = Parts(
            settings=own,
            controller=self.controller,
            committed_log=committed_log,
            fetches=fetches,
            kafka_log=self.kafka_log,
            feeds=TopicFeeds(),
            watchers=Watchers(),
            keeper=keeper,
            store=store,
            status=self.status,
            since=Since(self.status.default_min_isr),
            bodies=Threads("bodies", threads=1, unfinished_max=8),
            reads=reads,
            downloads=Threads("downloads", threads=1),
            logins=Threads("logins", threads=1, unfinished_max=LOGINS_UNFINISHED_MAX),
            past=Past(committed_log, store, threads=reads, states_max=1),
            connections=ConnectionBound(),
            body_buffers=BodyBuffers(),
            buffers=AnswerBuffers(),
            now_ms=lambda: lab.now_ms,
            tls=None,
            access=self.access,
            on_fault=self.faults.append,
        )
        self.door = door_to(parts, OwnNames(()))


class DoorServer(TestServer):
    """Serves a door as a controller does, on a free port."""

    __test__ = False

    def __init__(self, door: Door) -> None:
        super().__init__(web.Application())
        self._door = door

    async def _make_runner(self, **_: Any) -> web.AppRunner:
        return DoorRunner(self._door)


Ask = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def at_desk(directory: Path) -> AsyncIterator[tuple[Desk, Ask]]:
    lab = Lab()
    desk = Desk(lab, directory)
    client: TestClient[web.Request, web.Application] = TestClient(DoorServer(desk.door))
    async with client:
        desk.client = client

        async def ask(
            method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
        ) -> tuple[int, Any]:
            task = asyncio.create_task(client.request(method, path, json=body, headers=headers))
            while not task.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            response = await task
            return response.status, await response.json()

        lab.lead(1)
        yield desk, ask
