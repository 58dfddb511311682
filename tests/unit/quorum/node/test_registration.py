"""Edge: a controller registers itself: once per incarnation, again when it is wanted, with pauses after failures (B12)."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from metadata_log.batch import NO_ENVELOPE
from metadata_log.errors import (
    InconsistentClusterId,
    MetadataError,
    NodeStillAlive,
    NotController,
    OutcomeUnknown,
)
from metadata_log.ids import NodeId, Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.quorum import VoterEndpoint
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import RegisterController
from quorum.controller.standby import configured_voters
from quorum.decide.controllers import UnregisterController
from quorum.decide.decision import Decision
from quorum.node.config import ControllerSettings, FeatureSettings, KafkaSettings, VoterSettings
from quorum.node.peers import dialled_addresses
from quorum.node.registration import PAUSE_MAX_MS, Registration, over_http, registration_of
from tests.support.callers import anybody
from tests.support.decisions import CLUSTER_ID, word_uuid
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, observer, settings, spin, uuid

Failure = MetadataError | None


class Node:
    """One controller of a lab with its registration; `sent` are the requests that left for another controller."""

    def __init__(self, lab: Lab, node_id: int, incarnation: int = 1) -> None:
        self.lab = lab
        self.controller = lab.controllers[node_id]
        self.sent: list[tuple[str, Uuid]] = []
        self.fails: list[Failure] = []
        self.loses_answer = False
        self.registration = Registration(
            registration_of(settings(node_id), uuid(10 * node_id + incarnation)),
            controller=self.controller,
            url_of=settings(node_id).url_of,
            send=self._send,
            rng=random.Random(10 * node_id + incarnation),
        )
        self.controller.attach(self.controller.raft, [self.registration])
        self.task = asyncio.create_task(self.registration.run())

    async def _send(self, url: str, command: RegisterController, request_id: Uuid) -> int:
        self.sent.append((url, request_id))
        if self.fails:
            failure = self.fails.pop(0)
            if failure is not None:
                raise failure
        target = self.lab.controllers[int(url[-1])]
        written = await target.submit(command, anybody(request_id))
        if self.loses_answer:
            self.loses_answer = False
            raise OutcomeUnknown("the answer is lost")
        return written.end_offset

    def written(self) -> list[RegisterControllerRecord]:
        return [
            each
            for each in self.controller.committed.controllers.values()
            if each.controller_id == self.registration._command.controller_id
        ]


async def settle(lab: Lab) -> None:
    for _ in range(10):
        await spin()
        lab.quorum.commit()


async def test_the_active_controller_and_its_followers_register_once_each() -> None:
    lab = Lab()
    nodes = [Node(lab, node_id) for node_id in (1, 2, 3)]
    await settle(lab)
    assert not any(node.sent for node in nodes), "no leader is known"
    lab.lead(1)
    await settle(lab)
    image = lab.controllers[1].committed
    assert sorted(image.controllers) == [1, 2, 3]
    assert [len(node.sent) for node in nodes] == [0, 1, 1]
    assert nodes[1].sent[0][0] == "http://127.0.0.1:8001"
    end_offset = image.end_offset
    lab.lead(2)  # a change of leaders is no reason for another record
    await settle(lab)
    assert lab.controllers[1].committed.end_offset == end_offset + 1
    lab.same_everywhere()
    for node in nodes:
        node.task.cancel()


def test_what_a_controller_with_a_listener_for_kafka_registers(tmp_path: Path) -> None:
    own = VoterSettings(
        id=NodeId(1),
        raft=("c1", 9191),
        http="http://c1:9091",
        directory_id=word_uuid("disk"),
        kafka=("c1", 9291),
    )
    settings = ControllerSettings(
        cluster_id=CLUSTER_ID,
        node_id=NodeId(1),
        data_dir=tmp_path,
        listen_http=("c1", 9091),
        listen_raft=("c1", 9191),
        listen_kafka=("0.0.0.0", 9291),
        voters=(own,),
        kafka=KafkaSettings(listener_name="K", security="sasl_plaintext"),
    )
    endpoints = registration_of(settings, word_uuid("process")).endpoints
    assert endpoints == (
        BrokerEndpoint("CONTROLLER", "c1", 9191, 0),
        BrokerEndpoint("HTTP", "c1", 9091, 0),
        BrokerEndpoint("KAFKA", "c1", 9291, 2),
    )
    (voter,) = configured_voters(settings)
    assert voter.endpoints == (VoterEndpoint("CONTROLLER", "c1", 9191), VoterEndpoint("KAFKA", "c1", 9291))
    # The order of endpoints means nothing, and Raft never dials the port of Kafka's brokers.
    turned = voter._replace(node_id=NodeId(2), endpoints=voter.endpoints[::-1])
    image = replace(EMPTY, quorum=EMPTY.quorum._replace(voters=(voter, turned)))
    assert dialled_addresses(settings, image) == {NodeId(1): ("c1", 9191), NodeId(2): ("c1", 9191)}


async def test_another_incarnation_registers_again() -> None:
    lab = Lab()
    first = Node(lab, 2)
    lab.lead(1)
    await settle(lab)
    epoch = first.written()[0].registration_epoch
    first.task.cancel()
    second = Node(lab, 2, incarnation=2)
    await settle(lab)
    assert second.written()[0].incarnation_id == uuid(22)
    assert second.written()[0].registration_epoch > epoch
    second.task.cancel()


async def test_a_lost_answer_leads_to_no_second_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one record per incarnation. Method: the answer to a registration that was written is lost; the same request
    goes out again under the same id.
    """
    lab = Lab()
    node = Node(lab, 2)
    node.loses_answer = True
    lab.quorum.elect(1)
    lab.quorum.commit()
    keep = lab.controllers[2].committing
    held: list[bytes] = []

    def lags(frames: bytes) -> Sliced[None]:
        held.append(frames)
        yield from ()

    monkeypatch.setattr(lab.controllers[2], "committing", lags)  # its log does not show it
    await settle(lab)
    async with asyncio.timeout(60):
        while len(node.sent) < 2:
            await asyncio.sleep(0.01)
            lab.quorum.commit()
    await settle(lab)
    assert len(node.sent) == 2 and node.sent[0] == node.sent[1]
    monkeypatch.undo()
    for frames in held:
        at_once(keep(frames))
    await settle(lab)
    assert len(node.sent) == 2
    assert list(lab.controllers[1].committed.controllers) == [2]
    node.task.cancel()


async def test_a_controller_that_runs_and_was_unregistered_registers_again() -> None:
    lab = Lab()
    node = Node(lab, 2)
    leader = lab.lead(1)
    await settle(lab)
    epoch = node.written()[0].registration_epoch
    image = leader.committed
    leader.append(Decision(records=(UnregisterControllerRecord(NodeId(2), epoch),)), NO_ENVELOPE)
    await settle(lab)
    assert node.written()[0].registration_epoch > epoch
    assert leader.committed.end_offset == image.end_offset + 2
    assert len({request_id for _, request_id in node.sent}) == 2, "another registration, another request id"
    node.task.cancel()


@pytest.mark.parametrize("is_restored", [False, True])
async def test_controllers_register_again_at_the_level_from_which_kafkas_log_has_it(
    is_restored: bool,
) -> None:
    """What was registered below level 15 is a NoOp in Kafka's log; it is written once more, and only once."""
    lab = Lab()
    for node_id, controller in lab.controllers.items():
        features = FeatureSettings(founding_metadata_version=14)
        controller._settings = replace(settings(node_id), features=features)
    node = Node(lab, 2)
    leader = lab.lead(1)
    await settle(lab)
    epoch = node.written()[0].registration_epoch
    for level, is_again in ((13, False), (15, True), (17, False)):
        before = leader.committed
        leader.append(Decision(records=(FeatureLevelRecord("metadata.version", level),)), NO_ENVELOPE)
        if is_restored:
            lab.quorum.commit()
            node.registration.on_restored(node.controller.committed)
        await settle(lab)
        assert leader.committed.end_offset == before.end_offset + 1 + is_again
        assert (node.written()[0].registration_epoch > epoch) == (level >= 15)
    lab.same_everywhere()
    node.task.cancel()


async def test_a_failure_is_followed_by_a_pause_that_doubles() -> None:
    """The pauses are those of Kafka: 100 ms, doubled, two minutes at most, two per cent more or less."""
    lab = Lab()
    node = Node(lab, 2)
    node.task.cancel()
    node.fails = [InconsistentClusterId("no")] * 30
    lab.lead(1)
    pauses = [await node.registration._try() for _ in range(15)]
    for number, pause_s in enumerate(pauses):
        assert pause_s is not None
        wanted_ms = min(100 * 2**number, PAUSE_MAX_MS)
        assert 0.98 * wanted_ms <= pause_s * 1000 <= 1.02 * wanted_ms
    assert node.registration.failures == 15
    assert len({request_id for _, request_id in node.sent}) == 1
    node.fails = []
    trying = asyncio.create_task(node.registration._try())
    await settle(lab)
    assert await trying is None
    assert node.registration.failures == 0
    assert not node.registration.is_wanted


async def test_a_follower_waits_for_its_own_log_to_show_an_accepted_registration() -> None:
    lab = Lab()
    node = Node(lab, 2)
    lab.lead(1)
    await settle(lab)
    node.registration._accepted_end = node.controller.committed.end_offset + 1
    assert not node.registration.is_wanted
    node.task.cancel()


async def _served(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    story: Callable[[str], Awaitable[None]],
) -> None:
    app = web.Application()
    app.add_routes([web.post("/v1/controllers/register", handler)])
    async with TestServer(app) as server:
        await story(f"http://127.0.0.1:{server.port}")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (421, {"error": "NOT_CONTROLLER", "message": "elsewhere"}, "NOT_CONTROLLER"),
        (409, {"error": "INCONSISTENT_CLUSTER_ID", "message": "another"}, "INCONSISTENT_CLUSTER_ID"),
        (200, {"offsets": {"end": -1}}, "INVALID_REQUEST"),
        (200, [1], "INVALID_REQUEST"),
        (500, b"<html>", "INVALID_REQUEST"),
    ],
)
def test_what_a_controller_answers_over_http(status: int, body: Any, error: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        content = body if isinstance(body, bytes) else msgpack.packb(body)
        return web.Response(status=status, body=content, content_type="application/msgpack")

    async def story(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            send = over_http(lambda: session, silence_max_ms=60_000)
            with pytest.raises(MetadataError) as raised:
                await send(url, registration_of(settings(2), uuid(1)), uuid(2))
            assert raised.value.error == error

    asyncio.run(_served(answer, story))


def test_a_controller_that_does_not_answer_is_none() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(10)
        return web.Response()

    async def story(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            send = over_http(lambda: session, silence_max_ms=50)
            for where in (url, "http://127.0.0.1:1", "http://"):
                with pytest.raises(NotController):
                    await send(where, registration_of(settings(2), uuid(1)), uuid(2))

    asyncio.run(_served(silent, story))


async def test_registrations_over_http(tmp_path: Path) -> None:
    """C9: what is listed, and what becomes of a removal; the shipped client against the shipped route."""
    lab = Lab()
    leader = lab.lead(1)
    desk = Desk(lab, tmp_path)
    async with (
        DoorServer(desk.door) as server,
        aiohttp.ClientSession() as session,
    ):
        url = f"http://127.0.0.1:{server.port}"

        async def ask(method: str, path: str) -> tuple[int, Any]:
            async with session.request(method, url + path) as answer:
                return answer.status, await answer.json()

        async def committed(asking: Awaitable[Any]) -> Any:
            task = asyncio.ensure_future(asking)
            while not task.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            return await task

        send = over_http(lambda: session, silence_max_ms=60_000)
        ends = [
            await committed(send(url, registration_of(settings(node_id), uuid(node_id)), uuid(9)))
            for node_id in (4, 4)
        ]
        assert ends == [leader.committed.end_offset] * 2, "the same request id: one record"
        status, listed = await committed(ask("GET", "/v1/controllers"))
        assert status == 200
        (item,) = listed["items"]
        assert (item["controller_id"], item["is_voter"], item["linked"]) == (4, False, False)
        assert item["registration_epoch"] == ends[0] - 1
        assert [each["name"] for each in item["endpoints"]] == ["CONTROLLER", "HTTP"]
        status, refused = await committed(ask("DELETE", "/v1/controllers/4?dry_run=true"))
        assert (status, refused["error"]) == (400, "INVALID_REQUEST")
        status, gone = await committed(ask("DELETE", "/v1/controllers/4?validate_only=true"))
        assert (status, gone["controller_id"], sorted(leader.committed.controllers)) == (200, 4, [4])
        status, gone = await committed(ask("DELETE", "/v1/controllers/4"))
        assert (status, sorted(leader.committed.controllers)) == (200, [])
        for controller_id, status_wanted, error in (
            (4, 404, "UNKNOWN_CONTROLLER_ID"),
            ("x", 400, "INVALID_REQUEST"),
        ):
            status, refused = await committed(ask("DELETE", f"/v1/controllers/{controller_id}"))
            assert (status, refused["error"]) == (status_wanted, error)


async def test_a_controller_that_is_linked_keeps_its_registration() -> None:
    """C9: NODE_STILL_ALIVE for an observer that is linked, as the controller's own view of Raft says."""
    lab = Lab()
    leader = lab.lead(1)
    await lab.write(leader, registration_of(settings(4), uuid(4)))
    remove = UnregisterController(controller_id=NodeId(4), validate_only=False)
    lab.quorum.observers = [observer(4)]
    with pytest.raises(NodeStillAlive):
        await lab.write(leader, remove)
    lab.quorum.observers = []
    await lab.write(leader, remove)
    assert not leader.committed.controllers
    lab.same_everywhere()
