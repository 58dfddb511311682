"""A broker of Kafka's protocol: what one registers, and the heartbeats that it sends, in the newest versions."""

from typing import Any

from metadata_log.kafka.reading import Values
from tests.support.kafka_client import KafkaClient
from tests.support.kafka_desk import KafkaDesk
from tests.support.lab import CLUSTER, uuid

FEATURES = (
    ("group.version", 0, 1),
    ("kraft.version", 0, 1),
    ("metadata.version", 7, 30),
    ("share.version", 0, 1),
    ("streams.version", 0, 1),
    ("transaction.version", 0, 2),
    ("eligible.leader.replicas.version", 0, 1),
)
"""What a broker of 4.3.1 registers."""


def registration(broker_id: int, **changes: Any) -> Values:
    """Return the fields of a registration."""
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER,
        "incarnation_id": uuid(1000 + broker_id),
        "listeners": (("PLAINTEXT", "k", 9092, 0),),
        "features": FEATURES,
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": (uuid(2000 + broker_id),),
        "previous_broker_epoch": -1,
    }
    return tuple((fields | changes).values())


async def heartbeat(
    client: KafkaClient,
    broker_id: int,
    epoch: int,
    offset: int,
    *,
    want_fence: bool = False,
    want_shut_down: bool = False,
) -> Values:
    """Return error code, is_caught_up, is_fenced and should_shut_down."""
    values = (broker_id, epoch, offset, want_fence, want_shut_down, (), None)
    return (await client.ask(63, 2, *values))[1:]


async def serving(desk: KafkaDesk, client: KafkaClient, broker_id: int) -> int:
    """Register a broker and have it unfenced; return its epoch."""
    _, error, epoch = await client.ask(62, 4, *registration(broker_id))
    assert error == 0
    assert await heartbeat(client, broker_id, epoch, desk.controller.committed.end_offset - 1) == (
        *(0, True, False, False),
    )
    broker_epoch: int = epoch
    return broker_epoch
