"""A run of a plan of reassignments: the shipped run of a plan on a controller's own decisions.

Runs of the plan are killed and begun again, requests fail before or after they were carried out, and the replicas that are
added catch up by and by.
"""

import random
from collections import Counter
from typing import Final

import pytest

from metadata_log.errors import NotController, OutcomeUnknown
from ops.admin.placement_plan import Wanted
from tests.simulation.rules.rule import Violation, rule
from tests.support.decisions import ids
from tests.unit.ops.admin.test_reassignment_history import a_world
from tests.unit.ops.admin.test_reassignment_plan import Desk, begun

PARTITIONS: Final = (5, 30)
RUNS_MAX: Final = 200


class _Killed(BaseException):
    """The run of the plan is killed."""


class PlanRun:
    """One run; `run` returns what it violated."""

    nothing_is_reassigned_twice = rule("what is done already is not begun again")
    no_more_is_under_way_than_was_said = rule("never more reassignments are under way than was said")
    a_plan_ends_done = rule("each plan comes to its end")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runs = 0
        self.failures = 0

    def run(self) -> list[str]:
        with pytest.MonkeyPatch.context() as patching:
            try:
                self._run(patching)
            except Violation as violation:
                return [str(violation)]
        return []

    def _run(self, patching: pytest.MonkeyPatch) -> None:
        rng = self.rng
        partitions = rng.randint(*PARTITIONS)
        world = a_world()
        world.run(f"create many on={'/'.join(['1,2'] * partitions)}")
        desk = Desk(world, patching)
        plan = [Wanted("many", number, ids("3,4")) for number in range(partitions)]
        kills, fails = rng.choice((0.0, 0.2, 0.4)), rng.choice((0.0, 0.2, 0.4))

        def meanwhile() -> None:
            for number in desk.under_way():
                if rng.random() < 0.5:
                    world.report("many", number)
            if not desk.failures and rng.random() < fails:
                self.failures += 1
                error = rng.choice(
                    (OutcomeUnknown("no answer", request_id="r"), NotController("an election"))
                )
                desk.failures.append((error, isinstance(error, OutcomeUnknown) and rng.random() < 0.5))
            if rng.random() < kills:
                raise _Killed

        desk.on_look = meanwhile
        at_most, done = rng.choice((1, 4, 7, 1_000)), 0
        while self.runs < RUNS_MAX and done < partitions:
            self.runs += 1
            try:
                done = desk.carry_out(plan, at_most=at_most).done
            except _Killed:
                continue
            if done < partitions:
                raise self.a_plan_ends_done(f"{done} of {partitions} are")
        if desk.most > at_most:
            raise self.no_more_is_under_way_than_was_said(f"{desk.most} were, and {at_most} may be")
        expected = Counter(("many", number) for number in range(partitions))
        if twice := begun(desk) - expected:
            raise self.nothing_is_reassigned_twice(f"{sorted(twice)} were")
