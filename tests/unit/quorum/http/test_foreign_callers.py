"""Edge: what a web page of somebody else can send to a controller changes nothing, on any route."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from quorum.http.app import ROUTES
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab

JSON = {"Content-Type": "application/json"}
FOREIGN: dict[str, tuple[dict[str, str], int]] = {
    "text/plain": ({"Content-Type": "text/plain"}, 415),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "no type": ({"Content-Type": "application/octet-stream"}, 415),  # what aiohttp takes a missing one for
    "a foreign origin": ({**JSON, "Origin": "http://page.example"}, 403),
    "no origin's page": ({**JSON, "Origin": "null"}, 403),
    "another port": ({**JSON, "Origin": "http://127.0.0.1:1"}, 403),
    "a foreign host": ({**JSON, "Host": "rebound.example"}, 403),
}
CHANGING = [route.key for route in ROUTES if route.method != "GET"]
BODIES = {
    "/v1/topics": b'{"name": "t", "assignment": [[1]]}',
    "/v1/quorum/transfer": b'{"to": 2}',
}


@pytest.mark.parametrize("way", FOREIGN)
async def test_no_changing_route_takes_what_a_foreign_page_can_send(tmp_path: Path, way: str) -> None:
    headers, wanted = FOREIGN[way]
    lab = Lab()
    controller = lab.lead(1)
    desk = Desk(lab, tmp_path)
    lab.quorum.commit()
    before = controller.committed.end_offset
    snapshots = desk.store.ids()
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:
        assert len(CHANGING) >= 19
        for method, path in CHANGING:
            body = BODIES.get(path, b"{}")
            async with client.request(
                method, path.replace("{id}", "1").replace("{name}", "t"), data=body, headers=headers
            ) as answer:
                refusal: dict[str, Any] = await answer.json()
                assert (answer.status, refusal["error"]) == (wanted, "INVALID_REQUEST"), (method, path)
        if wanted == 403:
            async with client.get("/v1/state", headers=headers) as answer:
                assert answer.status == 403
    await asyncio.sleep(0)
    lab.quorum.commit()
    assert controller.is_active
    assert (controller.committed.end_offset, desk.store.ids()) == (before, snapshots)
