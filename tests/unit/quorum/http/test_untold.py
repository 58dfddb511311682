"""Edge: no route of a controller tells what a secret setting holds, whichever way it is asked.

Goal: a value that Kafka would not show is shown nowhere. Method: canaries in settings of a broker and of all, and in
requests that are refused; each route of the table is asked
for all that it has, and the bytes of every answer are searched.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp.test_utils import TestClient

from metadata_log.digest import hex_of_text
from metadata_log.ids import NodeId, uuid_text
from metadata_log.records.configs import BROKER
from quorum.http.app import ROUTES
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, online, uuid

CANARY: Final = "canary-that-flies-nowhere"
SETTINGS: Final = {
    "some.plugin.setting": f"{CANARY}-1",
    "listener.name.x.ssl.key.password": f"{CANARY}-2",
    "retention.ms": f"{CANARY}-3",
}
"""A plugin's, a password, and one that Kafka knows of topics alone."""
KNOWN: Final = "min.insync.replicas"
"""Its value is shown: the search finds what an answer shows."""
BYTES_OF_THE_LOG: Final = {
    ("GET", "/v1/log"): "frames, for who follows the log; its lines are asked for below",
    ("POST", "/v1/metadata/fetch"): "what brokers follow",
    ("GET", "/v1/metadata/snapshots/{id}"): "what a broker begins with",
}
"""Routes whose answers have secrets, each with the reason: they are the log itself."""
STREAMS: Final = ("/v1/events?after=0", "/v1/log/lines?from=0")
"""What goes on until its client leaves."""
READS: Final[dict[str, tuple[str, ...]]] = {
    "/v1/configs": ("?cluster=1", "?cluster=1&effective=1", "?broker=11", "?broker=11&effective=1"),
    "/v1/topics/{name}": ("/t",),
    "/v1/brokers/{id}": ("/11",),
    "/v1/features/preview": ("?feature=metadata.version&level=14",),
    "/v1/acls/explain": ("?principal=User:a&operation=READ&resource=topic:t",),
    "/v1/log": ("?from=0&max_bytes=100000",),
    "/v1/metadata/snapshots/{id}": ("/none",),
    "/v1/log/lines": ("?from=0", "?from=0&topics=t"),
    "/v1/past": ("?at=0&to=END", "?at=END"),
    "/v1/diff": ("?from=0&to=END", "?from=0&to=END&broker=11"),
    "/v1/digest": ("?at=END", *(f"?at=END&bucket={bucket}" for bucket in range(256))),
    "/v1/whatif": ("?lose=11",),
    "/v1/state": ("", "?at=END", "?at=0"),
    "/v1/topics": ("", "?deleted=true", "?limit=9"),
    "/console/{name}": ("/app.js",),
}
"""By route: what is asked of it; of the others, their path alone."""


def writes() -> list[tuple[str, str, Any]]:
    """Return changes of settings in every form, some of them refused, and what fails to be read."""
    one: dict[str, Any] = {"broker": 11, "set": SETTINGS}
    many: dict[str, Any] = {"resources": [one, {"broker": 77, "set": SETTINGS}]}
    whole = {"resources": [{"broker": 11, "configs": SETTINGS}]}
    topic = {"name": "u", "assignment": [[11]], "configs": SETTINGS}
    command = {"operation": "IncrementalAlterConfigs", "body": one}
    refused = {"topic": "t", "set": SETTINGS}
    return [
        ("PATCH", "/v1/configs", {"cluster": True, "set": {"some.plugin.setting": f"{CANARY}-5"}}),
        ("PATCH", "/v1/configs", one),
        ("PATCH", "/v1/configs", many),
        ("PATCH", "/v1/configs", many | {"validate_only": True}),
        ("PATCH", "/v1/configs", many | {"all_or_nothing": True}),
        ("PATCH", "/v1/configs", refused),
        ("PATCH", "/v1/configs", {"broker": 11, "set": {"ssl.key.password": CANARY}}),
        ("PATCH", "/v1/configs", {"broker": 77, "set": SETTINGS}),
        ("PATCH", "/v1/configs", {"broker": 11, "set": {"some.plugin.setting": CANARY * 9_000}}),
        ("PATCH", "/v1/configs", {"broker": 11, "set": SETTINGS | {"a": 1}}),
        ("PUT", "/v1/configs", whole | {"validate_only": True}),
        ("PUT", "/v1/configs", whole),
        ("POST", "/v1/batch", {"commands": [command, command | {"body": refused}]}),
        ("POST", "/v1/topics", topic),
        ("POST", "/v1/topics", {"topics": [topic]}),
        ("POST", "/v1/topics", topic | {"validate_only": True}),
    ]


Asked = Callable[..., Any]


@asynccontextmanager
async def asked_of_a_controller(directory: Path) -> AsyncIterator[tuple[Lab, Asked, TestClient[Any, Any]]]:
    lab = Lab(undelete_window_ms=60_000)
    door = Desk(lab, directory).door
    lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [door.committed_log, door.feeds, door.watchers])
    controller = lab.lead(1)
    for broker_id in (11, 12):
        await online(lab, controller, broker_id)
    async with TestClient[Any, Any](DoorServer(door)) as client:

        async def ask(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
            asking = asyncio.create_task(client.request(method, path, json=body, headers=headers))
            while not asking.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            answer: aiohttp.ClientResponse = await asking
            return answer.status, await answer.read()

        yield lab, ask, client


def told_in(answer: bytes) -> bool:
    """Answer whether a canary is in an answer: as it is, in hex as digests have it, or in base64."""
    forms = [
        CANARY.encode(),
        hex_of_text(CANARY).encode(),
        base64.b64encode(CANARY.encode())[:-4],
    ]
    return any(form in answer for form in forms)


async def written(ask: Asked) -> None:
    """Carry the changes out, each with its repetition, whose answer comes from the log."""
    statuses = set()
    for number, (method, path, body) in enumerate(writes()):
        request_id = uuid_text(uuid(9_000 + number))
        for _ in range(2):
            status, answer = await ask(method, path, body, **{"X-Request-Id": request_id})
            assert not told_in(answer), (method, path, body, answer)
        statuses.add(status)
    assert statuses >= {200, 400}


async def test_no_write_tells_a_value_that_kafka_would_not_show(tmp_path: Path) -> None:
    async with asked_of_a_controller(tmp_path) as (lab, ask, _):
        await written(ask)
        for route in ROUTES:
            if route.method != "GET" and route.key not in BYTES_OF_THE_LOG:
                path = route.path.replace("{id}", "77").replace("{name}", "none")
                assert not told_in((await ask(route.method, path, {}))[1]), route
        kept = {key: str(value) for key, value in lab.controllers[1].committed.configs[BROKER, "11"].items()}
        assert kept == SETTINGS, "brokers get what was set"


@pytest.mark.slow
async def test_no_read_tells_a_value_that_kafka_would_not_show(tmp_path: Path) -> None:
    async with asked_of_a_controller(tmp_path) as (lab, ask, client):
        await written(ask)
        end = str(lab.controllers[1].committed.end_offset)
        asked, told, shown = set(), set(), set()
        for route in ROUTES:
            if route.method != "GET" or route.path == "/v1/events":
                continue
            for query in READS.get(route.path, ("",)):
                path = f"{route.path.partition('/{')[0]}{query.replace('END', end)}"
                status, answer = await ask("GET", path)
                assert status in (200, 404, 503), (path, answer)
                asked.add(route.key)
                told |= {route.key} if told_in(answer) else set()
                shown |= {route.key} if KNOWN.encode() in answer else set()
        for path in STREAMS:
            heard = await streamed(client, path, int(end))
            asked.add(("GET", path.partition("?")[0]))
            told |= {("GET", path)} if told_in(heard) else set()
        assert told <= {*BYTES_OF_THE_LOG}, told
        assert ("GET", "/v1/log") in told, "the canaries are there to be found"
        assert shown >= {("GET", f"/v1/{each}") for each in ("configs", "log/lines", "state", "diff")}
        assert {route.key for route in ROUTES if route.method == "GET"} == asked


async def streamed(client: TestClient[Any, Any], path: str, end: int) -> bytes:
    """Return what a stream of events says up to an offset."""
    heard = b""
    async with client.get(path, headers={"Accept": "text/event-stream"}) as answer, asyncio.timeout(30):
        while all(int(each) < end for each in re.findall(rb"id: (\d+)", heard)):
            heard += await answer.content.readany()
    return heard
