"""Edge: `storage info` shows with what a node's cluster was to be founded, ours and Kafka's, and never a credential."""

import json
import shutil
from pathlib import Path

import pytest

from ops import cli
from quorum.node.bootstrap import read_bootstrap
from tests.support.kafka_log import RECORDING, unpacked

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FOUNDING = RECORDING.with_name("bootstrap.checkpoint")
"""What `kafka-storage format --release-version 4.1 --add-scram SCRAM-SHA-256=[name=alice,...]` of 4.3.1 left."""
LEVELS = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 27,
    "transaction.version": 2,
}


def formatted(tmp_path: Path, *options: str) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(f'cluster_id = "{CLUSTER_ID}"\nnode_id = 1\ndata_dir = "data"\n')
    assert cli.main(["storage", "format", "--config", str(file), *options]) == 0
    return tmp_path / "data"


def test_a_founding_is_shown_with_names_and_without_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = "SCRAM-SHA-512=[name=alice,password=alice-secret]"
    data = formatted(
        tmp_path, "--release-version", "4.1", "--feature", "kraft.version=0", "--add-scram", user
    )
    capsys.readouterr()
    assert cli.main(["storage", "info", str(data), "--json"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["founded_with"] == {
        "release": "4.1-IV1",
        "features": LEVELS | {"kraft.version": 0},
        "users": [{"name": "alice", "mechanism": "SCRAM-SHA-512"}],
    }
    assert cli.main(["storage", "info", str(data)]) == 0
    table = capsys.readouterr().out
    assert "4.1-IV1" in table and "alice (SCRAM-SHA-512)" in table
    file = json.loads((data / "bootstrap.json").read_text())
    founding = read_bootstrap(data)
    assert founding is not None
    for secret in ("salt", "stored_key", "server_key", "mask_key"):
        assert file["users"][0][secret] not in shown + table
        assert getattr(founding.credentials[0], secret).hex() not in shown + table


def test_a_directory_without_a_founding_shows_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = formatted(tmp_path)
    capsys.readouterr()
    assert cli.main(["storage", "info", str(data), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["founded_with"] is None


def test_a_founding_that_is_damaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = formatted(tmp_path, "--release-version", "4.1")
    (data / "bootstrap.json").write_text("{}")
    assert cli.main(["storage", "info", str(data)]) == 6
    assert "bootstrap.json: does not say with what a cluster is founded" in capsys.readouterr().err


def test_a_directory_of_kafkas_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = unpacked(tmp_path) / "controller-3"
    assert cli.main(["storage", "info", str(directory), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert (before["role"], before["id"], before["running"]) == ("kafka", 3, False)
    assert before["founded_with"] is None
    shutil.copy(FOUNDING, directory)
    assert cli.main(["storage", "info", str(directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["founded_with"] == {
        "release": "4.1-IV1",
        "features": LEVELS,
        "users": [{"name": "alice", "mechanism": "SCRAM-SHA-256"}],
    }
