"""Edge: counts a broker's failed calls, and logs the first of each kind since a controller last answered.
Tests: tests/unit/broker_agent/test_agent.py.
"""

import logging

from broker_agent.session import Call
from metadata_log.errors import DuplicateBrokerRegistration

log = logging.getLogger(__name__)


class FailedCalls:
    """The calls that no controller answered, or that one refused."""

    def __init__(self) -> None:
        self.count = 0
        self.last_reason: str | None = None
        """Why the newest kind of call failed; None since a controller answered one."""
        self._logged: set[tuple[str, str]] = set()

    def failed(self, call: Call, error: str, reason: str) -> None:
        """Count a call that failed, and log it if it is the first of its kind since the last answer."""
        self.count += 1
        if (call.url, error) not in self._logged:
            self._logged.add((call.url, error))
            self.last_reason = f"{call.url}: {reason}"
            # The broker finds another controller by itself; another process with our broker id is for a human to end.
            level = logging.WARNING if error == DuplicateBrokerRegistration.error else logging.INFO
            facts = {"url": call.url, "error": error, "reason": reason}
            log.log(level, "controller_call_failed", extra=facts)

    def answered(self, call: Call) -> None:
        """Forget the failures before an answer."""
        if self._logged:
            self._logged.clear()
            self.last_reason = None
            log.info("controller_found", extra={"url": call.url})
