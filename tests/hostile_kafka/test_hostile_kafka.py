"""Edge: a short slice of the forged requests, at the door of one process, before login and after."""

import asyncio
import random
from pathlib import Path

import pytest

from metadata_log.kafka.messages import request_header
from quorum.kafka.door import Parks
from tests.hostile_kafka.forgery import Forger, seeds
from tests.hostile_kafka.stranger import Stranger
from tests.support.kafka_client import answer_values, sized
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import online

REQUESTS = 1_500
STRANGERS = 4
NOBODY_KNOWN = "principals = []\n"


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False])
def test_forged_requests_end_no_more_than_their_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    file = tmp_path / "principals.toml"
    file.write_text(NOBODY_KNOWN)
    file.chmod(0o600)

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        strangers = [Stranger(random.Random(n), desk.address, None) for n in range(STRANGERS)]

        async def visit(stranger: Stranger) -> None:
            while stranger.read < REQUESTS // STRANGERS:
                await stranger.visit()

        await asyncio.gather(*map(visit, strangers))
        await desk.until_quiet()
        counted = sum((each.counted for each in strangers), strangers[0].counted.__class__())
        assert counted["closed"] and (counted["answered"] > 100) == is_known, counted
        assert set(desk.serving.closed) <= {"malformed", "size", "unknown", "login", "full"}
        door = desk.desk.door
        assert (door.body_buffers.bytes_total, door.buffers.bytes_total) == (0, 0)
        assert not desk.desk.faults

    at_kafka_desk(tmp_path, story, principals=None if is_known else file)
    assert "kafka_request_failed" not in caplog.messages
    assert 1 <= caplog.messages.count("kafka_connection_closed") <= 30  # of a thousand
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_forger_repeats_itself_by_its_seed_and_some_of_its_requests_are_whole() -> None:
    one, other = (Forger(random.Random(5)) for _ in range(2))
    made = [one.next() for _ in range(500)]
    assert made == [other.next() for _ in range(500)]
    assert {each.kind for each in made} >= {"whole", "bytes", "extremes", "cut", "size", "random"}


def test_every_kind_of_request_in_every_version_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no version lacks what an answer says. Method: requests as Kafka's own classes write them."""

    async def story(desk: KafkaDesk) -> None:
        await online(desk.lab, desk.controller, 11)
        answered = set()
        for seed in seeds():
            header = request_header(seed)
            api = desk.door.apis.get(header.key)
            if api is None or isinstance(api.handler, Parks):
                continue
            async with desk.client() as client:
                client.writer.write(sized(seed))
                correlation_id, _ = answer_values(header.key, header.version, await client.answer())
                assert correlation_id == header.correlation_id
                answered.add((header.key, header.version))
        wanted = {
            (key, version)
            for key, api in desk.door.apis.items()
            if not isinstance(api.handler, Parks)
            for version in range(api.versions.first, api.versions.last + 1)
        }
        assert answered == wanted

    at_kafka_desk(tmp_path, story)
    assert "kafka_request_failed" not in caplog.messages
