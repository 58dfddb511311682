"""Edge: an append that is refused in the middle of periodic work, and a large decision that ends in an error: nothing of
either is left behind.
"""

import asyncio
from collections.abc import Callable

import pytest

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.limits import LOOP_SLICE_MS
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.sliced import Sliced
from quorum.decide import sweeps
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.pace.turns import Turns
from tests.support.histories import step_of
from tests.support.lab import Lab
from tests.support.model_raft import ModelRaft
from tests.unit.quorum.controller.test_controller import leaders, silence, with_many_partitions

Refuse = Callable[[int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Return what has the append of that number refused, counted from now on, as where too much is in flight."""
    shipped, left = ModelRaft.append, [0]

    def append(raft: ModelRaft, frames: bytes, *voters: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise ThrottlingQuotaExceeded("too much is in flight")
        shipped(raft, frames, *voters)  # type: ignore[arg-type]

    def refusing(number: int) -> None:
        left[0] = number

    monkeypatch.setattr(ModelRaft, "append", append)
    return refusing


@pytest.mark.parametrize("refused", range(1, 4))
async def test_a_fencing_whose_append_is_refused_is_made_by_the_next_checks(
    refused: int, refuse: Refuse
) -> None:
    """Goal: no silent broker is forgotten. Method: each of its parts in turn finds too much in flight."""
    lab = Lab()
    controller, epochs = await with_many_partitions(lab, 11, 12)
    refuse(refused)
    silence(lab, controller, (12, epochs[12]))
    for _ in range(20):
        lab.finish(controller)
        lab.quorum.commit()
        lab.now_ms += 10
        controller.check_sessions()
    lab.quorum.commit()
    assert controller.committed.brokers[BrokerId(11)].fenced
    assert set(leaders(controller)) == {12}


@pytest.mark.parametrize("refused", range(1, 5))
async def test_a_sweep_whose_append_is_refused_leaves_no_partition_out(
    refused: int, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a sweep that has ended held every election. Method: 31 are to be held in parts of ten; one part is refused."""
    monkeypatch.setattr(sweeps, "ELECTIONS_PER_SWEEP_MAX", 10)
    lab = Lab()
    controller, _ = await with_many_partitions(lab, 11, 12)
    image = controller.committed
    topic_id = image.topics.ids["many"]
    moved: list[Record] = [
        PartitionChangeRecord(topic_id, number, leader=BrokerId(12)) for number in range(31)
    ]
    lab.quorum.log.append(step_of(image, moved, appended_at_ms=image.last_time_ms).frame)
    lab.quorum.commit()
    controller = lab.lead(2)
    refuse(refused)
    sweep = Sweep(SweepKind.BALANCE)
    if not controller.sweep(sweep):
        assert controller.sweep(sweep)
    lab.finish(controller)
    lab.quorum.commit()
    assert set(leaders(controller)) == {11}
    assert NO_LEADER not in leaders(controller)


@pytest.mark.parametrize("ends", ["error", "given up", "cancelled"])
async def test_a_large_decision_that_ends_early_holds_up_nobody(ends: str) -> None:
    """Goal: no state of it is left. Method: after its first rest it raises, is given up, or its client goes."""
    now_ms, closed = 0, []

    def work() -> Sliced[None]:
        nonlocal now_ms
        try:
            for number in range(10):
                now_ms += LOOP_SLICE_MS
                yield
                if number == 1 and ends == "error":
                    raise ThrottlingQuotaExceeded("too much")
        finally:
            closed.append(True)

    turns = Turns(lambda: now_ms)
    decision = asyncio.create_task(turns.in_slices(work(), goes_on=lambda: ends != "given up"))
    await asyncio.sleep(0)
    assert turns.is_mid_decision
    waiting = asyncio.create_task(turns.wait_for_turn())
    await asyncio.sleep(0)
    assert not waiting.done(), "one at a time"
    if ends == "cancelled":
        decision.cancel()
    (error,) = await asyncio.gather(decision, return_exceptions=True)
    assert isinstance(error, ThrottlingQuotaExceeded | asyncio.CancelledError | None)
    assert (turns.is_mid_decision, closed) == (False, [True])
    async with asyncio.timeout(60):
        await waiting
        await turns.wait_for_turn()
