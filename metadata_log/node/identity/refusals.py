"""Edge: requests that were refused for want of an identity or a right: counted for `/metrics`, and logged.

What was allowed is in the metadata log, with its actor and request id; what was refused leaves no record there.
Tests: tests/unit/quorum/http/test_identity.py.
"""

import logging
from collections import Counter
from typing import Final, Literal, TypeAlias

from metadata_log.errors import AuthenticationFailed, MetadataError, NotAuthorized
from metadata_log.node.recent_warnings import BY_STRANGER

log = logging.getLogger(__name__)

DoorName: TypeAlias = Literal["http", "kafka"]
DOORS: Final[tuple[DoorName, ...]] = ("http", "kafka")
Reason: TypeAlias = Literal["unauthenticated", "unauthorized"]
REASONS: Final[dict[type[MetadataError], Reason]] = {
    AuthenticationFailed: "unauthenticated",
    NotAuthorized: "unauthorized",
}


class Refusals:
    """What the doors of one node refused."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[DoorName, Reason]] = Counter()
        """Of requests, by door and reason."""

    def note(
        self, error: MetadataError, *, door: DoorName, principal: str, address: str | None, asked: str
    ) -> None:
        """Count and log an error that says that a sender may not have what it `asked` for; ignore any other error.

        A log takes so many bytes of such lines in a second, for anybody may cause them.
        """
        reason = REASONS.get(type(error))
        if reason is None:
            return
        self.counts[door, reason] += 1
        log.warning(
            "request_refused",
            extra={
                "door": door,
                "principal": principal,
                "address": address,
                "asked": asked,
                "code": error.error,
                "reason": error.message,
                BY_STRANGER: True,
            },
        )
