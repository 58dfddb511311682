"""Pure: what a change rests on, step by step, back to a request or to a silence.

Each cause names a registration, which has a cause of its own. Tests: tests/unit/ops/admin/test_steps_back.py.
"""

from collections.abc import Mapping
from typing import Any, Final

STEPS_MAX: Final = 20
"""Of one change; a broker that restarted a thousand times has a chain as long."""


class StepsBack:
    """Remembers why each registration of a log was written, as the log is read from its beginning on."""

    def __init__(self) -> None:
        self._registrations: dict[int, Mapping[str, Any]] = {}
        """By offset, which is the epoch that causes name."""

    def remember(self, about: Mapping[str, Any]) -> None:
        """Take what is known of the batch of a registration at `about["offset"]`."""
        self._registrations[about["offset"]] = about

    def of(self, about: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what a change rests on, the nearest first: {"offset", "time_ms", "why", "actor", "request_id"}.

        The last step has no cause before it; or it lies before the log that was read, and has its offset alone; or STEPS_MAX
        are told.
        """
        steps: list[dict[str, Any]] = []
        at = about["rests_on"]
        while at is not None and len(steps) < STEPS_MAX:
            known = self._registrations.get(at)
            if known is None:
                steps.append({"offset": at, "time_ms": None, "why": None, "actor": None, "request_id": None})
                break
            steps.append({key: known[key] for key in ("offset", "time_ms", "why", "actor", "request_id")})
            at = known["rests_on"]
        return steps
