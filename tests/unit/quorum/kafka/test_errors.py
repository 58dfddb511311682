"""Errors as Kafka's clients are told them."""

import pytest

from metadata_log.errors import (
    BrokerIdNotRegistered,
    InvariantBroken,
    MetadataError,
    NodeStillAlive,
    NotController,
    OutcomeUnknown,
    ThrottlingQuotaExceeded,
)
from metadata_log.kafka.messages import ANSWERS
from quorum.kafka.errors import KafkaError, item_error, kafka_error, whole


@pytest.mark.parametrize(
    ("error", "to_broker", "code", "message"),
    [
        (NotController("ask another"), False, 41, "ask another"),
        (OutcomeUnknown("perhaps"), False, 7, "perhaps"),
        (ThrottlingQuotaExceeded("later"), False, 89, "later"),
        (ThrottlingQuotaExceeded("later"), True, 7, "later"),
        (NodeStillAlive("it runs"), False, -1, "NODE_STILL_ALIVE: it runs"),
        (InvariantBroken("/secret/path is odd"), False, -1, "this controller met a fault, and stops"),
    ],
)
def test_numbers_of_ours_and_faults_have_none_of_kafkas(
    error: MetadataError, to_broker: bool, code: int, message: str
) -> None:
    assert kafka_error(error, to_broker=to_broker) == (code, message)


def test_an_items_error_is_told_by_its_number() -> None:
    assert item_error(None) == (0, None)
    assert item_error(BrokerIdNotRegistered.error, "who?") == (102, "who?")
    assert item_error("NODE_STILL_ALIVE", "it runs") == (-1, "NODE_STILL_ALIVE: it runs")


def test_an_answer_of_defaults_says_an_error_in_its_own_fields() -> None:
    error = KafkaError(41, "ask another")
    assert whole(ANSWERS[64], error) == (0, 41, "ask another")
    assert whole(ANSWERS[62], error) == (0, 41, -1)
    assert whole(ANSWERS[63], error) == (0, 41, False, True, False)
