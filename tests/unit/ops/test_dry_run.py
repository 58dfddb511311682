"""Edge: every verb that changes something shows first what it would write."""

import argparse
import importlib.metadata
import json
from collections import Counter

import pytest

from metadata_log.ids import BrokerId, NodeId, uuid_text
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord
from ops import cli, dry_run, live_state
from quorum.decide.features import REGISTERED
from tests.support.decisions import CONTROLLER, World, word_uuid
from tests.unit.ops.test_cli import verbs

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
    *("configs list", "configs describe", "features list", "whatif", "state"),
    *("log dump", "log verify", "snapshot list", "snapshot verify", "storage info"),
    *("replay digest", "replay report"),
}
"""They change nothing."""
RUNS = {
    *("up", "controller run", "broker run"),  # processes
    *("storage format", "log export"),  # a directory that is named, and nothing of a running cluster
}


def is_bench(path: str) -> bool:
    return path.startswith("bench ")


def has_dry_run(parser: argparse.ArgumentParser) -> bool:
    return any("--dry-run" in action.option_strings for action in parser._actions)


def test_every_verb_that_changes_something_has_a_dry_run() -> None:
    found = dict(verbs(cli.make_parser()))
    assert set(found) >= READS | RUNS, "the table names verbs that exist"
    lacking = [path for path, parser in found.items() if not has_dry_run(parser)]
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
    return world


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
        ("brokers unregister 1 2", {"PartitionChange": 6, "UnregisterBroker": 2}, []),
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
    image = a_cluster().image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    monkeypatch.setattr(dry_run, "undelete_window_ms", lambda *_: 0)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"ops": ["metaquorum"]})
    assert cli.main([*line.split(), "--dry-run", "-o", "json", "--bootstrap", "http://127.0.0.1:1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert Counter(record["type"] for record in shown["records"]) == records
    assert [one["error"] for one in shown["refused"]] == refused


def test_a_request_that_would_be_refused_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_state, "live_image", lambda _: a_cluster().image)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"ops": ["metaquorum"]})
    line = (
        "topics create a b --partitions 6000 --replication-factor 1 --dry-run --bootstrap http://127.0.0.1:1"
    )
    assert cli.main(line.split()) == 3
    assert "POLICY_VIOLATION" in capsys.readouterr().err
