"""Edge: the query of every route of a controller: what the table of routes does not have is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import InvalidRequest
from metadata_log.node.clock import unix_ms
from metadata_log.node.http.routes import check_query
from metadata_log.node.http.state_answer import HEAD
from quorum.http.app import RULES
from tests.support.desk import at_desk
from tests.support.lab import online
from tests.support.queries import VALUES, path_of, refused_queries

TOPIC = {"name": "keep", "partitions": 1, "replication_factor": 1}


@pytest.mark.slow
async def test_each_route_refuses_unknown_doubled_and_malformed_parameters_by_name(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        before = desk.controller.tip.end_offset
        asked = 0
        for (method, pattern), query, name in refused_queries(RULES):
            body: Any = None if method == "GET" else {}
            status, answer = await ask(method, f"{path_of(pattern)}?{query}", body)
            assert (status, answer["error"], answer["code"]) == (400, "INVALID_REQUEST", 42), (pattern, query)
            assert name in answer["message"], (pattern, query, answer)
            asked += 1
        assert asked > 500
        assert desk.controller.tip.end_offset == before


async def test_what_the_table_has_is_taken_and_what_probes_append_is_ignored(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (_desk, ask):
        for (method, pattern), route in RULES.items():
            if method != "GET" or pattern in ("/metrics", "/v1/log", "/v1/log/lines", "/v1/events"):
                continue
            if route.parameters is None:
                assert (await ask(method, f"{pattern}?cb=1&cb=2&validate_only"))[0] in (200, 503)
                continue
            for name, parameter in route.parameters.items():
                value = next(value for value in VALUES if parameter.takes(value))
                _, answer = await ask(method, f"{path_of(pattern)}?{name}={value}")
                assert "query parameter" not in answer.get("message", ""), (pattern, name, answer)


async def test_a_trial_of_each_deletion_writes_nothing_and_says_what_the_deletion_would(
    tmp_path: Path,
) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        await online(desk.lab, desk.controller, 11)
        _, made = await ask("POST", "/v1/topics", TOPIC)
        before = desk.controller.tip.end_offset
        tried: dict[str, Any] = {}
        for path in ("/v1/topics/keep", "/v1/brokers/11"):
            status, tried[path] = await ask("DELETE", f"{path}?validate_only=true")
            assert status == 200
            assert tried[path].pop("offsets") == {"base": before, "end": before}
            assert tried[path].pop("foreseen")["count"] > 0
            status, answer = await ask("DELETE", path, {"validate_only": True})
            assert (status, answer["error"]) == (400, "INVALID_REQUEST")
            assert "takes no body" in answer["message"]
        assert tried["/v1/topics/keep"] == {"name": "keep", "topic_id": made["topic_id"]}
        for path in ("/v1/topics/none", "/v1/brokers/12", "/v1/controllers/9"):
            trial, real = [await ask("DELETE", f"{path}{query}") for query in ("?validate_only=true", "")]
            assert trial == real
            assert trial[0] == 404
        assert (await ask("POST", "/v1/snapshots", {"validate_only": True}))[0] == 400
        assert desk.controller.tip.end_offset == before
        for path in ("/v1/topics/keep", "/v1/brokers/11"):
            status, done = await ask("DELETE", f"{path}?validate_only=false", {})
            assert done.pop("offsets")["end"] > before
            assert (status, done) == (200, tried[path])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"topics": [{"name": "t"}], "validate_only": True}, "/v1/topics/delete"),
        ({"topics": [{"name": "t"}], "validate_only": True}, "/v1/topics/undelete"),
        (
            {
                "election": "preferred",
                "partitions": [{"topic": "t", "partition": 0}],
                "validate_only": True,
            },
            "/v1/partitions/elect",
        ),
        ({"partitions": [], "validate_only": True}, "/v1/partitions/reassign"),
        ({"commands": [], "validate_only": True}, "/v1/batch"),
        ({"to": None, "validate_only": True}, "/v1/quorum/transfer"),
    ],
)
async def test_a_write_without_trials_refuses_validate_only_by_name(
    tmp_path: Path, body: dict[str, Any], path: str
) -> None:
    async with at_desk(tmp_path) as (_desk, ask):
        status, answer = await ask("POST", path, body)
        assert (status, answer["error"]) == (400, "INVALID_REQUEST")
        assert (
            "validate_only" in answer["message"]
            or "at least" in answer["message"]
            or ">= 1" in answer["message"]
        )


async def test_a_time_that_has_not_come_is_refused_like_an_offset_beyond_the_end(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (_desk, ask):
        now_ms = unix_ms()
        for where in ("state?at", "log?from", "log?until"):
            for moment in (f"t{now_ms + 3_600_000}", str(10**6)):
                status, answer = await ask("GET", f"/v1/{where}={moment}")
                assert (status, answer["error"]) == (409, "OFFSET_IN_FUTURE"), (where, moment)
                assert moment[1:] not in answer["message"] or moment == str(10**6), "a time in words"
        status, _ = await ask("GET", f"/v1/state?at=t{now_ms + 1_000}")
        assert status == 200, "a client whose clock is ahead"


@pytest.mark.parametrize("at", ["", "&at=0"], ids=["now", "then"])
async def test_a_state_is_told_in_part(tmp_path: Path, at: str) -> None:
    """Goal: settings are read without a million partitions."""
    async with at_desk(tmp_path) as (_desk, ask):
        _, whole = await ask("GET", f"/v1/state?consistency=stale{at}")
        status, part = await ask("GET", f"/v1/state?only=topics,configs{at}")
        assert status == 200
        assert part == {name: whole[name] for name in (*HEAD, "topics", "configs")}
        status, refusal = await ask("GET", f"/v1/state?only=topics,settings{at}")
        assert (status, refusal["error"]) == (400, "INVALID_REQUEST")
        assert "only=settings: a state has no such part; it has " in refusal["message"]
        assert "configs" in refusal["message"]
        _, refusal = await ask("GET", f"/v1/state?only={'x' * 5_000}{at}")
        assert len(refusal["message"]) < 1_000


def test_a_long_value_is_not_repeated_whole() -> None:
    key = ("GET", "/v1/partitions")
    with pytest.raises(InvalidRequest) as refused:
        check_query(key, RULES[key], [("after", "x" * 5_000)])
    assert len(refused.value.message) < 300
