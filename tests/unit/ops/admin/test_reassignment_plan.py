"""Edge: a plan of many reassignments on a controller's own decisions: a part at a time, and as often as one likes."""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from metadata_log.errors import NotController, OutcomeUnknown, ThrottlingQuotaExceeded
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.registry import json_rows
from ops.admin import reassignment_plan
from ops.admin.client import ClusterClient
from ops.admin.placement_plan import Wanted
from ops.admin.reassignment_plan import Carrying, NotAPlan, Progress, read_plan
from quorum.decide.reassignments import AlterPartitionReassignments, PartitionsReassigned, Reassignment
from tests.support.decisions import ids
from tests.unit.ops.admin.test_reassignment_history import Operators, a_world, found_in, steps_of

PARTITIONS = 40


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], 'no list "partitions"'),
        ({"partitions": {}}, 'no list "partitions"'),
        ({"partitions": [{"topic": "t", "partition": 0}]}, r"partitions\[0\] must have"),
        ({"partitions": [{"topic": 1, "partition": 0, "replicas": [1]}]}, r"partitions\[0\] must have"),
        ({"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}, r"partitions\[0\] must have"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}, r"partitions\[0\] must have"),
        ({"partitions": [{"topic": "t", "partition": 0, "replicas": [True]}]}, r"partitions\[0\] must have"),
        (
            {"partitions": [{"topic": "t", "partition": 3, "replicas": each} for each in ([1], [2])]},
            "t:3 is named twice",
        ),
    ],
)
def test_what_is_no_plan_is_refused_by_what_it_lacks(value: Any, why: str) -> None:
    with pytest.raises(NotAPlan, match=why):
        read_plan(value)


def test_a_plan_may_have_more_than_is_read_and_may_cancel() -> None:
    rows = [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
        {"topic": "t", "partition": 1, "replicas": None},
    ]
    assert read_plan({"version": 1, "partitions": rows}) == [
        Wanted("t", 0, ids("1,2")),
        Wanted("t", 1, None),
    ]


class Desk(ClusterClient):
    """A client whose requests a world decides. `looks` counts looks at the state; `on_look` is what happens meanwhile.

    `failures` are raised by the next requests: each before it is carried out, or after, as its flag says.
    """

    def __init__(self, world: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(["http://127.0.0.1:1"], timeout_s=1, rng=random.Random(1))
        self.world = world
        self.looks = 0
        self.most = 0
        self.on_look: Callable[[], None] = self.finish_some
        self.failures: deque[tuple[Exception, bool]] = deque()
        monkeypatch.setattr(reassignment_plan, "LOOK_AGAIN_S", 0)
        monkeypatch.setattr(reassignment_plan, "live_image", lambda _: self.look())
        monkeypatch.setattr(reassignment_plan, "newer_image", lambda *_: self.look())

    def look(self) -> MetadataImage:
        self.looks += 1
        self.most = max(self.most, len(self.under_way()))
        self.on_look()
        return self.world.image

    def under_way(self) -> list[int]:
        topic = self.world.image.topics.named("many")
        assert topic is not None
        return [
            number
            for number, one in enumerate(topic.partitions)
            if one.adding_replicas or one.removing_replicas
        ]

    def finish_some(self) -> None:
        for number in self.under_way()[:5]:
            self.world.report("many", number)

    def write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, repeatable: bool = True
    ) -> Any:
        assert (method, path, repeatable) == ("POST", "/v1/partitions/reassign", True)
        assert body is not None
        failure, is_carried_out = self.failures.popleft() if self.failures else (None, True)
        results: list[dict[str, Any]] = []
        if is_carried_out:
            wanted = tuple(
                Reassignment(one["topic"], one["partition"], one["replicas"]) for one in body["partitions"]
            )
            command = AlterPartitionReassignments(
                reassignments=wanted, allow_replication_factor_change=body["allow_replication_factor_change"]
            )
            outcome = self.world.decide(command).result()
            assert isinstance(outcome, PartitionsReassigned)
            results = json_rows(outcome.results)
        if failure is not None:
            raise failure
        return {"partitions": results}

    def carry_out(self, plan: list[Wanted], *, at_most: int = 7) -> Progress:
        more = {"allow_replication_factor_change": True}
        return Carrying(client=self, at_most=at_most, patience_s=0, more=more).run(plan)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    world = a_world()
    world.run(f"create many on={'/'.join(['1,2'] * PARTITIONS)}")
    return Desk(world, monkeypatch)


def a_plan(replicas: str = "3,4") -> list[Wanted]:
    return [Wanted("many", number, ids(replicas)) for number in range(PARTITIONS)]


def begun(desk: Desk) -> Counter[tuple[str, int]]:
    """Return how often each partition was reassigned, by the log."""
    return Counter((one.topic, one.partition) for one in found_in(steps_of(desk.world)).items)


ONCE = Counter(("many", number) for number in range(PARTITIONS))


@pytest.mark.parametrize("at_most", [1, 7, 1_000, 0])
def test_a_plan_is_carried_out_a_part_at_a_time(desk: Desk, at_most: int) -> None:
    """C16: never more under way than was said."""
    progress = desk.carry_out(a_plan(), at_most=at_most)
    assert progress.line() == f"{PARTITIONS} done, 0 under way, 0 to do"
    assert progress.problems() == []
    assert desk.most == min(at_most or PARTITIONS, PARTITIONS)
    assert begun(desk) == ONCE


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_that_is_interrupted_again_and_again_does_nothing_twice(desk: Desk, seed: int) -> None:
    """C16: Goal: resumable at any point. Method: each run is interrupted at a look by chance, until one is not."""
    rng = random.Random(seed)

    def work_or_stop() -> None:
        desk.finish_some()
        if rng.random() < 0.3:
            raise KeyboardInterrupt

    desk.on_look = work_or_stop
    while True:
        try:
            progress = desk.carry_out(a_plan(), at_most=6)
        except KeyboardInterrupt:
            continue
        break
    assert progress.done == PARTITIONS
    assert begun(desk) == ONCE
    assert desk.most <= 6


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_request_without_an_answer_is_looked_up_and_not_repeated_blindly(
    desk: Desk, is_carried_out: bool
) -> None:
    """Goal: a plan survives changes of the active controller. Method: every second request fails, before or after."""
    for _ in range(3):
        desk.failures.append((OutcomeUnknown("no answer", request_id="r"), is_carried_out))
        desk.failures.append((NotController("an election"), False))
    assert desk.carry_out(a_plan()).done == PARTITIONS
    assert begun(desk) == ONCE
    assert desk.most <= 7


def test_a_plan_that_nobody_answers_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment_plan, "NO_ANSWER_S", 0.02)

    def nobody() -> None:
        raise ThrottlingQuotaExceeded("busy")

    desk.on_look = nobody
    with pytest.raises(ThrottlingQuotaExceeded):
        desk.carry_out(a_plan())


def test_what_is_stuck_keeps_its_place_and_ends_the_plan(desk: Desk) -> None:
    """C21: a plan onto a dead broker does not begin as a whole, and says why it stops."""
    desk.world.run("expire 4")
    progress = desk.carry_out(a_plan())
    assert progress.line() == "0 done, 7 under way (7 stuck), 33 to do"
    assert {one["message"] for one in progress.problems()} == {"broker 4, which is added, is fenced"}
    desk.world.run("heartbeat 4")
    assert desk.carry_out(a_plan()).done == PARTITIONS
    assert begun(desk) == ONCE


def test_refusals_cancels_and_what_others_did_are_told_apart(desk: Desk) -> None:
    desk.world.reassign("many", 0, "3,4")
    desk.world.reassign("many", 1, "3,4")
    plan = [
        Wanted("many", 0, None),
        Wanted("many", 1, ids("3,4")),
        Wanted("many", 2, ids("1,2")),
        Wanted("many", 3, ids("99")),
        Wanted("nowhere", 0, ids("1")),
        Wanted("many", 4, ids("5,1")),
    ]

    def another() -> None:
        if desk.looks == 2:
            desk.world.reassign("many", 4, "2,3")
        desk.finish_some()

    desk.on_look = another
    progress = desk.carry_out(plan)
    assert progress.done == 3
    assert [(one["topic"], one["partition"], one["error"]) for one in progress.problems()] == [
        ("many", 3, "INVALID_REPLICA_ASSIGNMENT"),
        ("nowhere", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("many", 4, "REPLACED"),
    ]
    assert begun(desk) == Counter({("many", 0): 1, ("many", 1): 1, ("many", 4): 2})
