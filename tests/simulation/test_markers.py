"""Markers of rare states: where they are counted, what is demanded, and that counting changes no run."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from metadata_log.ids import NodeId
from quorum.raft.read_rounds import ReadRounds
from tests.simulation.faults import broad
from tests.simulation.faults.profiles import PROFILES, profile_of
from tests.simulation.world import world
from tests.simulation.world.markers import DEMANDS, Demand, Markers, missing
from tests.simulation.world.network import Network
from tests.simulation.world.stepped import Quorum
from tests.simulation.world.world import World

HERE = Path(__file__).parent


def test_every_marker_is_counted_somewhere() -> None:
    code = "".join(
        path.read_text()
        for path in HERE.rglob("*.py")
        if path.name not in ("markers.py", Path(__file__).name)
    )
    assert [name for name in DEMANDS if f'"{name}"' not in code] == []


def test_no_other_name_is_a_marker() -> None:
    markers = Markers(lambda: 2.5)
    markers.sometimes("cuts overlap")
    markers.sometimes("cuts overlap")
    assert (markers.reached, markers.first_at) == ({"cuts overlap": 2}, {"cuts overlap": 2.5})
    with pytest.raises(AssertionError, match="no marker has the name"):
        markers.sometimes("anything else")


@pytest.mark.slow
def test_a_run_that_is_watched_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = World(seed=5, profile=PROFILES["wild"])
    assert not seen.run(4.0)
    monkeypatch.setattr(world, "watched", lambda _sometimes: nullcontext())
    unseen = World(seed=5, profile=PROFILES["wild"])
    assert not unseen.run(4.0)
    assert seen.network.trace == unseen.network.trace
    assert seen.markers.reached["torn journal batch cut"]
    assert not unseen.markers.reached["torn journal batch cut"]


def test_a_watched_branch_that_is_taken_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is refused because the leader hears no majority."""
    monkeypatch.setattr(ReadRounds, "refused_from", lambda _rounds, _unheard_at: 0.0)
    run = World(seed=1, profile=PROFILES["calm"])
    run.run(2.0)
    assert run.markers.reached["read refused without a majority"]


def test_a_campaign_misses_what_it_reached_too_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    demands = {"often": Demand(10.0), "seldom": Demand(0.5)}
    monkeypatch.setattr("tests.simulation.world.markers.DEMANDS", demands)
    assert missing({}, hours=2.0) == ["often", "seldom"]
    assert missing({"often": 19, "seldom": 1}, hours=2.0) == ["often"]
    assert missing({"often": 20, "seldom": 1}, hours=2.0) == []
    assert missing({"often": 19}, hours=1.9) == [], "what is rare is not demanded of a short campaign"


def test_cuts_that_overlap_heal_one_by_one() -> None:
    quorum = Quorum()
    network: Network = quorum.world.network
    quorum.start()
    quorum.leader()
    one, two = NodeId(1), NodeId(2)
    first, second = network.new_cut(), network.new_cut()
    network.block(one, two, first)
    network.block(one, two, second)
    network.block(two, one, second)
    network.unblock(first)
    assert not network.is_open(one, two)
    network.unblock(second)
    assert network.is_open(one, two) and network.is_open(two, one)
    assert not network.is_cut
    network.unblock(second)  # the calm has healed all before
    quorum.end()


def test_four_seeds_in_a_row_are_of_four_kinds() -> None:
    for first in (0, 400, 1_000_000):
        shapes = [broad.shape_of(seed) for seed in range(first, first + 4)]
        profiles = [profile_of(broad.NAME, seed) for seed in range(first, first + 4)]
        assert [shape.voters for shape in shapes[:3]] == [1, 3, 5]
        assert [profile.change_every is None for profile in profiles] == [True, True, True, False]
        assert shapes[3].observers > 0
