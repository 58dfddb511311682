"""Edge: verbs that show a cluster live, and what changed in it: top, --watch, diff."""

import json
import time
from typing import Any

import pytest

from ops import cli
from ops.verbs import diff, top
from tests.support.told_node import Node, Reply, Seen, error, node
from tests.unit.ops.admin.test_health import quorum, voter

BROKER = {
    "broker_id": 11,
    "state": "ONLINE",
    "broker_epoch": 5,
    "rack": None,
    "applied_offset": 9,
    "lag_records": 0,
    "last_contact_ms_ago": 1,
    "metadata_age_ms": 1,
    "would_serve_stale": False,
    "control_state": "UNFENCED",
    "waits_for": None,
    "endpoints": [],
}
LINE = {
    "offset": 8,
    "controller_epoch": 1,
    "time_ms": 0,
    "type": "Topic",
    "version": 0,
    "actor": "User:anna",
    "request_id": None,
    "operation": "CreateTopics",
    "cause": None,
    "record": {"name": "t", "topic_id": "i"},
}


def serve(told: Node, states: dict[str, dict[str, Any]] | None = None) -> None:
    """Answer as one controller that leads."""
    said = quorum(1, voters=[voter(1)]) | {"high_watermark": 9, "log_start_offset": 0}
    ready = {"ready": True, "reasons": []}

    def answer(seen: Seen) -> Reply:
        path, _, query = seen.path.partition("?")
        if path == "/v1/log":
            body = "".join(f"{json.dumps(each)}\n" for each in (LINE, {"next_offset": 9}))
            return Reply(body=body.encode(), headers={"X-High-Watermark": "9"})
        if path == "/v1/state":
            at = query.partition("at=")[2].partition("&")[0]
            return Reply(body=json.dumps((states or {})[at]).encode())
        items = {"items": [BROKER] if path == "/v1/brokers" else []}
        found = {"/v1/quorum": said, "/readyz": ready}.get(path, items)
        return Reply(body=json.dumps(found).encode(), headers={"X-High-Watermark": "9"})

    told.answer = answer


@pytest.mark.parametrize("verb", [("top", "--once"), ("version",)])
def test_where_no_controller_answers_nothing_more_is_asked(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a verb that shows what there is does not wait for the rest of its time-out. Method: that is an hour."""
    with node() as told:
        told.answer = lambda _: Reply(503, b"{}")
        assert cli.main([*verb, "--timeout", "1h", "--bootstrap", f"{told.url},{told.url}/"]) == 0
        assert {seen.path for seen in told.seen} == {"/v1/quorum"}
        assert len(told.seen) == 1, "an address that is named twice is one"
    said = capsys.readouterr()
    assert f"{told.url} answers /v1/quorum with 503" in said.out + said.err


def test_top_shows_health_quorum_brokers_and_what_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        serve(told)
        assert cli.main(["top", "--bootstrap", told.url]) == 0
        shown = capsys.readouterr().out
        assert cli.main(["top", "--once", "-o", "json", "--bootstrap", told.url]) == 0
    for part in ("controller epoch", "ID  ROLE", "11  ONLINE", "CreateTopics was asked for, by User:anna"):
        assert part in shown
    assert json.loads(capsys.readouterr().out).keys() == {"health", "quorum", "brokers"}
    assert top.RECENT > 0


def test_without_a_leader_top_waits_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: what an operator looks at while no controller leads is shown then. A read of the leader would wait an hour."""
    with node() as told:
        serve(told)
        sound = told.answer
        view = quorum(1, voters=[voter(1)]) | {"high_watermark": 9, "log_start_offset": 0, "leader_id": -1}

        def answer(seen: Seen) -> Reply:
            if seen.path.startswith("/v1/quorum"):
                return Reply(body=json.dumps(view).encode())
            if "consistency=stale" not in seen.path and seen.path.startswith("/v1/"):
                return error("NOT_CONTROLLER", 503)
            return sound(seen)

        told.answer = answer
        assert cli.main(["top", "--timeout", "1h", "--bootstrap", told.url]) == 0
    shown = capsys.readouterr().out
    for part in ("none known", "11  ONLINE", "CreateTopics was asked for, by User:anna"):
        assert part in shown


def test_a_watched_verb_is_run_again_also_after_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched: list[float] = []

    def sleep(pause_s: float) -> None:
        if pause_s == 7.0:  # and none of the client's own, between two rounds
            watched.append(pause_s)
            if len(watched) == 3:
                raise KeyboardInterrupt

    with node() as told:
        serve(told)
        as_ever = told.answer
        told.answer = lambda seen: (
            error("THROTTLING_QUOTA_EXCEEDED", 429, family="Unavailable")
            if len(watched) == 1
            else as_ever(seen)
        )
        monkeypatch.setattr(time, "sleep", sleep)
        words = ["brokers", "list", "--watch", "--every", "7s", "--timeout", "100ms", "--bootstrap", told.url]
        assert cli.main(words) == 130
    shown = capsys.readouterr()
    assert shown.out.count("11  ONLINE") == 2 and "again in 7 s" in shown.err


def test_a_diff_names_what_changed_between_two_moments(capsys: pytest.CaptureFixture[str]) -> None:
    empty: dict[str, Any] = {key: [] for key in ("brokers", "topics", "configs", "voters", "controllers")}
    before = {**empty, "features": {}, "end_offset": 3, "time_ms": 0}
    topic = {"name": "t", "topic_id": "i", "configs": {}, "partitions": []}
    after = {**before, "topics": [topic], "end_offset": 9, "time_ms": 5_000}
    with node() as told:
        serve(told, {"3": before, "9": after})
        assert cli.main(["diff", "--from", "3", "-o", "json", "--bootstrap", told.url]) == 0
        shown = capsys.readouterr()
        assert [row["key"] for row in json.loads(shown.out)] == ["t"]
        assert "from offset 3, the beginning" in shown.err and "to offset 9, 1970-01-01T00:00:05" in shown.err
        assert cli.main(["diff", "--from", "3", "--to", "3", "--bootstrap", told.url]) == 0
    assert capsys.readouterr().out == "nothing changed\n"
    assert diff.CHANGES[0].key == "what"
