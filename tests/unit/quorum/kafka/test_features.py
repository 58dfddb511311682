"""Edge: features in Kafka's protocol, over a real socket."""

from pathlib import Path

from metadata_log.ids import NodeId
from metadata_log.wire.commands import RegisterController
from quorum.decide.features import REGISTERED
from quorum.kafka.features import UPDATE_FEATURES
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk
from tests.support.lab import CLUSTER, uuid

ELR = "eligible.leader.replicas.version"


def test_levels_rise_fall_and_are_refused(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        def level() -> int:
            return desk.controller.committed.features.get(ELR, 0)

        for controller_id in (1, 2, 3):
            command = RegisterController(
                cluster_id=CLUSTER,
                controller_id=NodeId(controller_id),
                incarnation_id=uuid(controller_id),
                endpoints=(),
                features=REGISTERED,
            )
            await desk.lab.write(desk.controller, command)
        async with desk.client() as client:
            assert level() == 1, "as at the founding"
            assert (await client.ask(UPDATE_FEATURES, 2, 1_000, [(ELR, 0, False, 2)], False))[1] == 0
            assert (await client.ask(UPDATE_FEATURES, 2, 1_000, [(ELR, 1, False, 1)], True))[1] == 0
            assert level() == 0
            _, error, _, rows = await client.ask(UPDATE_FEATURES, 1, 1_000, [(ELR, 1, False, 1)], False)
            assert (error, rows, level()) == (0, ((ELR, 0, None),), 1)
            for upgrade_type, code in ((1, 95), (0, 95), (9, 95), (3, 0)):
                update = [(ELR, 0, False, upgrade_type)]
                assert (await client.ask(UPDATE_FEATURES, 2, 1_000, update, True))[1] == code
            assert (await client.ask(UPDATE_FEATURES, 0, 1_000, [(ELR, 0, False, 1)], False))[1] == 95
            assert (await client.ask(UPDATE_FEATURES, 0, 1_000, [(ELR, 0, True, 1)], False))[1] == 0
            assert level() == 0
            desk.lab.lead(2)
            assert (await client.ask(UPDATE_FEATURES, 2, 1_000, (), False))[1] == 41

    at_kafka_desk(tmp_path, story)


def test_levels_that_no_cluster_here_can_have_are_refused_by_name(tmp_path: Path) -> None:
    """Kafka 4.3.1 refuses each of these with the same number, from metadata.version 30 and kraft.version 1."""

    async def story(desk: KafkaDesk) -> None:
        end = desk.controller.committed.end_offset
        async with desk.client() as client:
            for feature, levels in (("metadata.version", (0, 7, 25, 29, 31)), ("kraft.version", (-1, 0, 2))):
                for level in levels:
                    for upgrade_type in (1, 2, 3):
                        update = [(feature, level, False, upgrade_type)]
                        _, error, text, *_ = await client.ask(UPDATE_FEATURES, 2, 1_000, update, False)
                        assert (error, feature in text) == (95, True)
        assert desk.controller.committed.end_offset == end

    at_kafka_desk(tmp_path, story)
