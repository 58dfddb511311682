"""What brokers of Kafka report of their partitions, over a real socket."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import MetadataError, NotController, OutcomeUnknown
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.topics import TopicImage
from metadata_log.kafka.reading import Values
from metadata_log.wire.commands import AlterPartition
from quorum.controller.callers import Caller
from quorum.controller.controller import Controller
from quorum.decide.topics import CreateTopic
from tests.support.callers import anybody
from tests.support.kafka_broker import serving
from tests.support.kafka_client import KafkaClient
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import uuid

NO_TOPIC = b"no such topic\0\0\0"
MANY = 2_500
"""Of one request, as brokers of Kafka send them: three commands."""


async def a_topic(desk: KafkaDesk, client: KafkaClient, *, partitions: int) -> tuple[TopicId, dict[int, int]]:
    """Create a topic on brokers 11 and 12, led by 11, and let 12 leave its ISRs; return its id and the epochs."""
    epochs = {broker_id: await serving(desk, client, broker_id) for broker_id in (11, 12)}
    command = CreateTopic(
        name="t",
        partitions=-1,
        replication_factor=-1,
        assignment=((BrokerId(11), BrokerId(12)),) * partitions,
        configs={},
        validate_only=False,
    )
    await desk.controller.submit(command, anybody())
    return topic(desk).topic_id, epochs


def topic(desk: KafkaDesk) -> TopicImage:
    found = desk.controller.committed.topics.named("t")
    assert found is not None
    return found


def wanted(
    version: int,
    partition_id: int,
    *isr: tuple[int, int],
    leader_epoch: int = 0,
    epoch: int = 0,
    state: int = 0,
) -> Values:
    """Return what a leader reports of a partition; `isr` are brokers with their epochs."""
    has_epochs = version >= 3
    plain = () if has_epochs else tuple(broker_id for broker_id, _ in isr)
    return (partition_id, leader_epoch, plain, isr if has_epochs else (), state, epoch)


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_that_a_leader_reports_becomes_that(tmp_path: Path, version: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            topic_id, epochs = await a_topic(desk, client, partitions=3)
            one, two = (11, epochs[11]), (12, epochs[12])
            report = (
                (topic_id, (wanted(version, 0, one), wanted(version, 1, two), wanted(version, 7, one))),
                (NO_TOPIC, (wanted(version, 0, one),)),
                (topic_id, (wanted(version, 2, one, leader_epoch=1), wanted(version, 2, one, epoch=1))),
            )
            assert await client.ask(56, version, 11, epochs[11], report) == (
                0,
                0,
                (
                    (topic_id, ((0, 0, 11, 0, (11,), 0, 1), _refused(1, 42), _refused(7, 3))),
                    (NO_TOPIC, (_refused(0, 100),)),
                    (topic_id, (_refused(2, 41), _refused(2, 41))),
                ),
            )
            assert [partition.isr for partition in topic(desk).partitions] == [(11,), (11, 12), (11, 12)]
            stale = wanted(version, 0, one, (12, 1), epoch=1)
            _, _, told = await client.ask(56, version, 11, epochs[11], ((topic_id, (stale,)),))
            # Without epochs nothing tells that another process of the broker is meant.
            assert told[0][1][0][1] == (107 if version >= 3 else 0)

    at_kafka_desk(tmp_path, story)


def _refused(partition_id: int, code: int) -> Values:
    return (partition_id, code, 0, 0, (), 0, 0)


def test_a_report_of_many_partitions_has_one_answer(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            topic_id, epochs = await a_topic(desk, client, partitions=MANY)
            began = desk.controller.committed.end_offset
            report = tuple(wanted(3, partition_id, (11, epochs[11])) for partition_id in range(MANY))
            _, error, told = await client.ask(56, 3, 11, epochs[11], ((topic_id, report),))
            assert error == 0
            assert told == ((topic_id, tuple((each, 0, 11, 0, (11,), 0, 1) for each in range(MANY))),)
            assert desk.controller.committed.end_offset == began + MANY

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("fails_at", "failure", "code", "codes"),
    [
        (1, NotController("deposed"), 41, []),
        (2, NotController("deposed"), 41, []),  # the broker repeats all of it at the next controller
        (1, OutcomeUnknown("perhaps"), 7, []),
        (2, OutcomeUnknown("perhaps"), 0, [0] * 1_000 + [7] * 1_500),
    ],
)
def test_what_was_decided_before_a_command_failed_is_told_all_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: int,
    failure: MetadataError,
    code: int,
    codes: list[int],
) -> None:
    reports = 0
    submit = Controller.submit

    async def failing(controller: Controller, command: Any, caller: Caller) -> Any:
        nonlocal reports
        reports += isinstance(command, AlterPartition)
        if reports == fails_at:
            raise failure
        return await submit(controller, command, caller)

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            topic_id, epochs = await a_topic(desk, client, partitions=MANY)
            monkeypatch.setattr(Controller, "submit", failing)
            report = tuple(wanted(3, partition_id, (11, epochs[11])) for partition_id in range(MANY))
            _, error, told = await client.ask(56, 3, 11, epochs[11], ((topic_id, report),))
            assert error == code
            assert [row[1] for _, rows in told for row in rows] == codes

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("broker_epoch", "state", "code"),
    [(1, 0, 77), (0, 2, 42), (0, -1, 42)],
)
def test_a_report_that_is_refused_as_a_whole(
    tmp_path: Path, broker_epoch: int, state: int, code: int
) -> None:
    """Nothing that is no state of a partition comes into the log."""

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            topic_id, epochs = await a_topic(desk, client, partitions=1)
            end = desk.controller.committed.end_offset
            report = ((topic_id, (wanted(3, 0, (11, epochs[11]), state=state),)),)
            assert await client.ask(56, 3, 11, epochs[11] + broker_epoch, report) == (0, code, ())
            assert desk.controller.committed.end_offset == end

    at_kafka_desk(tmp_path, story)


def test_directories_of_many_replicas_are_told_in_the_order_of_the_request(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            topic_id, epochs = await a_topic(desk, client, partitions=MANY)
            own, other = uuid(2011), uuid(3011)
            places = (
                (own, ((topic_id, tuple((each,) for each in range(2_000))), (NO_TOPIC, ((0,),)))),
                (other, ((topic_id, ((MANY,), (2_249,))),)),
            )
            assert await client.ask(73, 0, 11, epochs[11], places) == (
                0,
                0,
                (
                    (own, ((topic_id, tuple((each, 0) for each in range(2_000))), (NO_TOPIC, ((0, 100),)))),
                    (other, ((topic_id, ((MANY, 3), (2_249, 0))),)),
                ),
            )
            partitions = topic(desk).partitions
            assert (partitions[1_999].directories[0], partitions[2_249].directories[0]) == (own, other)
            assert partitions[2_249].isr == (12,), "a directory that is not online leaves its ISRs"
            assert (await client.ask(73, 0, 12, epochs[12] + 1, places))[1] == 77

    at_kafka_desk(tmp_path, story)
