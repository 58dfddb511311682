"""What a request that meets a bug is told."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from metadata_log.image.metadata_image import EMPTY
from quorum.controller import Counters
from quorum.http_api import HttpApi


def test_an_unforeseen_exception_is_told_in_json_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    controller: Any = SimpleNamespace(committed=EMPTY, leader_hint=None, counters=Counters())
    nobody: Any = None
    api = HttpApi(
        settings=nobody,
        controller=controller,
        fetches=nobody,
        keeper=nobody,
        store=nobody,
        status=nobody,
        on_fault=lambda _fault: pytest.fail("the process goes on"),
    )

    async def fails(_request: web.Request) -> web.StreamResponse:
        raise ZeroDivisionError("a bug")

    request = make_mocked_request("GET", "/v1/topics")
    with caplog.at_level(logging.ERROR):
        response = asyncio.run(api._answer_errors(request, fails))
    assert isinstance(response, web.Response)
    assert response.status == 500
    assert isinstance(response.body, bytes)
    body = json.loads(response.body)
    assert (body["error"], body["family"], body["retryable"]) == (
        "UNKNOWN_SERVER_ERROR",
        "OutcomeUnknown",
        False,
    )
    assert controller.counters.requests_failed == 1
    assert "ZeroDivisionError" in caplog.text
