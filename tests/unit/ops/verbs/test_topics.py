"""Edge: what an operator is told about a topic before it is made."""

import io
import json
import sys
from typing import Any

import pytest

from ops import cli
from ops.verbs.topics import PLACEMENTS, few_partitions, topic_summary
from quorum.decide.placement import Placement
from tests.support.told_node import Reply, Seen, node


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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

    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n" if answer else ""))
    monkeypatch.setattr(sys, "stderr", screen)
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
