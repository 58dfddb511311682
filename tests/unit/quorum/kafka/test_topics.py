"""Edge: topics in Kafka's protocol, over a real socket."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import BrokerId
from metadata_log.limits import LOOP_SLICE_MS, PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.configs import BROKER
from quorum.controller.callers import Caller
from quorum.decide.configs import AlterConfigs
from quorum.decide.described_configs import describe_topic_configs
from quorum.kafka import topics
from quorum.kafka.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from tests.support.callers import anybody
from tests.support.kafka_client import KafkaClient
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online

NO_ID = bytes(16)


def new(name: str, partitions: int = 1, factor: int = 1, configs: tuple[tuple[str, str], ...] = ()) -> object:
    return (name, partitions, factor, (), configs)


def test_a_topic_is_created_told_with_its_settings_grown_and_deleted(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            own = (("retention.ms", "5"), ("cleanup.policy", "compact"))
            wanted = [new("a", 2), new("b", configs=own)]
            _, [a, b] = await client.ask(CREATE_TOPICS, 7, wanted, 1_000, False)
            name, topic_id, error, message, config_error, partitions, factor, configs = a
            assert (name, error, message, config_error, partitions, factor) == ("a", 0, None, 0, 2, 1)
            assert topic_id == desk.controller.committed.topics.ids["a"]
            effective = {row[0]: row[1:] for row in configs}
            assert effective["retention.ms"] == ("604800000", False, 5, False)
            effective = {row[0]: row[1:] for row in b[7]}
            assert effective["retention.ms"] == ("5", False, 1, False)
            assert effective["cleanup.policy"] == ("compact", False, 1, False)
            # What old versions have no place for is left out.
            _, [old] = await client.ask(CREATE_TOPICS, 2, [new("c")], 1_000, True)
            assert old == ("c", NO_ID, 0, None, 0, -1, -1, ())
            _, [first] = await client.ask(CREATE_TOPICS, 5, [new("c")], 1_000, True)
            assert first == ("c", NO_ID, 0, None, 0, 1, 1, configs)
            _, [row] = await client.ask(CREATE_PARTITIONS, 3, [("a", 3, None)], 1_000, False)
            assert row == ("a", 0, None)
            _, rows = await client.ask(DELETE_TOPICS, 6, [("a", NO_ID), (None, b[1])], (), 1_000)
            assert [row[:3] for row in rows] == [("a", topic_id, 0), ("b", b[1], 0)]
            assert not desk.controller.committed.topics.ids

    at_kafka_desk(tmp_path, story)


def test_the_settings_of_plain_topics_are_described_once_until_one_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: most topics have no settings of their own, and are told with all of them at little cost. Method: count."""
    made: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        made.append(1)
        return describe_topic_configs(*args, **more)

    async def retention(client: KafkaClient, name: str) -> object:
        _, [row] = await client.ask(CREATE_TOPICS, 7, [new(name)], 1_000, False)
        return {config[0]: config[1:] for config in row[7]}["retention.ms"]

    async def story(desk: KafkaDesk) -> None:
        monkeypatch.setattr(topics, "describe_topic_configs", counted)
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            for name in ("a", "b", "c"):
                assert await retention(client, name) == ("604800000", False, 5, False)
            assert len(made) == 1
            await desk.controller.submit(
                AlterConfigs(resource_type=BROKER, resource_name="", set={"log.retention.ms": "7"}, unset=()),
                anybody(),
            )
            assert await retention(client, "d") == ("7", False, 3, False)
            assert len(made) == 2

    at_kafka_desk(tmp_path, story)


def test_a_topic_given_by_name_and_id_or_by_neither_is_refused_alone(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            await client.ask(CREATE_TOPICS, 7, [new("a")], 1_000, False)
            topic_id = desk.controller.committed.topics.ids["a"]
            given = [("a", topic_id), (None, NO_ID), ("b", NO_ID)]
            _, rows = await client.ask(DELETE_TOPICS, 6, given, (), 1_000)
            assert [row[:3] for row in rows] == [("a", topic_id, 42), (None, NO_ID, 42), ("b", NO_ID, 3)]
            _, [row] = await client.ask(DELETE_TOPICS, 1, (), ["a"], 1_000)
            assert row[:3] == ("a", NO_ID, 0)

    at_kafka_desk(tmp_path, story)


def test_a_topic_that_is_named_ever_so_often_is_refused_once_by_a_small_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[int] = []

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        submit = desk.controller.submit

        async def counted(command: Any, caller: Caller) -> Any:
            decided.append(len(command.topics))
            return await submit(command, caller)

        monkeypatch.setattr(desk.controller, "submit", counted)
        async with desk.client() as client:
            await client.ask(CREATE_TOPICS, 7, [new("a"), new("b")], 1_000, False)
            topic_id = desk.controller.committed.topics.ids["b"]
            _, rows = await client.ask(DELETE_TOPICS, 5, (), ["a"] * 30_000, 1_000)
            assert [(row[0], row[2]) for row in rows] == [("a", 42)]
            # A name that is given several times names nothing: its topic is given by its id alone.
            given = [("b", NO_ID)] * 3 + [(None, topic_id)]
            _, rows = await client.ask(DELETE_TOPICS, 6, given, (), 1_000)
            assert [row[2] for row in rows] == [42, 0]
        assert decided == [2, 2, 3]
        assert set(desk.controller.committed.topics.ids) == {"a"}

    at_kafka_desk(tmp_path, story)


def test_topics_of_more_partitions_than_one_deletion_may_have_are_deleted(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        names = ["a", "b", "c"]
        async with desk.client() as client:
            for name in names:
                wanted = [new(name, PARTITIONS_PER_TOPIC_MAX // 2)]
                _, [row] = await client.ask(CREATE_TOPICS, 7, wanted, 1_000, False)
                assert row[2] == 0, row
            _, rows = await client.ask(DELETE_TOPICS, 5, (), names, 1_000)
            assert [(row[0], row[2]) for row in rows] == [(name, 0) for name in names]

    at_kafka_desk(tmp_path, story)


def test_topics_that_no_batch_holds_together_are_created_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "BATCH_BYTES_MAX", 300)

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        before = len(desk.lab.quorum.log)
        async with desk.client() as client:
            wanted = [new("a", 3), new("b", 3), new("c", 3), new("b", 3)]
            _, rows = await client.ask(CREATE_TOPICS, 7, wanted, 1_000, False)
        assert [(row[0], row[2]) for row in rows] == [("a", 0), ("b", 42), ("c", 0)]
        assert len(desk.lab.quorum.log) == before + 2

    at_kafka_desk(tmp_path, story)


def test_the_settings_of_many_topics_are_described_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: heartbeats are answered meanwhile. Method: a clock on which each look takes a slice; the turns are counted."""
    turn = 0
    described: list[int] = []

    def noted(*of: Any, **how: Any) -> Any:
        described.append(turn)
        return describe_topic_configs(*of, **how)

    async def story(desk: KafkaDesk) -> None:
        nonlocal turn
        await online(desk.lab, desk.controller, 11)

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        looks = itertools.count(1)
        object.__setattr__(desk.door, "now_ms", lambda: next(looks) * LOOP_SLICE_MS)
        monkeypatch.setattr(topics, "describe_topic_configs", noted)
        counting = asyncio.create_task(count())
        async with desk.client() as client:
            wanted = [new(f"t{n}", configs=(("retention.ms", str(n)),)) for n in range(1, 11)]
            _, rows = await client.ask(CREATE_TOPICS, 7, wanted, 1_000, False)
        counting.cancel()
        assert [{each[0]: each[1] for each in row[7]}["retention.ms"] for row in rows] == [
            str(n) for n in range(1, 11)
        ]
        assert len(set(described)) == len(described) == 10

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("key", "version", "values"),
    [
        (CREATE_TOPICS, 7, ([new("a"), new("b")], 1_000, False)),
        (DELETE_TOPICS, 6, ([("a", NO_ID), ("b", NO_ID)], (), 1_000)),
        (CREATE_PARTITIONS, 3, ([("a", 3, None), ("b", 3, None)], 1_000, False)),
    ],
)
def test_one_that_does_not_lead_says_so_in_every_item(
    tmp_path: Path, key: int, version: int, values: tuple[object, ...]
) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.lead(2)
        async with desk.client() as client:
            _, rows = await client.ask(key, version, *values)
        assert [row[0] for row in rows] == ["a", "b"]
        assert all(41 in row for row in rows)

    at_kafka_desk(tmp_path, story)


def test_a_topic_is_created_as_assigned(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            assigned = ("a", -1, -1, [(0, (11,)), (1, (11,))], ())
            _, [row] = await client.ask(CREATE_TOPICS, 7, [assigned], 1_000, False)
            assert row[5:7] == (2, 1)
            _, [row] = await client.ask(CREATE_PARTITIONS, 3, [("a", 3, [((11,),)])], 1_000, False)
            assert row == ("a", 0, None)
        topic = desk.controller.committed.topics.named("a")
        assert topic is not None
        assert [each.replicas for each in topic.partitions] == [(BrokerId(11),)] * 3

    at_kafka_desk(tmp_path, story)


def test_a_topic_whose_records_are_more_than_a_batch_is_refused_whole(tmp_path: Path) -> None:
    """As where Kafka has a bound, of 10,000 partitions in one request: POLICY_VIOLATION, and nothing is written."""

    async def story(desk: KafkaDesk) -> None:
        brokers = range(11, 16)
        for broker_id in brokers:
            await online(desk.lab, desk.controller, broker_id)
        end = desk.controller.committed.end_offset
        async with desk.client() as client:
            _, [row] = await client.ask(19, 7, [("a", 9_000, 5, (), ())], 1_000, False)
            assert (row[0], row[2]) == ("a", 44)
            assert "at most 1048576 bytes are allowed" in row[3]
            assert desk.controller.committed.end_offset == end
            _, [row] = await client.ask(19, 7, [("a", 1, 5, (), ())], 1_000, False)
            assert row[2] == 0
            _, [grown] = await client.ask(37, 3, [("a", 9_000, None)], 1_000, False)
            assert (grown[0], grown[1]) == ("a", 44)
        assert len(desk.controller.committed.topics.named("a").partitions) == 1  # type: ignore[union-attr]

    at_kafka_desk(tmp_path, story)
