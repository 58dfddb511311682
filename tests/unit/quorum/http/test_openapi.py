"""Edge: /openapi.json: every route of the table is in it, and what a controller is asked and answers is as it says."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from quorum.http.app import ROUTES
from quorum.http.description import TOLD, described
from tests.support.json_schema import faults
from tests.support.wire import registration
from tests.unit.quorum.http.test_administration import Ask, over_http, registered

NOT_ASKED = {
    ("POST", "/v1/quorum/voters"),
    ("DELETE", "/v1/quorum/voters/{id}"),
    ("GET", "/v1/events"),
    ("GET", "/v1/log"),
    ("GET", "/v1/log/lines"),
    ("GET", "/metrics"),
    ("GET", "/v1/metadata/snapshots/{id}"),
    ("POST", "/v1/metadata/fetch"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
    ("GET", "/console/{name}"),
    ("POST", "/v1/session"),
    ("DELETE", "/v1/session"),
    ("GET", "/v1/log/lines"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/tokens/renew"),
    ("POST", "/v1/tokens/expire"),
}
"""Routes whose answers are no JSON, or need a token or other voters; of delegation tokens: test_tokens.py."""
T = {"topic": "t", "partition": 0}


def schema_of(key: tuple[str, str], status: int) -> Any:
    operation = described()["paths"][key[1]][key[0].lower()]
    response = operation["responses"].get(str(status) if status < 300 else "default")
    if response is None:  # 200 of what is only validated, or of many
        response = next(iter(operation["responses"].values()))
    return next(iter(response["content"].values()))["schema"]


def test_every_route_is_described_with_its_parameters() -> None:
    paths = described()["paths"]
    assert {(method.upper(), path) for path, of in paths.items() for method in of} == {
        route.key for route in ROUTES
    }
    for route in ROUTES:
        told = paths[route.path][route.method.lower()]["parameters"]
        assert {one["name"] for one in told if one["in"] == "query"} == set(route.parameters or ())
        assert all(f"{{{one['name']}}}" in route.path for one in told if one["in"] == "path")


def test_what_is_told_of_routes_is_told_of_routes_that_are() -> None:
    assert set(TOLD) <= {route.key for route in ROUTES}


def test_every_reference_leads_to_a_schema() -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rpartition("/")[2] in described()["components"]["schemas"]
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(described())


@pytest.mark.slow
def test_a_controller_starts_without_it() -> None:
    script = "import sys, quorum.http.app; assert 'quorum.http.description' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def route_of(method: str, path: str) -> tuple[str, str]:
    bare = path.partition("?")[0]
    exact = [route.key for route in ROUTES if route.key == (method, bare)]
    parent = bare.rpartition("/")[0]
    like = [route.key for route in ROUTES if route.method == method and route.path.startswith(f"{parent}/{{")]
    return (exact or like)[0]


def checking(ask: Ask, seen: set[tuple[str, str]]) -> Callable[..., Any]:
    """Return what asks, and compares the body and the answer with the description."""

    async def asked(
        method: str, path: str, body: Any = None, *, status: int = 200, packed: bool = False
    ) -> Any:
        key = route_of(method, path)
        got, answer = await ask(method, path, body, packed=packed)
        assert got == status, answer
        assert list(faults(answer, schema_of(key, got), described())) == [], (key, answer)
        if body is not None:
            content = described()["paths"][key[1]][method.lower()]["requestBody"]["content"]
            plain = next(iter(content.values()))["schema"]
            sent = msgpack.unpackb(msgpack.packb(body))
            assert (list(faults(sent, plain, described())) == []) or status == 400, (key, body)
        if status < 300:
            seen.add(key)
        return answer

    return asked


async def tour(asked: Callable[..., Any]) -> None:
    """Ask every route that answers JSON, and some of them what they refuse."""
    await asked("POST", "/v1/topics", {"name": "t", "assignment": [[11], [12]]}, status=201)
    many = [{"name": "u", "assignment": [[11, 12]]}, {"name": "t"}]
    await asked("POST", "/v1/topics", {"topics": many})
    await asked("POST", "/v1/topics", {"name": "v", "assignment": [[11]], "validate_only": True})
    await asked("POST", "/v1/topics", {"name": "v", "no_such_field": 1}, status=400)
    await asked("POST", "/v1/topics/partitions", {"topics": [{"name": "u", "partitions": 2}]})
    await asked("POST", "/v1/partitions/elect", {"election": "preferred", "partitions": [T]})
    await asked(
        "POST", "/v1/partitions/reassign?validate_only=true", {"partitions": [{**T, "replicas": [12]}]}
    )
    await asked("POST", "/v1/partitions/reassign", {"partitions": [{**T, "replicas": [12]}]})
    for path in ("topics", "topics/t", "partitions", "partitions/reassignments", "partitions/imbalance"):
        await asked("GET", f"/v1/{path}")
    await asked("GET", "/v1/topics/no-such-topic", status=404)
    epoch = (await asked("GET", "/v1/brokers/11"))["broker_epoch"]
    await asked("GET", "/v1/brokers")
    await asked("PATCH", "/v1/configs", {"topic": "t", "set": {"retention.ms": "1"}})
    await asked("PATCH", "/v1/configs", {"resources": [{"topic": "t", "set": {"retention.ms": "2"}}]})
    await asked("PUT", "/v1/configs", {"resources": [{"topic": "t", "configs": {}}]})
    acl = {"resource_type": "TOPIC", "resource_name": "t", "principal": "User:a", "operation": "READ"}
    await asked("POST", "/v1/acls", {"acls": [acl, acl | {"resource_name": ""}]})
    await asked("GET", "/v1/acls?principal=User:a")
    await asked("GET", "/v1/acls/explain?principal=User:a&operation=READ&resource=topic:t")
    await asked("POST", "/v1/acls/delete", {"filters": [{"host": "h"}, {"resource_name": "t"}]})
    await asked("POST", "/v1/acls", {"acls": [acl]})
    quotas = [{"user": None, "client_id": "a", "set": {"request_percentage": 2}}]
    await asked("PATCH", "/v1/quotas", {"entries": quotas})
    who = {"user": "ann", "mechanism": "SCRAM-SHA-256"}
    what = {"iterations": 4096, "salt": "c2FsdA==", "salted_password": "cGFzc3dvcmQ="}
    await asked("PATCH", "/v1/users", {"upsertions": [who | what]})
    await asked("GET", "/v1/configs?topic=t")
    await asked("GET", "/v1/configs?topic=t&effective=1")
    for path in (
        "topics?limit=9",
        "overview",
        "past?at=0&to=0",
        "past?at=0",
        "whatif?lose=11",
        "session",
        "principals",
    ):
        await asked("GET", f"/v1/{path}")
    for path in (
        "features",
        "quotas",
        "users",
        "tokens",
        "quorum",
        "quorum/settings",
        "controllers",
        "snapshots",
        "state",
    ):
        await asked("GET", f"/v1/{path}")
    await asked("GET", "/v1/features/preview?feature=metadata.version&level=14")
    commands = [{"operation": "DeleteTopics", "body": {"name": "u"}}]
    await asked("POST", "/v1/batch", {"commands": commands})
    await asked("GET", "/v1/topics?deleted=true")
    await asked("POST", "/v1/topics/undelete", {"topics": [{"name": "u"}]})
    await asked("POST", "/v1/topics/delete", {"topics": [{"name": "u"}, {"name": "no-such-topic"}]})
    await asked("DELETE", "/v1/topics/t")
    block = {"broker_id": 11, "broker_epoch": epoch}
    await asked("POST", "/v1/producer-ids", block, packed=True)
    for report in ("alter", "directories"):
        items: dict[str, list[Any]] = {"partitions" if report == "alter" else "replicas": []}
        await asked("POST", f"/v1/partitions/{report}", block | items, packed=True)
    for number in (1, 2, 3):
        await asked("POST", "/v1/controllers/register", registered(number), packed=True)
    await asked("GET", "/v1/controllers")
    await asked("POST", "/v1/controllers/register", registered(1) | {"controller_id": 9}, packed=True)
    await asked("DELETE", "/v1/controllers/9")
    await asked("POST", "/v1/brokers/register", registration("A" * 22, 13), packed=True)
    level = {"feature": "group.version", "level": 0, "upgrade_type": "safe_downgrade"}
    await asked("POST", "/v1/features", {"updates": [level]})
    await asked("POST", "/v1/snapshots", status=201)
    await asked("GET", "/v1/snapshots")
    await asked("POST", "/v1/quorum/transfer", {"to": 1})
    await asked("DELETE", "/v1/brokers/12")
    await asked("DELETE", "/v1/brokers/12", status=404)
    await asked("GET", "/healthz")
    await asked("GET", "/readyz")


async def test_what_is_asked_and_answered_is_as_described(tmp_path: Path) -> None:
    """Goal: the description is true. Method: every route with a JSON answer, whose fields must all be described."""
    async with over_http(tmp_path, undelete_window_ms=60_000) as (_controller, ask):
        seen: set[tuple[str, str]] = set()
        await tour(checking(ask, seen))
        assert {route.key for route in ROUTES} & set(TOLD) - seen == NOT_ASKED
        status, told = await ask("GET", "/openapi.json")
        assert (status, told) == (200, json.loads(json.dumps(described())))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"broker_id": 11}, "offsets is missing"),
        ({"broker_id": "11", "offsets": {"base": 1, "end": 1}}, "is no integer"),
        ({"broker_id": 11, "offsets": {"base": 1, "end": 1}, "more": 1}, "more is not described"),
    ],
)
def test_an_answer_that_is_not_as_described_is_found(value: Any, what: str) -> None:
    schema = schema_of(("DELETE", "/v1/brokers/{id}"), 200)
    assert any(what in fault for fault in faults(value, schema, described()))
