"""Edge: the two clocks: a monotonic one that decides, and the calendar, which is only recorded."""

import time
from typing import Final

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts while the machine sleeps, so that a node that slept finds its sessions and leases expired."""


def monotonic_ms() -> float:
    """Return milliseconds since some fixed moment; never steps, never stops."""
    return time.clock_gettime_ns(_BOOT) / 1_000_000


def unix_ms() -> int:
    """Return milliseconds since 1970 as the calendar has it now; may step either way."""
    return time.time_ns() // 1_000_000
