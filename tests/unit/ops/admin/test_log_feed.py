"""Edge: the CLI's change feed: each line once, from whichever controller answers, behind the offset it has reached."""

import itertools
import json
import random
import urllib.parse

import pytest

from metadata_log.errors import InvalidRequest, OffsetInFuture
from ops.admin import log_feed
from ops.admin.client import ClusterClient
from ops.admin.exchange import Unreachable
from ops.admin.log_feed import feed_lines
from tests.support.told_node import Node, Reply, Seen, node

REFUSED = {"error": "INVALID_REQUEST", "message": "no", "family": "Rejected"}


def serve(told: Node, node_id: int, answers: list[Reply]) -> None:
    """Answer the feed with one after the other, the last for ever."""

    def answer(seen: Seen) -> Reply:
        if seen.path.startswith("/v1/log"):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        status = {
            "cluster_id": "c",
            "node_id": node_id,
            "leader_id": 9,
            "log_start_offset": 3,
            "high_watermark": 10,
        }
        return Reply(body=json.dumps(status).encode(), headers={"X-High-Watermark": "10"})

    told.answer = answer


def lines(*offsets: int, then: int | None) -> Reply:
    rows = [{"offset": offset} for offset in offsets]
    last = [] if then is None else [{"next_offset": then}]
    return Reply(body="".join(f"{json.dumps(row)}\n" for row in (*rows, *last)).encode())


def asked_from(told: Node) -> list[str]:
    paths = [seen.path for seen in told.seen if seen.path.startswith("/v1/log")]
    return [urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["from"][0] for path in paths]


def feed(*nodes: Node, follow: bool, first: str | None = None) -> "list[int]":
    client = ClusterClient([one.url for one in nodes], timeout_s=5, rng=random.Random(1))
    found = feed_lines(client, topics=["a", "b"], first=first, until=None, follow=follow)
    return [line["offset"] for line in itertools.islice(found, 6 if follow else None)]


def test_a_feed_ends_where_the_log_ended() -> None:
    with node() as only:
        serve(only, 1, [lines(3, 5, then=6), lines(then=8), lines(8, 9, then=10)])
        assert feed(only, follow=False) == [3, 5, 8, 9]
        assert asked_from(only) == ["3", "6", "8"]
        assert "topics=a%2Cb" in only.seen[-1].path


def test_a_followed_feed_goes_on_behind_an_answer_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_feed, "PAUSE_S", 0.0)
    with node() as only:
        cut = lines(5, 6, then=None)
        serve(only, 1, [lines(3, 4, then=5), cut, lines(5, 6, then=7), lines(then=7), lines(8, 9, then=10)])
        assert feed(only, follow=True) == [3, 4, 5, 6, 8, 9]
        assert asked_from(only) == ["3", "5", "5", "7", "7"]


def test_what_is_refused_is_not_repeated() -> None:
    with node() as only:
        serve(only, 1, [Reply(status=400, body=json.dumps(REFUSED).encode())])
        with pytest.raises(InvalidRequest):
            feed(only, follow=True)
        serve(only, 1, [lines(3, then=None)])
        with pytest.raises(Unreachable):
            feed(only, follow=False)


@pytest.mark.parametrize("follow", [False, True])
def test_a_feed_does_not_wait_for_an_offset_that_nobody_has_written(follow: bool) -> None:
    """Goal: an offset that is mistyped is refused, as a dump of all topics refuses it, and not answered by silence."""
    with node() as only:
        refusal = Reply(status=400, body=json.dumps(REFUSED).encode())
        serve(only, 1, [lines(then=10), refusal])
        with pytest.raises(OffsetInFuture, match="offset 11 lies beyond the high watermark 10"):
            feed(only, follow=follow, first="11")
        assert asked_from(only) == []
