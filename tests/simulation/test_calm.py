"""How long the calm at the end of a run waits: longer where the run's own parts of long changes take longer."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from quorum.controller.controller import Controller
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.rules.calm import CHANGES, CONVERGENCE_SECONDS, LAST_CHANGES, LIVENESS_SECONDS
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.costs import Rates
from tests.support.decisions import World, creation, ids

FAST = Rates()
HEAVY = Rates(slowness=2.0, partition=500)
PARTITIONS = 51
PART_SECONDS = 0.0378
"""From one part of one partition to the next in such a heavy run: 17.9 ms of work, as long a rest, and 2 ms."""


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Return a world none of whose three brokers is online, with partitions on the first two of them."""
    built = World()
    for broker_id in (11, 12, 13):
        built.run(f"register {broker_id}")
        built.run(f"heartbeat {broker_id}")
    built.decide(creation("t", assignment=(ids("11,12"),) * PARTITIONS))
    world = ClusterWorld(seed=1, profile=replace(PROFILES["calm"], has_data=False))
    world.image = built.image
    yield world
    world.loop.close()


def test_a_fast_run_waits_for_no_parts(world: ClusterWorld) -> None:
    world.costs.rates = FAST
    assert world.calm.liveness_seconds() == LIVENESS_SECONDS
    assert world.calm.convergence_seconds() == CONVERGENCE_SECONDS
    assert world.calm.changes_seconds() == 0


def test_a_heavy_run_waits_for_the_parts_of_each_broker(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.costs.rates = HEAVY
    monkeypatch.setattr(Controller, "records_per_part_max", 2)
    one_change = (PARTITIONS - 1) * PART_SECONDS
    assert world.calm.liveness_seconds() == pytest.approx(LIVENESS_SECONDS + 2 * CHANGES * one_change)
    assert world.calm.convergence_seconds() == pytest.approx(CONVERGENCE_SECONDS + LAST_CHANGES * one_change)
    assert world.calm.changes_seconds() == pytest.approx(CHANGES * one_change)


def test_the_first_part_of_a_change_costs_nothing_more() -> None:
    assert HEAVY.change_seconds(0, per_part=1) == HEAVY.change_seconds(7, per_part=7) == 0
    assert HEAVY.change_seconds(8, per_part=7) == pytest.approx(0.0378 + 6 * 2 * 0.0179)
    assert FAST.change_seconds(8, per_part=7) < 0.003
