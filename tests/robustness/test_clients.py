"""What a client records of the answers of a scripted controller."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from tests.robustness import clients
from tests.robustness.clients import EXISTS, NO_BROKER, UNKNOWN, Client, Load, new_session
from tests.robustness.history import Operation

Answer = tuple[int, dict[str, Any]] | None
"""Status and body; None: the connection ends without one."""

CREATED: Answer = (201, {"name": "t1", "topic_id": "id-1", "configs": {"flush.messages": "1000000000"}})
FOUND: Answer = (200, {"name": "t1", "topic_id": "id-2", "configs": {"flush.messages": "77"}})
DELETED: Answer = (200, {"name": "t1", "topic_id": "id-1"})
DELETED_ANOTHER: Answer = (200, {"name": "t1", "topic_id": "id-3"})
NOT_NOW: Answer = (503, {"error": "NOT_CONTROLLER"})
TIMED_OUT: Answer = (504, {"error": "REQUEST_TIMED_OUT"})
IS_THERE: Answer = (409, {"error": EXISTS})
IS_NOT_THERE: Answer = (404, {"error": UNKNOWN})
NO_BROKER_IS_UP: Answer = (400, {"error": NO_BROKER})

Told = tuple[str, str | None, str | None, bool | None, str | None]
"""Of an operation: op, expected, value, ok, result."""


async def history_of(
    script: list[Answer], deeds: str
) -> tuple[list[Operation], list[tuple[str, str | None]]]:
    """Let one client (c)reate, (d)elete and (r)ead a topic; return its history, and each request's method and id."""
    asked = []
    answers = iter(script)

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, request.headers.get("X-Request-Id")))
        given = next(answers)
        if given is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return web.json_response(given[1], status=given[0])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        load = Load({1: f"http://127.0.0.1:{runner.addresses[0][1]}"}, random.Random(1), lambda: False)
        async with new_session() as session:
            client = Client(load, 1, session, random.Random(1))
            do: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
                "c": client.create,
                "d": client.delete,
                "r": client.read_topic,
            }
            for deed in deeds:
                await do[deed]("t1")
    finally:
        await runner.cleanup()
    return load.finish(), asked


VALUE = "1000000000"


@pytest.mark.parametrize(
    ("script", "deeds", "told"),
    [
        pytest.param([CREATED], "c", [("cas", None, VALUE, True, None)], id="created"),
        pytest.param([IS_THERE], "c", [("cas", None, VALUE, False, None)], id="refused"),
        pytest.param([NOT_NOW, IS_THERE], "c", [("cas", None, VALUE, False, None)], id="refused-elsewhere"),
        pytest.param([None, CREATED], "c", [("cas", None, VALUE, True, None)], id="created-in-two-attempts"),
        pytest.param(
            [None, IS_THERE], "c", [("cas", None, VALUE, None, None)], id="refused-but-an-attempt-may-come"
        ),
        pytest.param(
            [TIMED_OUT, IS_THERE], "c", [("cas", None, VALUE, None, None)], id="refused-after-a-timeout"
        ),
        pytest.param([NO_BROKER_IS_UP], "c", [], id="not-asked-whether-it-is-there"),
        pytest.param(
            [TIMED_OUT, NO_BROKER_IS_UP], "c", [("cas", None, VALUE, None, None)], id="may-yet-be-placed"
        ),
        pytest.param([FOUND], "r", [("read", None, None, True, "77")], id="read"),
        pytest.param([IS_NOT_THERE], "r", [("read", None, None, True, None)], id="read-nothing"),
        pytest.param([], "d", [], id="nobody-saw-what-to-delete"),
        pytest.param(
            [CREATED, DELETED],
            "cd",
            [("cas", None, VALUE, True, None), ("cas", VALUE, None, True, None)],
            id="deleted-what-was-created",
        ),
        pytest.param(
            [CREATED, FOUND, DELETED],
            "crd",
            [
                ("cas", None, VALUE, True, None),
                ("read", None, None, True, "77"),
                ("cas", VALUE, None, True, None),
            ],
            id="deleted-what-its-id-tells-not-what-was-seen-last",
        ),
        pytest.param(
            [FOUND, DELETED, CREATED],
            "rdc",
            [
                ("read", None, None, True, "77"),
                ("cas", VALUE, None, True, None),
                ("cas", None, VALUE, True, None),
            ],
            id="deleted-what-was-told-of-later",
        ),
        pytest.param(
            [FOUND, DELETED_ANOTHER],
            "rd",
            [("read", None, None, True, "77"), ("write", None, None, True, None)],
            id="deleted-what-nobody-was-told-of",
        ),
        pytest.param(
            [FOUND, IS_NOT_THERE],
            "rd",
            [("read", None, None, True, "77"), ("cas", "77", None, False, None)],
            id="nothing-to-delete",
        ),
        pytest.param(
            [FOUND, None, IS_NOT_THERE],
            "rd",
            [("read", None, None, True, "77"), ("write", None, None, None, None)],
            id="nothing-to-delete-but-an-attempt-may-come",
        ),
    ],
)
def test_what_is_written_down(script: list[Answer], deeds: str, told: list[Told]) -> None:
    history, asked = asyncio.run(history_of(script, deeds))
    assert len(asked) == len(script)
    assert [(done.op, done.expected, done.value, done.ok, done.result) for done in history] == told
    assert all((done.returned is None) == (done.ok is None) for done in history)
    writes = [request_id for method, request_id in asked if method != "GET"]
    assert None not in writes
    assert len(set(writes)) == len(deeds.replace("r", "")) - (not script), "one id for all attempts"


def test_an_operation_that_nobody_answers_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "OPERATION_S", 0.2)
    history, _ = asyncio.run(history_of([NOT_NOW] * 100, "c"))
    assert [done.ok for done in history] == [None]
