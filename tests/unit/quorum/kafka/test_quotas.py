"""Edge: quotas of clients in Kafka's protocol, over a real socket."""

from pathlib import Path

import pytest

from metadata_log.kafka.messages import REQUESTS
from quorum.kafka.quotas import ALTER_CLIENT_QUOTAS
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk

ANN, APP = ("user", "ann"), ("client-id", None)


@pytest.mark.parametrize("version", range(REQUESTS[ALTER_CLIENT_QUOTAS].versions.last + 1))
def test_quotas_are_altered_each_with_an_answer(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        def quotas() -> dict[object, object]:
            return {entity: dict(values) for entity, values in desk.controller.committed.quotas.items()}

        async with desk.client() as client:
            entries = [
                ([ANN, APP], [("request_percentage", 2.5, False)]),
                ([ANN], [("producer_byte_rate", 1.5, False)]),
                ([("ip", "10.0.0.1")], [("connection_creation_rate", 3.0, False)]),
            ]
            assert (await client.ask(ALTER_CLIENT_QUOTAS, version, entries, True))[1][0][0] == 0
            assert quotas() == {}
            _, rows = await client.ask(ALTER_CLIENT_QUOTAS, version, entries, False)
            assert [(code, entity) for code, _, entity in rows] == [
                (0, (APP, ANN)),
                (42, (ANN,)),
                (0, (("ip", "10.0.0.1"),)),
            ]
            assert quotas() == {
                (("client-id", ""), ("user", "ann")): {"request_percentage": 2.5},
                (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
            }
            removal = [([APP, ANN], [("request_percentage", 0.0, True)])]
            await client.ask(ALTER_CLIENT_QUOTAS, version, removal, False)
            assert len(quotas()) == 1

    at_kafka_desk(tmp_path, story)


def test_a_request_with_long_names_is_decided_in_parts(tmp_path: Path) -> None:
    """Each change repeats the names of its entity: 200 of 5,000 bytes with three changes are more than a batch holds."""

    async def story(desk: KafkaDesk) -> None:
        changes = [
            (key, 1.0, False) for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        ]
        entries = [([("user", f"{number:05000}")], changes) for number in range(200)]
        async with desk.client() as client:
            _, rows = await client.ask(ALTER_CLIENT_QUOTAS, 1, entries, False)
        assert [code for code, *_ in rows] == [0] * 200
        assert len(desk.controller.committed.quotas) == 200

    at_kafka_desk(tmp_path, story)
