"""Edge: what a topic's settings survive: tables of them, and losses carried out on the decisions themselves."""

import itertools
import json
from typing import Any

import pytest

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from ops import cli
from ops.admin import live_state
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.durability import Durability, durability
from quorum.whatif.losses import lose
from tests.support.decisions import World


def a_cluster(*topics: str, racks: str = "", brokers: int = 5, eligible: bool = True) -> Cluster:
    world = World()
    for broker_id in range(1, brokers + 1):
        world.run(f"register {broker_id}" + (f" rack={racks[broker_id - 1]}" if racks else ""))
        world.run(f"heartbeat {broker_id}")
    for topic in topics:
        world.run(f"create {topic}")
    if eligible:
        world.write([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)])
    return Cluster(Options(), world.image)


def of(cluster: Cluster, name: str) -> Durability:
    topics = cluster.image.topics
    return durability(cluster.context(), topics.by_id[topics.ids[name]])


@pytest.mark.parametrize(
    ("settings", "kept", "written", "majority"),
    [
        ("on=1", 0, 0, 1),
        ("on=1,2,3", 0, 2, 5),
        ("on=1,2,3 min.insync.replicas=2", 1, 1, 5),
        ("on=1,2,3 min.insync.replicas=3", 2, 0, 5),
        ("on=1,2,3,4,5 min.insync.replicas=3", 2, 2, 9),
        ("on=1,2 min.insync.replicas=9", 1, 0, 3),
    ],
)
def test_settings_survive_so_many_losses(settings: str, kept: int, written: int, majority: int) -> None:
    """A2: a vote survives N losses with 2N + 1 replicas. A3: an ISR does with N + 1. A72: five replicas and three in sync
    bear two losses.
    """
    found = of(a_cluster(f"t {settings}"), "t")
    assert (found.losses_kept, found.losses_written, found.majority_would_need) == (kept, written, majority)


@pytest.mark.parametrize("min_isr", [1, 2, 3, 4])
def test_losses_do_what_the_advisor_says(min_isr: int) -> None:
    """A72: whichever brokers are lost, writes go on up to the number it names, and are refused beyond."""
    replicas = (1, 2, 3, 4)
    for count in range(len(replicas)):
        for lost in itertools.combinations(replicas, count):
            cluster = a_cluster(f"t on=1,2,3,4 min.insync.replicas={min_isr}")
            said = of(cluster, "t")
            for _ in lose(cluster, map(BrokerId, lost)):
                pass
            (topic,) = cluster.image.topics.by_id.values()
            (partition,) = topic.partitions
            takes_writes = partition.leader != NO_LEADER and len(partition.isr) >= min_isr
            assert takes_writes == (count <= said.losses_written), lost
            assert of(cluster, "t").written_now == len(partition.isr) - min_isr


def test_brokers_and_racks_whose_loss_blocks_writes_are_named() -> None:
    found = of(a_cluster("t on=1,2/1,3/2,4 min.insync.replicas=2", racks="aabbb"), "t")
    assert found.blocking == {1: 2, 2: 2, 3: 1, 4: 1}
    assert found.rack_blocks == {"a": 3, "b": 2}
    assert any("one rack (a, b)" in line for line in found.advice)
    spread = of(a_cluster("t on=1,3,5 min.insync.replicas=2", racks="aabbc"), "t")
    assert (spread.blocking, spread.rack_blocks) == ({}, {})


def test_what_is_refused_already_is_blocked_by_nobody() -> None:
    cluster = a_cluster("t on=1,2 min.insync.replicas=2")
    for _ in lose(cluster, [BrokerId(2)]):
        pass
    found = of(cluster, "t")
    assert (found.written_now, found.blocking) == (-1, {})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("on=1", ["one replica"]),
        ("on=1,2,3 min.insync.replicas=2", []),
        ("on=1,2,3", ["min.insync.replicas=1"]),
        ("on=1,2,3 min.insync.replicas=3", ["use min.insync.replicas=2"]),
        ("on=1,2 min.insync.replicas=2", ["use 3 replicas"]),
        ("on=1,2,3 min.insync.replicas=7", ["counts as 3", "use min.insync.replicas=2"]),
        (
            "on=1,2,3 min.insync.replicas=2 unclean.leader.election.enable=true",
            ["neither send again nor keep"],
        ),
    ],
)
def test_advice_is_given_where_there_is_something_to_change(settings: str, words: list[str]) -> None:
    """A74: availability before durability only where producers can neither send again nor keep what is refused."""
    found = of(a_cluster(f"t {settings}"), "t")
    assert len(found.advice) == len(words)
    assert all(word in line for word, line in zip(words, found.advice, strict=True))


def test_eligible_leader_replicas_and_missing_brokers_are_advised() -> None:
    found = of(a_cluster("t on=1,2,3 min.insync.replicas=2", eligible=False), "t")
    assert ["eligible.leader.replicas.version=1" in line for line in found.advice] == [True]
    cluster = a_cluster("t on=1,2,3 min.insync.replicas=2", brokers=3)
    for _ in lose(cluster, [BrokerId(1)]):
        pass
    assert of(cluster, "t").advice == ("2 brokers are up, fewer than the replicas of a partition",)


def test_the_verb_shows_a_table_and_each_advice_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = a_cluster("a on=1,2,3", "b on=2,3,4", "c on=1,2,3 min.insync.replicas=2")
    monkeypatch.setattr(live_state, "live_image", lambda _: cluster.image)
    monkeypatch.setattr(live_state, "live_options", lambda _: Options())

    def run(*words: str) -> int:
        return cli.main(["advise", *words, "--bootstrap", "http://127.0.0.1:1"])

    assert run() == cli.OK
    shown = capsys.readouterr().out
    assert shown.count("min.insync.replicas=1") == 1
    assert "a, b: min.insync.replicas=1" in shown
    assert run("c", "-o", "json") == cli.OK
    (row,) = json.loads(capsys.readouterr().out)
    expected: dict[str, Any] = {"topic": "c", "losses_kept": 1, "losses_written": 1, "advice": []}
    assert expected.items() <= row.items()
    assert run("c") == cli.OK
    assert "nothing to change" in capsys.readouterr().out
    assert run("none") == cli.REJECTED
