"""Edge: the quota of partitions created and deleted: whose counts, how its bucket fills, and what is refused (B53)."""

from pathlib import Path
from typing import Any

import immutables
import pytest

from metadata_log.errors import MutationQuotaExceeded
from metadata_log.image.quotas import QuotasImage, entity_of
from metadata_log.records.quotas import CLIENT_ID, USER, QuotaEntity
from quorum.controller.mutation_buckets import BUCKETS_MAX, MutationBuckets
from quorum.decide.mutation_quota import (
    BURST_S,
    CONTROLLER_MUTATION_RATE,
    BucketKey,
    Mutations,
    Quota,
    quota_of,
    throttle_ms,
)
from quorum.decide.quotas import AlterClientQuotas, EntityChange, QuotaChange
from quorum.kafka.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online

ANN = BucketKey("ann", "")
QUOTA = Quota(ANN, 2.0)


def quotas(*entities: tuple[str | None, str | None]) -> QuotasImage:
    """Return an image in which each of these pairs has another rate; "-" is no part of an entity, None its default."""
    image: QuotasImage = immutables.Map()
    for rate, pair in enumerate(entities, 1):
        parts = [
            QuotaEntity(kind, name) for kind, name in zip((USER, CLIENT_ID), pair, strict=True) if name != "-"
        ]
        image = image.set(entity_of(parts), immutables.Map({CONTROLLER_MUTATION_RATE: float(rate)}))
    return image


@pytest.mark.parametrize(
    ("first", "bucket"),
    [
        (0, BucketKey("ann", "app")),
        (1, BucketKey("ann", "app")),
        (2, BucketKey("ann", "")),
        (3, BucketKey("ann", "app")),
        (4, BucketKey("ann", "app")),
        (5, BucketKey("ann", "")),
        (6, BucketKey("", "app")),
        (7, BucketKey("", "app")),
    ],
)
def test_the_most_specific_quota_counts(first: int, bucket: BucketKey) -> None:
    order = (
        *(("ann", "app"), ("ann", None), ("ann", "-"), (None, "app"), (None, None), (None, "-")),
        *(("-", "app"), ("-", None)),
    )
    left = [pair if place >= first else ("bob", "other") for place, pair in enumerate(order)]
    assert quota_of(quotas(*left), "ann", "app") == Quota(bucket, float(first + 1))
    assert quota_of(quotas(("bob", "-"), ("-", "other")), "ann", "app") is None


def test_a_bucket_begins_full_goes_below_zero_once_and_fills_at_its_rate() -> None:
    buckets = MutationBuckets()
    assert buckets.tokens(QUOTA, now_ms=0) == BURST_S * 2
    first = Mutations(QUOTA, buckets.tokens(QUOTA, now_ms=0))
    first.take(22)
    first.take(3)  # not below 0 before
    with pytest.raises(MutationQuotaExceeded, match="ask again in 1500 ms"):
        first.take(1)
    buckets.spend(first, now_ms=0)
    assert buckets.tokens(QUOTA, now_ms=0) == -3
    assert buckets.tokens(QUOTA, now_ms=1_500) == 0
    assert buckets.tokens(QUOTA, now_ms=60_000) == BURST_S * 2
    assert throttle_ms(-3, 2.0) == 1_500 and throttle_ms(1, 2.0) == 0
    assert throttle_ms(-300, 0.0001) == throttle_ms(-1, 1e-308) == 2**31 - 1
    lenient = Mutations(QUOTA, -3, is_strict=False)
    lenient.take(5)
    assert lenient.taken == 5


def test_buckets_are_bounded_and_the_one_that_was_used_longest_ago_goes() -> None:
    buckets = MutationBuckets()
    for number in range(BUCKETS_MAX + 1):
        used = Mutations(Quota(BucketKey("", str(number)), 1.0), 11.0)
        used.take(5)
        buckets.spend(used, now_ms=0)
    assert buckets.tokens(Quota(BucketKey("", "0"), 1.0), now_ms=0) == 11
    assert buckets.tokens(Quota(BucketKey("", "1"), 1.0), now_ms=0) == 6


def test_requests_over_the_quota_are_refused_with_the_time_to_wait_and_old_ones_are_delayed(
    tmp_path: Path,
) -> None:
    """As Kafka: the request that crosses 0 is carried out, the next one is refused; validation counts, too."""

    async def story(desk: KafkaDesk) -> None:
        for broker_id in (11, 12):
            await online(desk.lab, desk.controller, broker_id)
        entity = (QuotaEntity(USER, None),)
        change = EntityChange(entity, (QuotaChange(CONTROLLER_MUTATION_RATE, 1.0),))
        await desk.lab.write(desk.controller, AlterClientQuotas(entries=(change,), validate_only=False))

        def topic(name: str, partitions: int) -> tuple[Any, ...]:
            return name, partitions, 1, (), ()

        async with desk.client() as client:
            answer = await client.ask(CREATE_TOPICS, 7, [topic("a", 8)], 1_000, False)
            assert (answer[0], answer[1][0][2]) == (0, 0)
            answer = await client.ask(CREATE_TOPICS, 7, [topic("b", 8), topic("c", 1)], 1_000, False)
            assert [(row[0], row[2]) for row in answer[1]] == [("b", 0), ("c", 89)]
            assert 4_000 < answer[0] <= 5_000
            answer = await client.ask(CREATE_PARTITIONS, 3, [("a", 9, None)], 1_000, False)
            assert (answer[1][0][1], answer[0] > 0) == (89, True)
            answer = await client.ask(DELETE_TOPICS, 6, [("b", bytes(16))], (), 1_000)
            assert (answer[1][0][2], answer[0] > 0) == (89, True)
            answer = await client.ask(CREATE_TOPICS, 5, [topic("d", 1)], 1_000, False)
            assert (answer[1][0][2], answer[0] > 0) == (0, True), "an old client is delayed"
        assert {*desk.controller.committed.topics.ids} == {"a", "b", "d"}

    at_kafka_desk(tmp_path, story)
