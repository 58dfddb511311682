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
from ops.local.cluster import LocalCluster
from tests.commands_page import verbs
from tests.support.processes import poll_until
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


LIVE: Final = ["--bootstrap", "URLS"]
OF_BROKER: Final = ["--broker", str(BROKER)]


def of_settings(directory: Path) -> list[tuple[str, list[str]]]:
    """Return the verbs that show or change settings, each with its words."""
    declared = directory / "declared.json"
    declared.write_text(
        json.dumps({"cluster": {"some.plugin.setting": "other"}, "brokers": {BROKER: {"of.mine": CANARY}}})
    )
    set_ = [f"some.plugin.setting={CANARY}-8", "retention.ms=1"]
    return [
        ("configs list", [*OF_BROKER, *LIVE]),
        ("configs list", ["--cluster", *LIVE]),
        ("configs describe", [*OF_BROKER, *LIVE]),
        ("configs describe", ["--cluster", *LIVE]),
        ("configs set", [*OF_BROKER, "--dry-run", *set_, *LIVE]),
        ("configs set", ["--topic", "t", "--dry-run", *set_, *LIVE]),
        ("configs replace", [*OF_BROKER, "--dry-run", *set_, *LIVE]),
        ("configs unset", [*OF_BROKER, "--dry-run", "some.plugin.setting", *LIVE]),
        ("configs append", [*OF_BROKER, "--dry-run", f"some.plugin.setting={CANARY}", *LIVE]),
        ("configs subtract", [*OF_BROKER, "--dry-run", f"some.plugin.setting={CANARY}", *LIVE]),
        ("configs set", [*OF_BROKER, *set_, *LIVE]),
        ("plan", [str(declared), *LIVE]),
        ("apply", [str(declared), "--dry-run", *LIVE]),
        ("apply", [str(declared), "--yes", *LIVE]),
    ]


def asked(directory: Path, data: Path, export: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """Return by part each verb that is run, with its words; those with --bootstrap at the end ask the cluster."""
    snapshot = str(max((data / "snapshots").glob("*.snapshot")))
    of_file = ["--export", str(export)]
    inside = [
        word
        for command in ("ls /", "tree /", "find /", "history /topics/t", "grep canary /", "diff 0 /")
        for word in ("-c", command)
    ]
    return {
        "settings": of_settings(directory),
        "cluster": [
            ("whatif", ["--lose", f"broker={BROKER}", *LIVE]),
            ("whatif", ["--live", "STDIN", *LIVE]),
            ("whatif", ["--from", snapshot, "STDIN"]),
            ("advise", LIVE),
            ("topics list", LIVE),
            ("topics describe", ["t", *LIVE]),
            ("brokers list", LIVE),
            ("brokers describe", [str(BROKER), *LIVE]),
            ("brokers explain", [str(BROKER), *LIVE]),
            ("log dump", LIVE),
            ("log dump", [str(data)]),
            ("log dump", [snapshot]),
            ("diff", ["--from", "0", *LIVE]),
            ("state", LIVE),
            ("state", ["--at", "20", *LIVE]),
            ("shell", [*inside, *LIVE]),
            ("shell", [*inside, "--of", snapshot]),
        ],
        "report": [("report", LIVE)],
        "export": [
            ("log export", ["--to", str(export), *LIVE]),
            ("shell", [*inside, "--of", str(export)]),
            ("replay digest", ["--engine", "duckdb", *of_file]),
            ("replay report", of_file),
            ("replay report", ["--broker", str(BROKER), *of_file]),
            ("replay sql", ["SELECT * FROM config_changes", *of_file]),
            ("replay tables", []),
            ("replay state", ["configs", *of_file]),
            ("replay diff", ["--from", "0", *of_file]),
            ("replay history", ["cluster", *of_file]),
            ("replay history", [f"broker:{BROKER}", *of_file]),
        ],
    }


SHOWS: Final[dict[str, frozenset[str]]] = {
    "settings": frozenset({"configs list", "configs describe"}),
    "cluster": frozenset({"log dump", "diff", "state", "shell"}),
    "report": frozenset(),
    "export": frozenset({"shell", "replay sql"}),
}
"""By part: verbs that show settings, so that the search of what they print says something."""


def _script(path: Path) -> Path:
    change = {"name": "some.plugin.setting", "config_operation": 0, "value": f"{CANARY}-7"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
    lines: list[dict[str, object]] = [
        {"op": "Options"},
        {"op": "IncrementalAlterConfigs", "resources": [resource]},
        {"op": "State"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("part", SHOWS)
def test_no_verb_tells_a_value_that_kafka_would_not_show(
    quorum: Quorum,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    export = tmp_path / "export"
    shown = set()
    for name, words in asked(tmp_path, quorum.cluster.data(1), export)[part]:
        given = [",".join(quorum.cluster.bootstrap) if word == "URLS" else word for word in words]
        stdin = _script(tmp_path / "script.jsonl") if "STDIN" in given else Path("/dev/null")
        for output in ([], ["-o", "json"]):
            with stdin.open() as script, monkeypatch.context() as patched:
                patched.setattr("sys.stdin", script)
                ended = cli.main([*name.split(), *(word for word in given if word != "STDIN"), *output])
            printed = "".join(capfd.readouterr())
            assert ended in ((0, 2, 3, 10) if output else (0, 3, 10)), (name, words, printed)
            assert not said(printed), (name, words, printed)
            shown |= {name} if KNOWN in printed else set()
    assert shown >= SHOWS[part]
    tables = list(export.rglob("*.parquet"))
    assert bool(tables) == (part == "export")
    assert not [path for path in tables if said(repr(pq.read_table(path).to_pylist()))]


def test_each_verb_is_run_or_has_a_reason_why_not(quorum: Quorum, tmp_path: Path) -> None:
    run = {name for rows in asked(tmp_path, quorum.cluster.data(1), tmp_path).values() for name, _ in rows}
    silent = {name for some in SILENT.values() for name in some}
    missing = [whole for noun, whole, _ in verbs() if whole not in run and not {noun, whole} & silent]
    assert missing == [], "run it here, or say why it tells nothing of settings"


def test_neither_a_broker_nor_the_lines_that_nodes_log_tell_it(quorum: Quorum) -> None:
    cluster = quorum.cluster

    def has_the_value() -> bool:
        kept = (path for path in cluster.data(BROKER).rglob("*") if path.is_file())
        return any(CANARY.encode() in path.read_bytes() for path in kept)

    poll_until(has_the_value, deadline_s=60, what="the broker itself has the value")
    routes = ("metadata", "status", "configs?cluster=1", f"configs?broker={BROKER}&effective=1", "state")
    for path in (*(f"/v1/{route}" for route in routes), "/metrics", "/readyz", "/healthz"):
        assert not said(ask(cluster.http(BROKER), "GET", path).body.decode()), path
    logs = [*cluster.data(1).glob("controller.log*"), *cluster.data(BROKER).glob("broker.log*")]
    assert len(logs) >= 2
    assert not [path for path in logs if said(path.read_text())]
