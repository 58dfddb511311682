"""Edge: a cluster of Kafka's own goes on under our controllers, and then under Kafka's again; its clients notice nothing."""

from pathlib import Path

import pytest

from tests.kafka.from_kafka_3 import take_over_and_upgrade
from tests.kafka.secure_takeover import take_over_secure_and_back
from tests.kafka.static_voters import take_over_elsewhere
from tests.kafka.taking_over import take_over_and_back

pytestmark = pytest.mark.slow


def test_a_quorum_is_taken_over_and_given_back_without_a_loss(tmp_path: Path) -> None:
    """Goal: topics, settings, ACLs, users and quotas are the same after each way, and no acknowledged record is lost.

    At first the settings name the voters (kraft.version 0): ours have the ids and addresses of Kafka's, so no broker is
    restarted. What is given back, and taken over again, names them in its log. All controllers are killed (kill -9).
    """
    found = take_over_and_back(
        tmp_path,
        topics=6,
        controllers=3,
        kafka_controllers=1,
        brokers=1,
        producers=2,
        users=3,
        quotas=3,
        follows=False,
        again=True,
    )
    assert found.holds, found.text()


def test_brokers_of_kafka_3_go_on_and_are_rolled_to_the_newest_release(tmp_path: Path) -> None:
    """Goal: a quorum of 3.9.2 comes with brokers that stay at 3.9.2, and no record is lost until they are of 4.3.1.

    Its voters are in the log (kraft.version 1), and the brokers find ours by controller.quorum.bootstrap.servers. The level
    of metadata.version stays at 3.9 until the last broker is of 4.3.1.
    """
    found = take_over_and_upgrade(tmp_path, controllers=1, kafka_controllers=1, brokers=2)
    assert found.holds, found.text()


def test_a_quorum_with_tls_and_sasl_is_taken_over_and_given_back(tmp_path: Path) -> None:
    """Goal: the brokers' files stay as they are, and the brokers run on, both ways: one logs in by SCRAM, one by PLAIN.

    `python -m tests.kafka --takeover --secure` has three controllers on each side, and brokers with certificates alone.
    """
    take_over_secure_and_back(tmp_path, controllers=1)


def test_brokers_with_fixed_voters_are_told_where_ours_are_before_a_takeover(tmp_path: Path) -> None:
    """Goal: no broker is left behind at kraft.version 0. Method: ours listen elsewhere, and brokers are told before."""
    take_over_elsewhere(tmp_path)
