"""Server-sent events: what was written since, how the quorum looks, resumed by offset, bounded, and ended with the right."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log.ids import NodeId
from quorum.log import watchers
from quorum.log.recent_batches import RecentBatches
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, setting
from tests.unit.quorum.http.test_identity import principals, token


class Stream:
    """The events of one answer."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def event(self, wanted: str = "") -> tuple[str, int | None, Any]:
        """Return the next event, or the next of this name."""
        while True:
            fields: dict[str, str] = {}
            while (line := (await self.answer.content.readline()).decode()).strip():
                name, _, value = line.strip().partition(": ")
                fields[name] = value
            if not line:
                raise EOFError
            if "event" in fields and wanted in ("", fields["event"]):
                at = int(fields["id"]) if "id" in fields else None
                return fields["event"], at, json.loads(fields["data"])


class Watched:
    def __init__(self, lab: Lab, desk: Desk, client: TestClient[web.Request, web.Application]) -> None:
        self.lab = lab
        self.desk = desk
        self.client = client

    async def stream(self, query: str = "", **headers: str) -> Stream:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Stream(await self.client.get(f"/v1/events{query}", headers=named))

    async def write(self, value: str) -> int:
        """Write one batch; return its end offset."""
        await self.lab.write(self.desk.controller, setting(value))
        return self.desk.controller.committed.end_offset


@asynccontextmanager
async def watched(directory: Path, *, known: Path | None = None) -> AsyncIterator[Watched]:
    lab = Lab()
    desk = Desk(lab, directory, principals=known)
    lab.controllers[1].attach(
        lab.quorum.nodes[NodeId(1)], [desk.door.committed_log, desk.door.feeds, desk.door.watchers]
    )
    lab.lead(1)
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:
        async with asyncio.timeout(30):
            yield Watched(lab, desk, client)


async def test_a_page_is_told_of_each_batch_and_of_the_quorum(tmp_path: Path) -> None:
    async with watched(tmp_path) as page:
        stream = await page.stream()
        assert stream.answer.status == 200 and stream.answer.content_type == "text/event-stream"
        assert stream.answer.headers["Cache-Control"] == "no-store"
        name, _, looks = await stream.event()
        assert name == "quorum" and (looks["node_id"], looks["leader_id"], looks["is_active"]) == (1, 1, True)
        for value in ("1", "2"):
            end_offset = await page.write(value)
            name, at, batch = await stream.event("batch")
            assert (at, batch["end_offset"]) == (end_offset, end_offset)
            assert batch["operation"] == "IncrementalAlterConfigs" and batch["types"] == {"Config": 1}


async def test_a_page_goes_on_behind_its_last_event(tmp_path: Path) -> None:
    async with watched(tmp_path) as page:
        ends = [await page.write(str(number)) for number in range(4)]
        by_header = await page.stream(Last_Event_ID=str(ends[0]))
        by_query = await page.stream(f"?after={ends[0]}")
        for stream in (by_header, by_query):
            assert [(await stream.event("batch"))[1] for _ in range(3)] == ends[1:]
        ahead = await page.stream(f"?after={ends[-1] + 1}")  # told by a controller that had more
        await page.write("5")
        end_offset = await page.write("6")
        assert (await ahead.event("batch"))[1] == end_offset
        assert (await page.client.get("/v1/events", headers={"Last-Event-ID": "x"})).status == 400


async def test_a_page_that_was_away_for_too_long_is_told_to_load_again(tmp_path: Path) -> None:
    async with watched(tmp_path) as page:
        end_offset = await page.write("1")
        page.desk.door.watchers.on_restored(page.desk.controller.committed)
        stream = await page.stream("?after=0")
        assert (await stream.event("reset"))[1:] == (end_offset, {"end_offset": end_offset})


async def test_another_leader_is_told_and_a_quiet_quorum_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "LOOK_S", 0.01)
    monkeypatch.setattr(watchers, "BEAT_S", 0.05)
    async with watched(tmp_path) as page:
        stream = await page.stream()
        first = await stream.event("quorum")
        assert await stream.event("quorum") == first  # a beat
        page.lab.lead(2)
        while (await stream.event("quorum"))[2]["leader_id"] != 2:
            pass


@pytest.mark.slow
async def test_pages_are_bounded_and_one_that_goes_leaves_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "WATCHERS_MAX", 2)
    async with watched(tmp_path) as page:
        streams = [await page.stream() for _ in range(2)]
        refused = await page.client.get("/v1/events")
        assert refused.status == 429 and (await refused.json())["error"] == "THROTTLING_QUOTA_EXCEEDED"
        streams[0].answer.close()
        while len(page.desk.door.watchers) == 2:
            await asyncio.sleep(0.001)
        assert (await (await page.stream()).event())[0] == "quorum"


@pytest.mark.slow
async def test_one_principal_leaves_places_for_the_pages_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "WATCHERS_PER_PRINCIPAL_MAX", 2)
    async with watched(tmp_path, known=principals(tmp_path / "principals.toml")) as page:
        reader, admin = ({"Authorization": f"Bearer {token(name)}"} for name in ("User:reader", "User:admin"))
        streams = [await page.stream(**reader) for _ in range(2)]
        assert (await page.client.get("/v1/events", headers=reader)).status == 429
        assert (await (await page.stream(**admin)).event())[0] == "quorum"
        streams[0].answer.close()
        while page.desk.door.watchers._by_principal["User:reader"] == 2:
            await asyncio.sleep(0.001)
        assert (await (await page.stream(**reader)).event())[0] == "quorum"


async def test_without_pages_nothing_is_looked_at_and_no_batch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "LOOK_S", 0.01)
    async with watched(tmp_path) as page:
        stream = await page.stream()
        await stream.event()
        stream.answer.close()
        while len(page.desk.door.watchers):
            await asyncio.sleep(0.001)
        while page.desk.door.watchers._look is not None:
            await asyncio.sleep(0.001)
        await page.write("1")
        assert all(kept.event is None for kept in page.desk.door.watchers.recent._kept)


async def test_events_end_with_the_right_and_with_the_node(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    async with watched(tmp_path, known=file) as page:
        assert (await page.client.get("/v1/events")).status == 401
        bearer = {"Authorization": f"Bearer {token('User:reader')}"}
        stream = await page.stream(**bearer)
        await stream.event()
        principals(file, {"User:admin": "admin"})
        await asyncio.sleep(1.05)  # limits.IDENTITY_CHECK_S
        await page.write("1")
        with pytest.raises(EOFError):
            await stream.event("never")
        other = await page.stream(Authorization=f"Bearer {token('User:admin')}")
        await other.event()
        page.desk.door.watchers.end()
        with pytest.raises(EOFError):
            await other.event("never")


async def test_pages_that_come_back_to_offsets_of_their_own_are_told_one_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no turn of the loop tells many pages what takes milliseconds each."""
    turn, told_in = 0, []
    events_from = RecentBatches._events

    def told(recent: RecentBatches, position: int) -> bytes:
        told_in.append(turn)
        return events_from(recent, position)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with watched(tmp_path) as page:
        for value in range(20):
            await page.write(str(value))
        monkeypatch.setattr(RecentBatches, "_events", told)
        counting = asyncio.create_task(count())
        streams = await asyncio.gather(*(page.stream(f"?after={after}") for after in range(20)))
        for stream in streams:
            await stream.event("batch")
        assert len(told_in) == len(set(told_in)) == 20
        counting.cancel()
