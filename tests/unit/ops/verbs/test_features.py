"""Edge: features on the command line: listed, and finalized at a level that is named."""

import json

import pytest

from ops import cli
from tests.support.told_node import Reply, node

NAME = "eligible.leader.replicas.version"


def test_features_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"feature": NAME, "level": 0, "supported_min": 0, "supported_max": 1}
    page = {"end_offset": 9, "controller_epoch": 1, "items": [item]}
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(page).encode())
        assert cli.main(["features", "list", "--bootstrap", told.url]) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (head, row) == (["FEATURE", "LEVEL", "MIN", "MAX"], [NAME, "0", "0", "1"])


@pytest.mark.parametrize(("verb", "upgrade_type"), [("upgrade", "upgrade"), ("downgrade", "safe_downgrade")])
def test_a_level_is_asked_for_as_a_change_of_its_kind(verb: str, upgrade_type: str) -> None:
    written = {"features": [{"feature": NAME, "level": 1}], "offsets": {"base": 5, "end": 6}}
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(written).encode())
        assert cli.main(["features", verb, f"{NAME}=1", "--bootstrap", told.url]) == 0
        (seen,) = told.seen
    update = {"feature": NAME, "level": 1, "upgrade_type": upgrade_type}
    assert (seen.method, seen.path, json.loads(seen.body)) == ("POST", "/v1/features", {"updates": [update]})


def test_an_unsafe_downgrade_is_asked_for_as_one() -> None:
    written = {"features": [{"feature": NAME, "level": 0}], "offsets": {"base": 5, "end": 6}}
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(written).encode())
        assert cli.main(["features", "downgrade", f"{NAME}=0", "--unsafe", "--bootstrap", told.url]) == 0
        (seen,) = told.seen
    assert json.loads(seen.body)["updates"][0]["upgrade_type"] == "unsafe_downgrade"


def test_a_preview_lists_what_a_lower_level_could_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """C14."""
    told_of = {
        "end_offset": 9,
        "controller_epoch": 1,
        "feature": "metadata.version",
        "level": 22,
        "present": 30,
        "count": 2,
        "adds": [{"level": 23, "name": "4.0-IV1", "adds": "eligible leader replicas"}],
        "items": [{"kind": "partition", "key": "orders:0", "field": "last_known_elr", "value": "2"}],
    }
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(told_of).encode())
        assert cli.main(["features", "preview", "metadata.version=22", "--bootstrap", told.url]) == 0
        (seen,) = told.seen
    assert (seen.method, seen.path) == ("GET", "/v1/features/preview?feature=metadata.version&level=22")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "metadata.version is 30; level 22 would lose 2 fields",
        "  23 (4.0-IV1) added: eligible leader replicas",
        "  so the downgrade is refused, as Kafka 4.3.1 refuses it",
        "  the first 1 are shown",
    ]
    assert lines[-1].split() == ["partition", "orders:0", "last_known_elr", "2"]


@pytest.mark.parametrize("level", ["", "x", "=1", "x=", "x=-1", "x=1.5", "x=100000", "x=١"])
def test_what_is_no_level_is_refused_before_anything_is_sent(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with node() as told:
        assert cli.main(["features", "upgrade", level, "--bootstrap", told.url]) == 2
        assert told.seen == []
    assert ("is not NAME=LEVEL" if level else "the empty text is no value") in capsys.readouterr().err
