"""A seeded slice of the simulated clusters; long campaigns run by `python -m tests.simulation`."""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

import metadata_log.image.results
from metadata_log.image.results import RequestResults
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from quorum.controller.controller import Controller
from tests.simulation.campaign.campaign import Outcome, Plan, Run, carry_out
from tests.simulation.faults.membership import Membership
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.rules.calm import Calm
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.jobs import THREAD_NAME
from tests.simulation.world.markers import missing_in_check
from tests.simulation.world.node import SimulatedNode

BROAD_SEEDS = (809, 811, 859, 904, 905)
WRITES_PER_SECOND_MIN = 5.0
"""Of a run this short; a campaign counts only those with thirty."""


def carried_out(
    seed: int, profile: str, seconds: float, *, controllers: int = 3, observers: int = 0, brokers: int = 3
) -> Outcome:
    outcome = carry_out(
        Run(
            seed=seed,
            profile=profile,
            controllers=controllers,
            observers=observers,
            brokers=brokers,
            seconds=seconds,
            raft_only=False,
        )
    )
    assert not outcome.violations, "\n" + outcome.report()
    return outcome


ALONE = ("nasty", "brokers", "asleep", "heavy", "slow-disks")
"""What happens to a controller that is alone: it has no links, no rivals and no other voters. Of profiles with the same
faults, the roughest one is here.
"""
OF_MANY = ("storm", "members", "deposed", "uncommitted", "losses")
"""Where five controllers elect, follow and vote otherwise than three."""
OF_OTHERS = ("calm", "fifo", "wild")
"""Their faults are those of rougher profiles too, and tests below have runs of two of them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "controllers"),
    [
        *((profile, 3) for profile in (*PROFILES, "swarm") if profile not in OF_OTHERS),
        *((profile, 1) for profile in ALONE),
        *((profile, 5) for profile in OF_MANY),
    ],
)
def test_a_simulated_cluster_keeps_every_property(profile: str, controllers: int) -> None:
    outcome = carried_out(102, profile, 5.0, controllers=controllers)
    assert outcome.writes_per_second >= WRITES_PER_SECOND_MIN


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(201, 204))
def test_any_mixture_of_faults_keeps_every_property(seed: int) -> None:
    carried_out(seed, "swarm", 10.0)


@pytest.mark.slow
def test_broad_runs_keep_every_property_and_reach_rare_states() -> None:
    """The seeds are those of short runs that reach much; all other runs with markers are campaigns."""
    reached: Counter[str] = Counter()
    for run in Plan(profiles=("broad",), seconds=12.0).runs(BROAD_SEEDS):
        outcome = carry_out(run)
        assert not outcome.violations, "\n" + outcome.report()
        reached.update(outcome.reached)
    assert missing_in_check(reached) == []


@pytest.mark.slow
def test_voters_come_and_go_in_the_hands_of_shipped_controllers() -> None:
    outcome = carried_out(303, "members", 8.0, observers=2)
    assert outcome.consequences["changes of voters carried out"] > 2


@pytest.mark.slow
def test_no_disk_is_lost_while_a_change_of_voters_is_on_its_way_to_the_leader() -> None:
    """Goal: the weather asks nothing impossible: the two voters that a removal leaves cannot lose one of them."""
    seen: list[bool] = []

    class Removes(ClusterWorld):
        def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
            self.loop.call_later(2.0, self._remove)
            return super().more_weather()

        def _remove(self) -> None:
            operator = Membership(self)
            leader = next(node for node in self.nodes.values() if node.is_leader())
            voters = operator._newest()
            assert voters is not None
            self.propose(leader, {voter: voters[voter] for voter in voters if voter != leader.node_id})
            assert leader.log is not None
            seen.append(leader.log.status().change_pending)
            assert operator._newest() is None

    world = Removes(seed=1, profile=PROFILES["calm"])
    assert not world.run(4.0)
    assert seen == [False]
    assert world.changes_asked == 0
    assert world.consequences["changes of voters carried out"] == 1


@pytest.mark.slow
def test_twenty_brokers_keep_every_property() -> None:
    outcome = carried_out(301, "fifo", 8.0, brokers=20)
    assert outcome.writes_per_second >= WRITES_PER_SECOND_MIN


@pytest.mark.slow
def test_a_short_simulated_cluster_keeps_every_property() -> None:
    world = ClusterWorld(seed=7, profile=PROFILES["fifo"], brokers=2, clients=2)
    assert world.run(3.0) == []


@pytest.mark.slow
def test_a_short_run_of_a_data_plane_loses_no_acknowledged_record() -> None:
    """With eligible leader replicas, under kill -9, losses of power and cuts between brokers, and a roll at the end."""
    world = ClusterWorld(seed=3, profile=PROFILES["brokers"], clients=2)
    assert world.run(4.0) == []
    assert world.image.features[ELIGIBLE_LEADER_REPLICAS_VERSION] == 1
    assert world.consequences["records acknowledged"] > 20
    assert world.consequences["joined in sync"] > 0


@pytest.mark.slow
def test_a_short_run_of_brokers_with_caches_goes_on_from_what_their_disks_hold() -> None:
    """After kill -9, losses of power, turned bits and orderly stops."""
    world = ClusterWorld(seed=25, profile=replace(PROFILES["brokers"], has_caches=True), clients=2)
    assert world.run(8.0) == []
    reached = world.markers.reached
    assert reached["broker's cache opened with a log"] > 1
    assert reached["broker's cache lost its unsynced end"] > 0
    assert THREAD_NAME not in {thread.name for thread in threading.enumerate()}, "each ends with its process"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [401, 402])
def test_a_data_plane_loses_no_acknowledged_record(seed: int) -> None:
    """With eligible leader replicas (401) and without."""
    assert carried_out(seed, "brokers", 10.0).consequences["records acknowledged"] > 50


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_in_any_process() -> None:
    """Nothing depends on the order of hashes, on addresses, on the runs before, or on the machine's clock."""
    traces = {carried_out(15, "streams", 3).trace}
    for profile, seconds in (("nasty", 5), ("streams", 3)):
        here = carried_out(14, profile, seconds)
        asked = ["--seeds", "14", "--profile", profile, "--seconds", str(seconds)]
        there = subprocess.run(
            (sys.executable, "-m", "tests.simulation", *asked),
            env=os.environ | {"PYTHONHASHSEED": "2"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f"trace {here.trace:08x}" in there.splitlines()[0]
        traces.add(here.trace)
    assert len(traces) == 3, "another seed is another run"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_of_controllers_that_start_together_one_becomes_active(seed: int) -> None:
    """A37, A92: three controllers and four brokers start at once, in whatever order they hear of each other."""
    claims: list[dict[int, int]] = []

    class Looks(ClusterWorld):
        def more_weather(self) -> list[tuple[float | None, Callable[[], None]]]:
            self.loop.call_later(2.5, lambda: claims.append(dict(self.properties.claims)))
            return super().more_weather()

    world = Looks(seed=seed, profile=PROFILES["calm"], brokers=4, clients=1)
    assert world.run(3.0) == []
    ((epoch, _node_id),) = claims[0].items()
    assert epoch == 1
    images = [
        node.listener.committed for node in world.nodes.values() if isinstance(node.listener, Controller)
    ]
    images += [broker.follower.image for broker in world.brokers]
    assert len(images) == 7
    assert len({(image.end_offset, image.digest_buckets) for image in images}) == 1
    assert [broker.fenced for broker in images[0].brokers.values()] == [False] * 4


def test_a_quorum_of_one_elects_itself_and_serves() -> None:
    """A91: nobody else is asked."""
    world = ClusterWorld(seed=5, profile=PROFILES["calm"], voters=1, brokers=1, clients=1)
    assert world.run(3.0) == []
    assert world.acknowledged
    assert world.reads_answered > 0


@pytest.mark.slow
def test_lost_fetches_are_made_up_for() -> None:
    """A89: three of ten requests and answers of brokers are lost; each ends with the image that the controllers have."""

    class Loses(ClusterWorld):
        lost = 0

        async def _pass(self, caller: int, node: SimulatedNode, what: str) -> None:
            if caller >= 11 and not self.is_quiet and self.rng.random() < 0.3:
                self.lost += 1
                raise ConnectionError(f"the {what} was lost")
            await super()._pass(caller, node, what)

    world = Loses(seed=9, profile=PROFILES["calm"], brokers=3, clients=2)
    assert world.run(6.0) == []
    assert world.lost > 50
    images = [
        node.listener.committed for node in world.nodes.values() if isinstance(node.listener, Controller)
    ]
    images += [broker.follower.image for broker in world.brokers]
    assert len({(image.end_offset, image.digest_buckets) for image in images}) == 1


@pytest.mark.slow
def test_a_failing_seed_tells_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Calm, "_not_live", lambda _calm, _acknowledged: "nothing is well")
    outcome = carry_out(Run(seed=3, profile="fifo", controllers=3, brokers=1, seconds=1.0, raft_only=False))
    report = outcome.report()
    assert "liveness: 15 s after the last fault nothing is well" in report
    assert (
        "python -m tests.simulation --seeds 3 --profile fifo --controllers 3 --brokers 1 --seconds 1"
        in report
    )
    assert "leads" in report and "is calm from now on" in report


@pytest.mark.slow
def test_an_answer_that_is_evicted_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats what was answered long ago, and the check counts by itself how many answers are kept."""
    shipped = RequestResults.evicted

    def early(results: RequestResults, *, now_ms: int) -> RequestResults:
        with monkeypatch.context() as patched:
            patched.setattr(metadata_log.image.results, "REQUEST_RESULTS_MAX", 100)
            return shipped(results, now_ms=now_ms)

    monkeypatch.setattr(RequestResults, "evicted", early)
    runs = Plan(profiles=("broad",), seconds=8.0).runs([400, 408, 412])
    assert any("applied_once" in violation for run in runs for violation in carry_out(run).violations)
