"""Edge: a quorum of Kafka's own whose voters the settings name (kraft.version 0) is taken over by controllers elsewhere.

Its brokers get controller.quorum.bootstrap.servers while Kafka's controllers still run, and find ours by it later.
"""

import asyncio
import signal
from pathlib import Path
from typing import Final

import pytest

from metadata_log.errors import Unavailable
from metadata_log.node.addresses import address_text, read_address
from ops.kafka.clients import producing, read_to_end
from ops.kafka.real_quorum import RealQuorum
from ops.local.cluster import LocalCluster
from ops.local.layout import ports_of
from tests.kafka.taking_over import DEADLINE_S, Takeover, drawn

TOPIC: Final = "kept"
KAFKAS: Final = 7
"""The id of Kafka's controller; ours has another, too."""


class MovedTakeover(Takeover):
    """One controller and one broker of Kafka's, and one controller of ours under another address."""

    def __init__(self, directory: Path) -> None:
        self.ours = LocalCluster(directory / "ours", controllers=1, brokers=0, kafka=True)
        self.ours.prepare()
        self.addresses = {member.id: read_address(member.kafka or "") for member in self.ours.controllers}
        self.kafka = RealQuorum(
            directory / "kafka",
            brokers=1,
            cluster_id=self.ours.cluster_id,
            voters={KAFKAS: drawn(1, ports_of(self.ours.controllers))[1]},
        )
        self.bootstrap = self.kafka.bootstrap
        self.sent = []

    def tell_brokers(self) -> None:
        """Add the addresses of all controllers to the voters in the brokers' settings, and restart the brokers.

        A broker of 4.3.1 that is told no voters ends at a quorum of kraft.version 0.
        """
        servers = ",".join(map(address_text, (*self.kafka.voters.values(), *self.addresses.values())))
        for node_id in self.kafka.brokers:
            self.kafka.change(node_id, {"controller.quorum.bootstrap.servers": servers})
            self.kafka.end(node_id, signal.SIGTERM)
            self.kafka.restart(node_id)


def take_over_elsewhere(directory: Path) -> None:
    """Take a cluster over whose brokers would not find ours: it is refused until they are told; no record is lost."""
    run = MovedTakeover(directory)
    try:
        run.start_kafka()
        run.wait_for_topic(TOPIC)
        with producing(run.bootstrap, TOPIC, per_second=50.0) as sent:
            run.sent = [(TOPIC, sent)]
            run.progress()
            run.tell_brokers()
            pids = {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
            run.progress()
            with pytest.raises(
                Unavailable, match=r"its controllers were 7@.*, and none of ours has such an id and address"
            ):
                run.take_over()
            run.take_over("--accept", "ADDRESSES_UNKNOWN")
            run.wait_for_topic("taken-over")
            run.progress()
        assert not sent.failed
        read = read_to_end(run.bootstrap, TOPIC, timeout_s=DEADLINE_S)
        assert all(read[number] == 1 for number in sent.acknowledged)
        assert pids == {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
    finally:
        run.kafka.stop()
        asyncio.run(run.ours.stop())
