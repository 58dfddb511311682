"""Edge: brokers on the command line: as a table and as JSON, and removed one by one, each with its result."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ops import cli
from tests.support.told_node import Node, Reply, Seen, error, node

ONLINE = {
    "broker_id": 11,
    "state": "ONLINE",
    "broker_epoch": 5,
    "rack": "a",
    "applied_offset": 40,
    "lag_records": 2,
    "last_contact_ms_ago": 1_500,
    "metadata_age_ms": 1_500,
    "would_serve_stale": True,
    "control_state": "UNFENCED",
    "waits_for": None,
    "endpoints": [],
}
OFFLINE = {**ONLINE, "broker_id": 12, "state": "OFFLINE", "last_contact_ms_ago": None}


def test_brokers_are_listed_with_their_last_contact(capsys: pytest.CaptureFixture[str]) -> None:
    page = {"end_offset": 42, "controller_epoch": 1, "items": [ONLINE, OFFLINE]}
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(page).encode())
        assert cli.main(["brokers", "list", "--bootstrap", told.url]) == 0
        table = capsys.readouterr().out.splitlines()
        assert cli.main(["brokers", "list", "--bootstrap", told.url, "-o", "json"]) == 0
    assert table[0].split() == ["ID", "STATE", "RACK", "LAG", "CONTACT", "ADDRESS"]
    assert "1s ago" in table[1] and table[2].split()[:2] == ["12", "OFFLINE"] and "ago" not in table[2]
    assert json.loads(capsys.readouterr().out) == [ONLINE, OFFLINE]


def test_one_broker_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(ONLINE).encode())
        assert cli.main(["brokers", "describe", "11", "--bootstrap", told.url]) == 0
        assert told.seen[0].path == "/v1/brokers/11"
    assert "ONLINE" in capsys.readouterr().out


def listing(*brokers: dict[str, Any], gone: str = "none") -> Callable[[Seen], Reply]:
    """Return what a controller with these brokers answers; `gone` is the id that it knows no more."""

    def answer(seen: Seen) -> Reply:
        if seen.method == "DELETE":
            return error("BROKER_ID_NOT_REGISTERED", 404) if seen.path.endswith(gone) else Reply()
        if seen.path != "/v1/brokers":
            return error("CLUSTER_AUTHORIZATION_FAILED", 403)  # what it would do is then not known
        return Reply(body=json.dumps({"items": brokers}).encode())

    return answer


def deleted(told: Node) -> list[str]:
    return [seen.path for seen in told.seen if seen.method == "DELETE"]


def test_brokers_are_removed_one_by_one_and_each_has_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = listing(*({**OFFLINE, "broker_id": one} for one in (11, 13)), gone="/12")
        words = ["brokers", "unregister", "11", "12", "13", "-o", "json", "--bootstrap", told.url]
        assert cli.main([*words, "--yes"]) == 3
        assert deleted(told) == [f"/v1/brokers/{broker_id}" for broker_id in (11, 12, 13)]
    results = json.loads(capsys.readouterr().out)
    assert [(one["broker_id"], one["error"]) for one in results] == [
        (11, None),
        (12, "BROKER_ID_NOT_REGISTERED"),
        (13, None),
    ]


@pytest.mark.parametrize("state", ["ONLINE", "FENCED", "STOPPING"])
def test_a_broker_that_runs_is_not_unregistered(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: as `controllers unregister`: it would register again 40 ms later. --yes is no reason, --force is."""
    with node() as told:
        told.answer = listing(OFFLINE, {**ONLINE, "broker_id": 13, "state": state})
        words = ["brokers", "unregister", "12", "13", "--yes", "--bootstrap", told.url]
        assert cli.main(words) == 3
        said = capsys.readouterr().err
        assert f"broker 13 is {state} and would register again at once" in said and "--force" in said
        assert deleted(told) == []
        assert cli.main([*words, "--force"]) == 0
        assert deleted(told) == ["/v1/brokers/12", "/v1/brokers/13"]


def test_a_dry_run_tells_that_a_broker_that_runs_would_be_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.verbs.brokers.Change.foreseen", lambda *_: 0)
    with node() as told:
        told.answer = listing(OFFLINE, {**ONLINE, "broker_id": 13})
        words = ["brokers", "unregister", "12", "13", "--dry-run", "--bootstrap", told.url]
        assert cli.main(words) == 3
        assert "it would be refused: broker 13 is ONLINE" in capsys.readouterr().err
        assert cli.main([*words, "--force"]) == 0
        assert deleted(told) == []


def test_without_a_terminal_an_unregistration_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = listing(OFFLINE)
        assert cli.main(["brokers", "unregister", "12", "--bootstrap", told.url]) == 2
        assert deleted(told) == []
    assert "give --yes" in capsys.readouterr().err
