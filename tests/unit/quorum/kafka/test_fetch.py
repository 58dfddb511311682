"""Fetch over a socket: what is no fetch of the metadata log is refused as Kafka's controller refuses it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from metadata_log.kafka.batches import batches
from quorum.kafka.fetches import FETCH, METADATA_TOPIC, METADATA_TOPIC_ID
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import setting

CLUSTER = "A" * 22
NO_ID = bytes(16)
MAX_WAIT_MS = 1


def asked(version: int = 18, **told: Any) -> tuple[Any, ...]:
    """Return the values of a fetch of replica 11."""
    partition = (
        told.get("partition", 0),
        told.get("epoch", 1),
        told.get("offset", 0),
        told.get("last_epoch", 0),
        -1,
        0,
        told.get("directory_id", bytes([11] * 16)),
        0,
    )
    by_name = version < 13
    topic = (
        told.get("topic", METADATA_TOPIC if by_name else ""),
        told.get("topic_id", NO_ID if by_name else METADATA_TOPIC_ID),
        (partition,) * told.get("partitions", 1),
    )
    replica = (-1, (11, -1)) if version >= 15 else (11, (-1, -1))
    return (
        told.get("cluster_id", CLUSTER),
        *replica,
        told.get("max_wait_ms", MAX_WAIT_MS),
        0,
        1 << 20,
        0,
        0,
        -1,
        (topic,) * told.get("topics", 1),
        (),
        "",
    )


@pytest.mark.parametrize("version", [12, 15, 18])
def test_a_broker_reads_the_log(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        await desk.lab.write(desk.controller, setting("1"))
        async with desk.client() as client:
            answer = await client.ask(FETCH, version, *asked(version))
            _, error, _, ((name, topic_id, (partition,)),), endpoints = answer
            assert (name or topic_id) == (METADATA_TOPIC if version < 13 else METADATA_TOPIC_ID)
            end = desk.controller.committed.end_offset
            number, code, high_watermark, _, start, _, leader, _, _, _, records = partition
            assert (error, number, code, high_watermark, start, leader) == (0, 0, 0, end, 0, (1, 1))
            found = [*batches(records)]
            assert (found[0].base_offset, found[-1].end_offset) == (0, end)
            assert endpoints == (() if version < 16 else ((1, "127.0.0.1", 9201, None),))
            assert [each.replica_id for each in desk.door.kafka_log.fetches.observers()] == [11]

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("version", "told", "code"),
    [
        (11, {"last_epoch": -1}, 35),
        (18, {"cluster_id": "B" * 22}, 104),
        (18, {"topics": 2}, 42),
        (18, {"topics": 0}, 42),
        (18, {"partitions": 2}, 42),
        (18, {"partitions": 0}, 42),
        (18, {"partition": 1}, 42),
        (18, {"topic_id": bytes([1] * 16)}, 42),
        (12, {"topic": "t"}, 42),
        (18, {"offset": -1}, 42),
        (18, {"last_epoch": -1}, 42),
        (18, {"epoch": -1}, 42),
        (18, {"max_wait_ms": -1}, 42),
    ],
)
def test_what_is_no_fetch_of_the_metadata_log_is_refused(
    tmp_path: Path, version: int, told: dict[str, Any], code: int
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(FETCH, version, *asked(version, **told))
            assert (answer[1], answer[3]) == (code, ())
            assert not list(desk.door.kafka_log.fetches.observers())

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("version", [4, 6])
def test_a_version_without_a_place_for_an_error_has_it_in_a_partition(tmp_path: Path, version: int) -> None:
    """Goal: an answer without rows would look like success. Method: the oldest version, and the last of that kind."""

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(FETCH, version, *asked(version, last_epoch=-1, partitions=2))
            ((name, _, (row,)),) = answer[3]
            assert (name, *row[:3]) == (METADATA_TOPIC, 0, 35, -1)

    at_kafka_desk(tmp_path, story)


def test_a_cluster_that_is_not_named_is_this_one(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(FETCH, 18, *asked(cluster_id=None))
            assert answer[1] == 0 and answer[3]

    at_kafka_desk(tmp_path, story)


def test_a_client_that_goes_waits_no_longer(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        fetches = desk.door.kafka_log.fetches
        async with desk.client() as client:
            end = desk.controller.committed.end_offset
            client.send(FETCH, 17, asked(17, offset=end, last_epoch=1, max_wait_ms=60_000))
            while not len(fetches._parked):
                await asyncio.sleep(0.001)
        await desk.until_quiet()
        assert not len(fetches._parked)

    at_kafka_desk(tmp_path, story)
