"""Edge: what designs cost: the documents' figures, and a loss decided by the controller's own rules."""

import json

import pytest

from metadata_log.ids import BrokerId
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from ops import cli
from ops.admin import live_state
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.costs import (
    MESSAGES_BY_QUEUE,
    MESSAGES_DIRECTLY,
    cost_of_loss,
    links_among_peers,
    links_through_leader,
    store_ms,
    vote,
)
from tests.support.decisions import World


def a_cluster(*topics: str) -> Cluster:
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    for topic in topics:
        world.run(f"create {topic}")
    return Cluster(Options(), world.image)


def test_links_of_a_leader_and_among_peers() -> None:
    """A1: five replicas need 4 links through a leader, and 10 among peers."""
    assert (links_through_leader(5), links_among_peers(5)) == (4, 10)


@pytest.mark.parametrize(("losses", "expected"), [(1, (3, 2, 1)), (2, (5, 3, 2))])
def test_a_vote_survives_losses(losses: int, expected: tuple[int, int, int]) -> None:
    """A2: N = 1 needs 3 replicas and 2 acknowledgements, N = 2 needs 5 and 3."""
    assert vote(losses) == expected


def test_messages_through_a_queue_and_directly() -> None:
    """A45: two writes of two calls, a notice and a read are 6 messages; a direct call is 1."""
    assert (MESSAGES_BY_QUEUE, MESSAGES_DIRECTLY) == (6, 1)


def test_ten_thousand_partitions_one_by_one_and_at_once() -> None:
    """A46: 10,000 partitions of 4 ms each take 40 s; in one write they take 4 ms."""
    assert store_ms(10_000, write_ms=4, partitions_per_write=1) == 40_000
    assert store_ms(10_000, write_ms=4, partitions_per_write=10_000) == 4
    assert store_ms(10_001, write_ms=4, partitions_per_write=10_000) == 8


def test_the_loss_of_a_broker_with_ten_thousand_partitions() -> None:
    """A46: the controller's own decisions are a few writes; the record of the fencing itself makes a second one."""
    cluster = a_cluster(*(f"{name} on=" + "/".join(["1,2"] * 5_000) for name in ("a", "b")))
    cost = cost_of_loss(cluster, BrokerId(1))
    assert (cost.partitions, cost.one_by_one_ms) == (10_000, 40_000)
    assert cost.writes == 2 and RECORDS_PER_BATCH_MAX == 10_000
    assert cost.here_ms == 8
    assert (cost.brokers_told, cost.messages_by_queue, cost.messages_directly) == (2, 12, 2)


def test_advise_shows_the_cost_of_each_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = a_cluster("a on=1,2,3", "b on=2,3")
    monkeypatch.setattr(live_state, "live_image", lambda _: cluster.image)
    monkeypatch.setattr(live_state, "live_options", lambda _: Options())

    def run(*words: str) -> int:
        return cli.main(["advise", *words, "--bootstrap", "http://127.0.0.1:1"])

    assert run("--failover", "--write-ms", "5", "-o", "json") == cli.OK
    rows = json.loads(capsys.readouterr().out)
    assert [(row["broker"], row["partitions"], row["one_by_one_ms"]) for row in rows] == [
        (1, 1, 5),
        (2, 2, 10),
        (3, 2, 10),
    ]
    assert all((row["writes"], row["here_ms"]) == (1, 5) for row in rows)
    assert run("--failover") == cli.OK
    assert "ONE BY ONE" in capsys.readouterr().out
    assert run("--failover", "a") == 2
    assert "--failover is of brokers" in capsys.readouterr().err
    assert run("a", "-o", "json") == cli.OK
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["links"], row["links_among_peers"]) == (2, 3)
