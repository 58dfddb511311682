"""FetchSnapshot over a socket: a broker below the log's start loads a snapshot piece by piece."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.errors import DiskFailed
from metadata_log.kafka.batches import batches
from quorum.kafka import derived_snapshots
from quorum.kafka.derived_snapshots import DerivedSnapshots
from quorum.kafka.fetches import METADATA_TOPIC
from quorum.kafka.replies import SnapshotName
from quorum.kafka.snapshots import FETCH_SNAPSHOT
from quorum.log.history_process import HistoryProcess
from snapshots.kafka_checkpoint import checkpoint_path
from snapshots.snapshot_file import snapshot_id
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk, until
from tests.support.kraft_observer import KraftObserver
from tests.support.lab import setting

CLUSTER = "A" * 22


def asked(name: tuple[int, int], position: int = 0, **told: Any) -> tuple[Any, ...]:
    partition = (told.get("partition", 0), told.get("epoch", 1), name, position, bytes([11] * 16))
    topic = (told.get("topic", METADATA_TOPIC), (partition,) * told.get("partitions", 1))
    return (told.get("cluster_id", CLUSTER), 11, told.get("max_bytes", 1 << 20), (topic,))


async def piece(client: Any, name: tuple[int, int], position: int = 0, version: int = 1, **told: Any) -> Any:
    """Return the answer about the one partition."""
    _, error, ((_, (partition,)),), _ = await client.ask(
        FETCH_SNAPSHOT, version, *asked(name, position, **told)
    )
    assert error == 0
    return partition


async def one_made(desk: KafkaDesk) -> SnapshotName:
    """Take a snapshot, and have it made for brokers."""
    await desk.lab.write(desk.controller, setting("1"))
    await desk.desk.keeper.take()
    snapshots = desk.door.kafka_log.snapshots
    snapshots.want(0)
    await until(lambda: snapshots.newest() is not None)
    name = snapshots.newest()
    assert name is not None
    return name


def test_a_snapshot_is_loaded_in_pieces(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        name = await one_made(desk)
        image = desk.controller.committed
        assert name == (image.end_offset, image.controller_epoch)
        async with desk.client() as client:
            data = b""
            while True:
                number, error, named, leader, size, position, some = await piece(
                    client, name, len(data), max_bytes=100
                )
                assert (number, error, named, leader, position) == (0, 0, name, (1, 1), len(data))
                data += some
                if len(data) == size:
                    break
                assert len(some) == 100
        first, *_, last = batches(data)
        assert first.is_control and last.is_control
        path = desk.desk.store.path(snapshot_id(*name))
        assert data == checkpoint_path(path).read_bytes()

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"epoch": 0}, 74),
        ({"epoch": 2}, 75),
        ({"topic": "t"}, 3),
        ({"partition": 1}, 3),
        ({"name": (1, 1)}, 98),
        ({"name": (-1, -1)}, 98),
        ({"position": -1}, 99),
        ({"position": 1 << 40}, 99),
    ],
)
def test_what_cannot_be_loaded_is_refused(tmp_path: Path, told: dict[str, Any], error: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        name = await one_made(desk)
        async with desk.client() as client:
            found = await piece(client, **{"name": name, **told})
            assert (found[1], found[-1]) == (error, b"")
            assert found[3] == (1, 1)

    at_kafka_desk(tmp_path, story)


def test_a_node_that_does_not_lead_says_who_does(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        name = await one_made(desk)
        desk.lab.quorum.depose()
        async with desk.client() as client:
            assert (await piece(client, name))[1] == 6
            desk.lab.lead(2)
            assert (await piece(client, name))[1:4:2] == (74, (2, 2))
            _, _, _, endpoints = await client.ask(FETCH_SNAPSHOT, 1, *asked(name, epoch=2))
            assert endpoints == ((2, "127.0.0.1", 9202),)

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(("told", "error"), [({"cluster_id": "B" * 22}, 104), ({"partitions": 2}, 42)])
def test_what_asks_for_something_else_is_refused(tmp_path: Path, told: dict[str, Any], error: int) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            answer = await client.ask(FETCH_SNAPSHOT, 1, *asked((1, 1), **told))
            assert answer[1:3] == (error, ())

    at_kafka_desk(tmp_path, story)


def test_a_broker_below_the_start_waits_until_a_snapshot_is_taken_and_whole(tmp_path: Path) -> None:
    """Goal: a log that begins later, as a topic was restored, loses no broker. Method: no snapshot is there at first."""

    async def story(desk: KafkaDesk) -> None:
        log = desk.door.kafka_log
        await desk.lab.write(desk.controller, setting("1"))
        end = desk.controller.committed.end_offset
        log.translated._begin_behind(end)
        broker = KraftObserver(11)
        broker.epoch = 1
        tails: list[bytes] = []
        log.fetches.take(broker.fetch(), tails.append)
        await until(lambda: bool(tails))
        assert log.snapshots.newest() == (end, 1)

    at_kafka_desk(tmp_path, story)


def test_a_broker_that_no_snapshot_helps_wakes_nobody(tmp_path: Path) -> None:
    """Its fetch would be looked at, and have the same file made, again and again."""

    async def story(desk: KafkaDesk) -> None:
        await one_made(desk)
        snapshots = desk.door.kafka_log.snapshots
        woken: list[None] = []
        snapshots.on_made = lambda: woken.append(None)
        snapshots.want(0)
        await until(lambda: snapshots._wanted is None)
        assert not woken

    at_kafka_desk(tmp_path, story)


def test_what_is_downloaded_stays_for_some_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: KafkaDesk) -> None:
        name, keeper = await one_made(desk), desk.desk.keeper
        path = desk.desk.store.path(snapshot_id(*name))
        async with desk.client() as client:
            for _ in range(2):
                assert (await piece(client, name))[1] == 0
            assert keeper._downloads == [snapshot_id(*name)]
            for number in range(5):
                await desk.lab.write(desk.controller, setting(str(number)))
                await keeper.take()
            assert path.exists() and checkpoint_path(path).exists()
            monkeypatch.setattr(limits, "KAFKA_PIN_MS", 1)
            assert (await piece(client, name))[1] == 0
            await until(lambda: not keeper._downloads)
            await desk.lab.write(desk.controller, setting("x"))
            await keeper.take()
            assert not path.exists() and not checkpoint_path(path).exists()
            assert (await piece(client, name))[1] == 98
            assert desk.door.kafka_log.snapshots.newest() is None

    at_kafka_desk(tmp_path, story)


def test_what_could_not_be_made_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: KafkaDesk) -> None:
        await desk.desk.keeper.take()
        snapshots, tried = desk.door.kafka_log.snapshots, list[Path]()

        def full(path: Path, _: str | None) -> int:
            tried.append(path)
            raise DiskFailed("full")

        monkeypatch.setattr(derived_snapshots, "_write", full)
        snapshots.want(0)
        snapshots.want(0)
        await until(lambda: snapshots._failed_ms is not None)
        assert not snapshots.is_shorter(1 << 40)
        snapshots.want(0)
        assert len(tried) == 1 and snapshots.newest() is None
        desk.lab.now_ms += derived_snapshots.RETRY_MS
        monkeypatch.undo()
        assert snapshots.is_shorter(1 << 40)
        snapshots.want(0)
        await until(lambda: snapshots.newest() is not None)

    at_kafka_desk(tmp_path, story)


@pytest.mark.slow
def test_the_process_beside_the_loop_makes_the_same_bytes(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        name = await one_made(desk)
        path = checkpoint_path(desk.desk.store.path(snapshot_id(*name)))
        made = path.read_bytes()
        path.unlink()
        process = HistoryProcess("quorum.log.past")
        try:
            again = DerivedSnapshots(
                desk.desk.keeper,
                desk.desk.store,
                listener="CONTROLLER",
                now_ms=lambda: 0,
                run_in_thread=asyncio.to_thread,
                process=process,
            )
            async with asyncio.TaskGroup() as group:
                running = group.create_task(again.run())
                again.want(0)
                await until(lambda: again.newest() is not None)
                running.cancel()
        finally:
            process.shut_down()
        assert path.read_bytes() == made

    at_kafka_desk(tmp_path, story)
