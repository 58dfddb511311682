"""Edge: reassignments, more partitions, features, directories and producer ids over HTTP."""

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from metadata_log import limits
from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.ids import uuid_text
from metadata_log.image.views import topic_json
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.threads import Threads
from quorum.controller.controller import Controller
from quorum.http import topics
from quorum.node.registration import registration_of
from quorum.whatif.cluster import Options
from tests.support.desk import Desk, DoorServer
from tests.support.lab import Lab, online, settings, uuid

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@asynccontextmanager
async def over_http(directory: Path, **options: Any) -> AsyncIterator[tuple[Controller, Ask]]:
    lab = Lab(**options)
    controller = lab.lead(1)
    for broker_id in (11, 12):
        await online(lab, controller, broker_id)
    desk = Desk(lab, directory)
    async with TestClient[web.Request, web.Application](DoorServer(desk.door)) as client:

        async def ask(
            method: str,
            path: str,
            body: Any = None,
            *,
            request_id: str | None = None,
            packed: bool = False,
        ) -> tuple[int, Any]:
            headers = {} if request_id is None else {"X-Request-Id": request_id}
            content: dict[str, Any] = {}
            if body is not None:
                headers["Content-Type"] = f"application/{'msgpack' if packed else 'json'}"
                encoded = msgpack.packb(body) if packed else json.dumps(body).encode()
                content["data"] = io.BytesIO(encoded)
            asking = asyncio.create_task(client.request(method, path, headers=headers, **content))
            while not asking.done():
                await asyncio.sleep(0.001)
                lab.quorum.commit()
            answer: aiohttp.ClientResponse = await asking
            raw = await answer.read()
            return answer.status, msgpack.unpackb(raw) if packed else await answer.json()

        yield controller, ask


def registered(node_id: int) -> dict[str, Any]:
    command = registration_of(settings(node_id), uuid(100 + node_id))
    return command.to_map()


async def a_topic(ask: Ask) -> None:
    status, _ = await ask("POST", "/v1/topics", {"name": "t", "assignment": [[11], [12]]})
    assert status == 201


async def test_a_large_view_is_refused_while_clients_have_not_read_their_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one is answered: it is made anyway, and costs little. Both have the content type that was asked for."""
    full = ThrottlingQuotaExceeded("clients have not read their answers")
    async with over_http(tmp_path) as (_controller, ask):
        await a_topic(ask)
        small = await ask("GET", "/v1/topics")
        assert (small[0], len(small[1]["items"])) == (200, 1)
        with monkeypatch.context() as patched:
            patched.setattr(limits, "LARGE_VIEW_ITEMS", 0)
            assert await ask("GET", "/v1/topics") == small
        paths = ("/v1/topics", "/v1/topics/t", "/v1/partitions", "/v1/topics?deleted=true")
        whole = [await ask("GET", path) for path in paths]
        with monkeypatch.context() as patched:
            patched.setattr(limits, "LARGE_VIEW_ITEMS", 0)
            patched.setattr(limits, "ANSWER_PIECE_BYTES", 1)
            assert [await ask("GET", path) for path in paths] == whole, "in pieces"
        monkeypatch.setattr(AnswerBuffers, "refusal", lambda _buffers, _size: full)
        assert await ask("GET", "/v1/topics") == small
        monkeypatch.setattr(limits, "LARGE_VIEW_ITEMS", 0)
        status, body = await ask("GET", "/v1/topics")
        assert (status, body["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_large_answer_to_a_write_is_made_in_a_thread_and_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """What was carried out is answered, also where too many reads wait. A repetition gets the same answer."""
    threads: list[bool] = []

    def noted(*args: Any) -> dict[str, Any]:
        threads.append(threading.current_thread() is threading.main_thread())
        return topic_json(*args)

    async def full(*_: Any, **__: Any) -> Any:
        raise ThrottlingQuotaExceeded("too many reads")

    async with over_http(tmp_path) as (_controller, ask):
        body = {"name": "s", "assignment": [[11], [12], [11]]}
        small = await ask("POST", "/v1/topics", {**body, "validate_only": True})
        monkeypatch.setattr(topics, "topic_json", noted)
        monkeypatch.setattr(limits, "LARGE_VIEW_ITEMS", 2)
        if is_full:
            monkeypatch.setattr(Threads, "run", full)
        status, first = await ask("POST", "/v1/topics", body, request_id=uuid_text(uuid(9)))
        assert (status, first["partitions"]) == (201, small[1]["partitions"])
        again = await ask("POST", "/v1/topics", body, request_id=uuid_text(uuid(9)))
        assert (again[0], again[1]["name"], again[1]["offsets"]) == (201, "s", first["offsets"])
        alone = {"operation": "CreateTopics", "body": {**body, "name": "u"}}
        _, batch = await ask("POST", "/v1/batch", {"commands": [alone]})
        assert (batch["results"][0]["status"], len(batch["results"][0]["partitions"])) == (201, 3)
        assert threads[0] is threads[-1] is is_full


async def test_a_deleted_topic_is_hidden_listed_and_restored(tmp_path: Path) -> None:
    """C13: on every way that shows topics, a deleted one is not there."""
    async with over_http(tmp_path, undelete_window_ms=60000) as (controller, ask):
        await a_topic(ask)
        _, topic = await ask("GET", "/v1/topics/t")
        status, deleted = await ask("DELETE", "/v1/topics/t")
        assert (status, deleted["topic_id"]) == (200, topic["topic_id"])
        for method, path in (
            ("GET", "/v1/topics/t"),
            ("DELETE", "/v1/topics/t"),
            ("GET", "/v1/configs?topic=t"),
        ):
            assert (await ask(method, path))[0] == 404
        assert (await ask("GET", "/v1/topics"))[1]["items"] == []
        assert (await ask("GET", "/v1/partitions"))[1]["items"] == []
        elections = {"election": "preferred", "partitions": [{"topic": "t", "partition": 0}]}
        _, elected = await ask("POST", "/v1/partitions/elect", elections)
        assert elected["partitions"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        _, listed = await ask("GET", "/v1/topics?deleted=true")
        (item,) = listed["items"]
        assert listed["undelete_window_ms"] == item["grace_ms"] == 60_000
        assert (item["name"], item["topic_id"], item["partition_count"]) == ("t", topic["topic_id"], 2)
        _, state = await ask("GET", "/v1/state")
        assert (state["topics"], len(state["deleted_topics"])) == ([], 1)

        wanted = {"topics": [{"topic_id": topic["topic_id"]}, {"name": "none"}]}
        status, restored = await ask("POST", "/v1/topics/undelete", wanted)
        assert status == 200
        assert [one["error"] for one in restored["topics"]] == [None, "UNKNOWN_TOPIC_OR_PARTITION"]
        _, again = await ask("GET", "/v1/topics/t")
        assert again["topic_id"] == topic["topic_id"]
        assert [one["leader_epoch"] for one in again["partitions"]] == [1, 1]

        await ask("DELETE", "/v1/topics/t")
        assert (await ask("DELETE", "/v1/topics/t?now=true"))[0] == 200
        assert (await ask("GET", "/v1/topics?deleted=true"))[1]["items"] == []
        assert not controller.committed.topics.deleted


async def test_the_settings_that_decisions_rest_on_are_told(tmp_path: Path) -> None:
    """C4: a dry run takes them over, so that it decides as this controller would."""
    async with over_http(tmp_path, undelete_window_ms=60000) as (controller, ask):
        status, told = await ask("GET", "/v1/quorum/settings")
        assert status == 200
        assert told["end_offset"] == controller.committed.end_offset
        options = Options.of_settings(told)
        assert options == Options(undelete_window_ms=60_000, takes_unstable_levels=False)


async def test_requests_about_deleted_topics_are_checked(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (_, ask):
        bodies: tuple[dict[str, Any], ...] = (
            {},
            {"topics": []},
            {"topics": [{}]},
            {"topics": [{"name": "t", "topic_id": "x"}]},
            {"topics": [{"topic_id": "x"}]},
            {"topics": [{"name": 1}]},
        )
        for body in bodies:
            status, answer = await ask("POST", "/v1/topics/undelete", body)
            assert (status, answer["error"]) == (400, "INVALID_REQUEST")
        for method, path in (("DELETE", "/v1/topics/t?now=yes"), ("GET", "/v1/topics?deleted=1")):
            assert (await ask(method, path))[0] == 400


async def test_partitions_that_lack_something_are_listed_and_reported(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (_controller, ask):
        new = {
            "name": "t",
            "assignment": [[11, 12], [12, 11], [11, 12]],
            "configs": {"min.insync.replicas": "2"},
        }
        assert (await ask("POST", "/v1/topics", new))[0] == 201
        assert (await ask("POST", "/v1/topics", {"name": "u", "assignment": [[11], [12]]}))[0] == 201
        _, ready = await ask("GET", "/readyz")
        assert ready["partitions"] == {
            "partitions": 5, "offline": 0, "under_replicated": 0, "under_min_isr": 0, "at_min_isr": 5,
            "one_loss_from_refusal": 0, "not_preferred": 0, "reassigning": 0,
        }  # fmt: skip
        assert not [one for one in ready["reasons"] if one["code"].startswith("PARTITIONS")]
        assert (await ask("DELETE", "/v1/brokers/11"))[0] == 200
        body = {"partitions": [{"topic": "u", "partition": 1, "replicas": [13]}]}
        await ask("POST", "/v1/partitions/reassign", body)

        async def listed(query: str) -> list[tuple[str, int]]:
            status, answer = await ask("GET", f"/v1/partitions?{query}")
            assert status == 200
            assert answer["next_after"] is None
            return [(item["topic"], item["partition"]) for item in answer["items"]]

        everything = [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]
        assert await listed("") == everything
        assert await listed("after=t:1") == everything[2:]
        assert await listed("topic=u") == everything[3:]
        assert await listed("only=unavailable") == [("u", 0)]
        # The ISR of u:0 is empty, and broker 11 stays eligible to lead it.
        assert await listed("only=under-min-isr") == [("t", 0), ("t", 1), ("t", 2), ("u", 0)]
        assert await listed("only=under-replicated&topic=t") == [("t", 0), ("t", 1), ("t", 2)]
        assert await listed("only=not-preferred") == [("t", 0), ("t", 2), ("u", 0)]
        _, imbalance = await ask("GET", "/v1/partitions/imbalance")
        assert (imbalance["percentage"], imbalance["interval_seconds"]) == (0, 300)
        assert [(one["broker_id"], one["led_elsewhere"], one["exceeds"]) for one in imbalance["items"]] == [
            (11, 3, True), (12, 0, False),
        ]  # fmt: skip
        _, ready = await ask("GET", "/readyz")
        codes = {one["code"]: one["detail"] for one in ready["reasons"]}
        assert codes["PARTITIONS_OFFLINE"].startswith("1 partition has no leader")
        assert codes["PARTITIONS_UNDER_MIN_ISR"].startswith("4 partitions refuse ")
        assert ready["ready"] is True
        for query in ("only=broken", "after=t", "after=:1", "after=t:x"):
            assert (await ask("GET", f"/v1/partitions?{query}"))[0] == 400
        assert (await ask("GET", "/v1/partitions?topic=none"))[0] == 404


async def test_settings_of_brokers_are_refused_as_kafkas_brokers_refuse_them(tmp_path: Path) -> None:
    """Goal: no text that is no number stops every decision that needs the number."""
    async with over_http(tmp_path) as (controller, ask):
        for body in (
            {"cluster": True, "set": {"min.insync.replicas": "abc"}},
            {"broker": 11, "set": {"node.id": "3"}},
            {"cluster": True, "set": {"listeners": "PLAINTEXT://:1"}},
        ):
            status, answer = await ask("PATCH", "/v1/configs", body)
            assert (status, answer["error"]) == (400, "INVALID_REQUEST")
        assert [*controller.committed.configs] == [(4, "")]
        assert dict(controller.committed.configs[4, ""]) == {"min.insync.replicas": "1"}, (
            "that of the founding"
        )


async def test_partitions_are_reassigned_each_with_its_result(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        body = {
            "partitions": [
                {"topic": "t", "partition": 0, "replicas": [12, 11]},
                {"topic": "t", "partition": 1, "replicas": [13]},
                {"topic": "t", "partition": 9, "replicas": None},
                {"topic": "t", "partition": 1, "replicas": None},
            ]
        }
        request_id = uuid_text(uuid(1))
        status, answer = await ask("POST", "/v1/partitions/reassign", body, request_id=request_id)
        assert status == 200
        assert [one["error"] for one in answer["partitions"]] == [
            None,
            "INVALID_REPLICA_ASSIGNMENT",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "NO_REASSIGNMENT_IN_PROGRESS",
        ]
        end = controller.committed.end_offset
        assert (await ask("POST", "/v1/partitions/reassign", body, request_id=request_id))[1] == answer
        assert controller.committed.end_offset == end, "a repetition writes nothing"
        (item,) = (await ask("GET", "/v1/partitions/reassignments"))[1]["items"]
        assert (item["replicas"], item["adding_replicas"], item["isr"]) == ([12, 11], [12], [11])
        kept = {
            "partitions": [{"topic": "t", "partition": 1, "replicas": [12, 11]}],
            "allow_replication_factor_change": False,
        }
        (refused,) = (await ask("POST", "/v1/partitions/reassign", kept))[1]["partitions"]
        assert refused["error"] == "INVALID_REPLICATION_FACTOR"
        nowhere = {"topic": "t", "partition": -1, "replicas": None}
        bodies: list[dict[str, Any]] = [{"partitions": []}, {"partitions": [nowhere]}, {}]
        for bad in bodies:
            assert (await ask("POST", "/v1/partitions/reassign", bad))[0] == 400


async def test_topics_get_more_partitions(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        body = {
            "topics": [{"name": "t", "partitions": 3}, {"name": "no", "partitions": 3}],
            "validate_only": True,
        }
        status, answer = await ask("POST", "/v1/topics/partitions", body)
        assert status == 200
        assert [one["error"] for one in answer["topics"]] == [None, "UNKNOWN_TOPIC_OR_PARTITION"]
        topic = controller.committed.topics.named("t")
        assert topic is not None
        assert len(topic.partitions) == 2
        await ask("POST", "/v1/topics/partitions", {**body, "validate_only": False})
        topic = controller.committed.topics.named("t")
        assert topic is not None
        assert len(topic.partitions) == 3
        _, answer = await ask("POST", "/v1/topics/partitions", {"topics": [{"name": "t", "partitions": 3}]})
        assert answer["topics"][0]["error"] == "INVALID_PARTITIONS"
        assert (await ask("POST", "/v1/topics/partitions", {"topics": []}))[0] == 400


async def test_what_a_lower_level_could_not_hold_is_listed_and_its_downgrade_refused(tmp_path: Path) -> None:
    """C14, B81: the preview names what the refusal names, and the log keeps everything."""
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        for node_id in (2, 3):
            assert (await ask("POST", "/v1/controllers/register", registered(node_id), packed=True))[0] == 200
        before = controller.committed
        path = "/v1/features/preview?feature=metadata.version&level="
        status, told = await ask("GET", f"{path}16")
        assert (status, told["present"], [each["level"] for each in told["adds"]]) == (200, 30, [17, 23, 30])
        kinds = {(each["kind"], each["field"]) for each in told["items"]}
        assert told["count"] == len(told["items"]) and ("broker", "log_dirs") in kinds
        assert (await ask("GET", f"{path}30"))[1]["items"] == []
        for query in (
            "",
            "?feature=metadata.version",
            "?level=3",
            "?feature=metadata.version&level=x",
            "?feature=x&level=1",
            "?feature=metadata.version&level=6",
            "?feature=metadata.version&level=31",
            "?feature=eligible.leader.replicas.version&level=2",
        ):
            assert (await ask("GET", f"/v1/features/preview{query}"))[0] == 400
        refused = (await ask("GET", "/v1/features/preview?feature=kraft.version&level=0"))[1]
        assert refused["message"] == "kraft.version is never lowered, so there is nothing that it could lose"
        for kind in ("safe_downgrade", "unsafe_downgrade"):
            update = {"feature": "metadata.version", "level": 22, "upgrade_type": kind}
            status, refused = await ask("POST", "/v1/features", {"updates": [update]})
            assert (status, refused["error"]) == (400, "INVALID_UPDATE_VERSION")
        assert controller.committed is before or controller.committed.features == before.features


async def test_groups_and_clients_metrics_have_settings(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (_, ask):
        for whose, name, value in (
            ("group", "consumer.session.timeout.ms", "50000"),
            ("client_metrics", "interval.ms", "1000"),
        ):
            of = {whose: "a/b"}
            assert (await ask("PATCH", "/v1/configs", of | {"set": {name: value}}))[0] == 200
            row = {"resource_type": whose, "resource_name": "a/b", "name": name, "value": value}
            assert (await ask("GET", f"/v1/configs?{whose}=a/b"))[1]["items"] == [row]
            assert (await ask("GET", f"/v1/configs?{whose}=a/b&effective=1"))[0] == 400
            refused = {"resources": [of | {"set": {name: "x"}}, of | {"set": {"no.such": "1"}}]}
            status, told = await ask("PATCH", "/v1/configs", refused)
            assert status == 200 and all(one["error"] for one in told["resources"])


async def test_features_are_finalized_all_or_none(tmp_path: Path) -> None:
    """B94"""
    async with over_http(tmp_path) as (controller, ask):
        listed = (await ask("GET", "/v1/features"))[1]["items"]
        assert [(one["feature"], one["level"]) for one in listed] == [
            ("eligible.leader.replicas.version", 1),
            ("group.version", 1),
            ("kraft.version", 1),
            ("metadata.version", 30),
            ("metaquorum.version", 5),
            ("share.version", 1),
            ("streams.version", 1),
            ("transaction.version", 2),
        ]
        wanted = [
            {"feature": "metadata.version", "level": 30},
            {"feature": "no.such", "level": 1},
        ]
        status, refused = await ask("POST", "/v1/features", {"updates": wanted})
        assert (status, refused["error"]) == (400, "INVALID_UPDATE_VERSION")
        status, refused = await ask("POST", "/v1/features", {"updates": wanted[:1]})
        assert (status, refused["error"]) == (400, "INVALID_UPDATE_VERSION")
        assert "controllers 2, 3 have not registered" in refused["message"]
        for node_id in (2, 3):
            assert (await ask("POST", "/v1/controllers/register", registered(node_id), packed=True))[0] == 200
        status, answer = await ask("POST", "/v1/features", {"updates": wanted[:1]})
        assert (status, answer["features"]) == (200, [{"feature": "metadata.version", "level": 30}])
        groups = {"feature": "group.version", "level": 0, "upgrade_type": "safe_downgrade"}
        assert (await ask("POST", "/v1/features", {"updates": [groups]}))[0] == 200
        assert "group.version" not in controller.committed.features


async def test_brokers_report_directories_and_get_producer_ids(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        broker = controller.committed.brokers[min(controller.committed.brokers)]
        topic_id = controller.committed.topics.ids["t"]
        who = {"broker_id": broker.broker_id, "broker_epoch": broker.broker_epoch}
        replicas = [
            {"directory": uuid(77), "topic_id": topic_id, "partition_id": number} for number in (0, 1, 5)
        ]
        status, answer = await ask(
            "POST", "/v1/partitions/directories", {**who, "replicas": replicas}, packed=True
        )
        assert status == 200
        assert [one["error"] for one in answer["replicas"]] == [
            None,
            "NOT_LEADER_OR_FOLLOWER",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert controller.committed.topics.by_id[topic_id].partitions[0].directories == (uuid(77),)
        for first in (0, 1000):
            assert (await ask("POST", "/v1/producer-ids", who, packed=True))[1] == {
                "first": first,
                "length": 1000,
            }
        stale = {**who, "broker_epoch": broker.broker_epoch + 1}
        assert (await ask("POST", "/v1/producer-ids", stale, packed=True))[1]["error"] == "STALE_BROKER_EPOCH"


async def test_partitions_of_all_topics_of_a_request_are_counted_before_any_is_placed(tmp_path: Path) -> None:
    async with over_http(tmp_path) as (controller, ask):
        await a_topic(ask)
        await ask("POST", "/v1/topics", {"name": "u", "assignment": [[11]]})
        end = controller.committed.end_offset
        topics = [{"name": name, "partitions": 6_000} for name in ("t", "u")]
        status, refused = await ask("POST", "/v1/topics/partitions", {"topics": topics})
        assert (status, refused["error"]) == (422, "POLICY_VIOLATION")
        assert controller.committed.end_offset == end
