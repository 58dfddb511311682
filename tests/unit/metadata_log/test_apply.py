"""Edge: what apply refuses, and the corners of what it allows."""

import gc
import random
from dataclasses import replace

import pytest
from msgspec import structs

from metadata_log import apply as apply_module
from metadata_log.apply import apply, is_next
from metadata_log.batch import Envelope
from metadata_log.codec import decode
from metadata_log.errors import InvariantBroken
from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.image import topics
from metadata_log.image.metadata_image import EMPTY, MetadataImage, buckets_of
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.results import RequestResults
from metadata_log.limits import REQUEST_RESULT_AGE_MS, REQUEST_RESULT_STEP_MS
from metadata_log.records.brokers import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord
from metadata_log.records.registry import TYPE_IDS, Record
from metadata_log.records.snapshots import (
    BegunChangeRecord,
    RequestResultRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.replay.digest import apply_all
from tests.support.histories import claim, random_history, small_uuid, step_of

T = TopicId(small_uuid(1))
ELEVEN = (BrokerId(11),)


def partition(partition_id: int, topic_id: TopicId = T) -> PartitionRecord:
    return PartitionRecord(
        topic_id, partition_id, ELEVEN, ELEVEN, ELEVEN[0], 0, 0, 0, (), (), (), (), (small_uuid(11),)
    )


@pytest.fixture
def image() -> MetadataImage:
    return step_of(EMPTY, [claim(EMPTY), TopicRecord(T, "t"), partition(0)]).image


def test_every_type_has_its_method() -> None:
    only_in_snapshots = {RequestResultRecord, BegunChangeRecord, SnapshotHeaderRecord, SnapshotFooterRecord}
    assert apply_module._IN_LOG.keys() == TYPE_IDS.keys() - only_in_snapshots


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(T, "another"),
        TopicRecord(TopicId(small_uuid(2)), "t"),
        partition(0),
        partition(2),
        partition(0, TopicId(small_uuid(9))),
        PartitionChangeRecord(T, 1, leader=BrokerId(11)),
        PartitionChangeRecord(T, -1, leader=BrokerId(11)),
        PartitionChangeRecord(T, 0, leader=BrokerId(12)),
        RemoveTopicRecord(TopicId(small_uuid(9))),
        ConfigRecord(TOPIC, "unknown", "a", "1"),
        UnregisterBrokerRecord(BrokerId(11), 0),
        BrokerRegistrationChangeRecord(BrokerId(11), 0, fenced=True),
        ControllerClaimRecord(claim(EMPTY).controller_id, 2, "B" * 22),
        RequestResultRecord(Uuid(bytes(16)), "o", b"", 0, 1, b"", 0),
        SnapshotHeaderRecord("A" * 22, 0, 0, 0, 0),
        SnapshotFooterRecord(0, ""),
    ],
)
def test_a_record_that_contradicts_the_image_is_named_by_its_offset(
    image: MetadataImage, record: Record
) -> None:
    batch = step_of(image, [NoOpRecord(), NoOpRecord()]).batch
    wrong = type(batch)(
        base_offset=batch.base_offset,
        controller_epoch=batch.controller_epoch,
        appended_at_ms=0,
        previous_crc=batch.previous_crc,
        crc=0,
        envelope=batch.envelope,
        records=(NoOpRecord(), record),
    )
    with pytest.raises(InvariantBroken, match=f"offset 4: {type(record).__name__} contradicts"):
        apply(image, wrong)


def test_a_claim_stands_only_at_the_beginning(image: MetadataImage) -> None:
    with pytest.raises(InvariantBroken, match="first record of its batch"):
        step_of(image, [NoOpRecord(), claim(image)])
    with pytest.raises(InvariantBroken, match="first record of its batch"):
        step_of(image, [claim(image), claim(image)])


def test_a_batch_continues_by_offset_crc_and_epoch(image: MetadataImage) -> None:
    plain, claimed = step_of(image, [NoOpRecord()]).batch, step_of(image, [claim(image)]).batch
    assert is_next(image, plain)
    assert is_next(image, claimed)
    assert not is_next(EMPTY, plain)
    late = step_of(image, [claim(image)]).image
    assert not is_next(late, plain)
    assert not is_next(late, claimed)
    again = ControllerClaimRecord(claim(image).controller_id, image.controller_epoch, "A" * 22)
    assert not is_next(image, step_of(image, [again]).batch), "a claim brings a greater epoch"
    leap = ControllerClaimRecord(claim(image).controller_id, image.controller_epoch + 9, "A" * 22)
    assert is_next(image, step_of(image, [leap]).batch)


@pytest.mark.parametrize(
    ("controller_epoch", "is_claim", "accepted"),
    [(4, False, False), (5, False, True), (6, False, False), (5, True, False), (6, True, True)],
)
def test_a_batch_of_a_controller_that_was_replaced_is_refused(
    image: MetadataImage, controller_epoch: int, is_claim: bool, accepted: bool
) -> None:
    """A38: at epoch 5 a batch of epoch 4 is refused and one of 5 accepted; only a claim brings 6."""
    at_five = step_of(image, [ControllerClaimRecord(claim(image).controller_id, 5, "A" * 22)]).image
    record: Record = NoOpRecord()
    if is_claim:
        record = ControllerClaimRecord(claim(image).controller_id, controller_epoch, "A" * 22)
    batch = structs.replace(
        step_of(at_five, [NoOpRecord()]).batch, controller_epoch=controller_epoch, records=(record,)
    )
    assert is_next(at_five, batch) is accepted


def test_a_topic_may_be_made_anew_within_one_batch(image: MetadataImage) -> None:
    settings = ConfigRecord(TOPIC, "t", "retention.ms", "1")
    grown = step_of(image, [partition(1), partition(2), settings]).image
    for topic_id in (T, TopicId(small_uuid(2))):
        records: list[Record] = [RemoveTopicRecord(T), TopicRecord(topic_id, "t"), partition(0, topic_id)]
        after = step_of(grown, records).image
        assert len(after.topics.by_id[topic_id].partitions) == 1
        assert not after.configs
        assert after.digest_buckets == buckets_of(after)
    gone = step_of(grown, [RemoveTopicRecord(T)]).image
    assert gone.digest_buckets == buckets_of(gone) == step_of(EMPTY, [claim(EMPTY)]).image.digest_buckets
    assert not gone.topics.index.on_broker


@pytest.mark.parametrize("unlike_changes_max", [0, 1, 5])
def test_changes_are_the_same_where_they_are_not_looked_up(
    monkeypatch: pytest.MonkeyPatch, unlike_changes_max: int
) -> None:
    """An export applies many batches as one, and most of their changes of partitions past the bound of look-ups."""
    history = random_history(random.Random(11), 120)
    monkeypatch.setattr(topics, "UNLIKE_CHANGES_MAX", unlike_changes_max)
    at_once = apply_all(
        EMPTY,
        [record for step in history for record in step.batch.records],
        controller_epoch=history[-1].image.controller_epoch,
        time_ms=history[-1].image.last_time_ms,
        crc=history[-1].image.last_crc,
    )
    assert at_once.digest_buckets == history[-1].image.digest_buckets
    assert at_once.topics.by_id == history[-1].image.topics.by_id
    assert at_once.topics.index == history[-1].image.topics.index


def test_equal_partitions_of_the_log_are_one_object() -> None:
    """A million partitions have few kinds. Method: batches apart, read from their bytes, create and change them alike."""
    image = step_of(EMPTY, [claim(EMPTY)]).image
    for number in (1, 2, 3):
        topic_id = TopicId(small_uuid(number))
        records: list[Record] = [
            TopicRecord(topic_id, f"t{number}"),
            *(partition(at, topic_id) for at in (0, 1)),
        ]
        image = apply(image, decode(step_of(image, records).frame)[0]).image
    (created,) = kinds_of(image)
    assert created.isr is created.replicas
    for topic_id in image.topics.by_id:
        changes: list[Record] = [PartitionChangeRecord(topic_id, at, leader=NO_LEADER) for at in (0, 1)]
        image = apply(image, decode(step_of(image, changes).frame)[0]).image
    (changed,) = kinds_of(image)
    assert changed.leader == NO_LEADER
    assert changed.replicas is created.replicas


def kinds_of(image: MetadataImage) -> list[PartitionImage]:
    """Return the objects that an image's partitions are."""
    partitions = [one for topic in image.topics.by_id.values() for one in topic.partitions]
    return [*{id(one): one for one in partitions}.values()]


def answered(image: MetadataImage, request: int, time_ms: int) -> MetadataImage:
    envelope = Envelope(None, small_uuid(request), bytes(32), None, "o", b"%d" % time_ms)
    return step_of(image, [NoOpRecord()], appended_at_ms=time_ms, envelope=envelope).image


def test_results_are_kept_for_their_time_and_an_id_used_again_names_the_newer() -> None:
    image = step_of(EMPTY, [claim(EMPTY)]).image
    for request, time_ms in ((1, 10), (2, 20), (1, 30)):
        image = answered(image, request, time_ms)
    assert image.results.by_id[small_uuid(1)].response == b"30"
    others = REQUEST_RESULT_AGE_MS // REQUEST_RESULT_STEP_MS
    for other in range(1, others):
        image = answered(image, 2 + other, 30 + other * REQUEST_RESULT_STEP_MS)
    newest_ms = 30 + (others - 1) * REQUEST_RESULT_STEP_MS

    def later(more_ms: int) -> set[int]:
        after = step_of(image, [NoOpRecord()], appended_at_ms=newest_ms + more_ms).image
        return {request for request in (1, 2) if after.results.get(small_uuid(request)) is not None}

    assert later(REQUEST_RESULT_STEP_MS - 10) == {1, 2}
    assert later(REQUEST_RESULT_STEP_MS - 9) == {1}
    assert len(image.results.by_id) == others + 1


@pytest.mark.parametrize("leap_ms", [3_600_000, -3_600_000])
def test_no_leap_of_the_clock_takes_a_result(leap_ms: int) -> None:
    """Goal: a request repeated after a failover finds its answer, whatever the two leaders' clocks say."""
    now_ms = 10_000_000
    image = answered(step_of(EMPTY, [claim(EMPTY)]).image, 1, now_ms)
    for turn in range(20):
        now_ms += leap_ms if turn % 2 else -leap_ms
        image = step_of(image, [NoOpRecord()], appended_at_ms=now_ms).image
        image = answered(image, 2 + turn, now_ms + 1)
    assert len(image.results.by_id) == 21


def test_results_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata_log.image.results.REQUEST_RESULTS_MAX", 3)
    history = random_history(random.Random(1), 60)
    assert max(len(step.image.results.by_id) for step in history) == 3
    newest = [step.batch.envelope.request_id for step in history if step.batch.envelope.request_id][-1]
    assert history[-1].image.results.get(newest) is not None


def test_results_are_bounded_in_bytes_whether_loaded_or_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata_log.image.results.REQUEST_RESULT_BYTES_MAX", 10)
    image = step_of(EMPTY, [claim(EMPTY)]).image
    for request in (1, 2, 3, 4, 3, 5):
        image = answered(image, request, 100 + request)
        loaded = replace(image, results=RequestResults.of(image.results.by_id.values()))
        assert answered(loaded, 9, 109).results == answered(image, 9, 109).results
    assert set(image.results.by_id) == set(map(small_uuid, (4, 3, 5)))


@pytest.mark.slow
def test_what_is_applied_leaves_nothing_for_the_cycle_collector() -> None:
    """A node freezes what is alive during a long collection; a cycle among it would keep a past image for ever."""
    history = random_history(random.Random(5), 60)
    image, was_enabled = EMPTY, gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for step in history:
            image = apply(image, step.batch).image
        assert gc.collect() == 0
    finally:
        if was_enabled:
            gc.enable()
