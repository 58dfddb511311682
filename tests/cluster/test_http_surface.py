"""The HTTP surface as docs/formats.md has it, asked of real controllers by one who knows only that page."""

import base64
import concurrent.futures
import hashlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from broker_agent.config import BrokerSettings
from metadata_log import limits
from metadata_log.ids import BrokerId, uuid_from_text
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.replay.slices.opened import sliced_log
from metadata_log.replay.slices.wanted import Wanted
from ops import cli
from ops.settings_writing import broker_toml
from quorum.node.config import ControllerSettings, LogSettings, SnapshotSettings
from tests.support.active import is_old
from tests.support.processes import free_port, poll_until, running
from tests.support.wire import (
    MSGPACK,
    NDJSON,
    NO_ANSWER,
    START,
    Position,
    Quorum,
    StandingBroker,
    ask,
    controllers,
    fetch_request,
    fetched,
    frames_of,
    registration,
    very_calm,
)

pytestmark = pytest.mark.slow
SESSION_MS = 9_000
"""Longer than a local cluster's, so that a busy machine fences nobody; short enough to see one session end."""
STANDING = 50


def _with_sessions(settings: ControllerSettings) -> ControllerSettings:
    settings = very_calm(settings)
    return replace(settings, timing=replace(settings.timing, session_timeout_ms=SESSION_MS))


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """Three controllers and one broker that stands by, so that topics have somewhere to be."""
    directory = tmp_path_factory.mktemp("surface") / "c"
    with (
        controllers(directory, adjust=_with_sessions) as running,
        StandingBroker(running, STANDING) as broker,
    ):
        broker.wait_until_online()
        yield running


def topic(name: str, **other: Any) -> dict[str, Any]:
    return {"name": name, "partitions": 2, "replication_factor": 1} | other


PARTITION_KEYS = {
    "partition",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "replicas",
    "isr",
    "adding_replicas",
    "removing_replicas",
    "leader_recovery_state",
    "eligible_leader_replicas",
    "last_known_elr",
    "directories",
}


# --- topics and configs


def test_a_topic_is_created_described_listed_and_deleted(quorum: Quorum) -> None:
    made = quorum.ask("POST", "/v1/topics", topic("life", configs={"retention.ms": "1000"})).ok(201)
    offsets = made.pop("offsets")
    assert offsets["end"] - offsets["base"] == 4  # the topic, its config, two partitions
    assert set(made) == {"name", "topic_id", "configs", "partitions"}
    assert made["configs"] == {"retention.ms": "1000"}
    assert [set(partition) for partition in made["partitions"]] == [PARTITION_KEYS, PARTITION_KEYS]
    assert [partition["leader"] for partition in made["partitions"]] == [STANDING, STANDING]
    assert quorum.ask("GET", "/v1/topics/life").ok() == made
    listed = quorum.ask("GET", "/v1/topics").ok()
    assert set(listed) == {"end_offset", "controller_epoch", "items"}
    assert {
        "name": "life",
        "topic_id": made["topic_id"],
        "partition_count": 2,
        "replication_factor": 1,
    } in listed["items"]
    quorum.ask("POST", "/v1/topics", topic("life")).error(409, "TOPIC_ALREADY_EXISTS")
    gone = quorum.ask("DELETE", "/v1/topics/life").ok()
    assert (gone["name"], gone["topic_id"]) == ("life", made["topic_id"])
    assert gone["offsets"]["end"] - gone["offsets"]["base"] == 1
    quorum.ask("GET", "/v1/topics/life").error(404, "UNKNOWN_TOPIC_OR_PARTITION")
    quorum.ask("DELETE", "/v1/topics/life").error(404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_validate_only_says_what_would_be_and_writes_nothing(quorum: Quorum) -> None:
    before = quorum.position().offset
    told = quorum.ask("POST", "/v1/topics", topic("would", validate_only=True)).ok()
    assert told["topic_id"] is None
    assert told["offsets"]["base"] == told["offsets"]["end"] >= before
    quorum.ask("GET", "/v1/topics/would").error(404, "UNKNOWN_TOPIC_OR_PARTITION")
    refused = quorum.ask("POST", "/v1/topics", topic("would", replication_factor=2, validate_only=True))
    refused.error(400, "INVALID_REPLICATION_FACTOR")


def test_configs_are_set_unset_and_listed_for_each_kind_of_resource(quorum: Quorum) -> None:
    quorum.ask("POST", "/v1/topics", topic("settled")).ok(201)
    for named, query, kind, name, setting in (
        ({"topic": "settled"}, "topic=settled", "topic", "settled", "retention.ms"),
        ({"broker": STANDING}, f"broker={STANDING}", "broker", str(STANDING), "log.retention.ms"),
        ({"cluster": True}, "cluster=1", "broker", "", "log.retention.ms"),
    ):
        item = {"resource_type": kind, "resource_name": name, "name": setting, "value": "5"}
        after = quorum.ask("PATCH", "/v1/configs", {**named, "set": {setting: "5"}}).ok()
        assert set(after) == {"items", "offsets"}
        assert item in after["items"]
        listed = quorum.ask("GET", f"/v1/configs?{query}").ok()
        assert set(listed) == {"end_offset", "controller_epoch", "items"}
        assert item in listed["items"]
        after = quorum.ask("PATCH", "/v1/configs", {**named, "unset": [setting]}).ok()
        assert item not in after["items"]
    again = quorum.ask("PATCH", "/v1/configs", {"topic": "settled", "unset": ["retention.ms"]}).ok()
    assert again["offsets"]["base"] == again["offsets"]["end"]


def test_a_secret_is_never_shown(quorum: Quorum) -> None:
    """Neither in plain text, nor as a hash that could be found by guessing, and everywhere alike."""
    shown: set[str] = set()
    set_ = {"listener.name.internal.ssl.keystore.password": "hunter2", "of.a.plugin": "hunter2"}
    body = {"broker": STANDING, "set": set_}
    for reply in (
        quorum.ask("PATCH", "/v1/configs", body),
        quorum.ask("GET", f"/v1/configs?broker={STANDING}"),
        quorum.ask("GET", "/v1/state"),
    ):
        reply.ok()
        assert b"hunter2" not in reply.body
        assert hashlib.sha256(b"hunter2").hexdigest().encode() not in reply.body
        shown |= set(re.findall(r"(?:hmac-)?sha256:[0-9a-f]{64}", reply.body.decode()))
    assert [mask.partition(":")[0] for mask in shown] == ["hmac-sha256"] * 2


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("", 400, "INVALID_REQUEST"),
        ("?topic=a&cluster=1", 400, "INVALID_REQUEST"),
        ("?cluster=0", 400, "INVALID_REQUEST"),
        ("?broker=-1", 400, "INVALID_REQUEST"),
        ("?broker=x", 400, "INVALID_REQUEST"),
        ("?topic=nowhere", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_configs_name_one_resource(quorum: Quorum, query: str, status: int, error: str) -> None:
    quorum.ask("GET", f"/v1/configs{query}").error(status, error)


def test_many_topics_and_settings_are_asked_for_at_once_each_with_its_result(quorum: Quorum) -> None:
    """B53, B56, B83: from the creation to the end, with one item refused at each step, and then none of them."""
    wanted = {
        "topics": [topic("many-1", placement="plain"), topic("many-2"), topic("many-3", replication_factor=2)]
    }
    nothing = quorum.ask("POST", "/v1/topics", wanted | {"all_or_nothing": True}).ok()
    assert [one["error"] for one in nothing["topics"]] == [
        "OPERATION_NOT_ATTEMPTED",
        "OPERATION_NOT_ATTEMPTED",
        "INVALID_REPLICATION_FACTOR",
    ]
    assert nothing["offsets"]["base"] == nothing["offsets"]["end"]
    headers = {"X-Request-Id": str(uuid.uuid4())}
    made = quorum.ask("POST", "/v1/topics", wanted, headers=headers).ok()
    assert set(made["topics"][0]) == {
        "name", "error", "message", "topic_id", "partitions", "replication_factor"
    }  # fmt: skip
    assert [(one["error"], one["partitions"]) for one in made["topics"]] == [
        (None, 2), (None, 2), ("INVALID_REPLICATION_FACTOR", -1)
    ]  # fmt: skip
    assert made["offsets"]["end"] - made["offsets"]["base"] == 6

    assert quorum.ask("POST", "/v1/topics", wanted, headers=headers).ok() == made

    change = {
        "resources": [
            {"topic": "many-1", "set": {"retention.ms": "5"}, "append": {"cleanup.policy": "compact"}},
            {"topic": "nowhere", "set": {"retention.ms": "5"}},
            {"broker": STANDING, "set": {"min.insync.replicas": "no number"}},
        ]
    }
    changed = quorum.ask("PATCH", "/v1/configs", change).ok()["resources"]
    assert set(changed[0]) == {"resource_type", "resource_name", "error", "message"}
    assert [one["error"] for one in changed] == [None, "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"]
    described = quorum.ask("GET", "/v1/configs?topic=many-1&effective=1").ok()["items"]
    by_name = {one["name"]: one for one in described}
    assert by_name["cleanup.policy"]["value"] == "delete,compact"
    assert by_name["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert by_name["flush.ms"]["source"] == "DEFAULT_CONFIG"
    whole = {"resources": [{"topic": "many-1", "configs": {"flush.ms": "1"}}]}
    assert quorum.ask("PUT", "/v1/configs", whole).ok()["resources"][0]["error"] is None
    listed = quorum.ask("GET", "/v1/configs?topic=many-1").ok()["items"]
    assert [(one["name"], one["value"]) for one in listed] == [("flush.ms", "1")]

    second = made["topics"][1]["topic_id"]
    ending = {"topics": [{"name": "many-1"}, {"topic_id": second}, {"name": "many-3"}]}
    gone = quorum.ask("POST", "/v1/topics/delete", ending).ok()["topics"]
    assert set(gone[0]) == {"name", "topic_id", "error", "message"}
    assert [(one["name"], one["error"]) for one in gone] == [
        ("many-1", None), ("many-2", None), ("many-3", "UNKNOWN_TOPIC_OR_PARTITION")
    ]  # fmt: skip


def test_the_command_line_shows_what_it_would_write_and_then_writes_it(
    quorum: Quorum, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str, code: int = 0) -> Any:
        bootstrap = ["--bootstrap", ",".join(quorum.cluster.bootstrap), "--timeout", "60s"]

        def answered() -> tuple[int, str, str] | None:
            ended = cli.main([*words, "-o", "json", *bootstrap])
            printed, said = capfd.readouterr()
            return None if is_old(said) else (ended, printed, said)

        what = f"the active controller answers {words}"
        ended, printed, said = poll_until(answered, deadline_s=60, what=what)
        assert ended == code, said
        return json.loads(printed)

    def written(*words: str, code: int = 0) -> None:
        foreseen = run(*words, "--dry-run", code=code)
        before = quorum.position().offset
        run(*words, code=code)
        dumped = run("log", "dump", "--from", str(before))
        assert [{"type": line["type"], **line["record"]} for line in dumped] == foreseen["records"]

    create = ("topics", "create", "cli-1", "cli-2", "--partitions", "1", "--replication-factor", "1")
    foreseen = run(*create, "--dry-run")
    assert [record["type"] for record in foreseen["records"]] == ["Topic", "Partition"] * 2
    assert [one["error"] for one in run(*create)] == [None, None]
    written("configs", "set", "--topic", "cli-1", "--topic", "no", "flush.ms=1", "segment.ms=2", code=3)
    written("configs", "append", "--topic", "cli-1", "cleanup.policy=compact")
    written("configs", "subtract", "--topic", "cli-1", "cleanup.policy=delete")
    written("configs", "unset", "--topic", "cli-1", "segment.ms")
    written("configs", "replace", "--topic", "cli-1", "--broker", str(STANDING), "compression.type=lz4")
    (described,) = run("configs", "describe", "--topic", "cli-1", "compression.type")
    assert (described["value"], described["source"]) == ("lz4", "DYNAMIC_TOPIC_CONFIG")
    (listed,) = run("configs", "list", "--topic", "cli-1")
    assert (listed["name"], listed["value"]) == ("compression.type", "lz4")
    written("topics", "add-partitions", "cli-1", "cli-2", "--to", "3", "--placement", "plain")
    written("partitions", "reassign", "--topic", "cli-1", "--partition", "0", "--replicas", str(STANDING))
    plan = tmp_path / "plan.json"
    rows = [{"topic": "cli-2", "partition": number, "replicas": [STANDING]} for number in range(3)]
    plan.write_text(json.dumps({"partitions": [*rows, {"topic": "no", "partition": 0, "replicas": [1]}]}))
    carried_out = run(
        "partitions", "reassign", "--plan", str(plan), "--at-most", "1", "--patience", "1s", code=3
    )
    assert (carried_out["partitions"], carried_out["done"]) == (4, 3)
    assert [one["error"] for one in carried_out["problems"]] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    due = run("snapshot", "take", "--dry-run")
    assert due["end_offset"] <= quorum.position().offset and due["id"].startswith(
        f"{due['end_offset']:020d}-"
    )

    def both_could_lead() -> bool:
        planned = run("quorum", "transfer", "--dry-run")
        assert planned["leader_id"] not in planned["successors"]
        return len(planned["successors"]) == 2

    # A follower that answers late is not listed.
    poll_until(both_could_lead, deadline_s=60, what="both followers are reachable")
    written("topics", "delete", "cli-1", "cli-2", "no", "--yes", code=3)


# --- request ids


def test_a_request_id_gives_the_first_answer_in_both_spellings(quorum: Quorum) -> None:
    request_id = uuid.uuid4()
    short = base64.urlsafe_b64encode(request_id.bytes).decode().rstrip("=")
    first = quorum.ask("POST", "/v1/topics", topic("once"), headers={"X-Request-Id": str(request_id)}).ok(201)
    for spelling in (str(request_id), str(request_id).upper(), short):
        again = quorum.ask("POST", "/v1/topics", topic("once"), headers={"X-Request-Id": spelling}).ok(201)
        assert again == first
    for other in (topic("twice"), topic("once", partitions=3)):
        reply = quorum.ask("POST", "/v1/topics", other, headers={"X-Request-Id": short})
        reply.error(400, "INVALID_REQUEST")
    reply = quorum.ask("DELETE", "/v1/topics/once", headers={"X-Request-Id": short})
    reply.error(400, "INVALID_REQUEST")
    # The command counts, not how it was written.
    again = quorum.ask("POST", "/v1/topics?", topic("once"), headers={"X-Request-Id": short}).ok(201)
    assert again == first
    quorum.ask("GET", "/v1/topics/once").ok()


@pytest.mark.parametrize(
    "text", ["", "x", "0" * 32, "{00000000-0000-4000-8000-000000000000}", "A" * 21 + "!", "A" * 21 + "B"]
)
def test_a_malformed_request_id_is_refused(quorum: Quorum, text: str) -> None:
    reply = quorum.ask("POST", "/v1/topics", topic("never"), headers={"X-Request-Id": text})
    assert "X-Request-Id" in reply.error(400, "INVALID_REQUEST")["message"]


def test_one_request_sent_by_many_at_once_is_done_once(quorum: Quorum) -> None:
    headers = {"X-Request-Id": str(uuid.uuid4())}
    body = {"cluster": True, "set": {"raced": "yes"}}

    def send(_: int) -> tuple[int, int]:
        offsets = quorum.ask("PATCH", "/v1/configs", body, headers=headers).ok()["offsets"]
        return offsets["base"], offsets["end"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(send, range(16)))
    ((base, end),) = answers
    assert end == base + 1


# --- encodings


def test_msgpack_goes_both_ways(quorum: Quorum) -> None:
    made = quorum.ask("POST", "/v1/topics", topic("packed"), encoding=MSGPACK)
    assert made.headers["content-type"] == MSGPACK
    assert made.ok(201)["name"] == "packed"
    listed = quorum.ask("GET", "/v1/topics", headers={"Accept": MSGPACK})
    assert listed.headers["content-type"] == MSGPACK
    assert listed.ok()["items"] == quorum.ask("GET", "/v1/topics").ok()["items"]
    refused = quorum.ask("POST", "/v1/topics", topic("packed"), encoding=MSGPACK)
    assert refused.headers["content-type"] == MSGPACK
    refused.error(409, "TOPIC_ALREADY_EXISTS")
    packed = msgpack.packb(topic("packed"))
    as_json = quorum.ask(
        "POST", "/v1/topics", packed, encoding=MSGPACK, headers={"Accept": "application/json"}
    )
    assert as_json.headers["content-type"].startswith("application/json")
    as_json.error(409, "TOPIC_ALREADY_EXISTS")


# --- who answers


def test_a_follower_names_the_active_controller(quorum: Quorum) -> None:
    follower = quorum.others[0]
    for method, path, body in (
        ("GET", "/v1/topics", None),
        ("GET", "/v1/state?at=0", None),
        ("GET", "/v1/log", None),
        ("POST", "/v1/topics", topic("elsewhere")),
        ("DELETE", "/v1/brokers/7", None),
    ):
        reply = ask(follower, method, path, body)
        told = reply.error(421, "NOT_CONTROLLER")
        assert (told["code"], told["family"], told["retryable"]) == (41, "Unavailable", True)
        assert reply.headers["x-controller"] == quorum.cluster.http(told["controller_id"])
    for path, value in (
        ("/v1/brokers/register", registration(quorum.cluster_id, 61)),
        ("/v1/metadata/fetch", fetch_request(quorum.cluster_id)),
        ("/v1/partitions/alter", {"broker_id": 61, "broker_epoch": 1, "partitions": []}),
    ):
        reply = ask(follower, "POST", path, value, encoding=MSGPACK)
        assert reply.headers["content-type"] == MSGPACK
        reply.error(421, "NOT_CONTROLLER")


def test_a_follower_answers_what_needs_no_leader(quorum: Quorum) -> None:
    follower = quorum.others[0]
    for path in ("/v1/topics", "/v1/brokers", "/v1/configs?cluster=1"):
        listed = ask(follower, "GET", f"{path}?consistency=stale".replace("1?", "1&")).ok()
        assert set(listed) == {"end_offset", "controller_epoch", "items"}
    told = ask(follower, "GET", "/v1/quorum").ok()
    assert set(told) >= {
        "cluster_id",
        "leader_id",
        "controller_epoch",
        "high_watermark",
        "log_start_offset",
        "digest",
        "change_pending",
        "voters",
        "observers",
    }
    assert (told["change_pending"], told["observers"]) == (False, [])
    assert [voter["id"] for voter in told["voters"]] == [1, 2, 3]
    assert all(
        set(voter)
        == {
            "id",
            "directory_id",
            "address",
            "http",
            "role",
            "end_offset",
            "log_start_offset",
            "lag_records",
            "last_fetch_ms_ago",
            "last_caught_up_ms_ago",
            "silent_ms",
            "reachable",
            "locked_out",
        }
        for voter in told["voters"]
    )
    assert ask(follower, "GET", "/healthz").ok()
    ready = poll_until(lambda: _ready(follower), deadline_s=60, what="the follower is ready") or {}
    assert set(ready) == {"ready", "reasons", "recent_warnings", "partitions"}
    assert ready["partitions"] is None  # the active controller alone counts them
    assert (ready["ready"], ready["reasons"]) == (True, [])
    metrics = ask(follower, "GET", "/metrics")
    assert metrics.status == 200
    assert b"\nmetaquorum_last_applied_record_offset " in metrics.body
    ask(follower, "GET", "/v1/topics?consistency=eventual").error(400, "INVALID_REQUEST")


def _ready(url: str) -> dict[str, Any] | None:
    """Return what a ready node says of itself; None: it has something to complain of now."""
    reply = ask(url, "GET", "/readyz")
    return reply.ok() if reply.status == 200 and reply.value()["reasons"] == [] else None


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/topics", {"GET", "HEAD", "POST"}),
        ("DELETE", "/v1/topics", {"GET", "HEAD", "POST"}),
        ("POST", "/v1/topics/a", {"GET", "HEAD", "DELETE"}),
        ("GET", "/v1/metadata/fetch", {"POST"}),
        ("OPTIONS", "/v1/configs", {"GET", "HEAD", "PATCH", "PUT"}),
    ],
)
def test_another_method_is_405_and_told_which(
    quorum: Quorum, method: str, path: str, allowed: set[str]
) -> None:
    reply = quorum.ask(method, path)
    reply.error(405, "INVALID_REQUEST")
    assert set(reply.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/nothing"])
def test_an_expectation_nobody_knows_is_417(quorum: Quorum, path: str) -> None:
    quorum.ask("GET", path, headers={"Expect": "foo"}).error(417, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/v1/topics/", "//v1/topics", "/v1/quorum/1"])
def test_another_path_is_404(quorum: Quorum, path: str) -> None:
    quorum.ask("GET", path).error(404, "INVALID_REQUEST")


# --- the log and the state


def test_slices_of_the_log_are_the_same_from_controllers_and_from_their_files(quorum: Quorum) -> None:
    """Goal: Spark reads what a running cluster has. Method: followers over HTTP, and every controller's live files."""

    def rows(of: str, until: int) -> list[dict[str, Any]]:
        log = sliced_log(of)

        def has_all() -> bool:
            log.refresh()
            return log.ends_at >= until

        # A follower hears of the high watermark after the leader has answered, and its files hold it later still.
        poll_until(has_all, deadline_s=60, what=f"offset {until} in {of}")
        assert (log.cluster_id, log.begins_at) == (quorum.cluster_id, 0)
        found = [
            row
            for piece in log.slices(0, until, Wanted())
            for b in piece.read(Wanted())
            for row in b.to_pylist()
        ]
        return sorted(found, key=lambda row: int(row["log_offset"]))

    quorum.ask("POST", "/v1/topics", topic("sliced")).ok(201)
    until: int = quorum.ask("GET", "/v1/quorum").ok()["high_watermark"]
    first = rows(",".join(quorum.cluster.bootstrap), until)
    assert [row["log_offset"] for row in first] == list(range(until))
    assert any(row["topic_name"] == "sliced" for row in first)
    for number in (1, 2, 3):
        assert rows(str(quorum.cluster.directory / f"controller-{number}"), until) == first


def test_raw_frames_begin_with_the_one_that_contains_from(quorum: Quorum) -> None:
    for number in range(3):
        quorum.ask(
            "PATCH", "/v1/configs", {"cluster": True, "set": {f"log{number}": "x", f"more{number}": "y"}}
        ).ok()
    reply = quorum.ask("GET", "/v1/log?max_bytes=8388608")
    assert reply.headers["content-type"] == "application/octet-stream"
    reply.check_position()
    everything = frames_of(reply.body)
    assert everything[0].base_offset == 0
    assert all(
        a.end_offset == b.base_offset and a.crc == b.previous_crc for a, b in itertools.pairwise(everything)
    )
    wide = next(frame for frame in reversed(everything) if frame.end_offset - frame.base_offset > 1)
    inside = wide.base_offset + 1
    assert frames_of(quorum.ask("GET", f"/v1/log?from={inside}").body)[0] == wide
    assert (
        frames_of(quorum.ask("GET", f"/v1/log?until={inside}&max_bytes=8388608").body)[-1].end_offset
        == wide.base_offset
    )
    assert len(frames_of(quorum.ask("GET", f"/v1/log?from={inside}&max_bytes=1").body)) == 1
    assert quorum.ask("GET", f"/v1/log?from={inside}&until={inside}").body == b""
    assert (
        quorum.ask("GET", f"/v1/log?from={everything[-1].end_offset + 1}").error(409, "OFFSET_IN_FUTURE")[
            "code"
        ]
        == 10001
    )
    quorum.ask("GET", f"/v1/log?until={everything[-1].end_offset + 1_000}").error(409, "OFFSET_IN_FUTURE")
    for query in (
        "max_bytes=0",
        "max_bytes=8388609",
        "from=-1",
        "from=x",
        "until=1.5",
        "from=5&until=2",
        "from=t",
        "from=99999999999999999999",
    ):
        quorum.ask("GET", f"/v1/log?{query}").error(400, "INVALID_REQUEST")


def test_a_time_finds_its_batch(quorum: Quorum) -> None:
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"timed": "x"}}).ok()
    everything = frames_of(quorum.ask("GET", "/v1/log?max_bytes=8388608").body)
    moment = everything[-1].time_ms
    from_there = frames_of(quorum.ask("GET", f"/v1/log?from=t{moment}").body)
    assert from_there[0].time_ms == moment
    assert from_there[0].base_offset == next(f.base_offset for f in everything if f.time_ms >= moment)
    until = frames_of(quorum.ask("GET", f"/v1/log?until=t{moment - 1}&max_bytes=8388608").body)
    assert until[-1].end_offset == from_there[0].base_offset
    assert quorum.ask("GET", "/v1/log?until=t0").body == b""
    quorum.ask("GET", "/v1/log?from=t9999999999999").error(409, "OFFSET_IN_FUTURE")
    assert quorum.ask("GET", "/v1/state?at=t1").ok()["end_offset"] == 0


def test_ndjson_begins_at_the_record_itself(quorum: Quorum) -> None:
    quorum.ask("GET", "/v1/log?from=1&max_bytes=1", headers={"Accept": NDJSON}).error(400, "INVALID_REQUEST")
    reply = quorum.ask("GET", "/v1/log?from=1", headers={"Accept": NDJSON})
    assert (reply.status, reply.headers["content-type"]) == (200, NDJSON)
    lines = [json.loads(line) for line in reply.body.splitlines()]
    assert [line["offset"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(
        set(line)
        == {
            "offset",
            "controller_epoch",
            "time_ms",
            "type",
            "version",
            "actor",
            "request_id",
            "operation",
            "cause",
            "record",
        }
        for line in lines
    )
    assert lines[0]["type"] == "QuorumVersion"
    assert lines[0]["record"] == {"kraft_version": 1}


def test_the_state_at_an_offset_is_that_of_the_last_whole_batch(quorum: Quorum) -> None:
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"s1": "x", "s2": "y"}}).ok()
    frames = frames_of(quorum.ask("GET", "/v1/log?max_bytes=8388608").body)
    wide = next(frame for frame in reversed(frames) if frame.end_offset - frame.base_offset > 1)
    before, inside, after = (
        quorum.ask("GET", f"/v1/state?at={at}").ok()
        for at in (wide.base_offset, wide.base_offset + 1, wide.end_offset)
    )
    assert inside == before
    assert (before["end_offset"], after["end_offset"]) == (wide.base_offset, wide.end_offset)
    assert before["digest"] != after["digest"]
    assert set(after) == {
        "end_offset",
        "controller_epoch",
        "time_ms",
        "digest",
        "brokers",
        "controllers",
        "topics",
        "deleted_topics",
        "configs",
        "features",
        "next_producer_id",
        "kraft_version",
        "voters",
        "acls",
        "quotas",
        "tokens",
        "users",
    }
    empty = quorum.ask("GET", "/v1/state?at=0").ok()
    assert (empty["time_ms"], empty["controller_epoch"], empty["kraft_version"]) == (0, 0, None)
    assert empty["digest"] == "8fff1ee8114d122380b437c5e03a9210abd50271b1f4f5262f8330f1e2b3d186"
    quorum.ask("GET", "/v1/state?at=999999999").error(409, "OFFSET_IN_FUTURE")
    quorum.ask("GET", "/v1/state?at=").error(400, "INVALID_REQUEST")


# --- brokers


def test_brokers_are_listed_described_and_unregistered(quorum: Quorum) -> None:
    epoch = quorum.register(62, rack="r1").ok()["broker_epoch"]
    told = quorum.ask("GET", "/v1/brokers/62").ok()
    assert set(told) == {
        "broker_id",
        "state",
        "broker_epoch",
        "incarnation_id",
        "rack",
        "endpoints",
        "control_state",
        "registration_state",
        "in_controlled_shutdown",
        "is_cordoned",
        "shutdown_offset",
        "waits_for",
        "applied_offset",
        "lag_records",
        "last_contact_ms_ago",
        "metadata_age_ms",
        "would_serve_stale",
    }
    assert (told["broker_epoch"], told["state"], told["rack"]) == (epoch, "OFFLINE", "r1")
    assert told["endpoints"] == [
        {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9092, "security_protocol": 0}
    ]
    listed = quorum.ask("GET", "/v1/brokers").ok()["items"]
    assert [item["broker_id"] for item in listed] == sorted(item["broker_id"] for item in listed)
    assert told["broker_id"] in [item["broker_id"] for item in listed]
    gone = quorum.ask("DELETE", "/v1/brokers/62").ok()
    assert gone["broker_id"] == 62
    assert gone["offsets"]["end"] == gone["offsets"]["base"] + 1
    for method in ("GET", "DELETE"):
        quorum.ask(method, "/v1/brokers/62").error(404, "BROKER_ID_NOT_REGISTERED")
        quorum.ask(method, "/v1/brokers/x").error(400, "INVALID_REQUEST")


def test_what_a_registration_may_not_say(quorum: Quorum) -> None:
    def refused(status: int, error: str, broker_id: int = 63, **other: Any) -> None:
        reply = quorum.register(broker_id, **other)
        assert reply.headers["content-type"] == MSGPACK
        reply.error(status, error)

    refused(409, "INCONSISTENT_CLUSTER_ID", cluster_id="A" * 22)
    refused(400, "INVALID_REGISTRATION", broker_id=1)
    refused(400, "INVALID_REGISTRATION", features=[])
    refused(400, "UNSUPPORTED_VERSION", features=[["metadata.version", 25, 29]])
    refused(400, "INVALID_REGISTRATION", log_dirs=[])
    refused(400, "INVALID_REGISTRATION", log_dirs=[bytes(15) + b"\x01"])
    refused(400, "INVALID_REGISTRATION", log_dirs=[b"d" * 16, b"d" * 16])
    standing = registration(quorum.cluster_id, STANDING)
    refused(400, "INVALID_REGISTRATION", log_dirs=standing["log_dirs"])
    told = quorum.register(STANDING).error(409, "DUPLICATE_BROKER_REGISTRATION")
    assert told["retryable"] is True
    quorum.ask("GET", "/v1/brokers/63").error(404, "BROKER_ID_NOT_REGISTERED")


def test_a_session_from_registration_to_its_end(quorum: Quorum) -> None:
    me = registration(quorum.cluster_id, 64)
    told = quorum.post("/v1/brokers/register", me).ok()
    assert set(told) == {
        "broker_epoch",
        "controller_id",
        "controller_epoch",
        "high_watermark",
        "session_timeout_ms",
        "max_wait_ms",
    }
    assert (told["session_timeout_ms"], told["max_wait_ms"]) == (SESSION_MS, SESSION_MS // 3)
    assert quorum.post("/v1/brokers/register", me).ok()["broker_epoch"] == told["broker_epoch"]
    who = {"broker_id": 64, "broker_epoch": told["broker_epoch"], "incarnation_id": me["incarnation_id"]}
    # A fetch that has not got beyond its own registration: known, but fenced.
    behind = fetched(quorum.fetch(START, **who))
    assert behind.head["broker_state"] == "FENCED"
    assert fetched(quorum.fetch(quorum.position(), **who)).head["broker_state"] == "ONLINE"
    quorum.fetch(quorum.position(), **who | {"incarnation_id": b"i" * 16}).error(409, "STALE_BROKER_EPOCH")
    quorum.fetch(quorum.position(), **who | {"broker_epoch": told["broker_epoch"] - 1}).error(
        409, "STALE_BROKER_EPOCH"
    )
    quorum.fetch(quorum.position(), **who | {"broker_id": 65}).error(409, "STALE_BROKER_EPOCH")
    quorum.register(64).error(409, "DUPLICATE_BROKER_REGISTRATION")
    assert fetched(quorum.fetch(quorum.position(), **who, want_fence=True)).head["broker_state"] == "FENCED"
    assert fetched(quorum.fetch(quorum.position(), **who)).head["broker_state"] == "ONLINE"

    def is_offline() -> bool:
        return bool(quorum.ask("GET", "/v1/brokers/64").ok()["state"] == "OFFLINE")

    poll_until(is_offline, deadline_s=60, what="the silent broker is offline")
    anew = quorum.register(64).ok()["broker_epoch"]
    assert anew > told["broker_epoch"]
    quorum.fetch(quorum.position(), **who).error(409, "STALE_BROKER_EPOCH")
    quorum.ask("DELETE", "/v1/brokers/64").ok()


def test_a_broker_reports_isrs_of_partitions_it_may_lead(quorum: Quorum) -> None:
    epoch = quorum.ask("GET", f"/v1/brokers/{STANDING}").ok()["broker_epoch"]
    made = quorum.ask("POST", "/v1/topics", topic("led", partitions=1, replication_factor=1)).ok(201)
    topic_id = uuid_from_text(made["topic_id"])
    member = {"broker_id": STANDING, "broker_epoch": epoch}
    led = {
        "topic_id": topic_id,
        "partition_id": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "isr": [member],
        "leader_recovery_state": 0,
    }
    report = {"broker_id": STANDING, "broker_epoch": epoch}
    unknown = led | {"topic_id": b"t" * 16}
    told = quorum.post("/v1/partitions/alter", report | {"partitions": [unknown, led]}).ok()["partitions"]
    nothing = {"leader": -1, "leader_epoch": -1, "isr": [], "leader_recovery_state": 0, "partition_epoch": -1}
    assert told == [
        {"topic_id": b"t" * 16, "partition_id": 0, "error": "UNKNOWN_TOPIC_ID"} | nothing,
        {"topic_id": topic_id, "partition_id": 0, "error": None, "leader": STANDING, "leader_epoch": 0}
        | {"isr": [STANDING], "leader_recovery_state": 0, "partition_epoch": 0},
    ]
    late = report | {"broker_epoch": epoch - 1, "partitions": [led]}
    quorum.post("/v1/partitions/alter", late).error(409, "STALE_BROKER_EPOCH")
    quorum.post("/v1/partitions/alter", report | {"partitions": [led] * 1_001}).error(400, "INVALID_REQUEST")
    quorum.ask("POST", "/v1/partitions/alter", report | {"partitions": []}).error(415, "INVALID_REQUEST")
    quorum.ask("DELETE", "/v1/topics/led").ok()


def test_a_broker_that_asks_to_shut_down_may_go_once_it_leads_nothing(quorum: Quorum) -> None:
    me = registration(quorum.cluster_id, 66)
    epoch = quorum.post("/v1/brokers/register", me).ok()["broker_epoch"]
    who = {"broker_id": 66, "broker_epoch": epoch, "incarnation_id": me["incarnation_id"]}
    assert fetched(quorum.fetch(quorum.position(), **who)).head["broker_state"] == "ONLINE"
    leaving = fetched(quorum.fetch(quorum.position(), **who, want_shut_down=True))
    assert leaving.head["should_shut_down"] is True
    assert leaving.head["broker_state"] == "FENCED"
    quorum.register(66).ok()  # nobody waits for the session of one who left cleanly
    quorum.ask("DELETE", "/v1/brokers/66").ok()


# --- fetching


def test_an_observer_gets_whole_frames_within_its_bytes(quorum: Quorum) -> None:
    position, seen = START, 0
    while (answer := fetched(quorum.fetch(position, max_bytes=1))).frames:
        assert answer.head["kind"] == "DELTA"
        assert answer.head["broker_state"] is None
        (frame,) = answer.frames
        assert frame.base_offset == position.offset
        position, seen = Position(frame.end_offset, frame.epoch, frame.crc), seen + 1
        if seen == 3:
            break
    rest = fetched(quorum.fetch(position))
    assert rest.frames[0].previous_crc == position.crc
    assert rest.frames[-1].end_offset == rest.head["high_watermark"]
    quorum.fetch(cluster_id="A" * 22).error(409, "INCONSISTENT_CLUSTER_ID")


def test_a_position_that_is_not_ours_diverges(quorum: Quorum) -> None:
    end = quorum.position()
    for wrong in (
        end._replace(crc=end.crc ^ 1),
        end._replace(epoch=end.epoch + 1),
        end._replace(offset=2),  # inside the first batch
        end._replace(offset=end.offset + 1_000_000),
    ):
        answer = fetched(quorum.fetch(wrong))
        assert (answer.head["kind"], answer.frames) == ("DIVERGING", [])
        told = answer.head["diverging"]
        assert set(told) == {"offset", "controller_epoch"}
        assert told["offset"] < wrong.offset


def test_a_parked_fetch_wakes_on_commit_and_yields_to_a_newer_one(quorum: Quorum) -> None:
    me = registration(quorum.cluster_id, 67)
    epoch = quorum.post("/v1/brokers/register", me).ok()["broker_epoch"]
    who = {"broker_id": 67, "broker_epoch": epoch, "incarnation_id": me["incarnation_id"]}
    fetched(quorum.fetch(quorum.position(), **who))  # online now: the next one is parked
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        position = quorum.position()
        begun = time.monotonic()
        older = pool.submit(quorum.fetch, position, **who, max_wait_ms=60_000)
        _wait_until_parked(quorum, 67, since=begun)
        newer = pool.submit(quorum.fetch, position, **who, max_wait_ms=60_000)
        released = fetched(older.result())
        assert (released.head["kind"], released.frames) == ("DELTA", [])
        wrote = quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"wake": "up"}}).ok()
        woken = fetched(newer.result())
        if not woken.frames:  # its own deadline came before the commit
            woken = fetched(quorum.fetch(position, **who))
        assert [frame.base_offset for frame in woken.frames] == [position.offset]
        assert woken.frames[-1].end_offset <= wrote["offsets"]["end"]
    quorum.ask("DELETE", "/v1/brokers/67").ok()


def _wait_until_parked(quorum: Quorum, broker_id: int, *, since: float) -> None:
    """The poll that was sent after `since` has arrived once it renewed its broker's session."""

    def arrived() -> bool:
        ago_ms = quorum.ask("GET", f"/v1/brokers/{broker_id}").ok()["last_contact_ms_ago"]
        return bool(ago_ms < (time.monotonic() - since) * 1000)

    poll_until(arrived, deadline_s=60, what="the fetch is parked")


# --- snapshots


def test_a_snapshot_is_served_by_range_from_any_controller(quorum: Quorum) -> None:
    """B64"""
    offer = quorum.ask("POST", "/v1/snapshots").ok(201)
    assert set(offer) == {"id", "end_offset", "controller_epoch", "bytes", "sha256"}
    listed = quorum.ask("GET", "/v1/snapshots").ok()
    assert offer in listed["items"]
    path = f"/v1/metadata/snapshots/{offer['id']}"
    assert offer["id"] == f"{offer['end_offset']:020d}-{offer['controller_epoch']:010d}"
    whole = quorum.ask("GET", path)
    assert (whole.status, len(whole.body)) == (200, offer["bytes"])
    assert hashlib.sha256(whole.body).hexdigest() == offer["sha256"]
    assert whole.headers["etag"] == f'"{offer["sha256"]}"'
    size = offer["bytes"]
    for wanted, start, end in (
        ("bytes=0-9", 0, 10),
        (f"bytes={size - 7}-", size - 7, size),
        ("bytes=-5", size - 5, size),
        (f"bytes=10-{size * 2}", 10, size),
    ):
        part = quorum.ask("GET", path, headers={"Range": wanted, "If-Range": whole.headers["etag"]})
        assert (part.status, part.body) == (206, whole.body[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    other = quorum.ask("GET", path, headers={"Range": "bytes=0-9", "If-Range": '"another"'})
    assert (other.status, other.body) == (200, whole.body)
    for beyond in (f"bytes={size}-", "bytes=-0", "bytes=5-2", "bytes=a-b", "bytes=0-1,3-4", "items=0-1"):
        quorum.ask("GET", path, headers={"Range": beyond}).error(416, "POSITION_OUT_OF_RANGE")
    follower = quorum.others[0]
    ask(follower, "GET", path).error(404, "SNAPSHOT_NOT_FOUND")
    header = frames_of(whole.body)[0].records[0]
    assert header[0] == 1002
    position = Position(header[3], header[4], header[6])
    assert fetched(quorum.fetch(position)).head["kind"] == "DELTA"


def test_the_same_log_prefix_makes_the_same_snapshot_everywhere(quorum: Quorum) -> None:
    with_all = [*quorum.cluster.bootstrap]

    def taken() -> list[dict[str, Any]] | None:
        replies = [ask(url, "POST", "/v1/snapshots") for url in with_all]
        if any(reply.status != 201 for reply in replies):
            return None
        offers = [reply.ok(201) for reply in replies]
        return offers if len({offer["id"] for offer in offers}) == 1 else None

    offers = poll_until(taken, deadline_s=60, what="a snapshot of one offset on each")
    assert offers is not None
    assert len({offer["sha256"] for offer in offers}) == 1


def test_a_follower_without_a_cache_is_offered_a_snapshot_that_is_cheaper(quorum: Quorum) -> None:
    for _ in range(40):
        quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"again": "x" * 2_000}}).ok()
    offer = quorum.ask("POST", "/v1/snapshots").ok(201)
    answer = fetched(quorum.fetch(START))
    assert (answer.head["kind"], answer.frames, answer.head["snapshot"]) == ("IMAGE", [], offer)


def _forgetful(settings: ControllerSettings) -> ControllerSettings:
    return replace(
        settings,
        log=LogSettings(segment_bytes=limits.FRAME_BYTES_MAX, retention_bytes=1),
        snapshot=SnapshotSettings(bytes=limits.FRAME_BYTES_MAX, keep=1),
    )


def test_what_lies_below_the_log_is_gone_and_a_snapshot_stands_for_it(tmp_path: Path) -> None:
    with controllers(tmp_path / "c", count=1, adjust=_forgetful) as quorum:
        first = frames_of(quorum.ask("GET", "/v1/log").body)[0]

        def compacted() -> bool:
            quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"again": "x" * 32_000}}).ok()
            return bool(quorum.ask("GET", "/v1/quorum").ok()["log_start_offset"] > 0)

        poll_until(compacted, deadline_s=60, what="the first segment is removed")
        start = quorum.ask("GET", "/v1/quorum").ok()["log_start_offset"]
        for path in (
            "/v1/log?from=0",
            "/v1/state?at=1",
            f"/v1/log?from={start - 1}",
            f"/v1/state?at={start - 1}",
        ):
            assert quorum.ask("GET", path).error(410, "OFFSET_COMPACTED")["code"] == 10002
        assert frames_of(quorum.ask("GET", "/v1/log").body)[0].base_offset == start
        for position in (START, Position(first.end_offset, first.epoch, first.crc)):
            answer = fetched(quorum.fetch(position))
            assert (answer.head["kind"], answer.head["log_start_offset"]) == ("IMAGE", start)
            offer = answer.head["snapshot"]
            assert offer["end_offset"] >= start
            snapshot = quorum.ask("GET", f"/v1/metadata/snapshots/{offer['id']}").body
            header = frames_of(snapshot)[0].records[0]
            onwards = fetched(quorum.fetch(Position(header[3], header[4], header[6])))
            assert onwards.head["kind"] == "DELTA"
        told = quorum.ask("GET", f"/v1/state?at={offer['end_offset']}").ok()
        assert told["end_offset"] == offer["end_offset"]


# --- change feeds


CHANGES, RECONNECTS = 10_000, 20


def test_a_feed_that_is_cut_off_again_and_again_has_each_change_once(quorum: Quorum) -> None:
    """C19: 10,000 changes of four topics, two of them followed by name, one deleted and made again meanwhile."""
    names = [f"feed.{letter}" for letter in "abcd"]
    start = _high_watermark(quorum)
    for name in names:
        quorum.ask("POST", "/v1/topics", topic(name)).ok(201)

    def write() -> None:
        values = itertools.count()
        for part in range(CHANGES // 1_000):
            commands = [
                {
                    "operation": "IncrementalAlterConfigs",
                    "body": {"topic": names[value % 4], "set": {"retention.ms": str(value)}},
                }
                for value in itertools.islice(values, 1_000)
            ]
            results = quorum.ask("POST", "/v1/batch", {"commands": commands}).ok()["results"]
            assert {result["status"] for result in results} == {200}
            if part % 3 == 1:
                quorum.ask("DELETE", f"/v1/topics/{names[0]}").ok()
                quorum.ask("POST", "/v1/topics", topic(names[0])).ok(201)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        nodes = itertools.cycle([quorum.active, *quorum.others])
        found: list[dict[str, Any]] = []
        at, cuts = start, 0
        while not writing.done() or at < _high_watermark(quorum):
            path = f"/v1/log?topics={names[0]},{names[1]}&from={at}&wait_ms=300&consistency=stale"
            whole = cuts >= RECONNECTS or not found
            text = _cut_short(next(nodes), path, None if whole else 1_000 * (1 + cuts))
            *lines, last = text.splitlines(keepends=True)
            if not whole:
                cuts += 1
                lines = [line for line in (*lines, last) if line.endswith(b"\n")]
                if lines and b"next_offset" in lines[-1]:
                    lines.pop()
            found += map(json.loads, lines)
            at = json.loads(last)["next_offset"] if whole else found[-1]["offset"] + 1
        writing.result()
    assert cuts == RECONNECTS

    reply = quorum.ask("GET", f"/v1/log?from={start}", headers={"Accept": NDJSON})
    log = [json.loads(line) for line in reply.body.splitlines()]
    ids: set[str] = set()
    expected = []
    for line in log:
        record = line["record"]
        if line["type"] == "Topic" and record["name"] in names[:2]:
            ids.add(record["topic_id"])
        if record.get("topic_id") in ids or record.get("resource_name") in names[:2]:
            expected.append(line)
    assert len([line for line in expected if line["type"] == "Config"]) == CHANGES // 2
    assert found == expected


def _high_watermark(quorum: Quorum) -> int:
    return int(quorum.ask("GET", "/v1/features").headers["x-high-watermark"])


def _cut_short(url: str, path: str, size: int | None) -> bytes:
    """Return an answer, or its first bytes, after which the connection is closed."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", path, headers={"Accept": NDJSON})
        response = connection.getresponse()
        content = response.read(size)
        assert response.status == 200, content
        return content
    finally:
        connection.close()


# --- a change of controllers, last: the epochs above stay as they were


def test_a_retry_after_a_change_of_controllers_gets_the_first_answer(quorum: Quorum) -> None:
    headers = {"X-Request-Id": str(uuid.uuid4())}
    first = quorum.ask("POST", "/v1/topics", topic("survivor"), headers=headers).ok(201)
    many = (
        {"topics": [topic("survivor-1"), topic("survivor"), topic("survivor-2")]},
        {"X-Request-Id": str(uuid.uuid4())},
    )
    first_of_many = quorum.ask("POST", "/v1/topics", many[0], headers=many[1]).ok()
    cluster = quorum.cluster
    old = next(member for member in cluster.controllers if member.http == quorum.active)
    parked: list[Any] = []
    position = quorum.position()
    waiting = threading.Thread(target=lambda: parked.append(_fetch_or_lost(quorum, old.http, position)))
    waiting.start()
    cluster.kill(old.id)
    waiting.join()
    assert parked == [None]
    again = quorum.ask("POST", "/v1/topics", topic("survivor"), headers=headers).ok(201)
    assert again == first
    again_of_many = quorum.ask("POST", "/v1/topics", many[0], headers=many[1]).ok()
    assert again_of_many == first_of_many, "the numbers follow from the records of the batch"
    quorum.ask("POST", "/v1/topics", topic("survivor", partitions=9), headers=headers).error(
        400, "INVALID_REQUEST"
    )


def _fetch_or_lost(quorum: Quorum, url: str, position: Position) -> int | None:
    try:
        request = fetch_request(quorum.cluster_id, position, max_wait_ms=60_000)
        return ask(url, "POST", "/v1/metadata/fetch", request, encoding=MSGPACK).status
    except NO_ANSWER:
        return None


def test_a_client_that_knows_a_broker_alone_administers_the_cluster(quorum: Quorum, tmp_path: Path) -> None:
    """A106, A109: by a broker's own endpoint, with the same single record; one of three controllers is dead here."""
    cluster = quorum.cluster
    port = free_port()
    url = f"http://localhost:{port}"
    settings = BrokerSettings(
        cluster_id=quorum.cluster_id,
        broker_id=BrokerId(51),
        data_dir=tmp_path / "data",
        controllers=tuple(cluster.bootstrap),
        listen_http=("0.0.0.0", port),
        advertised_http=("localhost", port),
        advertised_listeners=(BrokerEndpoint("EXTERNAL", "b51.example.org", 9093, 1),),
    )
    config = tmp_path / "broker.toml"
    config.write_text(broker_toml(settings, data_dir="data"))
    cli: list[str | Path] = [sys.executable, "-m", "ops.cli"]
    here = {"PYTHONPATH": os.pathsep.join(sys.path), "METAQUORUM_LOG": "none"}

    def metaquorum(*words: str | Path) -> Any:
        ran = subprocess.run(
            [*cli, *words, "-o", "json"],
            env={**os.environ, **here},
            check=True,
            capture_output=True,
            timeout=120,
        )
        return json.loads(ran.stdout)

    def is_ready() -> bool:
        try:
            return ask(url, "GET", "/readyz").status == 200
        except NO_ANSWER:
            return False

    subprocess.run([*cli, "storage", "format", "--config", config], env={**os.environ, **here}, check=True)
    with running(
        [*cli, "broker", "run", "--config", config],
        directory=tmp_path,
        env=here,
        ready=is_ready,
        deadline_s=60,
    ):
        by_broker = ("--bootstrap", url, "--timeout", "60")
        described = ask(url, "GET", "/v1/brokers/51").ok()
        assert [tuple(endpoint.values()) for endpoint in described["endpoints"]] == [
            ("PLAINTEXT", "localhost", port, 0),
            ("EXTERNAL", "b51.example.org", 9093, 1),
        ]
        created = metaquorum(
            "topics", "create", "by.broker", "--partitions", "2", "--replication-factor", "1", *by_broker
        )
        assert quorum.ask("GET", "/v1/topics/by.broker").ok()["topic_id"] == created["topic_id"]
        assert metaquorum("topics", "describe", "by.broker", *by_broker)["name"] == "by.broker"
        # What is read in bulk comes from the controllers that the broker names.
        lines = metaquorum("log", "dump", "--from", str(created["offsets"]["base"]), *by_broker)
        assert lines[0]["record"]["name"] == "by.broker"
        assert lines[0]["actor"] == "User:ANONYMOUS@127.0.0.1"
        assert len(metaquorum("quorum", "status", *by_broker)["voters"]) == 3

        headers = {"X-Request-Id": str(uuid.uuid4())}
        before = quorum.position().offset
        first = ask(url, "POST", "/v1/topics", topic("twice"), headers=headers)
        assert int(first.headers["x-high-watermark"]) >= first.ok(201)["offsets"]["end"]
        assert ask(url, "POST", "/v1/topics", topic("twice"), headers=headers).ok(201) == first.ok(201)
        again = quorum.ask("POST", "/v1/topics", topic("twice"), headers=headers)
        assert again.ok(201) == first.ok(201)
        assert first.ok(201)["offsets"]["base"] >= before
        listed = [row["name"] for row in ask(url, "GET", "/v1/topics").ok()["items"]]
        assert listed.count("twice") == 1

        # Leadership moves under writes through the broker.
        poll_until(
            lambda: ask(url, "POST", "/v1/quorum/transfer", {"to": None}).status == 200,
            deadline_s=60,
            what="another controller takes over",
        )
        for number in range(5):
            ask(url, "POST", "/v1/topics", topic(f"moved.{number}")).ok(201)
        refused = ask(url, "POST", "/v1/topics", topic("moved.0"))
        assert refused.error(409, "TOPIC_ALREADY_EXISTS")["controller_id"] >= 1
        ask(url, "GET", "/v1/log").error(404, "INVALID_REQUEST")
        ask(url, "POST", "/v1/metadata/fetch", b"").error(404, "INVALID_REQUEST")
