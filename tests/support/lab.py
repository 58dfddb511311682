"""Three controllers on one model of Raft, and what is asked of them."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker_agent.session import SUPPORTED_FEATURES
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage, buckets_of
from metadata_log.limits import FETCH_BYTES_MAX
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.configs import BROKER
from metadata_log.wire.commands import BrokerHeartbeat, RegisterBroker
from metadata_log.wire.fetch import FetchRequest
from quorum.controller.controller import Controller
from quorum.controller.written import Written
from quorum.decide.configs import AlterConfigs
from quorum.node.config import ControllerSettings, TimingSettings, TopicSettings, VoterSettings
from quorum.raft.raft_log import PeerStatus
from tests.support.callers import anybody
from tests.support.model_raft import ModelQuorum

CLUSTER = "A" * 22


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16))


def settings(
    node_id: int, *, commit_timeout_ms: int = 10_000, undelete_window_ms: int = 0, kafka: bool = False
) -> ControllerSettings:
    voters = tuple(
        VoterSettings(
            id=NodeId(n),
            raft=("127.0.0.1", 9000 + n),
            http=f"http://127.0.0.1:{8000 + n}",
            directory_id=uuid(500 + n),
            kafka=("127.0.0.1", 9200 + n) if kafka else None,
        )
        for n in (1, 2, 3)
    )
    return ControllerSettings(
        cluster_id=CLUSTER,
        node_id=NodeId(node_id),
        data_dir=Path("/nowhere"),
        listen_http=("127.0.0.1", 8000 + node_id),
        listen_raft=("127.0.0.1", 9000 + node_id),
        voters=voters,
        timing=TimingSettings(commit_timeout_ms=commit_timeout_ms),
        topics=TopicSettings(undelete_window_ms=undelete_window_ms),
    )


class Lab:
    """Three controllers on one model quorum, and a clock that stands still."""

    def __init__(
        self, *, commit_timeout_ms: int = 10_000, undelete_window_ms: int = 0, kafka: bool = False
    ) -> None:
        """`kafka`: the controllers have addresses for Kafka's brokers."""
        self.quorum = ModelQuorum({NodeId(n): uuid(500 + n) for n in (1, 2, 3)})
        self.now_ms = 1_000_000
        self.undelete_window_ms = undelete_window_ms
        self.kafka = kafka
        self.clock_set_by_ms = 0
        self.snapshots: dict[str, MetadataImage] = {}
        self.controllers = {}
        for node_id in (1, 2, 3):
            controller = Controller(
                settings=settings(
                    node_id,
                    commit_timeout_ms=commit_timeout_ms,
                    undelete_window_ms=undelete_window_ms,
                    kafka=kafka,
                ),
                now_ms=lambda: self.now_ms,
                unix_ms=lambda: 1_700_000_000_000 + self.now_ms + self.clock_set_by_ms,
                rng=random.Random(node_id),
                load_snapshot=self.snapshots.__getitem__,
            )
            controller.attach(self.quorum.node(node_id, controller), [])
            self.controllers[node_id] = controller

    def lead(self, node_id: int, **keep: Any) -> Controller:
        self.quorum.elect(node_id, **keep)
        self.quorum.commit()
        controller = self.controllers[node_id]
        assert controller.is_active
        return controller

    async def write(self, controller: Controller, command: Any, request_id: Uuid | None = None) -> Written:
        task = asyncio.create_task(controller.submit(command, anybody(request_id)))
        await spin()
        self.finish(controller)
        self.quorum.commit()
        return await task

    def finish(self, controller: Controller) -> None:
        """Make the parts of all long changes that are under way."""
        while controller.make_part():
            self.now_ms += 2

    def same_everywhere(self) -> None:
        images = [controller.committed for controller in self.controllers.values()]
        assert images[0] == images[1] == images[2]
        assert images[0].digest_buckets == buckets_of(images[0])


async def spin() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def setting(value: str, name: str = "a.setting") -> AlterConfigs:
    return AlterConfigs(resource_type=BROKER, resource_name="", set={name: value}, unset=())


def registration(broker_id: int, incarnation: int = 1) -> RegisterBroker:
    return RegisterBroker(
        cluster_id=CLUSTER,
        broker_id=BrokerId(broker_id),
        incarnation_id=uuid(1000 * incarnation + broker_id),
        endpoints=(BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0),),
        features=SUPPORTED_FEATURES,
        rack=None,
        log_dirs=(uuid(2000 + broker_id),),
        previous_broker_epoch=-1,
    )


def poll(
    broker_id: int, epoch: int, *, applied: int, incarnation: int = 1, **wishes: bool
) -> BrokerHeartbeat:
    return BrokerHeartbeat(
        broker_id=BrokerId(broker_id),
        broker_epoch=epoch,
        incarnation_id=uuid(1000 * incarnation + broker_id),
        applied_offset=applied,
        position=None,
        want_fence=wishes.get("want_fence", False),
        want_shut_down=wishes.get("want_shut_down", False),
    )


def run(story: Callable[[Lab], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        await story(Lab(**options))

    asyncio.run(main())


async def online(lab: Lab, controller: Controller, broker_id: int) -> int:
    """Register a broker and let it be unfenced; return its epoch."""
    outcome = await lab.write(controller, registration(broker_id))
    epoch: int = outcome.outcome[0]
    assert controller.committed.brokers[BrokerId(broker_id)].fenced
    controller.heartbeat(poll(broker_id, epoch, applied=controller.committed.end_offset), anybody())
    lab.quorum.commit()
    assert not controller.committed.brokers[BrokerId(broker_id)].fenced
    return epoch


def observer(
    node_id: int, directory: Uuid | None = None, *, ago: int | None = 0, behind: int | None = 0
) -> PeerStatus:
    return PeerStatus(
        node_id=NodeId(node_id),
        directory_id=directory or uuid(500 + node_id),
        is_voter=False,
        reachable=True,
        entries_behind=behind,
        last_caught_up_ms_ago=ago,
    )


def fetch_of(broker_id: int, epoch: int, *, applied: int) -> FetchRequest:
    """Return the poll of a broker that stands at `applied`, in whatever history."""
    return FetchRequest(
        cluster_id=CLUSTER,
        broker_id=BrokerId(broker_id),
        broker_epoch=epoch,
        incarnation_id=uuid(1000 + broker_id),
        fetch_offset=applied,
        last_epoch=1,
        last_crc=0,
        applied_offset=applied,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
        cordoned_log_dirs=None,
        max_bytes=FETCH_BYTES_MAX,
        max_wait_ms=0,
    )
