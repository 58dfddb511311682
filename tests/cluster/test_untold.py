"""Edge: no verb and no file for an analyst tells what a secret setting holds.

Goal: a value that Kafka would not show is printed by nothing. Method: canaries in settings of a real cluster, as its
controllers and a broker have them. Each verb that shows a state, a change or a log is run, and all that it prints is
searched. Raw bytes, which hold secrets, are those of logs, snapshots, caches and backups alone.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from metadata_log.digest import hex_of_text
from ops import cli
from ops.local_cluster import LocalCluster
from tests.commands_page import verbs
from tests.support.wire import Quorum, ask, calm, wait_until_all_agree

pytestmark = pytest.mark.slow
CANARY: Final = "canary-that-flies-nowhere"
SETTINGS: Final = {
    "some.plugin.setting": f"{CANARY}-1",
    "listener.name.x.ssl.key.password": f"{CANARY}-2",
    "retention.ms": f"{CANARY}-3",
}
KNOWN: Final = "log.retention.ms"
BROKER: Final = 11
SILENT: Final[dict[str, frozenset[str]]] = {
    "a node, or a cluster of its own": frozenset(
        {"up", "controller run", "broker run", "broker verify", "bench", "learn", "roll", "move"}
    ),
    "files and certificates of nodes": frozenset(
        {"context", "config", "storage", "certificates", "completion", "version", "help"}
    ),
    "what is not about settings": frozenset(
        {"acls", "quotas", "users", "tokens", "features", "controllers", "partitions", "quorum", "snapshot"}
    ),
    "bytes, or a terminal": frozenset({"backup", "top", "log verify", "log tail"}),
    "changes of topics and brokers": frozenset(
        {
            *(f"topics {verb}" for verb in ("create", "delete", "undelete", "add-partitions", "alter")),
            *(f"brokers {verb}" for verb in ("drain", "unregister")),
        }
    ),
}
"""By the reason: nouns and verbs that are not run here."""


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    cluster = LocalCluster(tmp_path_factory.mktemp("untold") / "c", controllers=1, brokers=1, adjust=calm)
    try:
        asyncio.run(cluster.start())
        quorum = Quorum(cluster)
        quorum.ask("POST", "/v1/topics", {"name": "t", "partitions": 1, "replication_factor": 1}).ok(201)
        quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {KNOWN: "77"} | _for_all()}).ok()
        quorum.ask("PATCH", "/v1/configs", {"broker": BROKER, "set": SETTINGS | {KNOWN: "78"}}).ok()
        quorum.ask("POST", "/v1/snapshots").ok(201)
        quorum.ask("PATCH", "/v1/configs", {"broker": BROKER, "set": {"some.plugin.setting": CANARY}}).ok()
        wait_until_all_agree(cluster)
        yield quorum
    finally:
        asyncio.run(cluster.stop())


def _for_all() -> dict[str, str]:
    return {name: value for name, value in SETTINGS.items() if not name.startswith("listener")}


def said(text: str) -> bool:
    return CANARY in text or hex_of_text(CANARY) in text


def asked(directory: Path, data: Path, export: Path) -> list[tuple[str, list[str]]]:
    """Return each verb that is run, with its words; those with --bootstrap at the end ask the cluster."""
    snapshot = str(max((data / "snapshots").glob("*.snapshot")))
    declared, script = directory / "declared.json", directory / "script.jsonl"
    declared.write_text(
        json.dumps({"cluster": {"some.plugin.setting": "other"}, "brokers": {BROKER: {"of.mine": CANARY}}})
    )
    change = {"name": "some.plugin.setting", "config_operation": 0, "value": f"{CANARY}-7"}
    lines = [
        {"op": "Options"},
        {
            "op": "IncrementalAlterConfigs",
            "resources": [{"resource_type": 4, "resource_name": "", "configs": [change]}],
        },
        {"op": "State"},
    ]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    broker, live, of_file = ["--broker", str(BROKER)], ["--bootstrap", "URLS"], ["--export", str(export)]
    inside = [
        word
        for command in (*("ls /", "tree /", "find /", "history /topics/t", "grep canary /", "diff 0 /"),)
        for word in ("-c", command)
    ]
    set_ = [f"some.plugin.setting={CANARY}-8", "retention.ms=1"]
    return [
        ("configs list", [*broker, *live]),
        ("configs list", ["--cluster", *live]),
        ("configs describe", [*broker, *live]),
        ("configs describe", ["--cluster", *live]),
        ("configs set", [*broker, "--dry-run", *set_, *live]),
        ("configs set", ["--topic", "t", "--dry-run", *set_, *live]),
        ("configs replace", [*broker, "--dry-run", *set_, *live]),
        ("configs unset", [*broker, "--dry-run", "some.plugin.setting", *live]),
        ("configs append", [*broker, "--dry-run", f"some.plugin.setting={CANARY}", *live]),
        ("configs subtract", [*broker, "--dry-run", f"some.plugin.setting={CANARY}", *live]),
        ("configs set", [*broker, *set_, *live]),
        ("plan", [str(declared), *live]),
        ("apply", [str(declared), "--dry-run", *live]),
        ("apply", [str(declared), "--yes", *live]),
        ("whatif", ["--lose", f"broker={BROKER}", *live]),
        ("whatif", ["--live", "STDIN", *live]),
        ("whatif", ["--from", snapshot, "STDIN"]),
        ("advise", live),
        ("topics list", live),
        ("topics describe", ["t", *live]),
        ("brokers list", live),
        ("brokers describe", [str(BROKER), *live]),
        ("brokers explain", [str(BROKER), *live]),
        ("log dump", live),
        ("log dump", [str(data)]),
        ("log dump", [snapshot]),
        ("log export", ["--to", str(export), *live]),
        ("diff", ["--from", "0", *live]),
        ("report", live),
        ("state", live),
        ("state", ["--at", "20", *live]),
        ("shell", [*inside, *live]),
        ("shell", [*inside, "--of", snapshot]),
        ("shell", [*inside, "--of", str(export)]),
        ("replay digest", of_file),
        ("replay report", of_file),
        ("replay report", ["--broker", str(BROKER), *of_file]),
        ("replay sql", ["SELECT * FROM config_changes", *of_file]),
        ("replay tables", []),
        ("replay state", ["configs", *of_file]),
        ("replay diff", ["--from", "0", *of_file]),
        ("replay history", ["cluster", *of_file]),
        ("replay history", [f"broker:{BROKER}", *of_file]),
    ]


def test_no_verb_tells_a_value_that_kafka_would_not_show(
    quorum: Quorum, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, export = quorum.cluster.data(1), tmp_path / "export"
    shown = set()
    rows = asked(tmp_path, data, export)
    for name, words in rows:
        given = [",".join(quorum.cluster.bootstrap) if word == "URLS" else word for word in words]
        stdin = (tmp_path / "script.jsonl") if "STDIN" in given else Path("/dev/null")
        for output in ([], ["-o", "json"]):
            with stdin.open() as script, monkeypatch.context() as patched:
                patched.setattr("sys.stdin", script)
                ended = cli.main([*name.split(), *(word for word in given if word != "STDIN"), *output])
            printed = "".join(capfd.readouterr())
            assert ended in ((0, 2, 3, 10) if output else (0, 3, 10)), (name, words, printed)
            # A command that is refused may repeat its own words; what it was given is no secret to who gave it.
            assert not said(printed), (name, words, printed)
            shown |= {name} if KNOWN in printed else set()
    assert shown >= {"configs list", "configs describe", "log dump", "diff", "state", "shell", "replay sql"}
    run = {name for name, _ in rows}
    silent = {name for some in SILENT.values() for name in some}
    missing = [whole for noun, whole, _ in verbs() if whole not in run and not {noun, whole} & silent]
    assert missing == [], "run it here, or say why it tells nothing of settings"
    tables = [path for path in export.rglob("*.parquet") if said(repr(pq.read_table(path).to_pylist()))]
    assert tables == []


def test_neither_a_broker_nor_the_lines_that_nodes_log_tell_it(quorum: Quorum) -> None:
    cluster = quorum.cluster
    routes = ("metadata", "status", "configs?cluster=1", f"configs?broker={BROKER}&effective=1", "state")
    for path in (*(f"/v1/{route}" for route in routes), "/metrics", "/readyz", "/healthz"):
        assert not said(ask(cluster.http(BROKER), "GET", path).body.decode()), path
    logs = [*cluster.data(1).glob("controller.log*"), *cluster.data(BROKER).glob("broker.log*")]
    assert len(logs) >= 2
    assert not [path for path in logs if said(path.read_text())]
    follows = [path.read_bytes() for path in cluster.data(BROKER).rglob("*") if path.is_file()]
    assert any(CANARY.encode() in content for content in follows), "the broker itself has the value"
