"""Edge: elections and reassignments in Kafka's protocol, over a real socket."""

import itertools
from pathlib import Path

import pytest

from metadata_log.ids import BrokerId
from metadata_log.image.partitions import PartitionImage
from metadata_log.kafka.reading import Values
from metadata_log.limits import LOOP_SLICE_MS
from metadata_log.node.pace import Pace
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, at_once
from quorum.kafka.elections import ELECT_LEADERS, by_topic
from quorum.kafka.reassignments import ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS
from tests.support.callers import anybody
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online, poll


async def with_two_brokers(desk: KafkaDesk) -> None:
    """Create a topic whose second partition is not led by its first replica."""
    epochs = {broker_id: await online(desk.lab, desk.controller, broker_id) for broker_id in (11, 12)}
    async with desk.client() as client:
        assigned = ("a", -1, -1, [(0, (11, 12)), (1, (12, 11))], ())
        await client.ask(19, 7, [assigned], 1_000, False)
    for wishes in ({"want_fence": True}, {}):
        end = desk.controller.committed.end_offset
        desk.controller.heartbeat(poll(12, epochs[12], applied=end, **wishes), anybody())
        desk.lab.quorum.commit()
    isr = [partition.isr for partition in partitions(desk)]
    assert isr == [(11,), (11,)], isr


def partitions(desk: KafkaDesk) -> tuple[PartitionImage, ...]:
    topic = desk.controller.committed.topics.named("a")
    assert topic is not None
    return topic.partitions


def test_elections_are_held_for_those_named_or_for_all(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await with_two_brokers(desk)
        async with desk.client() as client:
            named = [("a", (0, 1, 7)), ("b", (0,))]
            _, error, rows = await client.ask(ELECT_LEADERS, 2, 0, named, 1_000)
            assert error == 0
            assert [(topic, [row[:2] for row in some]) for topic, some in rows] == [
                ("a", [(0, 84), (1, 80), (7, 3)]),
                ("b", [(0, 3)]),
            ]
            _, error, rows = await client.ask(ELECT_LEADERS, 2, 0, None, 1_000)
            assert [(topic, [row[:2] for row in some]) for topic, some in rows] == [("a", [(1, 80)])]
            _, error, rows = await client.ask(ELECT_LEADERS, 1, 7, named, 1_000)
            assert error == 42 and {row[1] for _, some in rows for row in some} == {42}
            desk.lab.lead(2)
            _, error, rows = await client.ask(ELECT_LEADERS, 0, 0, named, 1_000)
            assert {row[1] for _, some in rows for row in some} == {41}

    at_kafka_desk(tmp_path, story)


def test_reassignments_are_begun_listed_and_cancelled(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await with_two_brokers(desk)
        await online(desk.lab, desk.controller, 13)
        async with desk.client() as client:
            wanted = [("a", [(0, (13,)), (5, (13,))]), ("b", [(0, None)])]
            _, _, error, _, rows = await client.ask(ALTER_REASSIGNMENTS, 1, 1_000, True, wanted)
            assert error == 0
            assert [(topic, [row[:2] for row in some]) for topic, some in rows] == [
                ("a", [(0, 0), (5, 3)]),
                ("b", [(0, 3)]),
            ]
            for asked in (None, [("a", (0, 1)), ("no", (0,))]):
                _, error, _, rows = await client.ask(LIST_REASSIGNMENTS, 0, 1_000, asked)
                assert rows == (("a", ((0, (13, 11, 12), (13,), (11, 12)),)),), rows
            cancel = [("a", [(0, None), (1, None)])]
            _, _, error, _, rows = await client.ask(ALTER_REASSIGNMENTS, 0, 1_000, True, cancel)
            assert [row[:2] for row in rows[0][1]] == [(0, 0), (1, 85)]
            assert partitions(desk)[0].replicas == (BrokerId(11), BrokerId(12))
            desk.lab.lead(2)
            assert (await client.ask(ALTER_REASSIGNMENTS, 0, 1_000, True, cancel))[2] == 41
            assert (await client.ask(LIST_REASSIGNMENTS, 0, 1_000, None))[1] == 41

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("key", [ELECT_LEADERS, ALTER_REASSIGNMENTS])
def test_what_became_of_many_partitions_is_put_together_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    """Goal: heartbeats are answered meanwhile. Method: a clock on which each look takes a slice; the rests are counted."""
    rests: list[int] = []
    rest = Pace._rest

    async def counted(pace: Pace) -> None:
        rests.append(1)
        await rest(pace)

    async def story(desk: KafkaDesk) -> None:
        looks = itertools.count(1)
        object.__setattr__(desk.door, "now_ms", lambda: next(looks) * LOOP_SLICE_MS)
        monkeypatch.setattr(Pace, "_rest", counted)
        partitions = range(10 * ITEMS_BETWEEN_RESTS)
        async with desk.client() as client:
            if key == ELECT_LEADERS:
                *_, rows = await client.ask(key, 2, 0, [("a", tuple(partitions))], 1_000)
            else:
                wanted = [("a", [(partition_id, None) for partition_id in partitions])]
                *_, rows = await client.ask(key, 1, 1_000, True, wanted)
        [(topic, told)] = rows
        assert (topic, [row[:2] for row in told]) == ("a", [(partition_id, 3) for partition_id in partitions])
        assert len(rests) == 10

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("rows", "topics"),
    [
        ([], []),
        ([("a", 1), ("a", 2), ("b", 1), ("a", 3)], [("a", [(1,), (2,)]), ("b", [(1,)]), ("a", [(3,)])]),
    ],
)
def test_rows_side_by_side_share_their_topic(rows: list[Values], topics: list[Values]) -> None:
    assert at_once(by_topic(rows)) == topics
