"""Edge: registered controllers on the command line."""

import json
from typing import Any

import pytest

from ops import cli
from tests.support.terminal import answering
from tests.support.told_node import Reply, error, node

CONTROLLER = {
    "controller_id": 1,
    "incarnation_id": "i",
    "registration_epoch": 7,
    "registered_at_ms": None,
    "is_voter": True,
    "linked": True,
    "endpoints": [],
    "features": [{"name": "metadata.version", "min": 1, "max": 29}, {"name": "x", "min": 0, "max": 1}],
}


@pytest.mark.parametrize(
    ("items", "shown"), [([CONTROLLER], "metadata.version 1-29,x 0-1"), ([], "no controllers are registered")]
)
def test_controllers_are_listed_with_what_they_support(
    items: list[dict[str, Any]], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"end_offset": 9, "controller_epoch": 1, "items": items}
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(page).encode())
        assert cli.main(["controllers", "list", "-o", "wide", "--bootstrap", told.url]) == 0
    assert shown in capsys.readouterr().out


def test_a_controller_that_is_gone_is_unregistered(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = lambda _: Reply(body=b'{"controller_id": 4}')
        assert cli.main(["controllers", "unregister", "4", "--yes", "--bootstrap", told.url]) == 0
        assert [(seen.method, seen.path) for seen in told.seen] == [("DELETE", "/v1/controllers/4")]
    assert "controller 4 is no longer registered" in capsys.readouterr().out


def test_a_controller_that_keeps_its_registration_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: an operator is asked about what can be done, and is told before what would be refused."""
    screen = answering(monkeypatch, "y")
    with node() as told:
        told.answer = lambda _: error("NODE_STILL_ALIVE", 409)
        assert cli.main(["controllers", "unregister", "1", "--bootstrap", told.url]) == 3
        paths = [seen.path for seen in told.seen]
    assert paths == ["/v1/controllers/1?validate_only=true"]
    assert "NODE_STILL_ALIVE" in screen.getvalue() and "Go on?" not in screen.getvalue()
