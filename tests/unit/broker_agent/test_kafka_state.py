"""Edge: Kafka's states of a broker beside ours (B28)."""

import pytest

from broker_agent.kafka_state import KafkaState, kafka_state
from broker_agent.lifecycle import State


def test_the_numbers_are_kafka_s() -> None:
    """B28: the numbers appear in metrics and on the wire."""
    assert {each.name: each.value for each in KafkaState} == {
        "NOT_RUNNING": 0,
        "STARTING": 1,
        "RECOVERY": 2,
        "RUNNING": 3,
        "PENDING_CONTROLLED_SHUTDOWN": 6,
        "SHUTTING_DOWN": 7,
        "UNKNOWN": 127,
    }


@pytest.mark.parametrize(
    ("state", "is_ending", "is_caught_up", "was_online", "wanted"),
    [
        (State.OFFLINE, False, False, False, KafkaState.NOT_RUNNING),
        (State.FENCED, False, False, False, KafkaState.STARTING),
        (State.FENCED, False, True, False, KafkaState.RECOVERY),
        (State.ONLINE, False, True, True, KafkaState.RUNNING),
        (
            State.FENCED,
            False,
            True,
            True,
            KafkaState.RUNNING,
        ),  # fenced later: Kafka's broker goes no way back
        (State.FENCED, False, False, True, KafkaState.RUNNING),
        (State.STOPPING, False, True, True, KafkaState.PENDING_CONTROLLED_SHUTDOWN),
        (State.OFFLINE, True, True, True, KafkaState.SHUTTING_DOWN),
        (State.OFFLINE, True, False, False, KafkaState.SHUTTING_DOWN),  # stopped before it ran
    ],
)
def test_each_of_our_states_is_one_of_kafka_s(
    state: State, is_ending: bool, is_caught_up: bool, was_online: bool, wanted: KafkaState
) -> None:
    """B28: as Kafka's BrokerLifecycleManager goes on."""
    assert kafka_state(state, is_ending=is_ending, is_caught_up=is_caught_up, was_online=was_online) is wanted
