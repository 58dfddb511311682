"""Edge: the peer of the benchmark is a cluster of Kafka's own, whose records survive the loss of its active controller."""

from pathlib import Path

import pytest

from ops.kafka.clients import Admin, producing, read_to_end
from ops.kafka.real_quorum import CONTROLLERS, TUNED, real_quorum
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow


def test_a_cluster_of_kafkas_own_loses_nodes_and_no_record(tmp_path: Path) -> None:
    with real_quorum(tmp_path / "k", brokers=1, timers=TUNED) as quorum:
        Admin(quorum.bootstrap).create_topic("orders", partitions=4)
        victim = quorum.active()
        assert victim in CONTROLLERS
        with producing(quorum.bootstrap, "orders", per_second=100) as sent:
            poll_until(lambda: len(sent.acknowledged) > 100, deadline_s=60, what="records are acknowledged")
            quorum.kill(victim)
            poll_until(lambda: quorum.active() != victim, deadline_s=60, what="another controller is active")
            Admin(quorum.bootstrap).create_topic("payments")
            quorum.restart(victim)
        assert not sent.failed
        found = read_to_end(quorum.bootstrap, "orders")
        assert set(sent.acknowledged) <= set(found) and set(found.values()) == {1}
