"""Pure: what an operator may set of Raft."""

from dataclasses import dataclass

from metadata_log.limits import (
    DISK_STALL_MS,
    ELECTION_TIMEOUT_MAX_MS,
    ELECTION_TIMEOUT_MIN_MS,
    HEARTBEAT_MS,
    RAFT_CLAIM_TAIL_BYTES,
    RAFT_TAIL_ENTRIES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """What an operator may set; how many trimmed entries are kept for slow followers, and how much of the log, not applied
    yet, is folded at once by who is elected.
    """

    heartbeat_ms: int = HEARTBEAT_MS
    election_timeout_min_ms: int = ELECTION_TIMEOUT_MIN_MS
    election_timeout_max_ms: int = ELECTION_TIMEOUT_MAX_MS
    disk_stall_ms: int = DISK_STALL_MS
    tail_entries: int = RAFT_TAIL_ENTRIES
    claim_tail_bytes: int = RAFT_CLAIM_TAIL_BYTES
