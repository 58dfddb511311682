"""Past states at a glance, differences of two, and losses foreseen, over HTTP."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log.digest import digest, hex_of_text
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import lines
from metadata_log.recount import bucket_of, told_line
from quorum.http import past as past_routes
from quorum.log import past
from quorum.whatif import foreseen
from snapshots.state_check import StateCheck
from tests.support.desk import Desk, DoorServer
from tests.support.flips import flipped
from tests.support.lab import Lab, setting
from tests.unit.quorum.http.test_identity import principals, token
from tests.unit.quorum.http.test_overview import _topic, cluster


async def test_a_past_state_and_what_differs_since_are_those_of_the_log(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        ends = [desk.controller.committed.end_offset]
        for name in ("a", "b", "c"):
            await lab.write(desk.controller, _topic(name))
            ends.append(desk.controller.committed.end_offset)
        for count, end_offset in enumerate(ends):
            status, shown = await get(f"/v1/past?at={end_offset}&consistency=stale")
            assert status == 200
            state = shown["from"]
            assert (state["topics"], state["end_offset"], shown["to"]) == (count, end_offset, None)
        _, shown = await get(f"/v1/past?at={ends[1]}&to={ends[3]}")
        assert (shown["from"]["topics"], shown["to"]["topics"], shown["more"]) == (1, 3, False)
        assert [(row["kind"], row["key"], row["before"]) for row in shown["items"]] == [
            ("topic", "b", None),
            ("topic", "c", None),
        ]
        _, same = await get(f"/v1/past?at={ends[2]}&to={ends[2]}")
        assert same["from"] == same["to"] and same["items"] == []
        refused: Any = {"": 400, f"at={ends[3]}&to={ends[0]}": 400, f"at={ends[3] + 99}": 409, "at=x": 400}
        for query, wanted in refused.items():
            assert (await get(f"/v1/past?{query}"))[0] == wanted, query


async def test_c1_a_difference_is_told_whole_or_of_one_topic_or_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        ends = [desk.controller.committed.end_offset]
        for name in ("a", "b"):
            await lab.write(desk.controller, _topic(name, 2))
            ends.append(desk.controller.committed.end_offset)

        async def rows(query: str) -> list[dict[str, Any]]:
            status, raw = await get(f"/v1/diff?{query}")
            assert status == 200
            *found, last = [json.loads(line) for line in raw.splitlines()]
            assert last["rows"] == len(found)
            return found

        found = await rows(f"from={ends[0]}&to={ends[2]}")
        kinds = [(row["type"], row["change"]) for row in found]
        assert kinds.count(("Topic", "created")) == 2 and kinds.count(("Partition", "created")) == 4
        of_b = await rows(f"from={ends[0]}&topic=b")
        assert [row["after"]["name"] for row in of_b if row["type"] == "Topic"] == ["b"]
        assert len(of_b) == 3
        assert all(11 in row["after"]["replicas"] for row in await rows(f"from={ends[1]}&broker=11"))
        assert await rows(f"from={ends[2]}&to={ends[2]}") == []
        refused: Any = {
            "": 400,
            "from=0&topic=a&broker=11": 400,
            f"from={ends[2]}&to=0": 400,
            "from=99999": 409,
        }
        for query, wanted in refused.items():
            assert (await get(f"/v1/diff?{query}"))[0] == wanted, query


@pytest.mark.slow
async def test_c8_a_node_whose_memory_changed_is_named_with_its_first_differing_key(tmp_path: Path) -> None:
    """C8. Method: one field of one partition is flipped in a node's state, which it compares with a controller's log."""
    async with cluster(tmp_path) as (lab, desk, get):
        await lab.write(desk.controller, _topic("orders", 3))
        sound = desk.controller.committed
        status, told = await get(f"/v1/digest?at={sound.end_offset}")
        assert (status, told["digest"], told["end_offset"]) == (200, digest(sound), sound.end_offset)
        found = [await get(f"/v1/digest?at={sound.end_offset}&bucket={bucket}") for bucket in range(256)]
        assert sorted(line for _, each in found for line in each["lines"]) == sorted(lines(sound))

        async def ask(path: str) -> Any:
            status, answer = await get(path)
            return answer if status == 200 else None

        held = [sound]
        check = StateCheck(lambda: held[0], ask)
        await check.check()
        assert (check.compared, check.differs, [*check.reasons()]) == (sound.end_offset, None, [])
        held[0] = flipped(sound, "orders", 1)
        await check.check()
        assert check.differs is not None
        assert (check.differs.key, check.differs.end_offset) == ("partition orders:1", sound.end_offset)
        assert check.differs.here != check.differs.there
        assert [code for code, _ in check.reasons()] == ["STATE_DIFFERS"]
        held[0] = sound
        await check.check()
        assert [*check.reasons()] == []
        for query, wanted in (
            ("at=0&bucket=256", 400),
            ("bucket=1", 400),
            (f"at={sound.end_offset + 9}", 409),
        ):
            assert (await get(f"/v1/digest?{query}"))[0] == wanted, query


async def test_readers_get_the_lines_of_the_digest_without_secrets_that_have_no_mask_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what an older release wrote without a key stays with nodes and administrators, who have the log itself."""
    lab = Lab()
    desk = Desk(lab, tmp_path, principals=principals(tmp_path / "principals.toml"))
    lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [desk.door.committed_log, desk.door.since])
    controller = lab.lead(1)
    with monkeypatch.context() as older:
        older.setattr("quorum.decide.configs.is_sensitive", lambda *_: False)
        await lab.write(controller, setting("hunter2", "some.plugin.setting"))
    (line,) = [line for line in lines(controller.committed) if hex_of_text("hunter2") in line]
    path = f"/v1/digest?at={controller.committed.end_offset}&bucket={bucket_of(line)}&consistency=stale"
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:
        for name, is_told in (("User:admin", True), ("Controller:2", True), ("User:reader", False)):
            answer = await client.get(path, headers={"Authorization": f"Bearer {token(name)}"})
            found = (await answer.json())["lines"]
            assert answer.status == 200 and (line in found) is is_told, name
            assert told_line(line) in found or is_told


async def test_a_loss_is_foreseen_and_nothing_is_written(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (lab, desk, get):
        await lab.write(desk.controller, _topic("orders", 3))
        before = desk.controller.committed
        status, shown = await get("/v1/whatif?lose=11,12,11&consistency=stale")
        assert status == 200
        first, second = shown["steps"]
        assert (first["broker"], first["leaders_moved"], first["leaderless"]) == (11, 3, 0)
        assert (second["broker"], second["leaderless"]) == (12, 3)
        assert [row["topic"] for row in second["suffering"]] == ["orders"] * 3
        assert desk.controller.committed is before
        assert (await get("/v1/whatif?lose=99"))[1]["steps"] == []
        for refused in ("", "?lose=x", f"?lose={','.join(map(str, range(101)))}"):
            assert (await get(f"/v1/whatif{refused}"))[0] == 400, refused


async def test_losses_let_other_reads_pass_and_end_with_their_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one question about many brokers keeps nobody from the past for long, and costs nothing once nobody waits."""
    began: list[int] = []
    goes_on = threading.Semaphore(0)

    def slowly(image: Any, settings: Mapping[str, Any], broker_ids: list[int]) -> Iterator[dict[str, Any]]:
        for broker_id in broker_ids:
            began.append(broker_id)
            assert goes_on.acquire(timeout=10)
            yield {"broker": broker_id}

    monkeypatch.setattr(foreseen, "losses_foreseen", slowly)

    async def has_begun(count: int) -> None:
        async with asyncio.timeout(10):
            while len(began) < count:
                await asyncio.sleep(0.001)

    async with cluster(tmp_path) as (_, desk, _):
        reads = desk.door.past

        async def ask() -> None:
            async with reads.state_at(desk.controller.committed.end_offset) as state:
                await state.losses({}, [11, 12, 13])

        asked = asyncio.create_task(ask())
        await has_begun(1)
        other = asyncio.create_task(reads.lines(b"", 0, order=reads.order_of_lines()))
        await asyncio.sleep(0.1)
        goes_on.release()
        await has_begun(2)
        assert await asyncio.wait_for(other, 10) == (b"", 0, None) and not asked.done()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        goes_on.release(5)
        assert await reads.lines(b"", 0, order=reads.order_of_lines()) == (b"", 0, None)
        assert began == [11, 12] and not past._LOSSES and not past._IMAGES


async def test_a_client_that_takes_lines_is_told_how_far_its_answer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_routes, "TOLD_EVERY_S", 0.01)
    goes_on = threading.Event()
    foreseen_plainly = foreseen.losses_foreseen

    def slowly(*args: Any) -> Iterator[dict[str, Any]]:
        for step in foreseen_plainly(*args):
            yield step
            assert goes_on.wait(10)

    monkeypatch.setattr(foreseen, "losses_foreseen", slowly)
    async with cluster(tmp_path) as (lab, desk, get):
        await lab.write(desk.controller, _topic("orders", 3))
        _, plain = await get("/v1/past?at=1")
        async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:
            lines = {"Accept": "application/x-ndjson"}
            answer = await client.get("/v1/past?at=1", headers=lines)
            told = [json.loads(line) for line in (await answer.read()).splitlines()]
            assert told[-1] == plain
            answer = await client.get("/v1/whatif?lose=11,12", headers=lines)
            seen = json.loads(await answer.content.readline())
            assert seen.keys() == {"doing", "share"}
            while seen != {"doing": "deciding the losses", "share": 0.5}:
                seen = json.loads(await answer.content.readline())
            goes_on.set()
            while "steps" not in seen:
                seen = json.loads(await answer.content.readline())
            assert [step["broker"] for step in seen["steps"]] == [11, 12]
            refused = await client.get("/v1/past?at=99999", headers=lines)
            assert refused.status == 409
