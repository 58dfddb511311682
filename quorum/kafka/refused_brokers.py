"""Edge: the brokers whose registration is refused are logged with the reason, which no answer of Kafka's has a field for.

A broker asks again and again: each reason is logged once in a while.

Tests: tests/unit/quorum/kafka/test_brokers.py.
"""

import logging
from collections.abc import Callable
from typing import Final

from metadata_log import limits
from metadata_log.errors import Rejected
from metadata_log.node.recent_warnings import BY_STRANGER

log = logging.getLogger(__name__)

LOG_AGAIN_MS: Final = 60_000


class RefusedBrokers:
    """The refusals that were logged lately, by broker and code."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._logged: dict[tuple[int, int], tuple[int, int]] = {}
        """When, and how many there were since; the one that was logged last is the last."""

    def note(self, broker_id: int, error: Rejected) -> None:
        """Log a refusal, unless one of this broker with the same code was logged within LOG_AGAIN_MS."""
        key, now_ms = (broker_id, error.code), self._now_ms()
        logged_ms, left_out = self._logged.get(key, (None, 0))
        if logged_ms is not None and now_ms - logged_ms < LOG_AGAIN_MS:
            self._logged[key] = (logged_ms, left_out + 1)
            return
        self._logged.pop(key, None)
        if len(self._logged) >= limits.BROKERS_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[key] = (now_ms, 0)
        facts = {"broker_id": broker_id, "code": error.error, "reason": error.message, BY_STRANGER: True}
        log.warning("broker_not_registered", extra=facts | ({"refused_since": left_out} if left_out else {}))
