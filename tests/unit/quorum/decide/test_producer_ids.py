"""Edge: producer ids: blocks of 1,000 that follow each other, and never go back (B88)."""

import pytest

from metadata_log.errors import InvariantBroken
from metadata_log.ids import BrokerId
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.wire.commands import AllocateProducerIds
from metadata_log.wire.shapes import INT64_MAX
from quorum.decide.producer_ids import BLOCK_SIZE, ProducerIdsAllocated
from tests.support.decisions import World


def world() -> World:
    made = World()
    made.run("register 1")
    return made


def block(made: World, *, epoch: int = 0) -> AllocateProducerIds:
    broker_id = BrokerId(1)
    return AllocateProducerIds(
        broker_id=broker_id, broker_epoch=made.image.brokers[broker_id].broker_epoch + epoch
    )


def starting_at(made: World, next_producer_id: int) -> World:
    made.write([ProducerIdsRecord(BrokerId(1), 1, next_producer_id)])
    return made


def test_blocks_follow_each_other() -> None:
    """B88: the first id is 0, a block has 1,000 ids, and the record tells where the next one begins."""
    made = world()
    for first in (0, 1_000, 2_000):
        decision = made.decide(block(made))
        assert decision.outcome == ProducerIdsAllocated(first, 1_000)
        epoch = made.image.brokers[BrokerId(1)].broker_epoch
        assert list(decision.records) == [ProducerIdsRecord(BrokerId(1), epoch, first + 1_000)]
        assert made.image.next_producer_id == first + 1_000
    assert BLOCK_SIZE == 1_000


@pytest.mark.parametrize("epoch", [-1, 1])
def test_another_broker_epoch_gets_none(epoch: int) -> None:
    """B88, B18: the broker's epoch is checked."""
    made = world()
    decision = made.decide(block(made, epoch=epoch))
    assert decision.refusal is not None and decision.refusal.error == "STALE_BROKER_EPOCH"
    assert made.image.next_producer_id is None


@pytest.mark.parametrize(
    ("before", "record", "is_history"),
    [
        (None, 0, True),
        (None, 5_000, True),
        (5_000, 5_001, True),
        (5_000, 6_000, True),
        (5_000, 5_000, False),
        (5_000, 4_999, False),
        (5_000, 0, False),
    ],
)
def test_the_next_id_only_grows(before: int | None, record: int, is_history: bool) -> None:
    """B88: a lower next id is refused by apply, and so is the same one, as in Kafka's replay."""
    made = world() if before is None else starting_at(world(), before)
    if is_history:
        assert starting_at(made, record).image.next_producer_id == record
        return
    with pytest.raises(InvariantBroken):
        starting_at(made, record)


@pytest.mark.parametrize(("left", "is_exhausted"), [(999, True), (1_000, False), (1_001, False)])
def test_ids_end_with_the_integers(left: int, is_exhausted: bool) -> None:
    """B88: Kafka answers UNKNOWN_SERVER_ERROR where the end of the next block is no signed integer of 64 bits."""
    made = starting_at(world(), INT64_MAX - left)
    decision = made.decide(block(made))
    assert (decision.refusal is not None) is is_exhausted
    if decision.refusal is not None:
        assert (decision.refusal.error, decision.refusal.code) == ("UNKNOWN_SERVER_ERROR", -1)
        assert not decision.records
