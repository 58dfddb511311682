"""Edge: what Kafka's request layer refuses before its controller decides, over HTTP: docs/kafka-checks.md, as a table."""

from pathlib import Path
from typing import Any

import pytest

from quorum.decide.configs import (
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    LegacyAlterConfigs,
    ResourceChange,
)
from quorum.whatif.cluster import Cluster, Options
from tests.support.desk import at_desk
from tests.support.lab import online

NEW = {"partitions": 1, "replication_factor": 1}
ZERO = "A" * 22
UNKNOWN = "AAAAAAAAQACAAAAAAAAAZQ"
METADATA = "__cluster_metadata"
ERRORS = list[str | None]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "errors"),
    [
        # names of internal topics
        ("POST", "/v1/topics", {"name": METADATA, **NEW}, 400, "INVALID_REQUEST"),
        ("POST", "/v1/topics", {"name": METADATA, **NEW, "validate_only": True}, 400, "INVALID_REQUEST"),
        ("POST", "/v1/topics", {"name": METADATA, "partitions": 0}, 400, "INVALID_REQUEST"),
        (
            "POST",
            "/v1/topics",
            {"topics": [{"name": METADATA, **NEW}, {"name": "b", **NEW}]},
            200,
            ["INVALID_REQUEST", None],
        ),
        ("POST", "/v1/topics", {"topics": [{"name": METADATA, **NEW}] * 2}, 200, ["INVALID_REQUEST"]),
        (
            "POST",
            "/v1/topics",
            {
                "topics": [{"name": METADATA, **NEW, "partitions": 10_000}, {"name": "b", **NEW}],
                "validate_only": True,
            },
            200,
            ["INVALID_REQUEST", None],
        ),
        ("POST", "/v1/topics", {"name": "__consumer_offsets", **NEW}, 201, None),
        ("POST", "/v1/topics", {"name": "__transaction_state", **NEW}, 201, None),
        # doubled items
        (
            "POST",
            "/v1/topics",
            {"topics": [{"name": "b", **NEW}, {"name": "b", **NEW}, {"name": "c", **NEW}]},
            200,
            ["INVALID_REQUEST", None],
        ),
        (
            "POST",
            "/v1/topics/partitions",
            {"topics": [{"name": "t", "partitions": 3}] * 2},
            200,
            ["INVALID_REQUEST"],
        ),
        ("POST", "/v1/topics/delete", {"topics": [{"name": "t"}, {"name": "t"}]}, 200, ["INVALID_REQUEST"]),
        (
            "POST",
            "/v1/topics/delete",
            {"topics": [{"topic_id": "T"}, {"topic_id": "T"}]},
            200,
            ["INVALID_REQUEST"],
        ),
        (
            "POST",
            "/v1/topics/delete",
            {"topics": [{"name": "t"}, {"topic_id": "T"}]},
            200,
            ["INVALID_REQUEST", "INVALID_REQUEST"],
        ),
        (
            "POST",
            "/v1/topics/delete",
            {"topics": [{"topic_id": "T"}, {"name": "t"}]},
            200,
            ["INVALID_REQUEST", "INVALID_REQUEST"],
        ),
        (
            "POST",
            "/v1/topics/delete",
            {"topics": [{"topic_id": "T"}, {"topic_id": "T"}, {"name": "t"}]},
            200,
            ["INVALID_REQUEST", "INVALID_REQUEST"],
        ),
        # A name given twice names nothing: the id counts.
        (
            "POST",
            "/v1/topics/delete",
            {"topics": [{"name": "t"}, {"name": "t"}, {"topic_id": "T"}]},
            200,
            ["INVALID_REQUEST", None],
        ),
        (
            "PATCH",
            "/v1/configs",
            {"resources": [{"topic": "t", "set": {"retention.ms": "1"}}] * 2},
            200,
            ["INVALID_REQUEST"],
        ),
        (
            "PUT",
            "/v1/configs",
            {"resources": [{"topic": "t", "configs": {"retention.ms": "1"}}] * 2},
            200,
            ["INVALID_REQUEST"],
        ),
        (
            "PATCH",
            "/v1/configs",
            {"topic": "t", "set": {"retention.ms": "1"}, "unset": ["retention.ms"]},
            400,
            "INVALID_REQUEST",
        ),
        (
            "POST",
            "/v1/features",
            {
                "updates": [
                    {"feature": "eligible.leader.replicas.version", "level": level} for level in (0, 1)
                ]
            },
            400,
            "INVALID_REQUEST",
        ),
        # empty items, null and the conventions for "none"
        ("POST", "/v1/topics/delete", {"topics": [{"topic_id": ZERO}]}, 200, ["INVALID_REQUEST"]),
        ("POST", "/v1/topics/delete", {"topics": [{"topic_id": UNKNOWN}]}, 200, ["UNKNOWN_TOPIC_ID"]),
        ("POST", "/v1/topics/delete", {"topics": [{"name": ""}]}, 200, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        ("POST", "/v1/topics/delete", {"topics": [{}]}, 400, "INVALID_REQUEST"),
        ("POST", "/v1/topics/delete", {"topics": [{"name": "t", "topic_id": "T"}]}, 400, "INVALID_REQUEST"),
        ("PATCH", "/v1/configs", {"topic": "t", "set": {"retention.ms": None}}, 400, "INVALID_REQUEST"),
        (
            "PUT",
            "/v1/configs",
            {"resources": [{"topic": "t", "configs": {"a": None}}]},
            400,
            "INVALID_REQUEST",
        ),
        (
            "PUT",
            "/v1/configs",
            {"resources": [{"topic": "t", "configs": {"": "1"}}]},
            200,
            ["INVALID_REQUEST"],
        ),
        ("PATCH", "/v1/configs", {"topic": "", "set": {"retention.ms": "1"}}, 400, "INVALID_REQUEST"),
        # names of resources
        ("GET", "/v1/configs?topic=a+b", None, 400, "INVALID_TOPIC_EXCEPTION"),
        ("GET", f"/v1/configs?topic={'x' * 250}&effective=1", None, 400, "INVALID_TOPIC_EXCEPTION"),
        ("GET", "/v1/configs?topic=none", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
async def test_what_kafkas_request_layer_refuses_is_refused_here(
    tmp_path: Path, method: str, path: str, body: Any, status: int, errors: str | ERRORS | None
) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        await online(desk.lab, desk.controller, 11)
        _, made = await ask("POST", "/v1/topics", {"name": "t", **NEW})
        before = desk.controller.tip.end_offset
        asked = _with_id(body, made["topic_id"])
        found, answer = await ask(method, path, asked)
        assert found == status, answer
        if isinstance(errors, list):
            (results,) = (rows for name, rows in answer.items() if name in ("topics", "resources"))
            assert [one["error"] for one in results] == errors
        else:
            assert answer.get("error") == errors
        if isinstance(errors, str) or (errors is not None and None not in errors):
            assert desk.controller.tip.end_offset == before


@pytest.mark.parametrize(
    ("changes", "is_legacy"),
    [
        ([("retention.ms", ConfigOperation.SET, "1"), ("retention.ms", ConfigOperation.SET, "2")], False),
        ([("retention.ms", ConfigOperation.SET, "1"), ("retention.ms", ConfigOperation.DELETE, None)], False),
        ([("retention.ms", ConfigOperation.SET, None)], False),
        ([("cleanup.policy", ConfigOperation.APPEND, None)], False),
        ([("cleanup.policy", ConfigOperation.SUBTRACT, None)], False),
        ([("", ConfigOperation.SET, "1")], False),
        ([("retention.ms", ConfigOperation.SET, "1"), ("retention.ms", ConfigOperation.SET, "2")], True),
        ([("retention.ms", ConfigOperation.SET, None)], True),
        ([("", ConfigOperation.SET, "1")], True),
    ],
)
@pytest.mark.parametrize("resource", [(2, "t"), (4, "")])
def test_settings_that_bytes_can_say_and_json_cannot(
    changes: list[tuple[str, ConfigOperation, str | None]], is_legacy: bool, resource: tuple[int, str]
) -> None:
    """Doubled names and nulls, as a command of another protocol may have them: a client's is refused."""
    asked = (ResourceChange(*resource, tuple(ConfigChange(*each) for each in changes)),)
    command: IncrementalAlterConfigs | LegacyAlterConfigs = (
        LegacyAlterConfigs(resources=asked, validate_only=False)
        if is_legacy
        else IncrementalAlterConfigs(resources=asked, validate_only=False)
    )
    outcome: Any = Cluster(Options(), checks_as_brokers=True).decide(command).outcome
    assert [one.error for one in outcome.results] == ["INVALID_REQUEST"]


def _with_id(body: Any, topic_id: str) -> Any:
    if isinstance(body, list):
        return [_with_id(one, topic_id) for one in body]
    if isinstance(body, dict):
        return {
            key: topic_id if (key, value) == ("topic_id", "T") else _with_id(value, topic_id)
            for key, value in body.items()
        }
    return body
