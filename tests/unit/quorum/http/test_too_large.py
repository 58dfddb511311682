"""Edge: what exceeds a batch, or the items of a request, is refused before anything is written, at each door by name."""

from pathlib import Path
from typing import Any

from tests.unit.quorum.http.test_administration import over_http

VALUE = "v" * 30_000
SETTINGS = {f"k{number}": VALUE for number in range(12)}
RESOURCES: tuple[dict[str, Any], ...] = ({"broker": 11}, {"broker": 12}, {"cluster": True})
KEPT = {"min.insync.replicas": "1"}
"""A cluster with eligible leader replicas keeps it."""
LARGE = "36 records of 1081"
"""Bytes, of which a batch holds 1048576."""


def topic(partitions: int, name: str) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 1}


def many(items: str, item: dict[str, Any], count: int = 1_001, **more: Any) -> dict[str, Any]:
    return {items: [item] * count, **more}


ONE = "/v1/topics"
REFUSED: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("POST", ONE, topic(10_001, "c"), "10001 partitions in one request; at most 10000"),
    (
        "POST",
        ONE,
        {"name": "c", "assignment": [[11]] * 10_001},
        "10001 partitions in one request; at most 10000",
    ),
    ("POST", ONE, topic(10_000, "c"), "10001 records in one request; at most 10000"),
    (
        "POST",
        ONE,
        {"topics": [topic(6_000, "c"), topic(6_000, "d")]},
        "12000 partitions in one request; at most 10000",
    ),
    (
        "POST",
        "/v1/topics/partitions",
        {"topics": [{"name": name, "partitions": 11_000} for name in ("a", "b")]},
        "11000 new partitions in one request; at most 10000",
    ),
    (
        "POST",
        "/v1/topics/delete",
        {"topics": [{"name": "a"}, {"name": "b"}]},
        "11000 partitions; at most 10000 can be deleted at once",
    ),
    (
        "PATCH",
        "/v1/configs",
        {"resources": [{"broker": n, "set": {f"k{k}": "" for k in range(1_000)}} for n in range(11)]},
        "11000 settings in one request; at most 10000",
    ),
    ("PATCH", "/v1/configs", {"resources": [{**one, "set": SETTINGS} for one in RESOURCES]}, LARGE),
    (
        "PUT",
        "/v1/configs",
        {
            "resources": [
                {**one, "configs": SETTINGS | (KEPT if "cluster" in one else {})} for one in RESOURCES
            ]
        },
        LARGE.replace("36", "37"),
    ),
)
TOO_MANY: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("POST", "/v1/topics", many("topics", topic(1, "c")), "topics"),
    ("POST", "/v1/topics/delete", many("topics", {"name": "a"}), "topics"),
    ("POST", "/v1/topics/undelete", many("topics", {"name": "a"}), "topics"),
    ("POST", "/v1/topics/partitions", many("topics", {"name": "a", "partitions": 2}), "topics"),
    ("PATCH", "/v1/configs", many("resources", {"topic": "a"}), "resources"),
    ("PUT", "/v1/configs", many("resources", {"topic": "a", "configs": {}}), "resources"),
    (
        "POST",
        "/v1/partitions/elect",
        many("partitions", {"topic": "a", "partition": 0}, election="preferred"),
        "partitions",
    ),
    (
        "POST",
        "/v1/partitions/reassign",
        many("partitions", {"topic": "a", "partition": 0, "replicas": None}),
        "partitions",
    ),
    ("POST", "/v1/batch", many("commands", {"operation": "DeleteTopics", "body": {"name": "a"}}), "commands"),
)


async def test_each_door_names_what_was_asked_for_and_what_fits(tmp_path: Path) -> None:
    """C16: refused before anything is appended, with the count and the bound."""
    async with over_http(tmp_path) as (controller, ask):
        for name in ("a", "b"):
            assert (await ask("POST", ONE, topic(5_500, name)))[0] == 201
        at = controller.committed.end_offset
        for method, path, body, says in REFUSED:
            status, told = await ask(method, path, body)
            assert (status, told["error"]) == (422, "POLICY_VIOLATION"), (method, path)
            assert says in told["message"], told["message"]
            assert "at most" in told["message"]
        for method, path, body, items in TOO_MANY:
            status, told = await ask(method, path, body)
            assert (status, told["error"]) == (400, "INVALID_REQUEST"), (method, path)
            assert told["message"].endswith(f".{items}: expected array of length <= 1000, got one of 1001")
        assert controller.committed.end_offset == at
