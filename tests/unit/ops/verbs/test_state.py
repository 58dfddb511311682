"""Edge: the state on the command line: in short as a table, whole as JSON, and at an offset that is not between batches."""

import json
from typing import Any

import pytest

from ops import cli
from ops.verbs import state as verb
from tests.support.told_node import Reply, node

STATE: dict[str, Any] = {
    "end_offset": 9,
    "controller_epoch": 1,
    "time_ms": None,
    "digest": "d",
    "voters": [{"id": 1}, {"id": 2}],
    "controllers": [{"controller_id": 1}],
    "brokers": [{"broker_id": 11}],
    "topics": [{"partitions": [{}, {}]}, {"partitions": [{}]}],
    "configs": [],
    "features": {"metadata.version": 29},
    "next_producer_id": None,
}


def test_a_state_is_shown_in_short_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps(STATE).encode())
        assert cli.main(["state", "--bootstrap", told.url]) == 0
        short = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        assert cli.main(["state", "--bootstrap", told.url, "-o", "json"]) == 0
    assert short["topics"] == "2 with 3 partitions" and short["voters"] == "1,2" and short["time"] == "-"
    assert json.loads(capsys.readouterr().out) == STATE


def test_who_asks_inside_a_batch_is_told_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def read(_client: object, _source: object, path: str, *, accept: str) -> Reply:
        asked.append(path)
        return Answer(body=json.dumps(STATE).encode())

    class Answer(Reply):
        def json(self) -> Any:
            return json.loads(self.body)

    monkeypatch.setattr(verb, "bulk_source", lambda _client, *, from_leader: from_leader)
    monkeypatch.setattr(verb, "read_in_bulk", read)
    assert cli.main(["state", "--at", "10", "--bootstrap", "http://127.0.0.1:1"]) == 0
    assert asked == ["/v1/state?at=10"]
    assert "10 lies inside a batch that begins at 9" in capsys.readouterr().err
