"""Pure: our errors as Kafka's clients and brokers are told them: a number of Kafka's, and a text."""

from typing import Final, NamedTuple

from metadata_log.errors import BY_NAME, Fault, MetadataError, OutcomeUnknown, ThrottlingQuotaExceeded
from metadata_log.kafka.reading import Values
from metadata_log.kafka.schemas import Schema

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
UNSUPPORTED_VERSION: Final = 35
OURS_FROM: Final = 10_001
"""From this number on an error is ours, and no client of Kafka knows it."""


class KafkaError(NamedTuple):
    code: int
    message: str


def kafka_error(error: MetadataError, *, to_broker: bool = False) -> KafkaError:
    """Return what an error says. A broker that is throttled is told to ask again, as it knows no quota of its controller."""
    if isinstance(error, ThrottlingQuotaExceeded) and to_broker:
        return KafkaError(OutcomeUnknown.code, error.message)
    if isinstance(error, Fault):
        return KafkaError(UNKNOWN_SERVER_ERROR, "this controller met a fault, and stops")
    return _told(error.code, error.error, error.message)


def item_error(error: str | None, message: str | None = None) -> tuple[int, str | None]:
    """Return code and text of an item's result; 0 and None where nothing was refused."""
    if error is None:
        return NONE, None
    return _told(BY_NAME[error].code if error in BY_NAME else UNKNOWN_SERVER_ERROR, error, message or error)


def _told(code: int, name: str, message: str) -> KafkaError:
    if code >= OURS_FROM:
        return KafkaError(UNKNOWN_SERVER_ERROR, f"{name}: {message}")
    return KafkaError(code, message)


def whole(answer: Schema, error: KafkaError) -> Values:
    """Return an answer of defaults that says an error in its own field, and in words where it has a field for these."""
    said = {"error_code": error.code, "error_message": error.message}
    return tuple(said.get(field.name, field.default) for field in answer.fields)
