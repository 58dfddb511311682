"""Blocks of producer ids, over a real socket."""

from pathlib import Path

from tests.support.kafka_broker import serving
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            epoch = await serving(desk, client, 11)
            assert await client.ask(67, 0, 11, epoch) == (0, 0, 0, 1_000)
            assert await client.ask(67, 0, 11, epoch) == (0, 0, 1_000, 1_000)
            assert desk.controller.committed.next_producer_id == 2_000
            assert (await client.ask(67, 0, 11, epoch + 1))[1] == 77

    at_kafka_desk(tmp_path, story)
