"""Edge: requests that were refused for want of an identity or a right: counted for `/metrics`, and logged.

What was allowed is in the metadata log, with its actor and request id; what was refused leaves no record there.
Tests: tests/unit/quorum/http/test_identity.py.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from metadata_log.errors import AuthenticationFailed, MetadataError, NotAuthorized
from metadata_log.node.audit_log import AuditLog, no_audit_log
from metadata_log.node.clock import unix_ms
from metadata_log.node.recent_warnings import BY_STRANGER

log = logging.getLogger(__name__)

DoorName: TypeAlias = Literal["http", "kafka"]
DOORS: Final[tuple[DoorName, ...]] = ("http", "kafka")
Reason: TypeAlias = Literal["unauthenticated", "unauthorized"]
REASONS: Final[dict[type[MetadataError], Reason]] = {
    AuthenticationFailed: "unauthenticated",
    NotAuthorized: "unauthorized",
}


KEPT_MAX: Final = 100
"""Kinds of refusals that are remembered: anybody may cause them."""
SHOWN_MAX: Final = 300
"""Characters of what was asked, and of the refusal."""


class Refused(NamedTuple):
    """A request that was refused last, at a Unix time in ms, and how many alike were since this process began."""

    at_ms: int
    door: DoorName
    reason: Reason
    principal: str
    address: str | None
    asked: str
    message: str
    times: int


class Refusals:
    """What the doors of one node refused."""

    def __init__(self, audit: AuditLog | None = None, *, unix_ms: Callable[[], int] = unix_ms) -> None:
        """`audit` takes a line for each; None: nothing does."""
        self.audit = audit or no_audit_log()
        self._unix_ms = unix_ms
        self._last: OrderedDict[tuple[object, ...], Refused] = OrderedDict()
        """By door, reason, principal, address and what was asked; the newest last."""
        self.counts: Counter[tuple[DoorName, Reason]] = Counter()
        """Of requests, by door and reason."""

    def note(
        self,
        error: MetadataError,
        *,
        door: DoorName,
        principal: str,
        address: str | None,
        asked: str,
        trace_id: str | None = None,
    ) -> bool:
        """Count and log an error that says that a sender may not have what it `asked` for; ignore any other error.

        Returns whether it was one.

        A log takes so many bytes of such lines in a second, for anybody may cause them.
        """
        reason = next((reason for kind, reason in REASONS.items() if isinstance(error, kind)), None)
        if reason is None:
            return False
        self.counts[door, reason] += 1
        asked = asked[:SHOWN_MAX]
        key = door, reason, principal, address, asked
        before = self._last.pop(key, None)
        self._last[key] = Refused(
            self._unix_ms(), *key, error.message[:SHOWN_MAX], 1 if before is None else before.times + 1
        )
        if len(self._last) > KEPT_MAX:
            self._last.popitem(last=False)
        log.warning(
            "request_refused",
            extra={
                "door": door,
                "principal": principal,
                "address": address,
                "asked": asked,
                "code": error.error,
                "reason": error.message,
                "trace_id": trace_id,
                BY_STRANGER: True,
            },
        )
        self.audit.note(
            door=door,
            principal=principal,
            address=address,
            operation=asked,
            outcome="refused",
            error=error.error,
            message=error.message,
            trace_id=trace_id,
            by_stranger=reason == "unauthenticated",
        )
        return True

    def newest(self) -> list[dict[str, Any]]:
        """Return the kinds of requests that were refused last, the newest first."""
        return [one._asdict() for one in reversed(self._last.values())]

    def totals(self) -> dict[str, int]:
        """Return how many requests were refused since this process began, by reason."""
        found: dict[str, int] = dict.fromkeys(REASONS.values(), 0)
        for (_, reason), count in self.counts.items():
            found[reason] += count
        return found
