"""Pure: the exact difference of two states: with it the one becomes the other."""

import json
import random

import pytest

from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import RequestResultRecord
from metadata_log.records.topics import TopicTombstoneRecord
from quorum.views.state_diff import Wanted, differences, lines
from tests.support.decisions import World
from tests.support.histories import history_of


def records_of(image: MetadataImage) -> set[Record]:
    """Return what adds up to a state, without kept answers and without how much of a deleted topic's time is over."""
    return {
        record._replace(counted_ms=0) if isinstance(record, TopicTombstoneRecord) else record
        for record in image.to_records()
        if not isinstance(record, RequestResultRecord)
    }


@pytest.mark.parametrize("seed", range(20))
def test_c1_a_difference_applied_to_the_one_state_is_the_other(seed: int) -> None:
    """C1: diff(a, b) applied to image(a) = image(b), in both directions, for states of one log and of two."""
    rng = random.Random(seed)
    images = [EMPTY, *(step.image for step in history_of(seed, 40)), [*history_of(seed + 100, 10)][-1].image]
    for _ in range(15):
        before, after = rng.choice(images), rng.choice(images)
        found = [*differences(before, after)]
        gone = {each.before for each in found} - {None}
        come = {each.after for each in found} - {None}
        assert gone <= records_of(before)
        assert (records_of(before) - gone) | come == records_of(after)


def test_an_entity_that_changed_is_one_row_with_both_values() -> None:
    world = World()
    for line in (
        "register 1",
        "heartbeat 1",
        "register 2",
        "heartbeat 2",
        "create t on=1,2/2,1",
        "create u on=1",
    ):
        world.run(line)
    before = world.image
    world.run("set t retention.ms=5")
    world.run("heartbeat 1 fence")
    rows = [json.loads(line) for line in lines(before, world.image, Wanted())]
    changed = [row for row in rows[:-1] if row["type"] == "Partition"]
    assert changed and all(row["change"] == "modified" for row in changed)
    assert {
        row["before"]["leader"] for row in changed if row["after"]["leader"] != row["before"]["leader"]
    } == {1}
    assert rows[-1] == {"from": before.end_offset, "to": world.image.end_offset, "rows": len(rows) - 1}
    of_topic = [*differences(before, world.image, Wanted(topic="t"))]
    assert {type(each.after).__name__ for each in of_topic} <= {"PartitionRecord", "ConfigRecord"}
    of_broker = [*differences(before, world.image, Wanted(broker_id=2))]
    assert of_broker and all(
        2 in each.after.replicas for each in of_broker if isinstance(each.after, PartitionRecord)
    )


def test_equal_states_differ_in_nothing() -> None:
    image = [*history_of(3, 30)][-1].image
    assert [*differences(image, image)] == []
