"""Edge: POST /v1/batch: a result for each command, whatever becomes of the others, within bounds of size and time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.errors import MetadataError, NotController, OutcomeUnknown, UnknownTopicOrPartition
from metadata_log.ids import NodeId, uuid_text
from metadata_log.limits import LOOP_SLICE_MS
from metadata_log.node.http.answers import MSGPACK
from metadata_log.records.configs import BROKER
from quorum.controller.controller import Controller
from quorum.controller.written import Written
from quorum.decide.registry import deciding
from quorum.decide.topics import DeleteTopic
from tests.support.callers import anybody
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, online, setting, spin, uuid

Post = Callable[..., Awaitable[aiohttp.ClientResponse]]


@asynccontextmanager
async def over_http(directory: Path) -> AsyncIterator[tuple[Lab, Controller, Post]]:
    lab = Lab()
    controller = lab.lead(1)
    await online(lab, controller, 11)
    desk = Desk(lab, directory)
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:

        async def post(body: Any, **headers: str) -> aiohttp.ClientResponse:
            asking = asyncio.create_task(client.post("/v1/batch", data=body, headers=headers))
            while not asking.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            return await asking

        yield lab, controller, post


def change(value: str, number: int | None = None) -> dict[str, Any]:
    item = {"operation": "IncrementalAlterConfigs", "body": {"cluster": True, "set": {"a": value}}}
    return item if number is None else item | {"id": uuid_text(uuid(number))}


def creation(name: str, **more: Any) -> dict[str, Any]:
    body = {"name": name, "partitions": 1, "replication_factor": 1, **more}
    return {"operation": "CreateTopics", "body": body}


def batch(*commands: Any) -> bytes:
    return json.dumps({"commands": commands}).encode()


JSON_BODY = {"Content-Type": "application/json"}


async def test_each_command_has_its_own_result_and_a_refused_one_stops_no_other(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (lab, controller, post):
        before = controller.committed.end_offset
        body = batch(
            creation("t"),
            creation("t"),
            {"operation": "DeleteTopics", "body": {"name": "missing"}},
            {"operation": "Nonsense", "body": {}},
            change("1"),
            {"operation": "UnregisterBroker", "body": {"broker_id": 99}},
            creation("u", validate_only=True),
            "no map",
            {"operation": "DeleteTopics", "body": {"name": "t"}},
        )
        answer = await post(body, **JSON_BODY)
        assert answer.status == 200
        results = (await answer.json())["results"]
        told = [(one["status"], one.get("error")) for one in results]
        assert told == [
            (201, None),
            (409, "TOPIC_ALREADY_EXISTS"),
            (404, "UNKNOWN_TOPIC_OR_PARTITION"),
            (400, "INVALID_REQUEST"),
            (200, None),
            (404, "BROKER_ID_NOT_REGISTERED"),
            (200, None),
            (400, "INVALID_REQUEST"),
            (200, None),
        ]
        assert results[0]["name"] == "t"
        assert results[0]["offsets"]["base"] == before
        assert results[4]["offsets"]["base"] == results[0]["offsets"]["end"]
        assert results[8]["offsets"]["end"] == controller.committed.end_offset
        assert controller.committed.configs[BROKER, ""]["a"] == "1"
        assert "t" not in controller.committed.topics.ids
        lab.same_everywhere()


async def test_a_command_repeated_by_its_id_gets_its_first_result(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (_, controller, post):
        first = (
            await (await post(batch(change("1", 7), change("2", 8), change("1", 7)), **JSON_BODY)).json()
        )["results"]
        assert first[2] == first[0] != first[1]
        end = controller.committed.end_offset
        packed = msgpack.packb({"commands": [change("2", 8), change("3", 7)]})
        answer = await post(packed, **{"Content-Type": MSGPACK})
        assert answer.content_type == MSGPACK
        again, other = msgpack.unpackb(await answer.read())["results"]
        assert again == first[1]
        assert (other["status"], other["error"]) == (400, "INVALID_REQUEST")
        assert controller.committed.end_offset == end


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (batch(), JSON_BODY),
        (batch(*[change("1")] * (limits.HTTP_BATCH_COMMANDS_MAX + 1)), JSON_BODY),
        (batch(change("1")), JSON_BODY | {"X-Request-Id": uuid_text(uuid(1))}),
        (b"[]", JSON_BODY),
    ],
)
async def test_a_batch_that_is_none_is_refused_as_a_whole(
    tmp_path: Path, body: bytes, headers: dict[str, str]
) -> None:
    async with over_http(tmp_path) as (_, controller, post):
        end = controller.committed.end_offset
        answer = await post(body, **headers)
        assert (answer.status, (await answer.json())["error"]) == (400, "INVALID_REQUEST")
        assert controller.committed.end_offset == end


async def test_a_controller_that_is_not_active_refuses_the_whole_batch(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (lab, _, post):
        lab.lead(2)
        answer = await post(batch(change("1")), **JSON_BODY)
        assert (answer.status, answer.headers["X-Controller"]) == (421, "http://127.0.0.1:8002")


async def test_behind_the_bound_of_an_answer_results_show_status_and_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_BATCH_ANSWER_BYTES_MAX", 1)
    async with over_http(tmp_path) as (_, __, post):
        answer = await post(batch(change("1"), change("2"), creation("t"), creation("t")), **JSON_BODY)
        first, *rest, refused = (await answer.json())["results"]
        assert "items" in first
        assert [set(one) for one in rest] == [{"status", "offsets"}] * 2
        assert refused["error"] == "TOPIC_ALREADY_EXISTS"


async def submitted(lab: Lab, controller: Controller, count: int) -> list[Written | MetadataError]:
    writes = [(setting(str(n)), anybody()) for n in range(count)]
    task = asyncio.create_task(controller.submit_all(writes))
    await spin()
    lab.quorum.commit()
    return await task


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_commands_of_one_round_of_the_loop_have_the_time_of_one_part(batches: int) -> None:
    """So that batches that come together cannot silence heartbeats either."""
    lab = Lab()
    controller, loop_round = lab.lead(1), 0
    decided_in: list[int] = []

    def slow(*arguments: Any, **rest: Any) -> Any:
        lab.now_ms += 1
        decided_in.append(loop_round)
        return deciding(*arguments, **rest)

    with patch("quorum.controller.controller.deciding", slow):
        writes = [(setting(str(n)), anybody()) for n in range(3 * LOOP_SLICE_MS // batches)]
        tasks = [asyncio.create_task(controller.submit_all(writes)) for _ in range(batches)]
        while len(decided_in) < batches * len(writes):
            await asyncio.sleep(0)
            loop_round += 1
    lab.quorum.commit()
    for task in tasks:
        assert all(isinstance(one, Written) for one in await task)
    assert max(decided_in.count(one) for one in decided_in) == LOOP_SLICE_MS


async def test_no_word_in_time_is_an_unknown_outcome_for_each_and_takes_the_time_of_one() -> None:
    lab = Lab(commit_timeout_ms=20)
    controller = lab.lead(1)
    writes = [(setting("1"), anybody()), (setting("2"), anybody())]
    async with asyncio.timeout(60):
        results = await controller.submit_all(writes)
    assert [type(one) for one in results] == [OutcomeUnknown] * 2


async def test_refusals_share_one_proof_of_leadership_and_want_one() -> None:
    lab = Lab()
    controller = lab.lead(1)
    lab.quorum.nodes[NodeId(1)].hold_reads = True
    writes = [
        (setting("1"), anybody()),
        (DeleteTopic(name="a"), anybody()),
        (DeleteTopic(name="b"), anybody()),
    ]
    task = asyncio.create_task(controller.submit_all(writes))
    await spin()
    lab.quorum.commit()
    await spin()
    assert not task.done()
    lab.quorum.depose()
    written, *refused = await task
    assert isinstance(written, Written)
    assert [type(one) for one in refused] == [NotController] * 2
    lab.quorum.nodes[NodeId(1)].hold_reads = False
    again = asyncio.create_task(lab.lead(1).submit_all(writes[1:]))
    await spin()
    assert [type(one) for one in await again] == [UnknownTopicOrPartition] * 2
