"""A seeded slice of clusters that brokers of Kafka follow, under faults of controllers, links and disks."""

import pytest

from tests.simulation.campaign.campaign import Plan
from tests.simulation.faults import broad
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.kafka_followers import KafkaWorld


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["returns", "nasty", "members", "deposed"])
def test_no_broker_of_kafka_ends(profile: str) -> None:
    """Goal: no two answers name two leaders of an epoch, nothing that a broker has is taken back, and all controllers send
    the same bytes. Method: brokers that end where Kafka's do, whatever befalls the controllers.
    """
    world = KafkaWorld(seed=1, profile=PROFILES[profile])
    assert not world.run(10.0), world.violations
    assert len(world.batches) > 20
    assert all(follower.observer.high_watermark > 0 for follower in world.followers)


@pytest.mark.slow
def test_brokers_of_kafka_follow_some_clusters_of_the_broad_profile() -> None:
    assert {broad.kafka_followers(seed) for seed in range(40)} == {0, 1, 2}
    seed = next(seed for seed in range(4_800, 4_900) if broad.kafka_followers(seed) == 2)
    [run] = Plan(profiles=(broad.NAME,), seconds=3.0).runs([seed])
    world = run.world()
    assert isinstance(world, KafkaWorld)
    assert not world.run(run.seconds), world.violations
    assert all(follower.observer.high_watermark > 0 for follower in world.followers)


@pytest.mark.slow
def test_brokers_end_by_answers_to_heartbeats_that_waited_for_their_shutdown() -> None:
    """Goal: an answer that waits for a long change, as a broker of Kafka gets it, ends no broker that others still need."""
    stopped = 0
    for seed in (1, 2):
        world = KafkaWorld(seed=seed, profile=PROFILES["returns"])
        assert not world.run(10.0), world.violations
        stopped += sum(heartbeater.stopped for heartbeater in world.heartbeaters)
    assert stopped
