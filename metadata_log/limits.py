"""Pure: every bound of the system, its reason, and how the bounds relate.

A bound that an operator may set is in a settings file; its default is here.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- the log
RECORDS_PER_BATCH_MAX: Final = 10_000
"""Kafka's bound for a batch and for one user operation (QuorumController.MAX_RECORDS_PER_USER_OP)."""
RECORDS_PER_PART_MAX: Final = 1_000
"""Of one part of a long change. A part is one turn of the leader's loop, and heartbeats are sent between two parts. To
decide, encode and apply so many, each in another topic of a million partitions, takes about 20 ms of processor time."""
BATCH_BYTES_MAX: Final = 1 * MIB
"""A batch's records; larger ones would hold up heartbeats on a slow link. Its envelope comes on top."""
FRAME_BYTES_MAX: Final = 2 * MIB
"""What a reader accepts: a batch and its envelope, with room for larger batches of Kafka's."""
SEGMENT_BYTES: Final = 64 * MIB
INDEX_INTERVAL_BYTES: Final = 64 * KIB
"""One entry of the sparse index per 64 KiB: a read scans at most this much before its first frame."""
FETCH_WINDOW_BYTES: Final = 16 * MIB
"""Committed frames kept in memory for MetadataFetch; older ones are read from segments."""
KAFKA_WINDOW_BYTES: Final = 16 * MIB
"""Of Kafka's batches of the newest records. Older ones are made again of segments for each broker that is behind."""
KAFKA_UNTRANSLATED_BYTES: Final = 2 * MIB
"""Of the frames of batches that the active controller has decided and not translated yet; further ones are decoded again."""
KAFKA_ANSWERS_KEPT_BYTES: Final = 4 * MIB
"""Of encoded answers that are kept for further brokers at the same position."""
OBSERVER_MS: Final = 300_000
"""A broker or controller that has fetched nothing for this time is no observer any more. Kafka's constant."""
KAFKA_DIRECTORIES_MAX: Final = 8
"""Of one broker among the observers: one with another disk shows two for a while. With more its first is forgotten."""
KAFKA_OBSERVERS_OF_CLIENT_MAX: Final = 5_000
"""Where identity is off, of one address: half of all that there may be. With more its first is forgotten."""
KAFKA_COLD_READS_OF_CLIENT_MAX: Final = 100
"""Reads of segments that wait for one client: with more, a fetch waits for its deadline, and its broker asks again."""
KAFKA_PIN_MS: Final = 30_000
"""A snapshot of which a broker of Kafka has fetched a piece is kept for this time."""
KAFKA_BEHIND_BYTES_MAX: Final = 4 * MIB
"""Of frames that no fetch has wanted to be translated: with more, the window begins again at the end of the log. To
translate them would take the loop a second, and brokers that are up to date would wait for it."""

# --- Raft
RAFT_ENTRY_BYTES_MAX: Final = 4 * MIB
"""One journal record, one message; also what a leader makes entries of at most between two syncs."""
RAFT_ENTRY_SHARED_BYTES: Final = 64 * KIB
"""Waiting batches share entries of at most this size, a larger one has an entry alone. An entry is applied in one turn of
the loop: these bytes are some 1,000 records, and take about 7 ms."""
RAFT_MESSAGE_BYTES_MAX: Final = 8 * MIB
RAFT_APPEND_BYTES_MAX: Final = 6 * MIB
"""One append_entries; above every entry, so that the engine never splits an entry with its own `transmission`."""
RAFT_APPEND_SHARED_BYTES: Final = 256 * KIB
"""Entries share an append_entries of at most this size, a larger entry has one alone: on a slow link the follower syncs and
acknowledges the first ones while the next arrive. At 100 Mbit/s these bytes take 21 ms."""
RAFT_UNCOMMITTED_BYTES_MAX: Final = 64 * MIB
"""Of a leader's batches that are not committed yet; further writes are refused with THROTTLING_QUOTA_EXCEEDED."""
RAFT_TAIL_ENTRIES: Final = 1_000
"""Entries kept before a snapshot's end: a follower that lags by fewer needs no snapshot."""
RAFT_TAIL_BYTES: Final = 8 * MIB
"""The same in bytes: of large entries fewer are kept, because the journal lies beside the committed log."""
RAFT_OUTBOX_BYTES_MAX: Final = 64 * MIB
"""Of unsent bytes of one link; a link with more is closed and dialled again."""
RAFT_OBSERVERS_OUTBOX_BYTES_MAX: Final = 32 * MIB
"""The same of the links of all that are no voters; beyond it the one with the most is closed."""
RAFT_IN_FLIGHT_BYTES: Final = 16 * MIB
"""Entries sent to one voter and not acknowledged; below the bound of its link."""
RAFT_OBSERVER_IN_FLIGHT_BYTES: Final = 1 * MIB
"""The same of one that is no voter, who may be anybody; 10 MiB for all of them (CONTROLLERS_MAX). A larger entry is sent
alone. Before the first acknowledgement it is sent 64 KiB at a time."""
RAFT_HELLO_BYTES_MAX: Final = 4 * KIB
"""What a peer may make us buffer before it has named itself."""
RAFT_HANDSHAKES_MAX: Final = 64
"""Accepted links that have not finished their handshake; further ones are closed at once."""
RAFT_STRANGER_TIMEOUTS: Final = 10
"""In longest election timeouts. A node that has heard no leader for this time believes one whom its own log does not name,
since all voters that it knows may have been replaced while it was away. A quorum that works elects much faster."""
JOURNAL_FILE_BYTES: Final = 16 * MIB
FREE_BYTES_TO_START: Final = 4 * MIB
"""On top of the journal's next file: enough to take part and to write a snapshot of a small cluster."""
RESERVE_BYTES: Final = JOURNAL_FILE_BYTES + 2 * FREE_BYTES_TO_START
"""A restart gives it back to a full disk, so that the node can start and an operator can free space."""

# --- time, in milliseconds
HEARTBEAT_MS: Final = 50
LOOP_SLICE_MS: Final = 5
"""Long work holds the event loop this long, then leaves it to others: a longer turn delays heartbeats and writes."""
LOOP_PAUSE_MS: Final = 1
"""Between two slices. A message of Raft is read, handled and answered within some turns of the loop."""
SLOW_DECISION_MS: Final = 10
"""After a decision this slow, other writes wait equally long: consecutive slow decisions must not silence heartbeats."""
ROUND_MS: Final = 20
"""Decisions, and whatever else runs between them, may hold the loop this long before sockets are read: two fifths of
HEARTBEAT_MS.

A turn of the loop may have the end of one round and the next: its end is a callback among others.
"""
PART_MS: Final = 3
"""A part of a long change is decided within about this time; to encode and apply it takes up to four times as long."""
OVERTAKEN_MAX: Final = 3
"""A large request that long changes overtook so often is decided next while they wait: otherwise it might never be."""
TURNS_AT_ONCE: Final = 32
"""Requests that are woken for one round of decisions: about as many as it decides."""
ELECTION_TIMEOUT_MIN_MS: Final = 300
ELECTION_TIMEOUT_MAX_MS: Final = 600
DISK_STALL_MS: Final = 2_000
"""A leader whose sync has not returned after this time steps down."""
COMMIT_TIMEOUT_MS: Final = 10_000
SESSION_TIMEOUT_MS: Final = 9_000
KAFKA_SESSION_TIMEOUT_MIN_MS: Final = 6_000
"""With Kafka's brokers, which send a heartbeat every 2,000 ms, whatever happens: two of three may be lost."""
LOCAL_CLUSTER_SESSION_TIMEOUT_MS: Final = 3_000
SESSION_CHECKS_PER_TIMEOUT: Final = 8
"""Kafka checks for expired sessions every timeout / 8, and again after 10 ms when it found one."""
SESSION_CHECK_AGAIN_MS: Final = 10
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = 300
UNCLEAN_LEADER_ELECTION_INTERVAL_MS: Final = 300_000
PART_AGAIN_MS: Final = 2
"""From one part of a fencing to the next: heartbeats, polls and the journal have the loop in between."""
CLOCK_DRIFT_PERCENT: Final = 1
"""The bound on the difference of two machines' clock rates. A broker fences itself earlier by as much."""
REGISTRATION_TIMEOUT_MS: Final = 60_000
SHUTDOWN_TIMEOUT_MS: Final = 30_000
HANDSHAKE_TIMEOUT_MS: Final = 2_000
VOTER_CAUGHT_UP_MS: Final = 2 * DISK_STALL_MS + 1_000
"""A follower must have held the leader's whole log within this time to become a voter, or to count towards the majority
that a removal leaves. On the slowest disk on which a node may lead, what arrives during one sync is durable after the
next. A sound follower on a fast disk holds the log every HEARTBEAT_MS."""
RAFT_LINK_TIMEOUT_MS: Final = 3_000
"""A link is closed when the other end's kernel has been silent for this time. TCP repeats ever more seldom and would notice
a healed network only after a minute; a new link is made in a second."""
RAFT_MESSAGE_WHOLE_MS: Final = 5_000
"""A link is closed if a message on it is not whole within this time after its first bytes. Its length has no checksum: one
whose bit was flipped on its way would swallow megabytes of what follows, and the link would be mute for minutes meanwhile.
An entry of the largest size passes in time at 10 Mbit/s, in 3.4 s; one of BATCH_BYTES_MAX at 2 Mbit/s.
"""
RAFT_UNSENT_BYTES_MAX: Final = 256 * KIB
"""What the kernel takes of a link beyond what is on its way; the rest waits in the process. So a follower soon hears nothing
of a leader that is frozen, and reads the end of one that died soon: by itself the kernel would take 4 MiB, which it goes on
sending for 3.4 s at 10 Mbit/s."""
RECONNECT_MS: Final = 50
"""A lost Raft link is dialled again after this time, doubled while it fails, up to one of the next two."""
RECONNECT_ABSENT_MAX_MS: Final = 200
"""If no process listens there. A node that has just started can vote for a candidate only over such a link."""
RECONNECT_MAX_MS: Final = 1_000
"""If the peer refuses us or fails: a peer that our messages crash is not hurried."""
DIAL_GRACE_MS: Final = 1_000
"""A node dials a peer with a higher id only when that peer has not dialled for this time."""
UNREACHABLE_REPORTED_MS: Final = 10_000
"""A voter that could not be dialled for this time is logged: a start of all, or a restart of one, is over sooner."""
STOP_TIMEOUT_MS: Final = 10_000
"""A process that is asked to stop ends within this time."""

# --- HTTP
HTTP_BODY_BYTES_MAX: Final = 2 * MIB
HTTP_BATCH_COMMANDS_MAX: Final = 1_000
"""Of one POST /v1/batch, whose body is bounded like any other: each command takes about a third of a millisecond."""
HTTP_BATCH_ANSWER_BYTES_MAX: Final = 2 * MIB
"""Of the results of one POST /v1/batch; after these bytes a result shows no more than its status and its offsets."""
HTTP_BODY_AT_ONCE_BYTES: Final = 16 * KIB
"""A larger body is decoded in a thread: one of 2 MiB that holds two million numbers takes a second and more."""
BODIES_HELD_BYTES_MAX: Final = 64 * MIB
"""Of the larger bodies of requests that arrive or are not answered yet; one that finds no room is refused with
THROTTLING_QUOTA_EXCEEDED. It is room for 32 of the largest."""
HTTP_EARLY_BYTES_MAX: Final = 64 * KIB
"""What a client may send while its poll waits; it is read on once the poll is answered."""
EARLY_HELD_BYTES_MAX: Final = 16 * MIB
"""Of all connections together. A client that sends more after its poll loses its connection; those of this project send
nothing there."""
HTTP_SILENCE_MAX_MS: Final = 15_000
"""A connection on which no request begins, or whose client reads nothing of its answer, is closed after this time."""
HTTP_ARRIVAL_MAX_MS: Final = 8_000
"""A request's head must be whole this long after its first bytes, and so must its body after the head, however they trickle
in. Two MiB in this time need 270 KB/s."""
HTTP_LINGERING_MS: Final = 1_500
"""For the rest of a body that was refused unread, so that its sender reads the refusal."""
HTTP_CONNECTIONS_MAX: Final = 24_000
"""One for the parked fetch of each broker and observer, and some thousands for the rest; fewer if the process may not open
so many files."""
HTTP_CONNECTIONS_PER_ADDRESS: Final = 0.5
"""The share of them that one numeric address (of IPv6, one network of 64 bits) may hold: no single machine shuts the others
out. A proxy in front of all observers needs less."""
TLS_READ_BYTES: Final = 16 * KIB
"""A TLS record. Each connection keeps a buffer of this size."""
TLS_CHECK_S: Final = 5.0
"""Certificates that changed are read again after this time at most."""
IDENTITY_BYTES_MAX: Final = 1 * MIB
PRINCIPALS_MAX: Final = 2_000
"""Of a file of principals: every token that is presented is compared with all of them, which takes half a millisecond."""
IDENTITY_CHECK_S: Final = 1.0
"""A file of principals, or of certificates, that changed is read again after this time, or some more."""
KAFKA_LOGIN_BYTES_MAX: Final = 64 * KIB
"""A request in Kafka's protocol before its sender has shown who it is; afterwards it is bounded as a body of HTTP is."""
KAFKA_ITEMS_MAX: Final = 100_000
"""Of all arrays of one request in Kafka's protocol together, if it is no small one: 2 MiB hold two million empty names, and
each would get a row. It is room for an AlterPartition of 20,000 topics of one partition with an ISR of three brokers."""
KAFKA_SILENCE_MAX_MS: Final = 600_000
"""A connection in Kafka's protocol whose sender has shown who it is, where that is asked, is closed when it asks nothing for
this time, as at a broker of Kafka (connections.max.idle.ms), or does not take its answers."""
KAFKA_UNREAD_BYTES_MAX: Final = 16 * KIB
"""Of answers that a client in Kafka's protocol has not read and the kernel does not hold: with more, it is served no further
request until it has read most of them."""
HTTP_ACCEPTS_PER_TURN: Final = 64
"""Connections accepted in one turn of the loop: the bound may be exceeded by so many for a moment."""
SOCKETS_PER_TURN: Final = 64
"""Sockets that a controller's loop serves in one turn; then timers and other sockets have theirs. One that is closed takes
10 to 20 microseconds, a TLS handshake about half a millisecond."""
HTTP_BACKLOG: Final = 4_096
"""Connections that the kernel completes before they are accepted; it may allow fewer. All brokers of a leader that died dial
the others at once, and a connection beyond the backlog is only tried again after a second."""
FILES_RESERVED: Final = 512
"""Open files kept free of HTTP's clients: journal, segments, snapshots, links to other nodes, and
HTTP_ACCEPTS_PER_TURN."""
HTTP_SEND_BUFFER_BYTES: Final = 128 * KIB
"""Of unread bytes of one connection in the kernel, which counts about twice as many. By itself it lets each grow to 4 MiB,
beside every bound of ours. Filling that for 200 clients at once holds the loop for about a second."""
FETCH_BYTES_DEFAULT: Final = 1 * MIB
FETCH_BYTES_MAX: Final = 8 * MIB
PARKED_OBSERVERS_MAX: Final = 10_000
"""At one controller."""
OBSERVERS_AT_LEADER_MAX: Final = 1_000
"""Parked at the active controller. Further ones that a follower may answer are sent to a follower."""
BROKERS_MAX: Final = 10_000
FETCH_SLICE_POLLS: Final = 256
"""Of one slice. Their clients poll again at once, and what they send is read within the next turn."""
FETCH_COALESCE_MS: Final = 5
"""Between two commits that wake the parked polls: of commits in quicker succession a poll gets all in one answer."""
FETCH_TICK_MS: Final = 20
"""Polls whose time is up within one tick share one round of probes."""
HEARTBEAT_TICK_MS: Final = 200
"""Heartbeats of serving brokers of Kafka that arrive within this time share one round of probes; each broker sends the next
one only after 2,000 ms. One that starts is answered within FETCH_TICK_MS: it asks again until it may serve."""
HEARTBEAT_LATE_MS: Final = 1_000
"""A heartbeat that waited here this long only renews its session: Kafka's half of a heartbeat interval of 2 s."""
HEARTBEAT_AGAIN_MS: Final = 100
"""Longest wait of a late heartbeat's poll, so that its broker soon repeats its wishes. Kafka's first resend interval."""
FETCH_ANSWERS_KEPT_BYTES: Final = 16 * MIB
"""Of encoded answers that are kept for further polls at the same position."""
FETCH_HEAD_BYTES: Final = 512
"""Of an answer besides its frames, about."""
FEEDS_WAITING_MAX: Final = 500
"""Change feeds that wait at one controller, and streams of them. One commit may concern all, and each then reads the log in
a thread."""
FEEDS_WOKEN_AT_ONCE: Final = 32
"""Of one slice: each goes on in the next turn of the loop, which takes it about 0.1 ms until it waits for its read."""
WATCHERS_MAX: Final = 500
"""Pages that follow one controller by events. Beside what RecentBatches keeps, each holds what its client has not read."""
WATCHERS_PER_PRINCIPAL_MAX: Final = 200
"""Of these, pages of one principal: one that never closes them keeps no other from watching. While identity is off, all
pages together are bounded by WATCHERS_MAX alone."""
FEED_TOPICS_MAX: Final = 100
FEED_WAIT_MAX_MS: Final = 30_000
STREAM_SAYS_MS: Final = 2_000
"""A feed as a stream says this often, without lines, up to where the log was examined: a broker that forwards the stream
knows that the controller is there. Its client's right is looked at before each piece."""
FEED_BYTES_MAX: Final = 64 * MIB
"""Of frames examined for one answer of a feed; the next request goes on after them."""
TOPIC_NAMINGS_KEPT: Final = 10_000
"""Creations and removals of topics, newest first, from which the names at a recent offset are known. For an older offset a
past state is made."""
WAITERS_MAX: Final = 20_000
"""Writes that wait for their commit."""
WAITERS_ENDED_AT_ONCE: Final = 64
"""Of one slice: each writes its answer in the next turn of the loop, which takes about 0.1 ms."""
SNAPSHOT_DOWNLOADS_MAX: Final = 64
SMALL_ANSWER_BYTES: Final = 64 * KIB
"""A larger answer is made in a thread and sent in pieces; it is refused while too much of others is unread."""
ANSWER_PIECE_BYTES: Final = 256 * KIB
"""Of a large answer, made and held at once. A frame of the log that is larger is one piece, and so is a longer line of it:
it is counted with all of its bytes."""
ANSWERS_UNSENT_BYTES_MAX: Final = 48 * MIB
"""Of all answers that clients have not read. Beyond it, large answers are refused with THROTTLING_QUOTA_EXCEEDED. With 2,000
clients that read nothing, a process grows by about twice as much."""
FORWARDS_MAX: Final = 64
"""Requests that one broker has sent on to a controller; further ones are refused with THROTTLING_QUOTA_EXCEEDED. Their
bodies are among BODIES_HELD_BYTES_MAX."""
FOLLOWED_PER_PRINCIPAL_MAX: Final = 24
"""Pages of one principal that follow events through one broker; of all, FORWARDS_MAX."""
FORWARD_ATTEMPTS_MAX: Final = 24
"""Of one forwarded request. With the pauses between rounds they last longer than any election."""
FORWARD_MAX_MS: Final = 10_000
"""No further attempt of a forwarded request begins after this time."""
FORWARD_CONNECT_MAX_MS: Final = 500
FORWARD_SILENCE_MAX_MS: Final = 15_000
"""A forwarded write waits this long for a controller's answer, so that it gets the controller's own REQUEST_TIMED_OUT."""
FORWARD_READ_SILENCE_MAX_MS: Final = 5_000
"""A forwarded read goes on to another controller after this silence."""

# --- threads
READ_THREADS: Final = 1
"""For cold log, past states and large answers. They compute: two of them would leave the loop a third of the interpreter."""
READS_UNFINISHED_MAX: Final = 1_000
"""Reads that run or wait; further ones are refused with THROTTLING_QUOTA_EXCEEDED. An answer under way has one at a time, so
its next piece finds room."""
PAST_STATES_MAX: Final = 4
"""Past states held at once, each until its client has read it."""
PAST_WARM_MAX: Final = 2
"""Past states that the process that reads the past keeps for later questions: the two moments of a timeline."""
PAST_WARM_S: Final = 120
"""They are dropped once nothing was asked for this long: a state of 1,000,000 partitions takes 400 MB."""
PAST_STATES_WAITING_MAX: Final = 256
"""Requests that wait for a past state; further ones are refused with THROTTLING_QUOTA_EXCEEDED."""
PAST_READ_WAIT_MAX_MS: Final = 30_000
"""Lines of the log, or a past state, that have not begun to be made after this time are refused with
THROTTLING_QUOTA_EXCEEDED. It is half of what the command line waits for a byte: a reader learns why, and may ask another
controller, before it gives up. An answer that has begun is made before later ones, however long it takes."""
LINES_HERE_BYTES_MAX: Final = 16 * KIB
"""Frames that a thread turns into lines in a few milliseconds; those of more bytes go to the process that reads the past."""
LARGE_VIEW_ITEMS: Final = 500
"""A listing of more topics, or a topic of more partitions, is made and encoded in a thread, and sent in pieces."""
COLD_FETCHES: Final = 2
"""Polls at once whose frames are read from segments."""
DIRECTORY_CHECK_S: Final = 2.0
"""How often a process checks that its data directory is still there: two calls of stat in a thread."""
FILE_THREADS: Final = 9
"""One for each task that writes, syncs, removes or checks files: none of them waits for another."""
DOWNLOAD_THREADS: Final = 2
"""For the bytes of snapshots that are sent; at most SNAPSHOT_DOWNLOADS_MAX requests wait for them."""
BODIES_UNFINISHED_MAX: Final = 64
"""Large bodies of requests that are decoded, or wait for that; further ones are refused with THROTTLING_QUOTA_EXCEEDED."""
LOGINS_UNFINISHED_MAX: Final = 256
"""Credentials of delegation tokens that are made for logins, or wait for that: 3 s of a thread. Further logins are refused
with THROTTLING_QUOTA_EXCEEDED."""
LOGINS_OF_ADDRESS_MAX: Final = 64
"""Of these, for clients of one address: strangers at a few addresses leave room for others."""
DNS_THREADS: Final = 10
"""One for each controller whose name is looked up."""
THREAD_SWITCH_MS: Final = 0.5
"""A thread that computes hands the interpreter over after this time, each time the loop comes back from its sockets."""

# --- state
REQUEST_RESULTS_MAX: Final = 200_000
REQUEST_RESULT_BYTES_MAX: Final = 64 * MIB
"""Of the answers kept for repeated requests, in the memory of controllers and in their snapshots; the oldest go first."""
REQUEST_RESULT_AGE_MS: Final = 15 * 60 * 1000
REQUEST_RESULT_STEP_MS: Final = 10 * 1000
"""The most that the time between two results adds to their age, so that a quiet log keeps some hundred for longer."""
LOG_TIME_STEP_MS: Final = 10 * 1000
"""The most that the time between two batches adds to the log's time: so little may a clock that jumps end a window early."""
UNDELETE_SWEEP_MS: Final = 2 * 1000
"""How often the active controller looks for deleted topics whose window has passed. While there are any, it also sees to it
that the log is never quiet for longer than half of LOG_TIME_STEP_MS, as the rest of a silence would not count."""
QUIET_MARK_MS: Final = 30 * 1000
"""How long the log is quiet before the active controller writes a mark: at most this much of the time before a failure is
unknown to readers of the log. Kafka marks every 500 ms; each mark wakes every poll, and stays in the log."""
QUIET_CHECK_MS: Final = 5 * 1000
"""How often the active controller looks: a mark is late by no more than that."""
UNDELETE_WINDOW_MS_MAX: Final = 366 * 24 * 60 * 60 * 1000
DELETED_TOPICS_MAX: Final = 10_000
"""Deleted topics that can still be restored: they are listed and looked through as a whole. With so many, further topics can
only be deleted at once."""
UNCOUNTED_BYTES_MAX: Final = 64 * MIB
"""About what changes that wait to be counted in the state digest, and the images between them, take; beyond that each batch
counts some."""
UNCOUNTED_BATCHES_MAX: Final = 2_048
UNCOUNTED_LINES_MAX: Final = 1_000_000
"""The same bound as numbers, so that a request for the digest waits about 3 s at most."""
UNCOUNTED_SMALL_BATCHES_MAX: Final = 64
"""Batches that have no more than LINES_COUNTED_AT_ONCE together. Where 2,048 wait, a write takes 1.2 times as long."""
LINES_COUNTED_AT_ONCE: Final = 1_000
"""Of the state digest, in one turn: about 3 ms."""
LINES_BYTES_COUNTED_AT_ONCE: Final = 1 * MIB
"""Where a state is counted from nothing: long lines end a turn, too, with the line that reaches this."""
PARTITIONS_PER_TOPIC_MAX: Final = RECORDS_PER_BATCH_MAX
CONFIG_VALUE_BYTES_MAX: Final = 32_767
"""As in Kafka, whose length of a value is a signed integer of two bytes."""
TEXT_BYTES_MAX: Final = 255
"""Hosts, racks, listener and feature names."""
DELEGATION_TOKENS_MAX: Final = 100_000
"""Their HMACs take a second or two to make, in slices, once one is looked for after a snapshot was loaded."""
DELEGATION_TOKENS_OF_OWNER_MAX: Final = 1_000
"""An identity is enough to have tokens of its own, so one owner must not take the room of the rest."""
TOKEN_CREDENTIALS_MAX: Final = 10_000
"""Of tokens by which clients logged in last, kept in some 7 MB: to make one takes a thread about 10 ms."""
STATE_CHECK_MS: Final = 30_000
"""How often each node compares its state with the log of a controller."""
STATE_CHECK_RESTS: Final = 100
"""A node rests for this many times as long as the comparison took: of 200,000 partitions it takes about a second."""
STATE_CHECK_PARTITIONS_MAX: Final = 200_000
"""A larger state is not compared: the controller that is asked would hold a second one all the time, in its process that
reads the past."""
STATE_CHECK_BUCKETS: Final = 8
"""Of those that differ, whose lines are asked for: one changed line is in two of them."""
STATE_CHECK_ANSWER_BYTES_MAX: Final = 4 * MIB
"""A larger one counts as none. The lines of one bucket, of 200,000 partitions, take about 150 KiB."""
DIGESTS_KEPT: Final = 8
"""Of past states, that a controller has counted for others: many nodes ask for the same offset."""
LIST_ITEMS_MAX: Final = 1_000
"""Endpoints, features and log directories of one registration; replicas of one partition."""
REQUEST_ITEMS_MAX: Final = 1_000
"""Topics, or resources with settings, of one request that answers each; more go in several requests."""
RACKS_DRAWN_MAX: Final = 20_000
"""Topics that one request places, times racks: each topic draws numbers for each rack, in about 10 microseconds."""
ITEM_MESSAGE_LENGTH_MAX: Final = 300
"""Characters that say why one item was refused: they are kept with the answer to a repeatable request."""
ELECTIONS_PER_SWEEP_MAX: Final = 1_000
"""Elections in one batch of a sweep; the next one follows 10 ms later, as in Kafka."""
ISR_CHANGES_MAX: Final = 1_000
"""Partitions of one AlterPartition: with three members each about 200 KiB, decided and applied in about 10 ms, in slices."""
PARTITIONS_LISTED_MAX: Final = 10_000
"""In one answer, about 5 MB of JSON; the next request goes on after them."""
ELECTIONS_MAX: Final = 1_000
"""Partitions of one ElectLeaders; Kafka's own balancing elects as many in one go."""
REASSIGNMENTS_MAX: Final = 1_000
"""Partitions of one AlterPartitionReassignments; a larger plan goes in several requests."""
NAME_LENGTH_MAX: Final = 249
"""Kafka's longest topic name."""

# --- snapshots
SNAPSHOT_BYTES: Final = 20 * MIB
"""Bytes of new log that make a snapshot due; Kafka's default."""
SNAPSHOT_AGE_MS: Final = 60 * 60 * 1000
SNAPSHOT_ENTRIES: Final = 20_000
"""Applied entries of Raft's log that make a snapshot due although no record does. A quiet quorum commits an empty entry
each second; without a snapshot they would stay for ever."""
SNAPSHOTS_KEPT: Final = 2
SCRUB_EVERY_S: Final = 24 * 3600.0
"""Closed files of the log and snapshots are read once a day, to find bytes that rotted."""
SNAPSHOT_CHUNK_BYTES: Final = 1 * MIB
"""Of a snapshot, asked for in one request."""

PROTOCOL_DEPTH_MAX: Final = 32
CONTROLLERS_MAX: Final = 10
CONTROLLER_REGISTRATIONS_MAX: Final = 100
"""Voters, observers, and those that are gone until an operator removes them; no other node needs to register."""
FIRST_BROKER_ID: Final = 11

CONTROLLER_BUFFER_BYTES_MAX: Final = (
    FETCH_WINDOW_BYTES
    + KAFKA_WINDOW_BYTES
    + KAFKA_UNTRANSLATED_BYTES
    + KAFKA_ANSWERS_KEPT_BYTES
    + FETCH_ANSWERS_KEPT_BYTES
    + COLD_FETCHES * FETCH_BYTES_MAX
    + ANSWERS_UNSENT_BYTES_MAX
    + 2 * SNAPSHOT_DOWNLOADS_MAX * ANSWER_PIECE_BYTES
    + FEEDS_WAITING_MAX * ANSWER_PIECE_BYTES
    + BODIES_HELD_BYTES_MAX
    + EARLY_HELD_BYTES_MAX
    + UNCOUNTED_BYTES_MAX
    + RAFT_UNCOMMITTED_BYTES_MAX
    + RAFT_TAIL_BYTES
    + 2 * RAFT_OUTBOX_BYTES_MAX
    + RAFT_OBSERVERS_OUTBOX_BYTES_MAX
)
"""What one of three controllers buffers at most besides its state, 651 MiB: frames and answers for polls, the newest records
as Kafka's, what clients have not read, pieces of snapshots (one read, one in its connection), the frames that feeds read,
larger bodies of requests, what clients send after their polls, changes that the state digest does not count yet, Raft's
entries, and the outboxes of the links to two voters and to all observers. The kept results of requests
(REQUEST_RESULT_BYTES_MAX) belong to the state. Each further voter adds an outbox. The number of connections bounds what is
small (docs/limits.md)."""


def check_relations() -> None:
    """Check how the bounds depend on each other; each process does so when it starts."""
    # Each container holds what is packed into it.
    assert BATCH_BYTES_MAX < FRAME_BYTES_MAX, "a batch and its envelope fit into a frame"
    assert FRAME_BYTES_MAX < SEGMENT_BYTES, "a frame fits into a file of the log"
    assert FRAME_BYTES_MAX <= FETCH_BYTES_MAX, "a frame fits into the answer to a fetch"
    assert FRAME_BYTES_MAX <= RAFT_ENTRY_BYTES_MAX, "a frame fits into an entry of Raft's log"
    assert RAFT_ENTRY_BYTES_MAX < RAFT_APPEND_BYTES_MAX, "an entry is sent in one append_entries"
    assert RAFT_APPEND_SHARED_BYTES < RAFT_APPEND_BYTES_MAX < RAFT_MESSAGE_BYTES_MAX, (
        "an append_entries fits into a message"
    )
    assert RAFT_IN_FLIGHT_BYTES + RAFT_MESSAGE_BYTES_MAX < RAFT_OUTBOX_BYTES_MAX, (
        "what is in flight fits into a link"
    )
    assert CONTROLLERS_MAX * RAFT_OBSERVER_IN_FLIGHT_BYTES + RAFT_MESSAGE_BYTES_MAX < (
        RAFT_OBSERVERS_OUTBOX_BYTES_MAX
    ), "what is in flight to all observers fits into their links"
    assert RAFT_ENTRY_BYTES_MAX <= RAFT_TAIL_BYTES, "the kept tail holds an entry of any size"
    assert RAFT_ENTRY_BYTES_MAX < JOURNAL_FILE_BYTES, "an entry fits into a file of the journal"
    assert FETCH_BYTES_MAX < FETCH_ANSWERS_KEPT_BYTES, "an answer is kept for the polls that get the same"
    assert (
        ANSWERS_UNSENT_BYTES_MAX // (2 * ANSWER_PIECE_BYTES) + PAST_STATES_WAITING_MAX + FEEDS_WAITING_MAX
        < READS_UNFINISHED_MAX
    ), "answers under way do not fill the queue of reads"
    assert HTTP_BODY_BYTES_MAX < BODIES_HELD_BYTES_MAX, "a body of any size is never refused for ever"
    assert HTTP_EARLY_BYTES_MAX < EARLY_HELD_BYTES_MAX, "one client alone keeps its connection"
    assert HTTP_ARRIVAL_MAX_MS <= HTTP_SILENCE_MAX_MS <= KAFKA_SILENCE_MAX_MS, (
        "a connection in Kafka's protocol is looked at only after the shortest of them"
    )
    assert FRAME_BYTES_MAX < ANSWERS_UNSENT_BYTES_MAX, "an answer of one frame is never refused for ever"
    # Each time is long enough for what happens within it.
    assert 5 * LOOP_SLICE_MS <= HEARTBEAT_MS, (
        "a slice of each kind of long work in one turn delays no heartbeat"
    )
    assert 2 * ROUND_MS + LOOP_SLICE_MS <= HEARTBEAT_MS, "nor do two rounds of decisions and a slice"
    assert LOOP_SLICE_MS < SLOW_DECISION_MS <= ROUND_MS, "a slow decision is longer than a slice"
    assert 5 * PART_MS <= ROUND_MS, "to make a part of a long change takes no longer than a round"
    assert LOOP_PAUSE_MS < LOOP_SLICE_MS, "what rests is done in the end"
    assert 3 * HEARTBEAT_MS <= ELECTION_TIMEOUT_MIN_MS, "one lost heartbeat starts no election"
    assert ELECTION_TIMEOUT_MIN_MS < ELECTION_TIMEOUT_MAX_MS, (
        "election timeouts differ, so that votes do not split"
    )
    assert ELECTION_TIMEOUT_MAX_MS < COMMIT_TIMEOUT_MS, "a write outlives an election"
    assert COMMIT_TIMEOUT_MS < FORWARD_SILENCE_MAX_MS, "a broker gets the controller's answer to a write"
    assert 2 * STREAM_SAYS_MS < FORWARD_READ_SILENCE_MAX_MS, "a stream without lines is not cut by a broker"
    # Clients leave a node the connections and files that it needs.
    assert PARKED_OBSERVERS_MAX + BROKERS_MAX < HTTP_CONNECTIONS_MAX, (
        "each broker and observer may park a fetch"
    )
    assert PARKED_OBSERVERS_MAX < HTTP_CONNECTIONS_PER_ADDRESS * HTTP_CONNECTIONS_MAX, (
        "all observers may come by one proxy"
    )
    assert OBSERVERS_AT_LEADER_MAX < PARKED_OBSERVERS_MAX, (
        "observers are sent to followers before they are refused"
    )
    assert HTTP_ACCEPTS_PER_TURN + RAFT_HANDSHAKES_MAX < FILES_RESERVED, (
        "connections that are not counted yet have files"
    )
