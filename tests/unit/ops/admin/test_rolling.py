"""Edge: a roll step by step, on a controller's own decisions: what is checked before a restart, and after it."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from metadata_log.errors import OutcomeUnknown
from metadata_log.image.metadata_image import MetadataImage
from ops.admin import rolling
from ops.admin.cluster import Cluster
from ops.admin.roll_plan import Node, Role
from ops.admin.rolling import NotBack, Rolling, UnsafeStep
from quorum.whatif.cluster import Options
from tests.support.decisions import World
from tests.support.placements import a_cluster, finish
from tests.unit.ops.admin.test_health import voter
from tests.unit.ops.admin.test_roll_plan import with_controllers

EVERY: tuple[Role, ...] = ("controller", "broker")


class Desk(Cluster):
    """A cluster of controllers 4, 5 and 6 and brokers 1, 2 and 3 whose nodes are restarted by the world's decisions.

    `done` is what happened, in order. A restarted node comes back at the next look, unless it is in `lost`.
    """

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(["http://127.0.0.1:1"], timeout_s=1, rng=random.Random(1))
        self.world = world
        self.leader_id = 4
        self.voters: list[dict[str, Any]] = [voter(each) for each in (4, 5, 6)]
        self.reasons: list[dict[str, str]] = []
        self.done: list[str] = []
        self.lost: set[int] = set()
        self.on_restart: Callable[[Node], None] = lambda _: None
        monkeypatch.setattr(rolling, "LOOK_AGAIN_S", 0)
        monkeypatch.setattr(rolling, "live_image", lambda _: self.look())
        monkeypatch.setattr(rolling, "newer_image", lambda *_: self.look())
        monkeypatch.setattr(rolling, "live_options", lambda _: Options())
        monkeypatch.setattr(rolling, "survey", lambda _: None)
        monkeypatch.setattr(rolling, "merged_status", lambda _: self.status())
        monkeypatch.setattr(rolling, "judged", lambda _: {"reasons": self.reasons})

    def look(self) -> MetadataImage:
        return self.world.image

    def status(self) -> dict[str, Any]:
        return {"leader_id": self.leader_id, "voters": [*self.voters]}

    def write(self, method: str, path: str, body: Any = None, *, repeatable: bool = True) -> Any:
        assert (method, path, body, repeatable) == ("POST", "/v1/quorum/transfer", {"to": None}, False)
        self.leader_id = 5
        self.done.append("transfer")
        return {"leader_id": self.leader_id}

    def restart(self, node: Node) -> None:
        self.done.append(node.name)
        self.on_restart(node)
        if node.id in self.lost:
            return
        if node.role == "controller":
            assert node.id != self.leader_id, "it does not lead"
            with_controllers(self.world, node.id, process=f"of-{len(self.done)}")
            return
        self.world.run(f"expire {node.id}")
        self.world.run(f"register {node.id} incarnation=b{node.id}-{len(self.done)}")
        self.world.run(f"heartbeat {node.id}")
        finish(self.world)

    def roll(self, *, since: int | None = None, accepted: tuple[str, ...] = ()) -> list[str]:
        began = self.world.image.end_offset if since is None else since
        of = Rolling(client=self, restart=self.restart, patience_s=0.05, accepted=frozenset(accepted))
        return [f"{one.role} {one.id}" for one in of.run(EVERY, since=began)]


ORDER = ["controller 5", "controller 6", "transfer", "controller 4", "broker 1", "broker 2", "broker 3"]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    world = a_cluster([None] * 3, "t on=1,2,3/2,3,1/3,1,2 min.insync.replicas=2")
    with_controllers(world, 4, 5, 6)
    return Desk(world, monkeypatch)


def test_each_node_is_restarted_once_and_the_leader_after_a_transfer(desk: Desk) -> None:
    since = desk.world.image.end_offset
    assert desk.roll() == [one for one in ORDER if one != "transfer"]
    assert desk.done == ORDER
    assert desk.roll(since=since) == [], "all have registered since"


@pytest.mark.parametrize("stopped_at", range(1, 6))
def test_a_roll_that_is_interrupted_goes_on_with_the_next_node(desk: Desk, stopped_at: int) -> None:
    since = desk.world.image.end_offset

    def stop(_: Node) -> None:
        restarts = [one for one in desk.done if one != "transfer"]
        if len(restarts) == stopped_at:
            desk.done.pop()
            raise KeyboardInterrupt

    desk.on_restart = stop
    with pytest.raises(KeyboardInterrupt):
        desk.roll(since=since)
    desk.on_restart = lambda _: None
    desk.roll(since=since)
    assert [one for one in desk.done if one != "transfer"] == [one for one in ORDER if one != "transfer"]


def test_nothing_is_restarted_while_health_is_not_green_unless_the_reason_is_accepted(desk: Desk) -> None:
    desk.reasons = [{"code": "DISK_NEARLY_FULL", "detail": "1 GiB"}]
    with pytest.raises(
        UnsafeStep, match=r"controller 5 is not restarted, and after .*DISK_NEARLY_FULL: 1 GiB"
    ):
        desk.roll()
    assert desk.done == []
    assert len(desk.roll(accepted=("DISK_NEARLY_FULL",))) == 6


def test_a_controller_without_which_there_is_no_majority_stays(desk: Desk) -> None:
    desk.voters[2] = voter(6, last_caught_up_ms_ago=None)
    with pytest.raises(UnsafeStep, match=r"controller 5 is not restarted: of 3 voters only \[4\]"):
        desk.roll()
    assert desk.done == []


def test_a_broker_stays_without_which_a_partition_suffers(desk: Desk) -> None:
    """Goal: the partition is named. Method: one whose ISR shrank while the roll went on, though its health is green."""

    def shrink(node: Node) -> None:
        if node.name == "controller 4":
            desk.world.run("create alone on=2")

    desk.on_restart = shrink
    with pytest.raises(UnsafeStep, match="broker 2 is not restarted: alone:0 would have no leader"):
        desk.roll()
    assert desk.done == ORDER[:5]


def test_a_node_that_does_not_come_back_ends_the_roll_and_comes_first_in_the_next(desk: Desk) -> None:
    since = desk.world.image.end_offset
    desk.lost = {1}

    def end(node: Node) -> None:
        if node.id == 1:
            desk.world.run("expire 1")

    desk.on_restart = end
    with pytest.raises(NotBack, match=r"broker 1 was restarted, and after .*no new process has registered"):
        desk.roll(since=since)
    desk.lost, desk.on_restart = set(), lambda _: None
    desk.reasons = [{"code": "BROKER_OFFLINE", "detail": "broker 1 is OFFLINE"}]
    with pytest.raises(UnsafeStep, match="broker 2 is not restarted"):
        desk.roll(since=since)
    assert desk.done == [*ORDER[:4], "broker 1", "broker 1"], "what is down is restarted whatever the health"
    desk.reasons = []
    assert desk.roll(since=since) == ["broker 2", "broker 3"]


def test_a_look_that_fails_is_repeated(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OutcomeUnknown("no answer", request_id="r")] * 3

    def judged(_: Cluster) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {"reasons": []}

    unled = [True] * 3

    def status(_: Any) -> dict[str, Any]:
        return {"leader_id": -1, "voters": []} if unled and unled.pop() else desk.status()

    monkeypatch.setattr(rolling, "judged", judged)
    monkeypatch.setattr(rolling, "merged_status", status)
    assert len(desk.roll()) == 6


def test_a_quorum_without_a_leader_ends_the_roll_before_anything_is_restarted(desk: Desk) -> None:
    desk.leader_id = -1
    with pytest.raises(NotBack, match="no controller leads"):
        desk.roll()
    assert desk.done == []


def test_a_check_sees_what_happened_while_health_was_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(_: Cluster) -> dict[str, Any]:
        desk.voters[2] = voter(6, reachable=False)
        return {"reasons": []}

    monkeypatch.setattr(rolling, "judged", judged)
    with pytest.raises(UnsafeStep, match="controller 5 is not restarted: of 3 voters"):
        desk.roll()
    assert desk.done == []
