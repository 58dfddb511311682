"""Pure: the settings of Raft that an operator may change. Tests: tests/unit/quorum/raft/test_guard_rules.py."""

from dataclasses import dataclass

from metadata_log.limits import (
    DISK_STALL_MS,
    ELECTION_TIMEOUT_MAX_MS,
    ELECTION_TIMEOUT_MIN_MS,
    HEARTBEAT_MS,
    RAFT_TAIL_BYTES,
    RAFT_TAIL_ENTRIES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """Times in milliseconds.

    `tail_entries`, `tail_bytes`: how much of the log that a snapshot covers is kept for slow followers.
    """

    heartbeat_ms: int = HEARTBEAT_MS
    election_timeout_min_ms: int = ELECTION_TIMEOUT_MIN_MS
    election_timeout_max_ms: int = ELECTION_TIMEOUT_MAX_MS
    disk_stall_ms: int = DISK_STALL_MS
    tail_entries: int = RAFT_TAIL_ENTRIES
    tail_bytes: int = RAFT_TAIL_BYTES
