"""E: the benchmarks run whole, with few repetitions; what they measure is not judged here."""

import asyncio
from typing import Any

import pytest

from ops.bench.broker_loss import broker_loss
from ops.bench.commit import commit
from ops.bench.failover import failover

pytestmark = pytest.mark.slow


def check_shape(answer: dict[str, Any], *, name: str, peers: list[str]) -> None:
    assert list(answer) == ["name", "params", "ours", "peers", "ratios", "rounds", "probes"]
    assert answer["name"] == name
    assert list(answer["peers"]) == list(answer["ratios"]) == peers
    for figures in (answer["ours"], *answer["peers"].values()):
        assert 0 < figures["p50"] <= figures["p99"] <= figures["max"]
    for ratios in answer["ratios"].values():
        assert {"p50", "p99", "max"} <= set(ratios)


def test_commit_beside_etcd() -> None:
    answer = asyncio.run(commit(["etcd"], rounds=1, writes=20, clients=4, seconds=0.5))
    check_shape(answer, name="commit", peers=["etcd"])
    assert answer["ratios"]["etcd"]["loaded_per_second"] > 0


def test_failover_beside_etcd() -> None:
    answer = asyncio.run(failover(["etcd"], kills=2))
    check_shape(answer, name="failover", peers=["etcd"])
    assert len(answer["ours"]["gaps"]) == len(answer["peers"]["etcd"]["gaps"]) == 2


def test_the_loss_of_a_broker() -> None:
    check_shape(asyncio.run(broker_loss(rounds=1, partitions=30)), name="broker-loss", peers=[])
