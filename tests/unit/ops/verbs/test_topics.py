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
        (1, 2, "1 partition on 2 brokers: 1 broker will lead none of them"),
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


def test_a_deletion_says_which_topics_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = {"name": "orders", "topic_id": "i", "partition_count": 6, "replication_factor": 3}
    screen = answering(monkeypatch, "n")
    with node() as told:
        told.answer = lambda _: Reply(body=json.dumps({"items": [topic], "undelete_window_ms": 0}).encode())
        assert cli.main(["topics", "delete", "orders", "ordres", "--bootstrap", told.url]) == 3
    assert "  ordres: there is no such topic\n" in screen.getvalue()
    assert "orders: there is no" not in screen.getvalue()


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


def test_counts_that_are_left_out_are_the_controllers_and_advice_follows_what_was_created(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = {"partition": 0, "leader": 1, "replicas": [1], "isr": [1]}
    topic = {"name": "t", "topic_id": "i", "configs": {}, "partitions": [partition]}
    brokers = {"items": [{"broker_id": number, "state": "ONLINE"} for number in (1, 2)]}

    def answer(seen: Seen) -> Reply:
        if b'"bad"' in seen.body:
            return error("INVALID_TOPIC_EXCEPTION", 400)
        return Reply(body=json.dumps(brokers if seen.path == "/v1/brokers" else topic).encode())

    with node() as told:
        told.answer = answer
        assert cli.main(["topics", "create", "t", "--bootstrap", told.url]) == 0
        sent = json.loads(told.seen[0].body)
        assert (sent["partitions"], sent["replication_factor"]) == (-1, -1)
        assert "1 partition on 2 brokers: 1 broker will lead none" in capsys.readouterr().err
        assert cli.main(["topics", "create", "bad", "--partitions", "1", "--bootstrap", told.url]) == 3
        assert "will lead none" not in capsys.readouterr().err


@pytest.mark.parametrize(("end", "is_said"), [(5, True), (6, False)])
def test_an_alteration_that_writes_nothing_says_so(
    capsys: pytest.CaptureFixture[str], end: int, is_said: bool
) -> None:
    """Goal: an unset of a mistyped setting, which Kafka accepts, is not told like one that changed a topic."""
    rows = [{"error": None, "message": None}]
    body = json.dumps({"resources": rows, "offsets": {"base": 5, "end": end}}).encode()
    with node() as told:
        told.answer = lambda _: Reply(body=body)
        alter = ["topics", "alter", "t", "--unset", "retentoin.ms", "--bootstrap", told.url]
        assert cli.main(alter) == 0
    says = "settings: nothing was written, all was as asked already" in capsys.readouterr().err
    assert says is is_said


@pytest.mark.parametrize("names", [["t"], ["t", "u"]])
def test_a_client_that_may_not_see_brokers_creates_a_topic_all_the_same(
    names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: what was created is not told as refused, because advice could not be given."""
    rows = [{"name": name, "topic_id": "i", "error": None, "message": None} for name in names]
    topic = {"name": "t", "topic_id": "i", "configs": {}, "partitions": []}
    created = topic if len(names) == 1 else {"topics": rows, "offsets": {"base": 0, "end": 9}}

    def answer(seen: Seen) -> Reply:
        if seen.path == "/v1/brokers":
            return error("CLUSTER_AUTHORIZATION_FAILED", 403)
        return Reply(body=json.dumps(created).encode())

    with node() as told:
        told.answer = answer
        words = ["topics", "create", *names, "--partitions", "1", "-o", "json", "--bootstrap", told.url]
        assert cli.main(words) == 0
        assert any(seen.path == "/v1/brokers" for seen in told.seen)
    assert json.loads(capsys.readouterr().out) == (topic if len(names) == 1 else rows)


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
    assert [(one["what"], one["changed"], one["error"]) for one in last] == [
        ("settings", True, None),
        ("partitions", False, "INVALID_PARTITIONS"),
    ]


@pytest.mark.parametrize("may_read", [True, False])
def test_of_several_topics_the_log_tells_which_were_changed(
    may_read: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    line = json.dumps({"type": "Config", "record": {"resource_type": 2, "resource_name": "b"}})
    lines = [line, json.dumps({"next_offset": 8})]

    def answer(seen: Seen) -> Reply:
        if seen.method == "GET":
            assert seen.path.startswith("/v1/log/lines?from=7&until=8&wait_ms=0")
            return (
                Reply(body="\n".join(lines).encode())
                if may_read
                else error("CLUSTER_AUTHORIZATION_FAILED", 403)
            )
        rows = [{"error": None, "message": None}] * 2
        return Reply(body=json.dumps({"resources": rows, "offsets": {"base": 7, "end": 8}}).encode())

    with node() as told:
        told.answer = answer
        alter = ["topics", "alter", "a", "b", "--config", "x=1", "--bootstrap", told.url]
        assert cli.main([*alter, "-o", "json"]) == 0
        changed = {one["name"]: one["changed"] for one in json.loads(capsys.readouterr().out)}
        assert changed == ({"a": False, "b": True} if may_read else {"a": None, "b": None})
        assert cli.main(alter) == 0
        assert ("as it was" in capsys.readouterr().out) is may_read


def test_a_topic_that_did_not_grow_has_no_number_of_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "t", "partitions": -1, "error": "INVALID_PARTITIONS", "message": "not more"}
    with node() as told:
        told.answer = lambda _: Reply(
            body=json.dumps({"topics": [row], "offsets": {"base": 0, "end": 0}}).encode()
        )
        assert cli.main(["topics", "add-partitions", "t", "--to", "3", "--bootstrap", told.url]) == 3
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["t", "-"]


@pytest.mark.parametrize(
    ("words", "said"), [([], "no partition\n"), (["--under-min-isr"], "no partition is under-min-isr\n")]
)
def test_a_list_without_partitions_says_what_there_is_none_of(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with node() as told:
        told.answer = lambda _: Reply(body=b'{"items": [], "next_after": null, "end_offset": 1}')
        assert cli.main(["partitions", "list", *words, "--bootstrap", told.url]) == 0
    assert capsys.readouterr().out == said
