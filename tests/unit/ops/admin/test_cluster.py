"""Edge: what an administrator's program asks: pages, topics that are not there, and changes of many items."""

import json
import random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from metadata_log.errors import PolicyViolation, UnknownTopicOrPartition
from ops.admin.cluster import Cluster, quoted
from ops.admin.items import CREATE_TOPICS, ItemRequest
from tests.support.told_node import Node, Reply, Seen, error, node

TIMEOUT_S = 20.0


def cluster_at(told: Node) -> Cluster:
    return Cluster([told.url], timeout_s=TIMEOUT_S, rng=random.Random(1))


def reply(value: Any) -> Reply:
    return Reply(body=json.dumps(value).encode())


def test_partitions_are_asked_for_page_by_page() -> None:
    rows = [{"topic": "t", "partition": number, "replicas": [2, 1]} for number in range(5)]

    def answer(seen: Seen) -> Reply:
        asked = parse_qs(urlsplit(seen.path).query)
        assert asked["only"] == ["under-replicated"]
        begin = int(asked.get("after", ["0"])[0])
        after = begin + 2 if begin + 2 < len(rows) else None
        return reply({"items": rows[begin : begin + 2], "next_after": after})

    with node() as told:
        told.answer = answer
        found = list(cluster_at(told).partitions(only="under-replicated"))
    assert [one["partition"] for one in found] == [0, 1, 2, 3, 4]
    assert {one["preferred"] for one in found} == {2}


def test_reassignments_of_a_topic_that_is_not_there_are_refused() -> None:
    under_way = {"items": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 1}]}

    def answer(seen: Seen) -> Reply:
        if seen.path == "/v1/partitions/reassignments":
            return reply(under_way)
        return (
            error("UNKNOWN_TOPIC_OR_PARTITION", 404)
            if seen.path == "/v1/topics/no"
            else reply({"name": "idle"})
        )

    with node() as told:
        told.answer = answer
        cluster = cluster_at(told)
        assert [one["partition"] for one in cluster.reassignments("u")] == [1]
        assert len(cluster.reassignments()) == 2
        assert cluster.reassignments("idle") == []
        with pytest.raises(UnknownTopicOrPartition):
            cluster.reassignments("no")


@pytest.mark.parametrize(
    ("name", "segment"), [("a b", "a%20b"), ("..", "%2E%2E"), (".", "%2E"), ("a/b", "a%2Fb"), ("a.b", "a.b")]
)
def test_a_name_is_one_segment_of_a_path(name: str, segment: str) -> None:
    assert quoted(name) == segment


FEW = ItemRequest(*CREATE_TOPICS[:4], items_max=4)


def refusing_more_than(most: int, sent: list[list[str]]) -> Any:
    """Return what answers as a controller whose batches hold so many of the items."""

    def answer(seen: Seen) -> Reply:
        names = [item["name"] for item in json.loads(seen.body)["topics"]]
        sent.append(names)
        if len(names) > most or "large" in names:
            return error("POLICY_VIOLATION", 400)
        rows = [{"name": name, "error": None, "message": None} for name in names]
        return reply({"topics": rows, "offsets": {"base": 0, "end": len(rows)}})

    return answer


def test_items_are_sent_in_requests_that_fit_and_each_has_its_result() -> None:
    """Goal: one that fits nowhere costs the others nothing. Method: batches of two, requests of four, one too large."""
    sent: list[list[str]] = []
    names = ["a", "b", "c", "large", "e", "f"]
    with node() as told:
        told.answer = refusing_more_than(2, sent)
        done = cluster_at(told).change(FEW, [{"name": name} for name in names])
    assert [one["name"] for one in done.results] == names
    assert [one["error"] for one in done.results] == [None, None, None, "POLICY_VIOLATION", None, None]
    assert done.is_written
    assert sent == [["a", "b", "c", "large"], ["a", "b"], ["c", "large"], ["c"], ["large"], ["e", "f"]]


def test_items_of_all_or_nothing_are_one_request() -> None:
    sent: list[list[str]] = []
    with node() as told:
        told.answer = refusing_more_than(2, sent)
        with pytest.raises(PolicyViolation):
            cluster_at(told).change(FEW, [{"name": name} for name in "abc"], all_or_nothing=True)
    assert sent == [["a", "b", "c"]]
