"""Edge: quotas of clients over HTTP: altered, listed and filtered."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from tests.unit.quorum.http.test_administration import Ask, over_http


async def _made(ask: Ask) -> None:
    entries: list[dict[str, Any]] = [
        {"user": "ann", "set": {"producer_byte_rate": 1024, "request_percentage": 2.5}},
        {"user": "ann", "client_id": None, "set": {"consumer_byte_rate": 7}},
        {"user": None, "set": {"controller_mutation_rate": 1.5}},
        {"ip": "10.0.0.1", "set": {"connection_creation_rate": 3}},
    ]
    status, body = await ask("PATCH", "/v1/quotas", {"entries": entries})
    assert (status, {each["error"] for each in body["entries"]}) == (200, {None})
    assert body["entries"][1]["entity"] == [
        {"entity_type": "client-id", "entity_name": None},
        {"entity_type": "user", "entity_name": "ann"},
    ]
    assert body["offsets"]["end"] - body["offsets"]["base"] == 5


@pytest.mark.parametrize("is_large", [False, True])
async def test_quotas_are_set_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(limits, "LARGE_VIEW_ITEMS", 0)
    async with over_http(tmp_path) as (_, ask):
        await _made(ask)

        async def listed(query: str = "") -> list[dict[str, float]]:
            status, body = await ask("GET", f"/v1/quotas{query}")
            assert status == 200, body
            return [each["quotas"] for each in body["items"]]

        of_ann = {"producer_byte_rate": 1024.0, "request_percentage": 2.5}
        assert len(await listed()) == 4
        assert await listed("?user=ann") == [{"consumer_byte_rate": 7.0}, of_ann]
        assert await listed("?user=ann&strict=true") == [of_ann]
        assert await listed("?defaults=user") == [{"controller_mutation_rate": 1.5}]
        assert await listed("?ip=10.0.0.1&strict=true") == [{"connection_creation_rate": 3.0}]
        assert await listed("?user=bob") == []
        removed = {"user": "ann", "unset": ["producer_byte_rate", "request_percentage"]}
        assert (await ask("PATCH", "/v1/quotas", {"entries": [removed]}))[0] == 200
        assert await listed("?user=ann&strict=true") == []
        status, state = await ask("GET", "/v1/state")
        assert (status, len(state["quotas"])) == (200, 3)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"entries": []},
        {"entries": [{"user": 1}]},
        {"entries": [{"user": "a", "set": {"request_percentage": "1"}}]},
        {"entries": [{"user": "a" * 300, "set": {"request_percentage": 1}}]},
        {"entries": [{"group": "a"}]},
    ],
)
async def test_what_is_no_change_of_quotas_is_refused_whole(tmp_path: Path, body: Any) -> None:
    async with over_http(tmp_path) as (_, ask):
        status, refusal = await ask("PATCH", "/v1/quotas", body)
        assert (status, refusal["error"]) == (400, "INVALID_REQUEST")


async def test_an_entity_is_refused_alone_and_strict_needs_one(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (_, ask):
        entries = [{"set": {"request_percentage": 1}}, {"user": "a", "set": {"request_percentage": 1}}]
        for more, errors in (
            ({"all_or_nothing": True}, ["INVALID_REQUEST", "OPERATION_NOT_ATTEMPTED"]),
            ({"validate_only": True}, ["INVALID_REQUEST", None]),
        ):
            status, body = await ask("PATCH", "/v1/quotas", {"entries": entries, **more})
            assert (status, [each["error"] for each in body["entries"]]) == (200, errors)
            assert body["offsets"]["base"] == body["offsets"]["end"]
        for query in ("strict=true", "defaults=group", "defaults=user&user=a"):
            assert (await ask("GET", f"/v1/quotas?{query}"))[0] == 400
