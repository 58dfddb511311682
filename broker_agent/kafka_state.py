"""Pure: the state of a broker in Kafka's words and numbers, beside our four states.

Kafka's broker goes one way, NOT_RUNNING to SHUTTING_DOWN. Once it was unfenced it is RUNNING until it stops, whether a
controller fences it later or not; our own state says that. Source: Kafka's BrokerState and BrokerLifecycleManager.
"""

import enum
from typing import assert_never

from broker_agent.lifecycle import State


class KafkaState(enum.IntEnum):
    """The numbers are part of Kafka's public interface."""

    NOT_RUNNING = 0
    STARTING = 1
    """Catching up with the log."""
    RECOVERY = 2
    """It has caught up, and was not unfenced yet."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
    UNKNOWN = 127
    """Of a number that Kafka does not know; no broker is in this state."""


def kafka_state(state: State, *, is_ending: bool, is_caught_up: bool, was_online: bool) -> KafkaState:
    """Return Kafka's state of a broker in one of ours.

    `is_caught_up`: it applied its own registration. `was_online`: it served since its process started.
    """
    match state:
        case State.OFFLINE:
            return KafkaState.SHUTTING_DOWN if is_ending else KafkaState.NOT_RUNNING
        case State.FENCED:
            if was_online:
                return KafkaState.RUNNING
            return KafkaState.RECOVERY if is_caught_up else KafkaState.STARTING
        case State.ONLINE:
            return KafkaState.RUNNING
        case State.STOPPING:
            return KafkaState.PENDING_CONTROLLED_SHUTDOWN
        case _:
            assert_never(state)
