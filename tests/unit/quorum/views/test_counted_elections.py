"""Elections of leaders outside their ISR are counted, by their kind."""

from metadata_log.apply import applying
from metadata_log.ids import TopicId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord, PartitionRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.sliced import at_once
from quorum.views.counted_elections import CountedElections
from tests.support.histories import history_of, step_of
from tests.support.lab import uuid

TOPIC = TopicId(uuid(9))
DIRECTORIES = (uuid(101), uuid(102), uuid(103))


def test_leaders_from_outside_the_isr_are_counted_by_their_kind() -> None:
    counted, image = CountedElections(), history_of(1, 1)[0].image
    counted.on_restored(image)

    def apply(*records: object) -> None:
        nonlocal image
        step = step_of(image, records)  # type: ignore[arg-type]  # records
        _, delta = at_once(applying(image, step.batch))
        counted.on_applied(step.batch, step.frame, step.image, delta)
        image = step.image

    replicas = (11, 12, 13)
    made = PartitionRecord(
        TOPIC, 0, replicas, (11,), 11, 0, 0, RECOVERED, (), (), (12,), (13,), DIRECTORIES  # type: ignore[arg-type]
    )  # fmt: skip
    apply(TopicRecord(TOPIC, "t"), made)
    apply(PartitionChangeRecord(TOPIC, 0, leader=-1, isr=()))  # type: ignore[arg-type]
    assert (counted.unclean, counted.from_eligible) == (0, 0)
    apply(PartitionChangeRecord(TOPIC, 0, leader=12, isr=(12,), eligible_leader_replicas=()))  # type: ignore[arg-type]
    assert (counted.unclean, counted.from_eligible) == (0, 1)
    apply(PartitionChangeRecord(TOPIC, 0, leader=13, isr=(13,), leader_recovery_state=RECOVERING))  # type: ignore[arg-type]
    assert (counted.unclean, counted.from_eligible) == (1, 1)
    apply(PartitionChangeRecord(TOPIC, 0, isr=(13, 12)))  # type: ignore[arg-type]
    apply(PartitionChangeRecord(TOPIC, 0, leader=12, isr=(12,)))  # type: ignore[arg-type]
    assert (counted.unclean, counted.from_eligible) == (1, 1), "it was in the ISR"


def test_a_partition_that_is_created_is_no_election() -> None:
    counted, image = CountedElections(), EMPTY
    for step in history_of(3, 60):
        only_new = [record for record in step.batch.records if isinstance(record, PartitionRecord)]
        if len(only_new) == len(step.batch.records):
            _, delta = at_once(applying(image, step.batch))
            counted.on_applied(step.batch, step.frame, step.image, delta)
        image = step.image
    assert image.topics.by_id
    assert (counted.unclean, counted.from_eligible) == (0, 0)
