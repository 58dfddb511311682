"""Edge: a file that declares topics and settings, on the command line."""

import json
from pathlib import Path

import pytest

from ops import cli
from ops.admin import live_state
from tests.support.placements import a_cluster

AT = ("--bootstrap", "http://127.0.0.1:1")
TOML = """
[cluster]
"min.insync.replicas" = 2

[topics.t]
partitions = 2
configs = { "retention.ms" = 6 }
"""


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verbs find a state, but no controller that could write."""
    image = a_cluster([None] * 3, "t on=1,2/2,3 retention.ms=5").image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)


def a_file(directory: Path, text: str, name: str = "cluster.toml") -> str:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("words", [["plan"], ["apply", "--dry-run"]])
def test_drift_is_shown_and_has_an_exit_code(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noun, *more = words
    assert cli.main([noun, a_file(tmp_path, TOML), *more, "-o", "json", *AT]) == 10
    assert json.loads(capsys.readouterr().out) == [
        {"resource": "topic t", "what": "retention.ms", "declared": "6", "now": "5"},
        {"resource": "cluster", "what": "min.insync.replicas", "declared": "2", "now": None},
    ]
    same = a_file(tmp_path, json.dumps({"topics": {"t": {"partitions": 2}}}), "cluster.json")
    assert cli.main([noun, same, *more, *AT]) == 0
    assert "all is as declared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[topics.t]\npartition = 2", "cluster.toml declares nothing: "),
        ("[topics", "cluster.toml declares nothing: "),
        (TOML, "give --yes"),
    ],
)
def test_nothing_is_applied_without_a_sound_file_and_a_yes(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["apply", a_file(tmp_path, text), *AT]) == 2
    assert why in capsys.readouterr().err
