"""Registrations and heartbeats of Kafka's brokers, over a real socket."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from metadata_log.codec import decode_all
from metadata_log.ids import BrokerId
from metadata_log.kafka.messages import REQUESTS
from quorum.controller.broker_link import ENDED
from quorum.decide.topics import CreateTopic
from quorum.kafka.refused_brokers import LOG_AGAIN_MS
from tests.support.callers import anybody
from tests.support.kafka_broker import heartbeat, registration, serving
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import uuid


@pytest.mark.parametrize("version", range(5))
def test_a_broker_gets_the_offset_of_its_record_as_epoch(tmp_path: Path, version: int) -> None:
    """The versions before 2 name no log directory, without which no broker can register."""

    async def story(desk: KafkaDesk) -> None:
        before = desk.controller.committed.end_offset
        async with desk.client() as client:
            answer = await client.ask(62, version, *_as_of(version, registration(11, rack="r1")))
            if version < 2:
                assert answer == (0, 119, -1)
                return
            assert answer == (0, 0, before)
            again = await client.ask(62, version, *_as_of(version, registration(11, rack="r1")))
            assert again == (0, 0, before), "the same incarnation keeps its epoch"
        broker = desk.controller.committed.brokers[BrokerId(11)]
        assert (broker.broker_epoch, broker.fenced, broker.rack) == (before, True, "r1")
        assert broker.log_dirs == (uuid(2011),)

    at_kafka_desk(tmp_path, story)


def _as_of(version: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values with the defaults of those fields that a version lacks."""
    fields = REQUESTS[62].fields
    return tuple(
        value if version in field.versions else field.default
        for field, value in zip(fields, values, strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"cluster_id": "B" * 22}, 104, "this is cluster"),
        ({"is_migrating_zk_broker": True}, 42, "migrates from ZooKeeper"),
        ({"broker_id": 1}, 119, "id 1 is a controller's"),
        ({"broker_id": -1}, 42, "broker_id"),
        ({"features": (("metadata.version", 7, 29),)}, 35, "the broker supports metadata.version 7 to 29"),
        ({"features": (("metadata.version", 30, 7),)}, 42, "min 30 above max 7"),
        ({"listeners": (("PLAINTEXT", "k", 0, 0),)}, 42, "endpoint.port"),
        ({"log_dirs": (uuid(1),)}, 119, "reserved"),
        ({"incarnation_id": uuid(7), "broker_id": 12}, 101, "is registered by incarnation"),
    ],
)
def test_a_refusal_is_told_by_its_number_and_logged_with_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], code: int, reason: str
) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await serving(desk, client, 12)
            end = desk.controller.committed.end_offset
            with caplog.at_level(logging.WARNING):
                answer = await client.ask(62, 4, *registration(**{"broker_id": 11, **changes}))
            assert answer == (0, code, -1)
            assert desk.controller.committed.end_offset == end
        (logged,) = [each for each in caplog.records if each.getMessage() == "broker_not_registered"]
        assert reason in logged.reason  # type: ignore[attr-defined]  # of the log's extra fields

    at_kafka_desk(tmp_path, story)


def test_a_broker_that_is_refused_again_and_again_is_logged_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[tuple[int, int]]:
        facts = [vars(each) for each in caplog.records if each.getMessage() == "broker_not_registered"]
        return [(each["broker_id"], each.get("refused_since", 0)) for each in facts]

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:

            async def refused(broker_id: int) -> None:
                answer = await client.ask(62, 4, *registration(broker_id, cluster_id="B" * 22))
                assert answer == (0, 104, -1)

            for broker_id in (11, 11, 12, 11):
                await refused(broker_id)
            assert logged() == [(11, 0), (12, 0)]
            desk.lab.now_ms += LOG_AGAIN_MS
            await refused(11)
            assert logged() == [(11, 0), (12, 0), (11, 2)]

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("version", range(3))
def test_a_heartbeat_is_answered_once_its_record_is_applied(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            _, _, epoch = await client.ask(62, 4, *registration(11))
            offline = () if version < 1 else (uuid(9),)
            cordoned = None if version < 2 else ()
            rest = (False, False, offline, cordoned)
            assert await client.ask(63, version, 11, epoch, epoch - 1, *rest) == (
                *(0, 0, False, True, False),
            )
            # Kafka's offset is that of the record which was applied last: here the registration itself.
            assert await client.ask(63, version, 11, epoch, epoch, *rest) == (0, 0, True, False, False)
        broker = desk.controller.committed.brokers[BrokerId(11)]
        assert not broker.fenced
        assert broker.cordoned_log_dirs == cordoned
        assert desk.controller.sessions.applied_offset(BrokerId(11)) == epoch + 1

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("offset", [-(2**63), -1, 2**63 - 1])
def test_an_offset_is_any_number(tmp_path: Path, offset: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            epoch = await serving(desk, client, 11)
            error, is_caught_up, *_ = await heartbeat(client, 11, epoch, offset)
            assert (error, is_caught_up) == (0, offset > epoch)
            applied = desk.controller.sessions.applied_offset(BrokerId(11))
            assert applied == min(max(offset, -1) + 1, 2**63 - 1)

    at_kafka_desk(tmp_path, story)


def test_a_broker_that_is_not_the_registered_one_is_told_so(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            epoch = await serving(desk, client, 11)
            assert await heartbeat(client, 11, epoch + 1, epoch) == (77, False, True, False)
            assert await heartbeat(client, 12, epoch, epoch) == (77, False, True, False)

    at_kafka_desk(tmp_path, story)


def test_a_broker_that_leads_stops_with_one_heartbeat_and_frees_its_id(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client, desk.client() as other:
            epochs = {broker_id: await serving(desk, client, broker_id) for broker_id in (11, 12)}
            await _created(desk, (11, 12), partitions=3)
            end = desk.controller.committed.end_offset
            stopping = asyncio.create_task(heartbeat(client, 11, epochs[11], end - 1, want_shut_down=True))
            while not desk.controller.committed.brokers[BrokerId(11)].in_controlled_shutdown:
                await asyncio.sleep(0.001)
            assert not stopping.done()
            end = desk.controller.committed.end_offset
            assert await heartbeat(other, 12, epochs[12], end - 1) == (0, True, False, False)
            assert await stopping == (0, True, True, True)
            _, error, epoch = await client.ask(62, 4, *registration(11, incarnation_id=uuid(3)))
            assert (error, epoch > epochs[11]) == (0, True), "its session is over"

    at_kafka_desk(tmp_path, story)


async def _created(desk: KafkaDesk, replicas: tuple[int, ...], *, partitions: int) -> None:
    command = CreateTopic(
        name="t",
        partitions=-1,
        replication_factor=-1,
        assignment=(tuple(map(BrokerId, replicas)),) * partitions,
        configs={},
        validate_only=False,
    )
    await desk.controller.submit(command, anybody())


def test_a_broker_is_unregistered(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await serving(desk, client, 11)
            assert await client.ask(64, 0, 11) == (0, 0, None)
            assert BrokerId(11) not in desk.controller.committed.brokers
            _, error, text = await client.ask(64, 0, 11)
            assert (error, text) == (102, "broker 11 is not registered")

    at_kafka_desk(tmp_path, story)


def test_a_controller_that_does_not_lead_says_so(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            epoch = await serving(desk, client, 11)
            desk.lab.lead(2)
            assert await client.ask(62, 4, *registration(11)) == (0, 41, -1)
            assert await heartbeat(client, 11, epoch, epoch) == (41, False, True, False)
            assert (await client.ask(64, 0, 11))[1] == 41
            assert (await client.ask(67, 0, 11, epoch))[1] == 41

    at_kafka_desk(tmp_path, story)


def test_c11_the_fencing_of_a_silent_broker_has_what_its_connection_showed(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await serving(desk, client, 11)
        await desk.until_quiet()
        desk.lab.now_ms += 500
        for _ in range(40):
            desk.controller.check_sessions()
            desk.lab.now_ms += 500
        batches = [batch for payload in desk.lab.quorum.log for batch, _ in decode_all(payload)]
        causes = [batch.envelope.cause for batch in batches]
        (silence,) = [each for each in causes if each is not None and each.code == "SESSION_EXPIRED"]
        assert silence.detail["link"] == ENDED

    at_kafka_desk(tmp_path, story)
