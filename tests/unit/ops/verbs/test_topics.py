"""Edge: what an operator is told about a topic before it is made."""

import json
from typing import Any

import pytest

from ops import cli
from ops.verbs.topics import PLACEMENTS, few_partitions, topic_summary
from quorum.decide.placement import Placement
from tests.support.terminal import answering
from tests.support.told_node import Reply, Seen, error, node


@pytest.mark.parametrize(
    ("partitions", "brokers", "hint"),
    [
        (3, 5, "3 partitions on 5 brokers: 2 brokers will lead none of them"),
        (5, 5, None),
        (6, 5, None),
        (1, 0, None),
    ],
)
def test_fewer_partitions_than_brokers_are_worth_a_word(
    partitions: int, brokers: int, hint: str | None
) -> None:
    """A7; a replica list with a broker twice, [1, 1, 2], is refused by the decision."""
    assert few_partitions(partitions, brokers=brokers) == hint


def test_topics_are_placed_in_the_ways_that_the_controller_knows() -> None:
    assert tuple(map(str, Placement)) == PLACEMENTS


def test_a_topic_of_1000_partitions_is_a_summary() -> None:
    rows: list[dict[str, Any]] = [
        {"partition": number, "leader": number % 3, "replicas": [0, 1, 2], "isr": [0, 1, 2]}
        for number in range(1_000)
    ]
    lines = topic_summary({"name": "t", "topic_id": "i" * 22, "configs": {}, "partitions": rows}).splitlines()
    assert len(lines) < 10 and "1,000 of 3 replicas" in lines[2] and "i" * 22 not in "".join(lines)


@pytest.mark.parametrize(
    ("window_ms", "words", "says"),
    [
        (0, [], "for ever: undelete_window_ms is 0"),
        (3_600_000, [], "restored within 1h00m by"),
        (3_600_000, ["--now"], "for ever: --now says so"),
    ],
)
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_deletion_says_what_it_does_and_asks(
    monkeypatch: pytest.MonkeyPatch, window_ms: int, words: list[str], says: str, answer: str
) -> None:
    topic = {"name": "orders", "topic_id": "i", "partition_count": 6, "replication_factor": 3}

    def reply(seen: Seen) -> Reply:
        items: dict[str, Any] = {"items": [topic], "undelete_window_ms": window_ms}
        return Reply(body=json.dumps(topic if seen.method == "DELETE" else items).encode())

    screen = answering(monkeypatch, answer)
    with node() as told:
        told.answer = reply
        code = cli.main(["topics", "delete", "orders", *words, "--bootstrap", told.url])
        was_sent = any(seen.method == "DELETE" for seen in told.seen)
    assert (code, was_sent) == ((0, True) if answer == "y" else (3, False))
    assert says in screen.getvalue() and "orders: 6 partitions of 3 replicas" in screen.getvalue()
    assert answer == "y" or "nothing was written" in screen.getvalue()


def test_a_deletion_without_a_terminal_needs_yes(capsys: pytest.CaptureFixture[str]) -> None:
    with node() as told:
        words = ["topics", "delete", "orders", "--bootstrap", told.url]
        assert cli.main(words) == 2
        assert "give --yes" in capsys.readouterr().err and told.seen == []
        told.answer = lambda _: Reply(body=b'{"name": "orders", "topic_id": "i"}')
        assert cli.main([*words, "--yes"]) == 0


def test_a_topic_that_exists_is_no_error_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    topic = {"name": "t", "topic_id": "i", "configs": {}, "partitions": []}

    def answer(seen: Seen) -> Reply:
        if seen.method == "GET":
            return Reply(body=json.dumps({"items": []} if seen.path == "/v1/brokers" else topic).encode())
        if b'"topics"' not in seen.body:
            return error("TOPIC_ALREADY_EXISTS", 409)
        rows = [{"name": "t", "topic_id": None, "error": "TOPIC_ALREADY_EXISTS", "message": "it is there"}]
        return Reply(body=json.dumps({"topics": rows, "offsets": {"base": 0, "end": 0}}).encode())

    with node() as told:
        told.answer = answer
        one = [
            "topics",
            "create",
            "t",
            "--partitions",
            "1",
            "--replication-factor",
            "1",
            "--bootstrap",
            told.url,
        ]
        assert cli.main(one) == 3
        assert cli.main([*one, "--if-not-exists", "-o", "json"]) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out) == topic and "exists already, and was left as it is" in shown.err
        assert cli.main([*one, "u"]) == 3
        assert cli.main([*one, "u", "--if-not-exists"]) == 0


def test_altering_a_topic_is_a_request_for_settings_and_one_for_partitions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def answer(seen: Seen) -> Reply:
        key = "resources" if seen.path == "/v1/configs" else "topics"
        failed = {"error": "INVALID_PARTITIONS", "message": "fewer"} if key == "topics" else {}
        rows = [{"error": None, "message": None, **failed}]
        return Reply(body=json.dumps({key: rows, "offsets": {"base": 0, "end": 1}}).encode())

    with node() as told:
        told.answer = answer
        alter = ["topics", "alter", "t", "-o", "json", "--bootstrap", told.url]
        assert cli.main([*alter, "--config", "a=1", "--unset", "b"]) == 0
        (sent,) = (json.loads(seen.body) for seen in told.seen)
        assert sent == {"resources": [{"topic": "t", "set": {"a": "1"}, "unset": ["b"]}]}
        assert cli.main([*alter, "--config", "a=1", "--partitions", "2"]) == 3
        assert [seen.path for seen in told.seen[1:]] == ["/v1/configs", "/v1/topics/partitions"]
        assert cli.main(alter) == 2
    last = json.loads(capsys.readouterr().out.partition("]\n")[2])
    assert [(one["what"], one["error"]) for one in last] == [
        ("settings", None),
        ("partitions", "INVALID_PARTITIONS"),
    ]
