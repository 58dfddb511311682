"""Pure: every bound of the system, its reason, and how the bounds relate.

A bound that an operator may set lives in a settings file; its default stands here.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- the log
RECORDS_PER_BATCH_MAX: Final = 10_000
RECORDS_PER_PART_MAX: Final = 2_000
"""Of a change that may be made in parts: each is one turn of the leader's loop, and heartbeats leave between two."""
"""Kafka's bound for a batch and for one user operation (QuorumController.MAX_RECORDS_PER_USER_OP)."""
BATCH_BYTES_MAX: Final = 1 * MIB
"""A batch's records; larger ones would hold up heartbeats on a slow link. Its envelope comes on top."""
FRAME_BYTES_MAX: Final = 2 * MIB
"""What a reader accepts: a batch plus its envelope, with room for Kafka's larger ones taken over."""
SEGMENT_BYTES: Final = 64 * MIB
INDEX_INTERVAL_BYTES: Final = 64 * KIB
"""One sparse index entry for so many bytes: a range read scans at most this much in vain."""
FETCH_WINDOW_BYTES: Final = 16 * MIB
"""Committed frames kept in memory for MetadataFetch; older ones are read from segments."""

# --- Raft
RAFT_ENTRY_BYTES_MAX: Final = 4 * MIB
"""What waiting batches are packed into: one journal record, one message."""
RAFT_MESSAGE_BYTES_MAX: Final = 8 * MIB
RAFT_APPEND_BYTES_MAX: Final = 6 * MIB
"""One append_entries; above every entry, so that the engine's own `transmission` is never used (audit 8)."""
RAFT_CLAIM_TAIL_BYTES: Final = 128 * KIB
"""Who is elected with more of the log to apply does so between heartbeats, and claims then: to fold it takes 50 ms."""
RAFT_UNCOMMITTED_BYTES_MAX: Final = 64 * MIB
"""Own batches in flight; beyond it writes are refused with THROTTLING_QUOTA_EXCEEDED."""
RAFT_TAIL_ENTRIES: Final = 1_000
"""Entries kept behind a snapshot: a follower that lags by less needs no snapshot."""
RAFT_OUTBOX_BYTES_MAX: Final = 64 * MIB
"""Unsent bytes of one link; beyond it the link is closed and made anew."""
RAFT_HELLO_BYTES_MAX: Final = 4 * KIB
"""What a stranger may make us buffer before it has said who it is."""
RAFT_HANDSHAKES_MAX: Final = 64
"""Accepted links that have not finished their handshake; further ones are closed at once."""
JOURNAL_FILE_BYTES: Final = 16 * MIB
FREE_BYTES_TO_START: Final = 4 * MIB
"""Beside its journal's next file: enough to take part, and to write a snapshot of a small cluster."""
RESERVE_BYTES: Final = JOURNAL_FILE_BYTES + 2 * FREE_BYTES_TO_START
"""Given back to a full disk by a restart, so that the node can start and be helped."""

# --- time, in milliseconds
HEARTBEAT_MS: Final = 50
ELECTION_TIMEOUT_MIN_MS: Final = 300
ELECTION_TIMEOUT_MAX_MS: Final = 600
DISK_STALL_MS: Final = 2_000
"""A sync that has not returned by then makes a leader step down."""
COMMIT_TIMEOUT_MS: Final = 10_000
SESSION_TIMEOUT_MS: Final = 9_000
LOCAL_CLUSTER_SESSION_TIMEOUT_MS: Final = 3_000
SESSION_CHECKS_PER_TIMEOUT: Final = 8
"""Kafka checks for expired sessions every timeout / 8, and again after 10 ms when it found one."""
SESSION_CHECK_AGAIN_MS: Final = 10
CLOCK_DRIFT_PERCENT: Final = 1
"""The stated bound on the difference of two machines' clock rates; self-fencing is earlier by it."""
REGISTRATION_TIMEOUT_MS: Final = 60_000
SHUTDOWN_TIMEOUT_MS: Final = 30_000
HANDSHAKE_TIMEOUT_MS: Final = 2_000
VOTER_CAUGHT_UP_MS: Final = 1_000
"""Who held the leader's whole log so long ago, or later, may become a voter, or be relied on when another is removed: a
sound follower does every HEARTBEAT_MS, and after a second the rest of the way takes less than an election."""
RAFT_LINK_TIMEOUT_MS: Final = 3_000
"""A link is closed when the other end's kernel is silent for so long: TCP repeats ever more seldom, and would
notice a healed network only after a minute, where a new link is made in a second."""
RECONNECT_MS: Final = 50
"""A lost Raft link is made anew after so long (doubled while it fails, up to one of the next two)."""
RECONNECT_ABSENT_MAX_MS: Final = 200
"""Where nobody listens: without this link, a node that has just started is no help to whoever is elected next."""
RECONNECT_MAX_MS: Final = 1_000
"""Where somebody does, who refuses us or fails: a peer that dies of our messages is not hurried."""
DIAL_GRACE_MS: Final = 1_000
"""A node dials one with a higher id only when that one has not dialled for so long."""
UNREACHABLE_TOLD_MS: Final = 10_000
"""A voter that could not be dialled for so long is told of: a start of all, or a restart of one, is over before."""
STOP_TIMEOUT_MS: Final = 10_000
"""A process asked to stop ends within so long."""

# --- HTTP
HTTP_BODY_BYTES_MAX: Final = 2 * MIB
HTTP_BODY_TIMEOUT_MS: Final = 15_000
"""Headers and body must be here by then, and a part of an answer taken: no slow sender, and none who stops reading, may
hold a connection for ever."""
HTTP_CONNECTIONS_MAX: Final = 24_000
"""Every broker and observer parked on one of its own, and some thousands for the rest; fewer where the process may not
open so many files."""
HTTP_BACKLOG: Final = 256
"""Connections accepted in one round of the loop; so many may stand above the bound for a moment."""
FILES_RESERVED: Final = 512
"""Open files kept free of HTTP's clients: journal, segments, snapshots, links to other nodes, and HTTP_BACKLOG."""
FETCH_BYTES_DEFAULT: Final = 1 * MIB
FETCH_BYTES_MAX: Final = 8 * MIB
PARKED_OBSERVERS_MAX: Final = 10_000
BROKERS_MAX: Final = 10_000
WAITERS_MAX: Final = 20_000
"""Writes that wait for their commit."""
SNAPSHOT_DOWNLOADS_MAX: Final = 64

# --- state
REQUEST_RESULTS_MAX: Final = 200_000
REQUEST_RESULT_BYTES_MAX: Final = 64 * MIB
"""Of answers that are kept, in the memory of every node and in each snapshot; the oldest go."""
REQUEST_RESULT_AGE_MS: Final = 15 * 60 * 1000
REQUEST_RESULT_STEP_MS: Final = 10 * 1000
"""The most that the time between two results counts of their age, so a quiet log keeps some hundred for longer."""
PARTITIONS_PER_TOPIC_MAX: Final = RECORDS_PER_BATCH_MAX
CONFIG_VALUE_BYTES_MAX: Final = 32 * KIB
TEXT_BYTES_MAX: Final = 255
"""Hosts, racks, listener and feature names."""
LIST_ITEMS_MAX: Final = 1_000
"""Endpoints, features and log directories of one registration; replicas of one partition."""
NAME_LENGTH_MAX: Final = 249
"""Kafka's longest topic name."""

# --- snapshots
SNAPSHOT_BYTES: Final = 20 * MIB
"""Bytes of new log that make a snapshot due; Kafka's default."""
SNAPSHOT_AGE_MS: Final = 60 * 60 * 1000
SNAPSHOT_ENTRIES: Final = 20_000
"""Applied entries of Raft's log that make a snapshot due where no record does: a quiet quorum commits an empty one each
second, and they would stay for ever.
"""
SNAPSHOTS_KEPT: Final = 2
SCRUB_EVERY_S: Final = 24 * 3600.0
"""Closed files of the log and snapshots are read so often, to find what rots."""
SNAPSHOT_CHUNK_BYTES: Final = 1 * MIB

PROTOCOL_DEPTH_MAX: Final = 32
CONTROLLERS_MAX: Final = 10
FIRST_BROKER_ID: Final = 11


def check_relations() -> None:
    """Check how the bounds rest on each other; each process does so as it starts."""
    assert BATCH_BYTES_MAX < FRAME_BYTES_MAX <= RAFT_ENTRY_BYTES_MAX
    assert RAFT_ENTRY_BYTES_MAX < RAFT_APPEND_BYTES_MAX < RAFT_MESSAGE_BYTES_MAX
    assert RAFT_ENTRY_BYTES_MAX < JOURNAL_FILE_BYTES
    assert FRAME_BYTES_MAX < SEGMENT_BYTES
    assert 3 * HEARTBEAT_MS <= ELECTION_TIMEOUT_MIN_MS < ELECTION_TIMEOUT_MAX_MS
    assert FRAME_BYTES_MAX <= FETCH_BYTES_MAX
    assert PARKED_OBSERVERS_MAX + BROKERS_MAX < HTTP_CONNECTIONS_MAX
    assert HTTP_BACKLOG + RAFT_HANDSHAKES_MAX < FILES_RESERVED
    assert ELECTION_TIMEOUT_MAX_MS < COMMIT_TIMEOUT_MS
