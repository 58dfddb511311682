"""Pure: what readers of a log take from a controller's answers, as values: before any of it names a file, or is part of SQL.

Any program may listen at an address, and another person may have written a file.
Tests: tests/unit/metadata_log/replay/test_outside_names.py.
"""

import re
from typing import Annotated, Any, Final

from msgspec import Meta

from metadata_log.wire.shapes import INT64_MAX, Shape, convert

_OFFSET: Final = Meta(ge=0, le=INT64_MAX)
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._=+-]{0,127}")
"""Ours have 22 characters. Kafka takes any text, and of those each that is usual names one file, and has no quote."""


class LogStatus(Shape, frozen=True, forbid_unknown_fields=False):
    """Of an answer to /v1/quorum."""

    cluster_id: str
    log_start_offset: Annotated[int, _OFFSET]
    high_watermark: Annotated[int, _OFFSET]
    observed_until_ms: Annotated[int, _OFFSET] | None = None
    """Up to when it knows that its log is all; None: it does not, or is of an earlier release."""


class OfferedSnapshot(Shape, frozen=True, forbid_unknown_fields=False):
    """An item of an answer to /v1/snapshots."""

    id: Annotated[str, Meta(pattern=r"\A[0-9]{20}-[0-9]{10}\Z")]
    end_offset: Annotated[int, _OFFSET]


class _Offers(Shape, frozen=True, forbid_unknown_fields=False):
    items: list[OfferedSnapshot]


def cluster_name(text: str) -> str:
    """Return a cluster's id if it can be the name of a folder and a part of a query.

    Raises:
        ValueError: it cannot.
    """
    if not _CLUSTER.fullmatch(text):
        raise ValueError(
            f"{text[:128]!r} is no id of a cluster: letters, digits, _ and - are what such ids have"
        )
    return text


def log_status(answer: Any) -> LogStatus:
    """Read an answer to /v1/quorum.

    Raises:
        ValueError: it is something else.
    """
    status: LogStatus = convert(answer, LogStatus, "quorum")
    cluster_name(status.cluster_id)
    return status


def offered_snapshots(answer: Any) -> list[OfferedSnapshot]:
    """Read an answer to /v1/snapshots.

    Raises:
        ValueError: it is something else.
    """
    offers: _Offers = convert(answer, _Offers, "snapshots")
    return offers.items
