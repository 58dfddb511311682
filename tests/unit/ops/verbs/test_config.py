"""Edge: settings files are checked without a node, and every fault of one is named."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import random_uuid, uuid_text
from ops import cli

CLUSTER = uuid_text(random_uuid(random.Random(1)))
SOUND = f"""
cluster_id = "{CLUSTER}"
node_id = 1
data_dir = "data"
insecure = true
[listen]
http = "http://127.0.0.1:9001"
raft = "127.0.0.1:9002"
[[voters]]
id = 1
directory_id = "{CLUSTER}"
http = "http://127.0.0.1:9001"
raft = "127.0.0.1:9002"
"""


def checked(capsys: pytest.CaptureFixture[str], code: int, *files: Path) -> list[dict[str, Any]]:
    assert cli.main(["config", "check", *map(str, files), "-o", "json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def controller(folder: Path, text: str = SOUND) -> Path:
    file = folder / "controller.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_fault_is_named_and_not_only_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrong = SOUND.replace("node_id = 1", 'node_id = "one"').replace('raft = "127.0.0.1:9002"\n[[', "[[")
    wrong = (
        wrong.replace("id = 1\ndirectory_id", "directory_id")
        + "[timing]\nsession_timeout_ms = -1.5\nheartbeat = 3\n"
    )
    found = checked(capsys, 3, controller(tmp_path, wrong))
    told = [one["detail"] for one in found]
    for fault in (
        "node_id",
        "listen.raft is missing",
        "voters[0].id is missing",
        "timing.session_timeout_ms",
        "heartbeat",
    ):
        assert any(fault in one for one in told), (fault, told)
    assert {one["result"] for one in found} == {"fault"} and len(found) == 5


def test_a_file_that_is_sound_is_ok_once_its_directory_is_formatted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = controller(tmp_path)
    (fault,) = checked(capsys, 3, file)
    assert "storage format" in fault["detail"]
    assert cli.main(["storage", "format", "--config", str(file)]) == 0
    capsys.readouterr()
    assert checked(capsys, 0, file) == [{"file": str(file), "result": "ok", "detail": ""}]


def test_values_that_contradict_each_other_are_a_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrong = SOUND.replace('raft = "127.0.0.1:9002"\n[[', 'raft = "127.0.0.1:9003"\n[[')
    found = checked(capsys, 3, controller(tmp_path, wrong))
    assert any("listen.raft is port 9003" in one["detail"] for one in found)


def test_one_that_is_no_settings_file_is_a_fault_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (fault,) = checked(capsys, 3, controller(tmp_path, "= 3"))
    assert "not TOML" in fault["detail"]
