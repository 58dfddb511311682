"""Edge: every verb that changes something shows first what it would write."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from metadata_log.ids import BrokerId, NodeId, uuid_text
from metadata_log.records.configs import MASK_KEY_BYTES
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.declaration import mask
from metadata_log.records.partitions import PartitionChangeRecord
from ops import cli
from ops.admin import live_state
from quorum.decide.features import REGISTERED
from quorum.node.config import ElectionSettings, TopicSettings
from quorum.whatif.cluster import Options
from tests.support.decisions import CONTROLLER, World, word_uuid
from tests.support.told_node import Reply, node
from tests.unit.ops.test_cli import words_by_verb

NO_OPTIONS: Final[Mapping[str, Any]] = {}
DRY = ("--dry-run", "-o", "json", "--bootstrap", "http://127.0.0.1:1")
READS = {
    *("quorum status", "quorum health"),
    *(
        "controllers list",
        "brokers list",
        "brokers describe",
        "brokers explain",
        "topics list",
        "topics describe",
    ),
    *("partitions list", "partitions reassignments", "partitions imbalance", "partitions explain"),
    *("configs list", "configs describe", "features list", "plan", "whatif", "state"),
    *("log dump", "log verify", "snapshot list", "snapshot verify", "storage info"),
    *("replay digest", "replay report", "replay sql", "replay tables"),
    *("replay state", "replay diff", "replay history"),
    *("shell", "advise", "quotas list", "acls list", "acls explain", "users list", "features preview"),
    *("log tail", "top", "diff", "report", "version", "help", "completion", "config check", "context list"),
    *("certificates list", "quorum versions", "tokens list"),
}
"""They change nothing."""
RUNS = {
    *("up", "controller run", "broker run", "broker verify", "learn"),  # processes
    *("context set", "context use", "context delete"),  # a file of the user's
    *(
        "storage format",
        "log export",
        "backup take",
    ),  # a directory that is named, and nothing of a running cluster
}


def is_bench(path: str) -> bool:
    return path.startswith("bench ")


def test_every_verb_that_changes_something_has_a_dry_run() -> None:
    found = words_by_verb()
    assert set(found) >= READS | RUNS, "the table names verbs that exist"
    lacking = [path for path, words in found.items() if "--dry-run" not in words]
    assert {path for path in lacking if not is_bench(path)} == READS | RUNS


def a_cluster() -> World:
    world = World()
    registered = RegisterControllerRecord(
        NodeId(CONTROLLER), word_uuid("c"), world.image.end_offset, False, (), REGISTERED
    )
    world.write([registered])
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=1,2,3/2,3,1 retention.ms=5")
    world.run("create u on=1,2")
    world.write([PartitionChangeRecord(world.image.topics.ids["u"], 0, leader=BrokerId(2))])
    world.write([registered._replace(controller_id=NodeId(77))])
    return world


def no_controller(monkeypatch: pytest.MonkeyPatch, options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """Let dry runs find a state, and the settings of a controller, but nobody who could write."""
    image = a_cluster().image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    monkeypatch.setattr(live_state, "live_options", lambda _: Options(**options))


def test_a_dry_run_masks_a_secret_under_a_key_that_nobody_can_draw_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a printed mask tells nothing of its secret. Method: masks under the key of each seed of a script; two runs."""
    no_controller(monkeypatch)
    name, masks = "listener.name.x.ssl.keystore.password", set[str]()
    for _ in range(2):
        assert cli.main(["configs", "set", "--broker", "1", f"{name}=hunter2", *DRY]) == 0
        (record,) = json.loads(capsys.readouterr().out)["records"]
        masks.add(record["value"])
    assert len(masks) == 2
    guessed = {mask("hunter2", random.Random(seed).randbytes(MASK_KEY_BYTES)) for seed in range(100)}
    assert not masks & {*guessed, mask("hunter2", None)}


@pytest.mark.parametrize(
    ("line", "records", "refused"),
    [
        ("topics create a --partitions 2 --replication-factor 2", {"Topic": 1, "Partition": 2}, []),
        (
            "topics create a t b --partitions 1 --replication-factor 2 --config flush.ms=1",
            {"Topic": 2, "Config": 2, "Partition": 2},
            ["TOPIC_ALREADY_EXISTS"],
        ),
        (
            "topics create a t --partitions 1 --replication-factor 1 --all-or-nothing",
            {},
            ["OPERATION_NOT_ATTEMPTED", "TOPIC_ALREADY_EXISTS"],
        ),
        ("topics delete t", {"RemoveTopic": 1}, []),
        ("topics delete t no", {"RemoveTopic": 1}, ["UNKNOWN_TOPIC_OR_PARTITION"]),
        (f"topics delete --id {uuid_text(word_uuid('nobody'))}", {}, ["UNKNOWN_TOPIC_ID"]),
        ("topics add-partitions t u --to 3 --placement plain", {"Partition": 3}, []),
        (
            "configs set --topic t --topic no --cluster min.insync.replicas=2",
            {"Config": 2},
            ["UNKNOWN_TOPIC_OR_PARTITION"],
        ),
        ("configs set --cluster min.insync.replicas=abc", {}, ["INVALID_REQUEST"]),
        ("configs unset --topic t retention.ms", {"Config": 1}, []),
        ("configs append --topic t cleanup.policy=compact", {"Config": 1}, []),
        ("configs subtract --topic t retention.ms=5", {}, ["INVALID_CONFIG"]),
        ("configs replace --topic t", {"Config": 1}, []),
        ("brokers unregister 1 2 --force", {"PartitionChange": 6, "UnregisterBroker": 2}, []),
        (
            "partitions elect --topic u --partition 0 --partition 7",
            {"PartitionChange": 1},
            ["UNKNOWN_TOPIC_OR_PARTITION"],
        ),
        ("partitions reassign --topic t --partition 0 --replicas 3,2", {"PartitionChange": 1}, []),
    ],
)
def test_a_dry_run_shows_the_records_and_what_would_be_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    records: dict[str, int],
    refused: list[str],
) -> None:
    """Goal: a dry run asks nobody to write. Method: there is no controller, only its state."""
    no_controller(monkeypatch)
    assert cli.main([*line.split(), *DRY]) == (3 if refused else 0), "as the change itself would end"
    shown = json.loads(capsys.readouterr().out)
    assert Counter(record["type"] for record in shown["records"]) == records
    assert [one["error"] for one in shown["refused"]] == refused


def test_a_request_that_would_be_refused_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_controller(monkeypatch)
    create = ("topics", "create", "--replication-factor", "1")
    assert cli.main([*create, "a", "--partitions", "10001", *DRY]) == 3
    assert "10001 partitions in one request; at most 10000" in json.loads(capsys.readouterr().err)["message"]
    assert cli.main([*create, "a", "b", "--partitions", "6000", "--all-or-nothing", *DRY]) == 3
    assert "12000 partitions in one request; at most 10000" in json.loads(capsys.readouterr().err)["message"]


@pytest.mark.slow
def test_what_exceeds_a_batch_is_split(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C16: by the number of records, and by their bytes; one that is too large alone is refused alone."""
    no_controller(monkeypatch)
    names = [f"n{number}" for number in range(5)]
    many = ("topics", "create", *names, "--partitions", "4000", "--replication-factor", "1")
    assert cli.main([*many, *DRY]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["records"]), shown["batches"], shown["refused"]) == (20_005, 3, [])
    assert (
        cli.main(["topics", "create", "a", "b", "--partitions", "10001", "--replication-factor", "1", *DRY])
        == 3
    )
    shown = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["error"]) for one in shown["refused"]] == [
        ("a", "POLICY_VIOLATION"),
        ("b", "POLICY_VIOLATION"),
    ]
    settings = [f"k{number}={'v' * 30_000}" for number in range(12)]
    resources = ("--broker", "1", "--broker", "2", "--broker", "3")
    assert cli.main(["configs", "set", *resources, *settings, *DRY]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["records"]), shown["batches"], shown["refused"]) == (36, 2, [])


@pytest.mark.parametrize(
    ("line", "options", "records", "refused"),
    [
        ("topics delete t", {"undelete_window_ms": 60_000}, {"TopicTombstone": 1}, []),
        ("topics delete t --now", {"undelete_window_ms": 60_000}, {"RemoveTopic": 1}, []),
        (
            "topics create a t --partitions 3 --replication-factor 1",
            {"partitions_per_topic_max": 2},
            {},
            ["POLICY_VIOLATION", "TOPIC_ALREADY_EXISTS"],
        ),
        (
            "topics create a t --partitions 1 --replication-factor 1",
            {"replication_factor_min": 2},
            {},
            ["POLICY_VIOLATION", "TOPIC_ALREADY_EXISTS"],
        ),
        ("topics add-partitions t --to 4", {"partitions_per_topic_max": 3}, {}, ["POLICY_VIOLATION"]),
    ],
)
def test_a_dry_run_decides_by_the_settings_of_the_active_controller(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    options: dict[str, int],
    records: dict[str, int],
    refused: list[str],
) -> None:
    no_controller(monkeypatch, options)
    assert cli.main([*line.split(), *DRY]) == (3 if refused else 0), "as the change itself would end"
    shown = json.loads(capsys.readouterr().out)
    assert Counter(record["type"] for record in shown["records"]) == records
    assert [one["error"] for one in shown["refused"]] == refused


def test_a_dry_run_of_a_plan_counts_records_and_batches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """C16: how large an operation is, before it begins."""
    no_controller(monkeypatch)
    replicas = {
        ("t", 0): [2, 3, 1],
        ("t", 1): [2, 3, 1],
        ("u", 0): [3],
        **{("x", n): [1] for n in range(999)},
    }
    rows = [{"topic": t, "partition": n, "replicas": wanted} for (t, n), wanted in replicas.items()]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": rows}))
    line = ("partitions", "reassign", "--plan", str(plan))
    assert cli.main([*line, *DRY]) == 3
    shown = json.loads(capsys.readouterr().out)
    assert (len(shown["records"]), shown["batches"], len(shown["refused"])) == (2, 1, 999)
    assert cli.main([*line, *DRY, "-o", "table"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "2 records in 1 batch, 999 refused"
    assert cli.main([*line, "--all-or-nothing", *DRY]) == 2
    assert "1002 at once; --all-or-nothing takes at most 1000" in capsys.readouterr().err


def test_the_settings_of_a_controller_become_those_of_a_dry_run() -> None:
    """Goal: no setting that a decision rests on is forgotten. Method: each gets a value of its own."""
    topics = {name: 10 + at for at, name in enumerate(TopicSettings.__slots__)}
    elections = {name: 20 + at for at, name in enumerate(ElectionSettings.__slots__)}
    told = {"end_offset": 7, "topics": topics, "elections": elections, "session_timeout_ms": 5}
    options = asdict(Options.of_settings(told))
    assert {name: options[name] for name in (*topics, *elections)} == topics | elections
    assert options["session_timeout_ms"] == 5


@pytest.mark.parametrize(
    ("controller_id", "linked", "types", "code"),
    [
        (77, [], ["UnregisterController"], 0),
        (77, [77], [], 3),
        (CONTROLLER, [], [], 3),
        (5, [], [], 3),
    ],
)
def test_a_dry_run_of_an_unregistration_rests_on_the_links_of_the_active_controller(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    controller_id: int,
    linked: list[int],
    types: list[str],
    code: int,
) -> None:
    no_controller(monkeypatch)
    items = [{"controller_id": each, "linked": each in linked} for each in (CONTROLLER, 77)]
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps({"items": items}).encode())
        line = ["controllers", "unregister", str(controller_id), "--dry-run", "-o", "json"]
        assert cli.main([*line, "--bootstrap", told.url]) == code
        assert {seen.method for seen in told.seen} == {"GET"}
    out = capsys.readouterr().out
    assert [record["type"] for record in json.loads(out or '{"records": []}')["records"]] == types
