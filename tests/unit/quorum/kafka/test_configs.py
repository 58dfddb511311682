"""Edge: settings in Kafka's protocol, over a real socket."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log.records.configs import BROKER, CLIENT_METRICS, GROUP, TOPIC
from quorum.kafka import configs
from quorum.kafka.configs import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online

SET, DELETE, APPEND = 0, 1, 2


async def described(client: Any, resource_type: int, name: str, *wanted: str) -> dict[str, Any]:
    _, [row] = await client.ask(DESCRIBE_CONFIGS, 4, [(resource_type, name, wanted or None)], True, True)
    assert row[:4] == (0, None, resource_type, name)
    return {each[0]: each[1:] for each in row[4]}


def test_settings_are_altered_and_described(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        async with desk.client() as client:
            await client.ask(19, 7, [("a", 1, 1, (), ())], 1_000, False)
            changes = [
                (TOPIC, "a", [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")]),
                (BROKER, "", [("log.retention.ms", SET, "7")]),
                (BROKER, "11", [("listener.name.x.ssl.keystore.password", SET, "hunter2")]),
                (TOPIC, "b", [("retention.ms", SET, "5")]),
                (TOPIC, "a2", [("retention.ms", 9, "5")]),
            ]
            _, rows = await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, changes, False)
            assert {row[2:]: row[0] for row in rows} == {
                (TOPIC, "a"): 0,
                (BROKER, ""): 0,
                (BROKER, "11"): 0,
                (TOPIC, "b"): 3,
                (TOPIC, "a2"): 42,
            }
            settings = await described(client, TOPIC, "a", "retention.ms", "cleanup.policy")
            value, read_only, source, is_sensitive, synonyms, kind, documentation = settings["retention.ms"]
            assert (value, read_only, source, is_sensitive, kind, documentation) == (
                "5",
                False,
                1,
                False,
                5,
                None,
            )
            assert synonyms[:2] == (("retention.ms", "5", 1), ("log.retention.ms", "7", 3))
            assert settings["cleanup.policy"][0] == "delete,compact"
            assert (await described(client, BROKER, ""))["log.retention.ms"][:3] == ("7", False, 3)
            secret = (await described(client, BROKER, "11"))["listener.name.x.ssl.keystore.password"]
            assert (secret[0], secret[2], secret[3]) == (None, 2, True)
            _, [row] = await client.ask(ALTER_CONFIGS, 2, [(TOPIC, "a", [("segment.ms", "9")])], False)
            assert row == (0, None, TOPIC, "a")
            settings = await described(client, TOPIC, "a", "retention.ms", "segment.ms")
            assert (settings["retention.ms"][0], settings["segment.ms"][0]) == ("7", "9")

    at_kafka_desk(tmp_path, story)


def test_settings_of_groups_and_of_client_metrics_are_altered_and_described(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            changes = [
                (GROUP, "g", [("share.isolation.level", SET, "read_committed")]),
                (CLIENT_METRICS, "s", [("match", SET, "client_id=a.*"), ("interval.ms", SET, "1000")]),
                (GROUP, "h", [("consumer.session.timeout.ms", SET, "1")]),
                (CLIENT_METRICS, "t", [("interval.ms", SET, "1")]),
                (8, "11", [("kafka", SET, "DEBUG")]),
            ]
            _, rows = await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, changes, False)
            assert {row[2:]: row[0] for row in rows} == {
                (GROUP, "g"): 0,
                (CLIENT_METRICS, "s"): 0,
                (GROUP, "h"): 40,
                (CLIENT_METRICS, "t"): 42,
                (8, "11"): 42,
            }
            group = await described(client, GROUP, "g")
            assert (group["share.isolation.level"][0], group["share.isolation.level"][2]) == (
                "read_committed",
                8,
            )
            assert group["share.isolation.level"][4] == (
                ("share.isolation.level", "read_committed", 8),
                ("share.isolation.level", "read_uncommitted", 5),
            )
            assert group["consumer.session.timeout.ms"][:3] == ("45000", False, 5)
            metrics = await described(client, CLIENT_METRICS, "s")
            assert {name: each[0::2][:2] for name, each in metrics.items()} == {
                "interval.ms": ("1000", 7),
                "match": ("client_id=a.*", 7),
                "metrics": ("", 5),
            }
            _, [nameless] = await client.ask(DESCRIBE_CONFIGS, 4, [(GROUP, "", None)], False, False)
            assert nameless[0] == 42
        assert desk.controller.committed.configs[GROUP, "g"]["share.isolation.level"] == "read_committed"

    at_kafka_desk(tmp_path, story)


def test_what_does_not_exist_is_described_with_its_error(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        wanted = [(TOPIC, "no", None), (TOPIC, "n o", None), (BROKER, "77", None), (99, "x", None)]
        async with desk.client() as client:
            _, rows = await client.ask(DESCRIBE_CONFIGS, 1, wanted, False, False)
        assert [row[0] for row in rows] == [3, 17, 102, 42]

    at_kafka_desk(tmp_path, story)


def test_many_settings_are_altered_in_several_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "SETTINGS_AT_ONCE", 4)

    async def story(desk: KafkaDesk) -> None:
        for broker_id in (11, 12, 13, 14):
            await online(desk.lab, desk.controller, broker_id)
        before = len(desk.lab.quorum.log)
        changes = [(BROKER, str(each), [("log.retention.ms", SET, "7")]) for each in (11, 12, 13, 14)]
        async with desk.client() as client:
            _, rows = await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, changes, False)
        assert [row[0] for row in rows] == [0] * 4
        assert len(desk.lab.quorum.log) == before + 2

    at_kafka_desk(tmp_path, story)


def test_one_that_does_not_lead_says_so_for_each_resource(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.lead(2)
        async with desk.client() as client:
            _, [row] = await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, [(BROKER, "", ())], False)
            assert (row[0], row[2:]) == (41, (BROKER, ""))
            _, [row] = await client.ask(DESCRIBE_CONFIGS, 4, [(BROKER, "", None)], False, False)
            assert (row[0], row[2:4]) == (41, (BROKER, ""))

    at_kafka_desk(tmp_path, story)
