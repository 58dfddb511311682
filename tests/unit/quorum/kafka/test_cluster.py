"""Edge: what a client asks first, over a real socket."""

from pathlib import Path

import pytest

from metadata_log.kafka.messages import API_VERSIONS, REQUESTS
from quorum.decide.registry import OPERATIONS
from quorum.kafka.apis import APIS
from tests.support.kafka_client import answer_values, request_bytes, sized
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk


@pytest.mark.parametrize("version", range(5))
def test_versions_and_features_are_told(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            error, keys, _, supported, epoch, finalized, _ = await client.ask(
                API_VERSIONS, version, "a client", "1"
            )
        assert error == 0
        assert {key: (oldest, newest) for key, oldest, newest in keys} == {
            key: REQUESTS[key].versions for key, api in APIS.items() if api.is_advertised
        }
        if version < 3:
            assert (supported, epoch, finalized) == ((), -1, ())
            return
        assert epoch == desk.controller.committed.end_offset - 1
        assert ("metadata.version", 30, 30) in finalized and ("kraft.version", 1, 1) in finalized
        assert (("kraft.version", 0, 1) in supported) == (version == 4)

    at_kafka_desk(tmp_path, story)


def test_a_newer_question_for_versions_is_answered_in_the_oldest_form(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        newer = bytearray(request_bytes(API_VERSIONS, 4, ("a client", "1")))
        newer[3] = 9
        async with desk.client() as client:
            client.writer.write(sized(bytes(newer) + b"what nobody knows yet"))
            correlation_id, (error, keys, *_) = answer_values(API_VERSIONS, 0, await client.answer())
            assert (correlation_id, error, keys) == (7, 35, ((API_VERSIONS, 0, 4),))
            await client.ask(API_VERSIONS, 4, "a client", "1")

    at_kafka_desk(tmp_path, story)


def test_each_request_asks_for_an_operation_that_has_a_rule_and_only_the_way_to_a_login_for_none() -> None:
    asked = {key: api.operation for key, api in APIS.items()}
    assert {key for key, operation in asked.items() if operation is None} == {API_VERSIONS, 17, 36}
    assert {operation for operation in asked.values() if operation is not None} <= OPERATIONS.keys()
    for key, operation in asked.items():
        name = REQUESTS[key].name
        if operation is not None and name in OPERATIONS and name not in ("Fetch", "FetchSnapshot"):
            assert operation.removesuffix(".many") == name
