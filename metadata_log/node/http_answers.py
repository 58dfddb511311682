"""Pure: how an error is told over HTTP: one table, and one body, for controllers and brokers alike."""

from collections.abc import Mapping
from typing import Any, Final

from metadata_log.errors import (
    ChangePending,
    ExpectationFailed,
    MetadataError,
    MethodNotAllowed,
    NotCaughtUp,
    RequestTooLarge,
    UnknownRoute,
    UnsupportedMediaType,
)

STATUS: Final[Mapping[str, int]] = {
    "NOT_CONTROLLER": 421,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "UNKNOWN_TOPIC_ID": 404,
    "BROKER_ID_NOT_REGISTERED": 404,
    "VOTER_NOT_FOUND": 404,
    "SNAPSHOT_NOT_FOUND": 404,
    "TOPIC_ALREADY_EXISTS": 409,
    "STALE_BROKER_EPOCH": 409,
    "DUPLICATE_BROKER_REGISTRATION": 409,
    "DUPLICATE_VOTER": 409,
    "INCONSISTENT_CLUSTER_ID": 409,
    "OFFSET_IN_FUTURE": 409,
    "OFFSET_COMPACTED": 410,
    "POSITION_OUT_OF_RANGE": 416,
    "BROKER_NOT_AVAILABLE": 503,
    "KAFKA_STORAGE_ERROR": 503,
    "POLICY_VIOLATION": 422,
    "THROTTLING_QUOTA_EXCEEDED": 429,
    "REQUEST_TIMED_OUT": 504,
    "UNKNOWN_SERVER_ERROR": 500,
}
"""Status by an error's name; 400 for the others."""
STATUS_OF_LEAF: Final[Mapping[type[MetadataError], int]] = {
    ChangePending: 503,
    NotCaughtUp: 503,
    UnknownRoute: 404,
    MethodNotAllowed: 405,
    RequestTooLarge: 413,
    UnsupportedMediaType: 415,
    ExpectationFailed: 417,
}
"""Status by the error itself, where several share a name."""


def status_of(error: MetadataError) -> int:
    """Return the HTTP status; 503 for a NOT_CONTROLLER that knows no other is the caller's to set."""
    return STATUS_OF_LEAF.get(type(error)) or STATUS.get(error.error, 400)


def error_body(error: MetadataError, *, controller_id: object, controller_epoch: int) -> dict[str, Any]:
    return {
        "error": error.error,
        "code": error.code,
        "family": error.family,
        "message": error.message,
        "retryable": error.retryable,
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
    }
