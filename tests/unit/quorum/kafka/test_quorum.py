"""Edge: the quorum and its controllers in Kafka's protocol, over a real socket."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from metadata_log.errors import NotController
from metadata_log.ids import NodeId
from metadata_log.kafka.messages import API_VERSIONS
from metadata_log.kafka.reading import Values
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.quorum import KAFKA_ENDPOINT
from metadata_log.wire.commands import RegisterController
from quorum.fetch.service import NO_DIRECTORY
from quorum.kafka.cluster import ALL_OPERATIONS, DESCRIBE_CLUSTER, NOT_ASKED
from quorum.kafka.fetches import FETCH, METADATA_TOPIC_ID
from quorum.kafka.quorum import ADD_VOTER, DESCRIBE_QUORUM, REMOVE_VOTER, TOPIC
from tests.support.callers import anybody
from tests.support.desk import FOUNDERS
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.kraft_observer import KraftObserver
from tests.support.lab import CLUSTER, fetch_of, observer, online, uuid


def test_the_quorum_is_described(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.quorum.observers = [observer(4, behind=3)]
        asked = [(TOPIC, [(0,)])]
        async with desk.client() as client:
            fetched = (0, 1, 0, 0, -1, 0, uuid(611), 0)
            topic = ("", METADATA_TOPIC_ID, [fetched])
            await client.ask(FETCH, 18, None, -1, (11, 5), 0, 0, 1 << 20, 0, 0, -1, [topic], (), "")
            for unknown in ((TOPIC, [(1,)]), ("other", [(0,)])):
                error, _, [(topic, [row])], _ = await client.ask(DESCRIBE_QUORUM, 2, [unknown])
                assert (error, topic, row[:2]) == (0, unknown[0], (unknown[1][0][0], 3))
            error, _, [(_, [mine])], nodes = await client.ask(DESCRIBE_QUORUM, 2, asked)
            assert error == 0
            committed = desk.controller.committed
            assert mine[:2] + mine[3:6] == (0, 0, 1, committed.controller_epoch, committed.end_offset)
            voters = {row[0]: row for row in mine[6]}
            assert {node_id: row[1] for node_id, row in voters.items()} == FOUNDERS
            assert voters[1][2] == committed.end_offset and voters[1][3] == voters[1][4]
            seen, broker = mine[7]
            assert seen[:3] == (4, uuid(504), committed.end_offset - 3)
            assert broker == (11, uuid(611), 0, voters[1][3], -1)
            assert nodes == tuple((n, (("CONTROLLER", "127.0.0.1", 9_200 + n),)) for n in (1, 2, 3))
            for older in (0, 1):
                error, _, [(_, [row])], nodes = await client.ask(DESCRIBE_QUORUM, older, asked)
                assert (error, row[:2], nodes) == (0, (0, 0), ())
                assert [each[:3] for each in row[6]] == [(n, NO_DIRECTORY, voters[n][2]) for n in (1, 2, 3)]
                assert [each[0] for each in row[7]] == [4, 11]
            desk.lab.lead(2)
            error, _, rows, _ = await client.ask(DESCRIBE_QUORUM, 2, asked)
            assert error == 0 and {each[1] for _, some in rows for each in some} == {6}
            assert (await client.ask(DESCRIBE_QUORUM, 0, ()))[0] == 6

    at_kafka_desk(tmp_path, story)


def test_static_voters_are_described_without_directories(tmp_path: Path) -> None:
    """As Kafka does with kraft.version 0, which ApiVersions does not name among the finalized features."""

    async def story(desk: KafkaDesk) -> None:
        for controller in desk.lab.controllers.values():
            controller.committed = replace(
                controller.committed, quorum=controller.committed.quorum._replace(kraft_version=0)
            )
        async with desk.client() as client:
            _, _, [(_, [row])], nodes = await client.ask(DESCRIBE_QUORUM, 2, [(TOPIC, [(0,)])])
            assert [each[:2] for each in row[6]] == [(n, NO_DIRECTORY) for n in (1, 2, 3)]
            assert [node_id for node_id, _ in nodes] == [1, 2, 3]
            versions = await client.ask(API_VERSIONS, 4, "test", "1")
            finalized = {name: level for name, level, _ in versions[5]}
            assert finalized["metadata.version"] == 30 and "kraft.version" not in finalized

    at_kafka_desk(tmp_path, story)


def test_a_controller_behind_lacks_a_record_for_each_entry_at_least(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.quorum.observers = [
            observer(4, behind=1),
            observer(5, behind=1 << 40),
            observer(6, behind=None),
        ]
        async with desk.client() as client:
            _, _, [(_, [partition])], _ = await client.ask(DESCRIBE_QUORUM, 2, [(TOPIC, [(0,)])])
        assert [row[2] for row in partition[7]] == [desk.controller.committed.end_offset - 1, 0, -1]

    at_kafka_desk(tmp_path, story)


def test_one_that_cannot_prove_its_leadership_does_not_answer_as_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a leader that was cut off describes no quorum. Method: another is elected while the proof is awaited."""

    async def story(desk: KafkaDesk) -> None:
        async def read_index() -> None:
            raise NotController("another leads")

        monkeypatch.setattr(desk.controller.raft, "read_index", read_index)
        async with desk.client() as client:
            error, _, [(_, [row])], _ = await client.ask(DESCRIBE_QUORUM, 2, [(TOPIC, [(0,)])])
        assert (error, row[1]) == (0, 6)

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    "asked", [[(TOPIC, [(0,), (0,)])], [(TOPIC, [(0,)]), (TOPIC, [(0,)])], [(TOPIC, ()), ("other", ())]]
)
def test_more_than_one_partition_is_refused_without_rows(tmp_path: Path, asked: list[Values]) -> None:
    """Goal: an answer has no more rows than the quorum has partitions, whatever is repeated."""

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            for leader in (1, 2):
                desk.lab.lead(leader)
                error, message, rows, _ = await client.ask(DESCRIBE_QUORUM, 2, asked)
                assert (error, message, rows) == (
                    42,
                    "ask for one partition of one topic: the quorum has no other",
                    (),
                )

    at_kafka_desk(tmp_path, story)


def test_brokers_that_fetch_are_observers(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        broker = KraftObserver(11)
        desk.door.kafka_log.fetches.take(broker.fetch(), lambda _: None)
        desk.lab.now_ms += 5
        async with desk.client() as client:

            async def seen() -> Values:
                _, _, [(_, [partition])], _ = await client.ask(DESCRIBE_QUORUM, 2, [(TOPIC, [(0,)])])
                [observer] = partition[7]
                found: Values = observer
                return found

            asked_ms = desk.controller.time_of_day_ms() - 5
            assert await seen() == (11, bytes([11] * 16), 0, asked_ms, -1)
            end_offset = desk.controller.committed.end_offset
            broker.load((end_offset, 1))
            desk.door.kafka_log.fetches.take(broker.fetch(), lambda _: None)
            assert await seen() == (11, bytes([11] * 16), end_offset, asked_ms + 5, asked_ms + 5)

    at_kafka_desk(tmp_path, story)


def test_b69_controllers_and_brokers_of_ours_are_described_with_the_times_of_their_fetches(
    tmp_path: Path,
) -> None:
    """B69: an observer is told of for 300 s after its last fetch, whether it is linked or not, and one that never fetched
    has -1. A broker's own row is that of its last poll, whichever protocol it speaks.
    """

    async def story(desk: KafkaDesk) -> None:
        quorum = desk.lab.quorum
        linked = replace(observer(4, ago=7_000), last_fetch_ms_ago=5)
        never = replace(observer(5, ago=None), last_fetch_ms_ago=None)
        gone = replace(observer(6, ago=9_000), last_fetch_ms_ago=299_000, reachable=False)
        quorum.observers, quorum.gone = [linked, never], [gone]
        epoch = await online(desk.lab, desk.controller, 12)
        end_offset = desk.controller.committed.end_offset
        fetches = desk.door.fetches
        polled_ms = desk.controller.time_of_day_ms()
        await fetches.fetch(replace_struct(fetch_of(12, epoch, applied=end_offset), max_wait_ms=0), anybody())
        desk.lab.now_ms += 50

        async def described() -> list[Values]:
            async with desk.client() as client:
                _, _, [(_, [partition])], _ = await client.ask(DESCRIBE_QUORUM, 2, [(TOPIC, [(0,)])])
            return list(partition[7])

        def ago(ms: int) -> int:
            return desk.controller.time_of_day_ms() - ms

        assert [(row[0], *row[3:]) for row in await described()] == [
            (4, ago(5), ago(7_000)),
            (5, -1, -1),
            (6, ago(299_000), ago(9_000)),
            (12, polled_ms, polled_ms),
        ]
        assert (await described())[3] == (12, NO_DIRECTORY, end_offset, polled_ms, polled_ms)
        desk.lab.now_ms += 300_000 - 51
        assert [row[0] for row in await described()] == [4, 5, 6, 12]
        desk.lab.now_ms += 1
        assert [row[0] for row in await described()] == [4, 5, 6], "300 s after its last poll"

    at_kafka_desk(tmp_path, story)


def test_controllers_are_described_with_their_listeners_for_brokers(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        for controller_id, endpoints in (
            (4, (BrokerEndpoint(KAFKA_ENDPOINT, "10.0.0.4", 9094, 0),)),
            (5, (BrokerEndpoint("CONTROLLER", "10.0.0.5", 9093, 0),)),
        ):
            command = RegisterController(
                cluster_id=CLUSTER,
                controller_id=NodeId(controller_id),
                incarnation_id=uuid(controller_id),
                endpoints=endpoints,
                features=(),
            )
            await desk.lab.write(desk.controller, command)
        async with desk.client() as client:
            told = await client.ask(DESCRIBE_CLUSTER, 2, False, 2, False)
            controllers = [(node_id, "127.0.0.1", 9_200 + node_id, None, False) for node_id in (1, 2, 3)]
            controllers.append((4, "10.0.0.4", 9094, None, False))
            assert told == (0, 0, None, 2, CLUSTER, 1, tuple(controllers), NOT_ASKED)
            assert (await client.ask(DESCRIBE_CLUSTER, 1, True, 2, False))[7] == ALL_OPERATIONS
            assert (await client.ask(DESCRIBE_CLUSTER, 0, False, 1, False))[1] == 114
            assert (await client.ask(DESCRIBE_CLUSTER, 2, False, 9, False))[1] == 115

    at_kafka_desk(tmp_path, story)


def test_voters_are_changed_at_the_addresses_that_they_told(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.lab.quorum.observers = [observer(4), observer(5)]
        async with desk.client() as client:

            async def add(cluster_id: str | None, voter_id: int) -> int:
                values = (cluster_id, 1_000, voter_id, uuid(500 + voter_id), [("CONTROLLER", "h", 1)], True)
                error: int = (await client.ask(ADD_VOTER, 1, *values))[1]
                return error

            assert await add("B" * 22, 4) == 104
            assert await add(CLUSTER, 5) == 42  # it has not told where it is
            assert await add(None, 4) == 0
            voters = desk.controller.committed.quorum.voters or ()
            assert [(each.node_id, each.endpoints[0][1:]) for each in voters][3:] == [(4, ("10.0.0.4", 9093))]
            assert (await client.ask(REMOVE_VOTER, 0, None, 4, uuid(505)))[1] == 127
            assert (await client.ask(REMOVE_VOTER, 0, CLUSTER, 4, uuid(504)))[1] == 0
            desk.lab.lead(2)
            assert (await client.ask(REMOVE_VOTER, 0, CLUSTER, 3, uuid(503)))[1] == 41

    at_kafka_desk(tmp_path, story)
