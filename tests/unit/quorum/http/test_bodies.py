"""Edge: request bodies, over HTTP to an active controller: a value of the wrong shape is refused by name."""

import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.errors import InvalidRequest
from metadata_log.ids import uuid_text
from metadata_log.wire.bodies import check_plain
from quorum.http import bodies
from tests.support.desk import Desk, DoorServer, at_desk
from tests.support.lab import Lab, uuid

TOPIC = {"name": "x", "partitions": 1, "replication_factor": 1}
VOTER = {"id": 4, "directory_id": uuid_text(uuid(504)), "raft": "127.0.0.1:9004"}
SETTING = {"cluster": True}
DIRECTORY = f"directory_id={uuid_text(uuid(502))}"


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "/v1/topics", [], "topic: expected object"),
        ("POST", "/v1/topics", {}, "missing required field name"),
        ("POST", "/v1/topics", TOPIC | {"name": None}, "topic.name"),
        ("POST", "/v1/topics", TOPIC | {"partition": 1}, "unknown field partition"),
        ("POST", "/v1/topics", TOPIC | {"partitions": 2**31}, "topic.partitions"),
        ("POST", "/v1/topics", TOPIC | {"partitions": 1.0}, "topic.partitions"),
        ("POST", "/v1/topics", TOPIC | {"partitions": True}, "topic.partitions"),
        ("POST", "/v1/topics", TOPIC | {"partitions": None}, "topic.partitions"),
        ("POST", "/v1/topics", TOPIC | {"assignment": [[-1]]}, "topic.assignment"),
        ("POST", "/v1/topics", TOPIC | {"assignment": [1]}, "topic.assignment"),
        ("POST", "/v1/topics", TOPIC | {"assignment": [[1] * 1_001]}, "topic.assignment"),
        ("POST", "/v1/topics", TOPIC | {"configs": None}, "topic.configs"),
        ("POST", "/v1/topics", TOPIC | {"configs": {"a": 1}}, "topic.configs"),
        (
            "POST",
            "/v1/topics",
            TOPIC | {"configs": {"ä" * 128: ""}},
            "topic.configs must be text of at most 255",
        ),
        ("POST", "/v1/topics", TOPIC | {"validate_only": 1}, "topic.validate_only"),
        ("POST", "/v1/topics", TOPIC | {"name": "\ud800"}, "not Unicode"),
        ("PATCH", "/v1/configs", {}, "name one of"),
        ("PATCH", "/v1/configs", {"cluster": False}, "name one of"),
        ("PATCH", "/v1/configs", {"cluster": True, "topic": "x"}, "name one of"),
        ("PATCH", "/v1/configs", {"topic": None}, "configs.topic"),
        ("PATCH", "/v1/configs", {"broker": True}, "configs.broker"),
        ("PATCH", "/v1/configs", {"broker": -1}, "configs.broker"),
        ("PATCH", "/v1/configs", SETTING | {"unset": [None]}, "configs.unset"),
        (
            "PATCH",
            "/v1/configs",
            SETTING | {"unset": ["x" * 256]},
            "configs.unset must be text of at most 255",
        ),
        ("PATCH", "/v1/configs", SETTING | {"unset": ["x"] * 1_001}, "configs.unset"),
        (
            "PATCH",
            "/v1/configs",
            SETTING | {"set": {"a": "x" * (limits.CONFIG_VALUE_BYTES_MAX + 1)}},
            f"at most {limits.CONFIG_VALUE_BYTES_MAX} bytes",
        ),
        ("POST", "/v1/quorum/transfer", {}, "missing required field to"),
        ("POST", "/v1/quorum/transfer", {"to": -1}, "transfer.to"),
        ("POST", "/v1/quorum/voters", VOTER | {"id": 2**31}, "voter.id"),
        ("POST", "/v1/quorum/voters", VOTER | {"directory_id": "x"}, "directory_id"),
        ("POST", "/v1/quorum/voters", VOTER | {"replaces": None}, "voter.replaces"),
        ("POST", "/v1/quorum/voters", VOTER | {"raft": "0.0.0.0:1"}, "raft must be"),
        (
            "DELETE",
            f"/v1/quorum/voters/2?{DIRECTORY}&validateonly=true",
            None,
            "unknown query parameter 'validateonly'",
        ),
        (
            "DELETE",
            f"/v1/quorum/voters/2?{DIRECTORY}&validate_only=yes",
            None,
            "validate_only must be one of true, false",
        ),
        ("DELETE", "/v1/quorum/voters/2", None, "directory_id is missing"),
    ],
)
async def test_what_does_not_fit_its_shape_is_refused_and_named(
    tmp_path: Path, method: str, path: str, body: Any, named: str
) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        before = desk.controller.tip.end_offset
        status, answer = await ask(method, path, body)
        assert (status, answer["error"], answer["code"]) == (400, "INVALID_REQUEST", 42)
        assert named in answer["message"]
        assert desk.controller.tip.end_offset == before


async def test_a_write_without_a_body_is_refused_by_its_content_type(tmp_path: Path) -> None:
    """A page may send such a request, too: it is no foreign one, and nothing of it can be read."""
    lab = Lab()
    lab.lead(1)
    desk = Desk(lab, tmp_path)
    async with (
        TestClient[web.Request, web.Application](DoorServer(desk.door)) as client,
        client.post("/v1/topics") as answer,
    ):
        refusal = await answer.json()
        assert (answer.status, refusal["error"]) == (415, "INVALID_REQUEST")
        assert "application/msgpack" in refusal["message"]


@pytest.mark.parametrize("content", ["x" * limits.HTTP_BODY_AT_ONCE_BYTES, "x"])
async def test_a_large_body_does_not_hold_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """Goal: nobody deposes a leader with a body. Method: the thread in which a body is examined."""
    threads: list[threading.Thread] = []

    def noted(value: object) -> None:
        threads.append(threading.current_thread())
        check_plain(value)

    monkeypatch.setattr(bodies, "check_plain", noted)

    async with at_desk(tmp_path) as (_desk, ask):
        status, _ = await ask("PATCH", "/v1/configs", SETTING | {"set": {"a": content}})
        assert status == 200
    is_large = len(content) > 1
    assert [one is threading.main_thread() for one in threads] == [not is_large]


@pytest.mark.parametrize("body", ["\ud800", {"a": ["\udfff"]}, {"\ud800": 1}])
def test_half_of_a_surrogate_pair_is_no_text_wherever_it_stands(body: object) -> None:
    check_plain({"ä": ["\U0001f600"]})
    with pytest.raises(InvalidRequest, match="not Unicode"):
        check_plain(body)
