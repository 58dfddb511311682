"""Edge: an answer in several pieces is complete, or ends in an error that the client sees."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.codec import read_header
from metadata_log.errors import LogDamaged
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.image.views import state_json
from metadata_log.items import listed
from metadata_log.node.http.answers import MSGPACK
from quorum.http.bodies import NDJSON
from quorum.http.door import Door
from quorum.log.committed_log import CommittedLog
from quorum.log.past import Past
from snapshots.snapshot_file import write_snapshot
from tests.support.desk import Desk, DoorServer
from tests.support.histories import A_TYPE_UNKNOWN_HERE, frame_behind, history_of
from tests.support.lab import Lab

HISTORY = [*history_of(3, 40)]
END = HISTORY[-1].image.end_offset
"""The next record is of a type unknown to this release."""
REASON = f"the log of this controller: offset {END}: record type 7777 version 0 is unknown to this release"

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def beside_a_log_of_another_release(directory: Path) -> AsyncIterator[Client]:
    lab = Lab()
    desk = Desk(lab, directory)
    log, last = desk.door.committed_log, HISTORY[-1]
    for step in HISTORY:
        log.on_applied(step.batch, step.frame, step.image, Delta())
    log.on_rest()
    unknown = frame_behind(last.frame, A_TYPE_UNKNOWN_HERE)
    log.on_applied(last.batch, unknown, replace(last.image, end_offset=END + 1), Delta())
    log.on_rest()
    async with TestClient(DoorServer(desk.door)) as client:
        yield client
    assert desk.faults == []


async def lines_from(client: Client, offset: int) -> aiohttp.ClientResponse:
    path = f"/v1/log?consistency=stale&from={offset}"
    return await client.get(path, headers={"Accept": NDJSON})


async def read_all(answer: aiohttp.ClientResponse, into: bytearray) -> None:
    async for chunk in answer.content.iter_any():
        into += chunk


@pytest.mark.parametrize("start", [0, END])
async def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, start: int) -> None:
    async with beside_a_log_of_another_release(tmp_path) as client:
        refused = await lines_from(client, start)
        told = await refused.json()
        assert (refused.status, told["error"]) == (503, "KAFKA_STORAGE_ERROR")
        assert told["message"].startswith(REASON)


async def test_behind_lines_that_were_sent_the_error_is_the_last_and_the_answer_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 1)  # a page holds one batch
    async with beside_a_log_of_another_release(tmp_path) as client:
        answer = await lines_from(client, 0)
        assert answer.status == 200
        told = bytearray()
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_all(answer, told)
        *records, error = map(json.loads, told.splitlines())
        assert [record["offset"] for record in records] == list(range(END))
        assert (error["error"], error["message"][: len(REASON)]) == ("KAFKA_STORAGE_ERROR", REASON)


@pytest.mark.parametrize("piece_bytes", [1, limits.ANSWER_PIECE_BYTES])
async def test_lines_of_a_range_inside_a_batch_are_those_of_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    large = max((step.batch for step in HISTORY), key=lambda batch: len(batch.records))
    base, end = large.base_offset, large.end_offset
    assert end - base > 3
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", piece_bytes)
    async with beside_a_log_of_another_release(tmp_path) as client:
        for start, until in (
            (base + 1, base + 2),
            (0, base + 1),
            (base + 2, end - 1),
            (base + 1, end),
            (base, base),
        ):
            path = f"/v1/log?consistency=stale&from={start}&until={until}"
            answer = await client.get(path, headers={"Accept": NDJSON})
            lines = (await answer.read()).splitlines()
            assert [json.loads(line)["offset"] for line in lines] == list(range(start, until))


@pytest.mark.parametrize("piece_bytes", [1, limits.ANSWER_PIECE_BYTES])
async def test_lines_of_some_types_are_those_of_all_narrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Goal: a console that draws brokers' states reads their records alone."""
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", piece_bytes)
    async with beside_a_log_of_another_release(tmp_path) as client:

        async def lines(more: str) -> list[dict[str, Any]]:
            answer = await client.get(f"/v1/log/lines?consistency=stale&from=0&until={END}{more}")
            assert answer.status == 200, await answer.text()
            return [json.loads(line) for line in (await answer.read()).splitlines()]

        every = await lines("")
        kinds = {line["type"] for line in every}
        assert len(kinds) > 2
        for types in (sorted(kinds)[:1], sorted(kinds)[1:], ["UserScramCredential"]):
            wanted = [line for line in every if line["type"] in types]
            assert await lines(f"&types={','.join(types)}") == wanted
        for refused in ("log/lines?types=Nothing", "log/lines?types=Topic&topics=a", "log?types=Topic"):
            answer = await client.get(f"/v1/{refused}", params={"consistency": "stale"})
            told = await answer.json()
            assert (answer.status, told["error"]) == (400, "INVALID_REQUEST"), refused
            assert "Nothing" not in refused or "BrokerRegistrationChange" in told["message"], "what there is"


async def test_a_search_for_lines_ends_with_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a client that goes costs no search of a whole log. Method: no record is of the type, so nothing is sent."""
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 1)
    began, goes_on = asyncio.Event(), asyncio.Event()
    looked_at: list[int] = []
    lines = Past.lines

    async def held(past: Past, frames: bytes, start: int, **more: Any) -> Any:
        looked_at.append(start)
        began.set()
        await goes_on.wait()
        return await lines(past, frames, start, **more)

    monkeypatch.setattr(Past, "lines", held)
    async with beside_a_log_of_another_release(tmp_path) as client:
        path = f"/v1/log/lines?consistency=stale&from=0&until={END}&types=SnapshotFooter"
        asked = asyncio.ensure_future(client.get(path))
        await began.wait()
        asked.cancel()
        await asyncio.wait([asked])
        runner = client.server.runner
        assert runner is not None
        served = runner.server
        assert served is not None
        async with asyncio.timeout(10):
            while any(each.transport is not None for each in served.connections):
                await asyncio.sleep(0.01)
        goes_on.set()
        answer = await client.get(path)
        assert (answer.status, await answer.read()) == (200, b"")
        assert looked_at.count(0) == 2 and len(looked_at) < 2 * len(set(looked_at)), looked_at


@pytest.mark.parametrize("piece_bytes", [1, limits.ANSWER_PIECE_BYTES])
async def test_a_state_in_pieces_is_the_whole_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", piece_bytes)
    lab = Lab()
    desk = Desk(lab, tmp_path)
    image = HISTORY[-1].image
    monkeypatch.setattr(Door, "read", returning(image))
    whole = listed(state_json(image))
    assert len(whole["topics"]) > 1
    async with TestClient(DoorServer(desk.door)) as client:
        answer = await client.get("/v1/state")
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        assert await answer.read() == msgspec.json.encode(whole)
        packed = await client.get("/v1/state", headers={"Accept": MSGPACK})
        assert packed.headers["Content-Type"] == MSGPACK
        assert await packed.read() == msgpack.packb(whole)


async def test_a_head_is_answered_without_a_body_and_its_connection_goes_on(tmp_path: Path) -> None:
    async with beside_a_log_of_another_release(tmp_path) as client:
        snapshot = write_snapshot(HISTORY[-1].image, tmp_path / "snapshots")
        asked = (
            f"/v1/log?consistency=stale&until={END}",
            "/v1/state?consistency=stale",
            f"/v1/metadata/snapshots/{snapshot.stem}",
        )
        for path in asked:
            reader, writer = await asyncio.open_connection(client.host, client.port)
            writer.write(
                f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {NDJSON}\r\n\r\n"
                "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            head, following, body = (await reader.read()).split(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), path
            assert following.startswith(b"HTTP/1.1 200 "), path
            assert json.loads(body) == {"ok": True}
            writer.close()


async def test_frames_in_pieces_are_whole_and_stay_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [step.frame for step in HISTORY]
    monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", 500)
    async with beside_a_log_of_another_release(tmp_path) as client:
        for count in (1, 2, 7, len(frames)):
            wanted = b"".join(frames[:count])
            for spare in (0, len(frames[count]) - 1 if count < len(frames) else 99):
                path = f"/v1/log?consistency=stale&until={END}&max_bytes={len(wanted) + spare}"
                assert await (await client.get(path)).read() == wanted
        assert await (await client.get("/v1/log?consistency=stale&max_bytes=1")).read() == frames[0]


async def test_frames_end_before_one_that_cannot_be_read_and_a_request_for_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged_from = HISTORY[5].batch.base_offset

    async def read_in_thread(
        log: CommittedLog, from_offset: int, *, max_bytes: int, until: int
    ) -> tuple[bytes, int]:
        if from_offset >= damaged_from:
            raise LogDamaged("the file rotted")
        frames = log.read(from_offset, max_bytes=1, until=until)
        return frames, from_offset + read_header(frames).record_count

    monkeypatch.setattr(CommittedLog, "read_in_thread", read_in_thread)
    async with beside_a_log_of_another_release(tmp_path) as client:
        page = await client.get("/v1/log?consistency=stale")
        assert (page.status, await page.read()) == (200, b"".join(step.frame for step in HISTORY[:5]))
        refused = await client.get(f"/v1/log?consistency=stale&from={damaged_from}")
        assert (refused.status, (await refused.json())["error"]) == (503, "KAFKA_STORAGE_ERROR")


@pytest.mark.parametrize(
    "path", ["/v1/log", f"/v1/log?from=0&until={END}", f"/v1/state?at={END}", "/v1/state"]
)
async def test_reads_beyond_the_bound_are_refused_and_health_checks_are_not(
    tmp_path: Path, path: str
) -> None:
    lab = Lab()
    desk = Desk(lab, tmp_path)
    log = desk.door.committed_log
    for step in HISTORY:
        log.on_applied(step.batch, step.frame, step.image, Delta())
    log.on_rest()
    lab.controllers[1].committed = HISTORY[-1].image
    stale = f"{path}{'&' if '?' in path else '?'}consistency=stale"
    async with TestClient(DoorServer(desk.door)) as client:
        assert (await client.get(stale)).status == 200
        holder = object()
        desk.door.buffers.hold(holder, limits.ANSWERS_UNSENT_BYTES_MAX)
        refused = await client.get(stale)
        assert (refused.status, (await refused.json())["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert (await client.get("/healthz")).status == 200
        desk.door.buffers.hold(holder, 0)
        assert (await client.get(stale)).status == 200


def returning(image: MetadataImage) -> Callable[..., Awaitable[MetadataImage]]:
    async def read(*_: object) -> MetadataImage:
        return image

    return read


async def test_a_route_without_parameters_needs_no_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    resolve = web.UrlDispatcher.resolve

    async def resolved(router: web.UrlDispatcher, request: web.Request) -> web.UrlMappingMatchInfo:
        asked.append(f"{request.method} {request.rel_url}")
        return await resolve(router, request)

    monkeypatch.setattr(web.UrlDispatcher, "resolve", resolved)
    async with beside_a_log_of_another_release(tmp_path) as client:
        body = {"resources": [], "validate_only": True}
        for method, path, headers, status in (
            ("PATCH", "/v1/configs", {}, 400),
            ("GET", "/healthz", {}, 200),
            ("GET", "/v1/topics?consistency=stale", {}, 200),
            ("HEAD", "/healthz", {}, 200),
            ("DELETE", "/healthz", {}, 405),
            ("GET", "/healthz/", {}, 404),
            ("GET", "/v1/topics/orders?consistency=stale", {}, 404),
            ("PATCH", "/v1/configs", {"Expect": "100-continue"}, 400),
        ):
            answer = await client.request(
                method, path, headers=headers, json=body if method == "PATCH" else None
            )
            assert answer.status == status, (method, path, await answer.text())
        assert asked == [
            "HEAD /healthz",
            "DELETE /healthz",
            "GET /healthz/",
            "GET /v1/topics/orders?consistency=stale",
            "PATCH /v1/configs",
        ]


async def test_a_controller_says_for_how_long_it_has_known_of_no_leader(tmp_path: Path) -> None:
    """Goal: a client tells an election from a lost majority."""
    lab = Lab()
    desk = Desk(lab, tmp_path)

    async def said(client: Client) -> str | None:
        refused = await client.get("/v1/topics")
        assert (await refused.json())["error"] == "NOT_CONTROLLER"
        return refused.headers.get("X-Leaderless-Ms")

    async with TestClient(DoorServer(desk.door)) as client:
        lab.now_ms += 70
        assert await said(client) == "70"
        controller = desk.door.controller
        controller.on_leader_hint(NodeId(2))
        lab.now_ms += 500
        assert await said(client) is None
        controller.on_leader_hint(None)
        lab.now_ms += 30
        controller.on_leader_hint(None)
        assert await said(client) == "30"
        controller.on_leader_hint(desk.door.settings.node_id)
        assert await said(client) is None, "it is about to be active"
