"""Edge: requests with many items over HTTP: a result for each, repeatable, within bounds."""

import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import uuid_text
from metadata_log.limits import REQUEST_ITEMS_MAX
from metadata_log.records.configs import BROKER, TOPIC
from tests.support.lab import uuid
from tests.unit.quorum.http.test_administration import a_topic, over_http


async def test_topics_are_created_each_with_its_result_and_once(tmp_path: Path) -> None:
    """B53."""
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        body = {
            "topics": [
                {"name": "a", "partitions": 3, "replication_factor": 2, "configs": {"retention.ms": "5"}},
                {"name": "t", "partitions": 1, "replication_factor": 1},
                {"name": "b", "assignment": [[12], [11]]},
                {"name": "c", "partitions": 1, "replication_factor": 9},
            ]
        }
        request_id = uuid_text(uuid(1))
        status, answer = await ask("POST", "/v1/topics", body, request_id=request_id)
        assert status == 200
        a, t, b, c = answer["topics"]
        named = controller.committed.topics.ids
        assert a == {
            "name": "a", "error": None, "message": None, "topic_id": uuid_text(named["a"]),
            "partitions": 3, "replication_factor": 2,
        }  # fmt: skip
        assert (b["error"], b["partitions"], b["replication_factor"]) == (None, 2, 1)
        assert (t["error"], t["topic_id"], t["partitions"]) == ("TOPIC_ALREADY_EXISTS", None, -1)
        assert c["error"] == "INVALID_REPLICATION_FACTOR" and c["message"]
        end = controller.committed.end_offset
        assert (await ask("POST", "/v1/topics", body, request_id=request_id)) == (200, answer)
        assert controller.committed.end_offset == end, "a repetition writes nothing"
        status, _ = await ask("POST", "/v1/topics", {"topics": body["topics"][:2]}, request_id=request_id)
        assert status == 400, "another request under the same id"
        kept = controller.committed.results.get(uuid(1))
        assert kept is not None and len(kept.response) < 450, "what the records say is not kept again"


async def test_all_or_nothing(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        end = controller.committed.end_offset
        new = [{"name": name, "partitions": 1, "replication_factor": 1} for name in ("a", "t")]
        resources = [{"topic": "t", "set": {"retention.ms": "1"}}, {"topic": "no", "set": {}}]
        replaced = [{"topic": "t", "configs": {}}, {"broker": 11, "configs": {"node.id": "3"}}]
        places = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 9}]
        requests: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/v1/topics", {"topics": new}),
            ("POST", "/v1/topics/delete", {"topics": [{"name": "t"}, {"name": "no"}]}),
            (
                "POST",
                "/v1/topics/partitions",
                {"topics": [{"name": n, "partitions": 5} for n in ("t", "no")]},
            ),
            ("PATCH", "/v1/configs", {"resources": resources}),
            ("PUT", "/v1/configs", {"resources": replaced}),
            ("POST", "/v1/partitions/elect", {"election": "unclean", "partitions": places}),
            (
                "POST",
                "/v1/partitions/reassign",
                {"partitions": [{**place, "replicas": [12, 11]} for place in places]},
            ),
        ]
        for method, path, body in requests:
            status, answer = await ask(method, path, body | {"all_or_nothing": True})
            assert status == 200, answer
            (results,) = [value for key, value in answer.items() if key != "offsets"]
            first, second = [one["error"] for one in results]
            wanted = "ELECTION_NOT_NEEDED" if path.endswith("elect") else "OPERATION_NOT_ATTEMPTED"
            assert first == wanted and second not in (None, wanted), path
            assert all(one["message"] for one in results)
            assert controller.committed.end_offset == end


async def test_topics_are_deleted_by_name_or_id(tmp_path: Path) -> None:
    """B56."""
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        await ask("POST", "/v1/topics", {"name": "u", "assignment": [[11]]})
        u = uuid_text(controller.committed.topics.ids["u"])
        nobody = uuid_text(uuid(99))
        body = {"topics": [{"name": "t"}, {"topic_id": u}, {"topic_id": nobody}, {"name": "no"}]}
        status, answer = await ask("POST", "/v1/topics/delete", body, request_id=uuid_text(uuid(2)))
        assert status == 200
        assert [(one["name"], one["error"]) for one in answer["topics"]] == [
            ("t", None),
            ("u", None),
            (None, "UNKNOWN_TOPIC_ID"),
            ("no", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert answer["topics"][1]["topic_id"] == u
        assert not controller.committed.topics.ids
        again = await ask("POST", "/v1/topics/delete", body, request_id=uuid_text(uuid(2)))
        assert again == (200, answer)
        bodies: tuple[Any, ...] = (
            {"topics": []},
            {"topics": [{}]},
            {"topics": [{"name": "t", "topic_id": u}]},
            {"topics": [{"topic_id": "short"}]},
            {"topics": [{"name": "t"}] * (REQUEST_ITEMS_MAX + 1)},
        )
        for bad in bodies:
            assert (await ask("POST", "/v1/topics/delete", bad))[0] == 400


async def test_settings_of_many_resources(tmp_path: Path) -> None:
    """B83."""
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        body = {
            "resources": [
                {"topic": "t", "set": {"retention.ms": "5"}, "append": {"cleanup.policy": "compact"}},
                {"broker": 11, "set": {"num.io.threads": "4"}},
                {"cluster": True, "set": {"min.insync.replicas": "abc"}},
                {"broker": 12, "set": {"num.io.threads": "4"}, "unset": ["num.io.threads"]},
                {"broker": 19, "set": {"num.io.threads": "4"}},
            ]
        }
        status, answer = await ask("PATCH", "/v1/configs", body, request_id=uuid_text(uuid(3)))
        assert status == 200
        rows = [(one["resource_type"], one["resource_name"], one["error"]) for one in answer["resources"]]
        assert rows == [
            ("topic", "t", None),
            ("broker", "11", None),
            ("broker", "", "INVALID_REQUEST"),
            ("broker", "12", "INVALID_REQUEST"),
            ("broker", "19", "BROKER_ID_NOT_REGISTERED"),
        ]
        configs = controller.committed.configs
        assert dict(configs[TOPIC, "t"]) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        assert dict(configs[BROKER, "11"]) == {"num.io.threads": "4"}
        assert (await ask("PATCH", "/v1/configs", body, request_id=uuid_text(uuid(3)))) == (200, answer)
        taken = {"resources": [{"topic": "t", "subtract": {"cleanup.policy": "delete"}}]}
        await ask("PATCH", "/v1/configs", taken)
        assert controller.committed.configs[TOPIC, "t"]["cleanup.policy"] == "compact"
        whole = {"resources": [{"topic": "t", "configs": {"flush.ms": "1"}}], "validate_only": True}
        status, answer = await ask("PUT", "/v1/configs", whole)
        assert (status, answer["resources"][0]["error"]) == (200, None)
        assert len(controller.committed.configs[TOPIC, "t"]) == 2
        await ask("PUT", "/v1/configs", whole | {"validate_only": False})
        assert dict(controller.committed.configs[TOPIC, "t"]) == {"flush.ms": "1"}
        bodies: list[tuple[str, Any]] = [
            ("PATCH", {"resources": []}),
            ("PATCH", {"resources": [{"set": {}}]}),
            ("PATCH", {"resources": [{"topic": "t", "broker": 11}]}),
            ("PATCH", {"resources": [{"topic": "t", "configs": {}}]}),
            ("PUT", {"resources": [{"topic": "t"}]}),
            ("PUT", {"topic": "t", "configs": {}}),
            ("PUT", {"resources": [{"topic": "t", "configs": {"a": 1}}]}),
        ]
        for method, bad in bodies:
            assert (await ask(method, "/v1/configs", bad))[0] == 400, bad


async def test_settings_are_counted_before_they_are_looked_at(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        end = controller.committed.end_offset
        many = {f"k{number}": "" for number in range(1_000)}
        body = {"resources": [{"broker": number, "set": many} for number in range(11)]}
        assert len(json.dumps(body)) < 2 * 1024 * 1024
        status, refused = await ask("PATCH", "/v1/configs", body)
        assert (status, refused["error"]) == (422, "POLICY_VIOLATION")
        assert controller.committed.end_offset == end


async def test_partitions_of_all_new_topics_are_counted_before_any_is_placed(tmp_path: Path) -> None:
    """B53."""
    async with over_http(tmp_path) as (controller, ask):
        end = controller.committed.end_offset
        topics = [{"name": name, "partitions": 6_000, "replication_factor": 1} for name in "ab"]
        status, refused = await ask("POST", "/v1/topics", {"topics": topics})
        assert (status, refused["error"]) == (422, "POLICY_VIOLATION")
        assert controller.committed.end_offset == end
        bodies: tuple[Any, ...] = (
            {"topics": []},
            {"topics": [{"name": "a", "validate_only": True}]},
            {"topics": [{"name": "ä" * 200}]},
            {"topics": [{"name": "a", "placement": "random"}]},
            {"topics": [{"name": "a"}] * (REQUEST_ITEMS_MAX + 1)},
        )
        for bad in bodies:
            assert (await ask("POST", "/v1/topics", bad))[0] == 400


@pytest.mark.parametrize(
    "operation", ["CreateTopics", "DeleteTopics", "IncrementalAlterConfigs", "LegacyAlterConfigs"]
)
async def test_a_batch_takes_commands_of_many_items(tmp_path: Path, operation: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "CreateTopics": {"topics": [{"name": "a", "partitions": 1, "replication_factor": 1}]},
        "DeleteTopics": {"topics": [{"name": "t"}]},
        "IncrementalAlterConfigs": {"resources": [{"topic": "t", "set": {"flush.ms": "1"}}]},
        "LegacyAlterConfigs": {"resources": [{"topic": "t", "configs": {"flush.ms": "1"}}]},
    }
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        commands = [{"operation": operation, "body": bodies[operation]}]
        end = controller.committed.end_offset
        _, answer = await ask("POST", "/v1/batch", {"commands": commands})
        (result,) = answer["results"]
        assert result["status"] == 200
        assert result["offsets"]["base"] == end < result["offsets"]["end"]


async def test_effective_settings_tell_their_source(tmp_path: Path) -> None:
    """B83."""
    async with over_http(tmp_path) as (_controller, ask):
        await a_topic(ask)
        resources = [
            {"topic": "t", "set": {"segment.ms": "5"}},
            {"broker": 11, "set": {"compression.type": "zstd"}},
            {"cluster": True, "set": {"min.insync.replicas": "2", "ssl.secret": "x"}},
        ]
        await ask("PATCH", "/v1/configs", {"resources": resources})

        async def described(query: str) -> dict[str, Any]:
            status, answer = await ask("GET", f"/v1/configs?{query}&effective=1")
            assert status == 200, answer
            return {one["name"]: one for one in answer["items"]}

        of_topic = await described("topic=t")
        assert of_topic["segment.ms"] == {
            "resource_type": "topic", "resource_name": "t", "name": "segment.ms", "value": "5",
            "source": "DYNAMIC_TOPIC_CONFIG", "type": "LONG", "is_sensitive": False, "read_only": False,
            "synonyms": [{"name": "segment.ms", "value": "5", "source": "DYNAMIC_TOPIC_CONFIG"}],
        }  # fmt: skip
        minimum = of_topic["min.insync.replicas"]
        assert (minimum["value"], minimum["source"]) == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        seen = (await described("topic=t&on=11"))["compression.type"]
        assert (seen["value"], seen["source"]) == ("zstd", "DYNAMIC_BROKER_CONFIG")
        of_broker = await described("broker=12")
        assert of_broker["num.io.threads"]["source"] == "DEFAULT_CONFIG"
        assert of_broker["min.insync.replicas"]["value"] == "2"
        of_cluster = await described("cluster=1")
        assert set(of_cluster) == {"min.insync.replicas", "ssl.secret"}
        assert of_cluster["ssl.secret"]["is_sensitive"] and of_cluster["ssl.secret"]["value"] is None
        for query, status in (("topic=no", 404), ("broker=19", 404), ("broker=11&on=12", 400)):
            assert (await ask("GET", f"/v1/configs?{query}&effective=1"))[0] == status
        assert (await ask("GET", "/v1/configs?topic=t&on=11"))[0] == 400
