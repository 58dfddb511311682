"""Edge: quotas on the command line: listed, set and removed, by name or as a default."""

import json
from typing import Any

import pytest

from ops import cli
from tests.support.told_node import Reply, node

ITEM = {
    "entity": [
        {"entity_type": "client-id", "entity_name": None},
        {"entity_type": "user", "entity_name": "ann"},
    ],
    "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 2.5},
}
DONE = {
    "entries": [{"entity": ITEM["entity"], "error": None, "message": None}],
    "offsets": {"base": 5, "end": 6},
}


def run(*words: str, answer: Any = DONE, code: int = 0) -> list[tuple[str, str, Any]]:
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(answer).encode())
        assert cli.main(["quotas", *words, "--bootstrap", told.url]) == code
        return [(seen.method, seen.path, json.loads(seen.body or b"null")) for seen in told.seen]


def test_quotas_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    page = {"end_offset": 9, "controller_epoch": 1, "items": [ITEM]}
    (asked,) = run("list", "--user", "ann", "--client-id-default", "--strict", answer=page)
    assert asked == ("GET", "/v1/quotas?user=ann&defaults=client_id&strict=true", None)
    assert capsys.readouterr().out.splitlines()[1].strip() == (
        "client-id=<default>, user=ann  producer_byte_rate=1048576, request_percentage=2.5"
    )


def test_quotas_are_set_and_removed() -> None:
    (asked,) = run("set", "--user-default", "request_percentage=2.5", "producer_byte_rate=1e6")
    entry = {"user": None, "set": {"request_percentage": 2.5, "producer_byte_rate": 1e6}}
    assert asked == ("PATCH", "/v1/quotas", {"entries": [entry]})
    page = {"end_offset": 9, "controller_epoch": 1, "items": [], **DONE}
    _, asked = run("delete", "--ip", "::1", "connection_creation_rate", answer=page)
    assert asked[2] == {"entries": [{"ip": "::1", "unset": ["connection_creation_rate"]}]}


def test_all_quotas_of_an_entity_are_removed_by_its_name_alone() -> None:
    page = {"end_offset": 9, "controller_epoch": 1, "items": [ITEM], **DONE}
    listed, asked = run("delete", "--user", "ann", "--client-id-default", answer=page)
    assert listed[1] == "/v1/quotas?user=ann&defaults=client_id&strict=true"
    unset = ["producer_byte_rate", "request_percentage"]
    assert asked[2] == {"entries": [{"user": "ann", "client_id": None, "unset": unset}]}


def test_a_quota_that_is_not_there_is_not_said_to_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    page = {"end_offset": 9, "controller_epoch": 1, "items": [ITEM], **DONE}
    nothing = {**page, "offsets": {"base": 5, "end": 5}}
    run("delete", "--user", "ann", "--client-id-default", "consumer_byte_rate", answer=nothing)
    shown = capsys.readouterr()
    assert "as it was" in shown.out and "removed" not in shown.out
    assert "it has no quota consumer_byte_rate" in shown.err
    (asked,) = run("delete", "--user", "carol", "-o", "json", answer={**page, "items": []})
    shown = capsys.readouterr()
    assert asked[0] == "GET" and json.loads(shown.out) == [] and "it has no quotas" in shown.err


@pytest.mark.parametrize(
    "words",
    [
        ("set", "request_percentage=1"),
        ("set", "--user", "a", "--user-default", "request_percentage=1"),
        ("set", "--user", "a"),
        ("set", "--user", "a", "request_percentage"),
        ("set", "--user", "a", "request_percentage=x"),
        ("set", "--user", "a", "x=1", "x=2"),
        ("delete",),
        ("list", "--strict"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_sent(words: tuple[str, ...]) -> None:
    assert run(*words, code=2) == []


def test_a_refusal_is_shown_and_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "a"}],
        "error": "INVALID_REQUEST",
        "message": "why",
    }
    run("set", "--user", "a", "nope=1", answer={"entries": [entry], "offsets": {"base": 5, "end": 5}}, code=3)
    assert "INVALID_REQUEST" in capsys.readouterr().out
