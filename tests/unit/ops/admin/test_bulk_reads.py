"""Edge: what is read in bulk is read from a follower that has all of it, and from the leader where none answers."""

import json
import random

import pytest

from metadata_log.errors import OffsetInFuture
from ops.admin import bulk_reads
from ops.admin.bulk_reads import bulk_source, read_in_bulk
from ops.admin.client import ClusterClient
from tests.support.told_node import Node, Reply, Seen, error, node

BUSY = {"error": "THROTTLING_QUOTA_EXCEEDED", "message": "later", "family": "Unavailable"}


def serve(told: Node, node_id: int, *, applied: int = 10, is_busy: bool = False) -> None:
    def answer(seen: Seen) -> Reply:
        if seen.path.startswith("/v1/quorum"):
            status = {
                "cluster_id": "c",
                "node_id": node_id,
                "leader_id": 1,
                "log_start_offset": 0,
                "high_watermark": applied,
            }
            return Reply(body=json.dumps(status).encode())
        if seen.path.startswith("/v1/log") and is_busy:
            return Reply(status=429, body=json.dumps(BUSY).encode())
        return Reply(body=str(node_id).encode(), headers={"X-High-Watermark": "10"})

    told.answer = answer


def asked(leader: Node, follower: Node, *, from_leader: bool = False) -> str:
    client = ClusterClient((leader.url, follower.url), timeout_s=5, rng=random.Random(1))
    source = bulk_source(client, from_leader=from_leader)
    assert source.end_offset == 10
    return read_in_bulk(client, source, "/v1/log?from=0", accept="*/*").body.decode()


def test_a_follower_is_asked_unless_the_leader_is_wanted() -> None:
    with node() as leader, node() as follower:
        serve(leader, 1)
        serve(follower, 2)
        assert asked(leader, follower) == "2"
        assert asked(leader, follower, from_leader=True) == "1"


def test_a_follower_that_lags_or_is_busy_leaves_the_question_to_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_reads, "FOLLOWER_WAIT_S", 0.1)
    with node() as leader, node() as follower:
        serve(leader, 1)
        serve(follower, 2, applied=9)
        assert asked(leader, follower) == "1"
        serve(follower, 2, is_busy=True)
        assert asked(leader, follower) == "1"


def test_no_follower_is_waited_for_where_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_reads, "FOLLOWER_WAIT_S", float("inf"))
    with node() as leader:
        serve(leader, 1)
        client = ClusterClient((leader.url,), timeout_s=5, rng=random.Random(1))
        assert bulk_source(client).url == leader.url


def test_what_is_refused_is_no_answer() -> None:
    """Goal: `state --at` beyond the end says so, and shows no error as if it were a state."""
    with node() as leader, node() as follower:
        for told in (leader, follower):
            serve(told, 1)
            status = told.answer
            told.answer = lambda seen, status=status: (  # type: ignore[misc]
                error("OFFSET_IN_FUTURE", 404) if seen.path.startswith("/v1/log") else status(seen)
            )
        with pytest.raises(OffsetInFuture):
            asked(leader, follower)
