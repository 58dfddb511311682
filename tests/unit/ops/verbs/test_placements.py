"""Edge: a broker is drained on the command line: what is shown, asked and refused."""

import json

import pytest

from ops import cli
from ops.admin import live_state
from ops.verbs import placements
from tests.support.placements import a_cluster

AT = ("--bootstrap", "http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verbs find a state, but no controller that could write."""
    image = a_cluster(["a", "b", "b", None], "t on=1,2/2,1/3,1", "wide on=1,2,3,4").image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)


def test_what_a_drain_would_do_is_shown_and_can_be_carried_out_as_a_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["brokers", "drain", "4", "--leaders-only", "--dry-run", *AT]
    assert cli.main(words) == 0
    assert "nothing to reassign" in capsys.readouterr().out
    assert cli.main(["brokers", "drain", "1", "--leaders-only", "--dry-run", "-o", "json", *AT]) == 0
    foreseen = json.loads(capsys.readouterr().out)
    assert [(one["topic"], one["partition"], one["replicas"]) for one in foreseen["partitions"]] == [
        ("t", 0, [2, 1]),
        ("wide", 0, [4, 2, 3, 1]),
    ]
    assert [one["preferred_then"] for one in foreseen["brokers"]] == [0, 2, 1, 1]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("brokers drain 9 --yes", 3, "broker 9 is not registered"),
        ("brokers drain 1 --yes", 3, "wide:0: its 4 replicas need more brokers than are left"),
        ("brokers drain 1 --to 9 --yes", 3, "broker 9 takes no replicas"),
        ("brokers drain 1 --leaders-only", 2, "give --yes"),
    ],
)
def test_what_cannot_be_drained_is_refused_before_anything_moves(
    words: str, code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words.split(), *AT]) == code
    assert why in capsys.readouterr().err


def test_a_drain_that_leaves_a_replica_is_not_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """New topics may land on the broker for as long as it runs: after the last round something may be left."""
    image = a_cluster(["a", "b", "b"], "t on=1,2").image
    monkeypatch.setattr(live_state, "live_image", lambda _: image)
    monkeypatch.setattr(placements, "_in_rounds", lambda *_, **__: (0, [], image))
    assert cli.main(["brokers", "drain", "1", "--yes", *AT]) == 3
    assert "broker 1 still has 1 replicas: the same command goes on" in capsys.readouterr().out
    assert cli.main(["brokers", "drain", "3", "--yes", *AT]) == 0
