"""Pure: the rules that tests carry by their ids: what the founding documents say (A), what Kafka 4.3.1 does (B), and what
this project has beyond both (C).

A row has a meaning in one line, or, where it asks for no code, the reason why no test can carry it.
"""

from typing import Final, NamedTuple


class Row(NamedTuple):
    """A row that a test must carry, unless one of its reasons says why not."""

    meaning: str
    untested: str = ""
    """It asks for no code here, or for a measurement."""
    not_built: str = ""
    """What stands in its place, or what is missing for it."""

    @property
    def reason(self) -> str:
        """Why no test carries it; empty: one must."""
        return f"not built: {self.not_built}" if self.not_built else self.untested


_LEADERS_ONLY: Final = "a count of messages between designs; this one has one leader, and nothing to choose"
_NO_ZOOKEEPER: Final = "there is no cluster with ZooKeeper to come from"
_FETCHED: Final = "there are no watches and no queues of events: brokers and controllers follow one log (A97)"
_GROUPS: Final = (
    "consumer groups and their offsets are the brokers' own; the metadata log has nothing of them"
)

ROWS: Final = {
    # replication, placement, ISR and high watermark
    "A1": Row("Replication through a leader needs fewer links than among peers", _LEADERS_ONLY),
    "A2": Row("A majority vote: 2N + 1 replicas survive N losses"),
    "A3": Row("An ISR: N + 1 replicas survive N losses, after as many acknowledgements"),
    "A4": Row(
        "Two recipes of ZooKeeper for the election of a leader",
        "there is no ZooKeeper: controllers vote (A34), and a controller names the leaders of partitions (A31)",
    ),
    "A5": Row("Round-robin placement: replica j of partition i on broker (i + j) mod n"),
    "A6": Row("The same for fewer partitions than brokers; no more replicas than brokers"),
    "A7": Row("As many partitions as brokers; the replicas of one on different brokers"),
    "A8": Row("A follower that stops fetching leaves the ISR, and the others go on"),
    "A9": Row("A follower that returns truncates to its high watermark, and fetches from there"),
    "A10": Row("The high watermark is what every member of the ISR has"),
    "A11": Row("The leader shrinks and grows its ISR by lag, and adopts what the controller accepted"),
    "A12": Row("A write is answered once the ISR has it"),
    "A13": Row("A leader counts as a replica; a follower serves no client"),
    "A14": Row("A follower stays in the ISR for replica.lag.time.max.ms; the leader always"),
    "A15": Row("A follower waits for less time than the one after which it is removed"),
    "A16": Row("Who has caught up is in the ISR again, without an operator"),
    "A17": Row(
        "Leaders push to followers",
        "the documents contradict each other, and pulling won: followers fetch, from leaders as from controllers (A97)",
    ),
    "A18": Row("Three generations of replication", "history: the third became this design"),
    # the layout in ZooKeeper, and what the old controller was told
    "A19": Row("The paths of the first design in ZooKeeper", _NO_ZOOKEEPER),
    "A20": Row("The paths of the second design in ZooKeeper", _NO_ZOOKEEPER),
    "A21": Row("The paths of the third design in ZooKeeper", _NO_ZOOKEEPER),
    "A22": Row("Paths in ZooKeeper for changes that are asked for", _NO_ZOOKEEPER),
    "A23": Row("Which broker watches which path", _FETCHED),
    "A24": Row("A leader change does not wait behind other work"),
    "A25": Row("The loss of a broker is one batch for everybody, however many partitions it has"),
    "A26": Row(
        "How a replica starts, elects and follows",
        "controllers alone elect (A31), and brokers read what to lead and follow (A56)",
    ),
    "A27": Row("Each input of the old controller is one named operation"),
    "A28": Row("What a controller keeps beside the log follows from the log"),
    "A29": Row("The image has brokers, topics, assignments, replicas, leaders and ISRs"),
    "A30": Row("Periodic work runs on the active controller alone"),
    # the controller's duties, its election, its epoch
    "A31": Row("A leader changes by a record of the controller alone"),
    "A32": Row("The controller's duties: leaders, topics, reassignments"),
    "A33": Row("A decision is stored first, then told"),
    "A34": Row("One controller is active; after its end exactly one other"),
    "A35": Row(
        "Controllers that stand by hold no state",
        "KRaft won: they replay all the time, and take over at once (A95)",
    ),
    "A36": Row("Each of three triggers is one election, and the epoch grows by one"),
    "A37": Row("Of controllers that start together exactly one becomes active"),
    "A38": Row("A lower controller epoch is refused, an equal one accepted; a higher one ends the reign"),
    "A39": Row("What a new controller does, in order"),
    "A40": Row("A controller that resigns stops its work and refuses who waits"),
    "A41": Row("A new controller looks for leaders where there are none; a loser does nothing"),
    "A42": Row("The controller's own loss elects another before brokers are fenced"),
    "A43": Row("A controller that slept writes nothing more, and no epoch has two writers"),
    "A44": Row("A leader that slept changes no ISR under its old epoch"),
    "A45": Row(
        "Messages through ZooKeeper's queue or directly",
        "a count of messages between designs; brokers fetch the log (A97)",
    ),
    "A46": Row("A failover of 10,000 partitions is a few writes, not 10,000"),
    "A47": Row("Between a change of leaders and the new leader's readiness the old one changes nothing"),
    # leaders of partitions, and the life of brokers
    "A48": Row("The loss of a broker: leader 2, ISR [2, 3]"),
    "A49": Row("All partitions of a broker that goes are decided in order, each epoch grows by one"),
    "A50": Row("A clean election takes the first live member of the ISR"),
    "A51": Row("An unclean election where it is allowed; else nobody"),
    "A52": Row("Whom the loss of a broker concerns"),
    "A53": Row("A live member of the ISR, else any survivor, else none"),
    "A54": Row("A new topic: the first live replica leads, the ISR are the live ones"),
    "A55": Row("A topic's end is one record, and brokers remove their replicas"),
    "A56": Row(
        "A broker starts, leads and follows as the image says, and drops what a whole image does not list"
    ),
    "A57": Row("What becoming a leader or a follower means for a replica"),
    "A58": Row("What stopping a replica means"),
    "A59": Row("The high watermark may go back after a failover"),
    "A60": Row("A broker that starts drops replicas that are no longer assigned"),
    "A61": Row("A broker that comes is given the leaderless partitions it may lead"),
    "A62": Row("A broker that goes: partitions first, then its fencing; the others read both at once"),
    "A63": Row("Leaders drift from first replicas, and a preferred election brings them back"),
    "A64": Row("Leaderships are balanced at an interval, for brokers beyond a threshold"),
    # what acknowledged records survive
    "A65": Row("acks 0, 1 and all"),
    "A66": Row("A change of controllers loses records under acks=1"),
    "A67": Row("acks=1, the first loss: 123 records"),
    "A68": Row("acks=1, the second loss: 15,409 records, or a partition without a leader"),
    "A69": Row("acks=all waits for the slowest of the ISR"),
    "A70": Row("acks=all loses nothing until an unclean election"),
    "A71": Row("min.insync.replicas=2 loses nothing, and refuses"),
    "A72": Row("Five replicas and min.insync.replicas=3 bear two losses"),
    "A73": Row("unclean.leader.election.enable is false unless somebody sets it"),
    "A74": Row("When to choose availability before durability"),
    "A75": Row("A client finds the new leader through any address that it has"),
    # groups of consumers
    "A76": Row("A partition goes to one consumer of a group", _GROUPS),
    "A77": Row("A new group starts at the newest position", _GROUPS),
    "A78": Row("At least once: process, then commit the offset", _GROUPS),
    "A79": Row("A key chooses a partition", _GROUPS),
    "A80": Row("A partition more: old records stay", _GROUPS),
    "A81": Row("Three modes of delivery"),
    "A82": Row("Two kinds of coordinators", _GROUPS),
    "A83": Row("How members join a group", _GROUPS),
    "A84": Row("A new owner starts at the committed offset", _GROUPS),
    "A85": Row("Offsets are committed every five seconds", _GROUPS),
    "A86": Row("Offsets are committed by hand", _GROUPS),
    "A87": Row("Offsets in ZooKeeper", _GROUPS),
    # the metadata log
    "A88": Row("Metadata is a log: equal offsets are equal images"),
    "A89": Row("Lost fetches are made up for: every broker ends with the same image"),
    "A90": Row("A broker that restarts fetches only what is new"),
    "A91": Row("A quorum of one elects itself and serves"),
    "A92": Row("Three controllers and four brokers converge"),
    "A93": Row("Three controllers survive one loss, five survive two; without a majority nothing is written"),
    "A94": Row("All metadata is in the log"),
    "A95": Row("A controller that takes over applies the end of the log, never a snapshot"),
    "A96": Row("A snapshot and the log behind it are the whole log"),
    "A97": Row("A broker that stands at 100 of 120 fetches 100 to 119"),
    "A98": Row("An image instead of the log for who is far behind or has nothing"),
    "A99": Row("A fetch is the heartbeat: silence fences, a fetch may unfence"),
    "A100": Row(
        "A million partitions are loaded from the disk within a budget",
        "a time: `bench broker-start` measures it, docs/measurements.md has it; tests assert no times",
    ),
    "A101": Row("A read-only client may follow the same log"),
    "A102": Row("A broker registers, and is removed after long silence"),
    "A103": Row("A broker that is cut off stops serving"),
    "A104": Row("Offline, Fenced, Online, Stopping"),
    "A105": Row("A stop moves leaderships first, and ends at a deadline"),
    "A106": Row("Brokers forward what controllers alone may do, with the same single record"),
    "A107": Row("ISRs change through the controller"),
    "A108": Row("No tool reads the files of a running node behind its back"),
    "A109": Row("Old shapes are accepted at a broker"),
    "A110": Row("A release that bridges two designs", "there is no cluster with ZooKeeper to come from"),
    "A111": Row("A rolling upgrade from ZooKeeper", "there is no cluster with ZooKeeper to come from"),
    "A112": Row("No pluggable consensus: one Raft, behind one door"),
    # the library under Raft
    "B1": Row("Term and vote survive a loss of power"),
    "B2": Row("Nothing is promised before it is synced"),
    "B3": Row("A leader that hears no majority steps down"),
    "B4": Row("A node that is cut off raises no term, and a live leader is not voted away"),
    "B5": Row("Observers follow, are listed and are not counted"),
    "B6": Row("Leadership is handed over, to a follower that has the whole log"),
    "B7": Row("One voter comes or goes at a time, and a disk has an id"),
    "B8": Row("The log is trimmed behind a snapshot, and who was away fetches that"),
    "B9": Row("An outcome may be unknown, and says so"),
    "B10": Row("Nothing that arrives is unpickled"),
    "B11": Row("The timers of the library", "they are not used: the guard keeps time by RaftSettings"),
    # registration, heartbeat, controlled shutdown
    "B12": Row("The requests that controllers answer"),
    "B13": Row("A broker of another cluster is refused"),
    "B14": Row("A broker id belongs to one incarnation while its session lasts"),
    "B15": Row("A new incarnation gets a new epoch and starts fenced; the same keeps both"),
    "B16": Row("A broker must support every finalized level"),
    "B17": Row("Log directories: some, none twice, none reserved, none of another broker"),
    "B18": Row("An unknown broker or another epoch is refused"),
    "B19": Row("A broker that is removed leaves every ISR; its replicas stay assigned"),
    "B20": Row("The states of a broker, and what a heartbeat is told of them"),
    "B21": Row("The transitions between these states"),
    "B22": Row("Caught up is who has applied its own registration"),
    "B23": Row("A shutdown is over once the slowest active broker knows of it"),
    "B24": Row("Silent brokers are fenced one at a time"),
    "B25": Row("A late heartbeat renews the session and changes nothing else"),
    "B26": Row("What a heartbeat carries and is answered"),
    "B27": Row("The order of records: fencing, return, shutdown, unclean restart"),
    "B28": Row("A broker's own states and times"),
    "B29": Row("Several brokers fenced, each on what the one before left"),
    # changes of partitions
    "B30": Row("Preferred, online and unclean elections"),
    "B31": Row("A valid leader: in the ISR, or eligible; active; its directory online"),
    "B32": Row("An unclean leader is the ISR, and recovering"),
    "B33": Row("The leader epoch grows where a leader is named, the partition epoch always"),
    "B34": Row("A replica list that drops one raises the leader epoch"),
    "B35": Row("The last member keeps its seat; with eligible replicas the ISR may be empty"),
    "B36": Row("No change is no record"),
    "B37": Row("The recovery state lasts until the leader says so"),
    "B38": Row("Eligible leader replicas while the ISR is too small"),
    "B39": Row("The last known leader, where nobody is in sync or eligible"),
    "B40": Row("Eligible replicas need min.insync.replicas of the cluster, and its change clears them"),
    "B41": Row("The order of checks of AlterPartition"),
    "B42": Row("Who may not join an ISR"),
    "B43": Row("An ISR that moves the leader is written and answered NEW_LEADER_ELECTED"),
    "B44": Row("What comes and what goes in a reassignment"),
    "B45": Row("When a reassignment is complete"),
    "B46": Row("A leader that loses its seat leads no longer, though nobody else may"),
    "B47": Row("A reassignment is taken back"),
    "B48": Row("A reassignment over a running one"),
    "B49": Row("What an assignment by hand may not be"),
    "B50": Row("Preferred leaders every 300 s, 1,000 elections at a time"),
    "B51": Row("Unclean elections where the setting allows them: topic, node, cluster, static"),
    "B52": Row("Elections that are asked for"),
    "B53": Row("The creation of topics"),
    "B54": Row("Names of topics"),
    "B55": Row("More partitions for a topic"),
    "B56": Row("Topics have ids, and end by name or id"),
    "B57": Row("Striped placement"),
    "B58": Row("Log directories that fail, and replicas that move between them"),
    # Raft, the log and snapshots
    "B59": Row(
        "The states of Kafka's Raft client", "the engine has three; voters, links and pre-votes say the rest"
    ),
    "B60": Row(
        "The timers of Kafka's Raft client",
        "another engine, other times: RaftSettings has them, `bench failover` measures them",
    ),
    "B61": Row("Two of four followers keep a leader, an observer does not, and a voter alone needs nobody"),
    "B62": Row("What is committed is on a majority, by an entry of the leader's own term"),
    "B63": Row("Which position is sent the log, a snapshot, or back"),
    "B64": Row("Snapshots are fetched in ranges; a missing one and a range beyond it have their errors"),
    "B65": Row("A snapshot is due by bytes or by age, at the end of a batch"),
    "B66": Row("The id of a snapshot: 20 digits of its end offset, ten of its epoch"),
    "B67": Row("A snapshot has a header, its records in order, and a footer"),
    "B68": Row("Old snapshots go; the newest and the pinned stay"),
    "B69": Row("The quorum describes its voters and observers, and how far each is"),
    "B70": Row("Which controllers may become voters, and cease to be"),
    "B71": Row("Before a candidacy a node asks whether it could win"),
    "B72": Row("Whole quorums under drawn faults keep every property of Raft"),
    "B73": Row("A refusal waits for the records that it rests on"),
    "B74": Row("A request of more records than a batch holds is refused"),
    "B75": Row("Lost leadership, a stop and an unforeseen error have their answers"),
    "B76": Row("A transaction counts at its end, an aborted one never"),
    "B77": Row("The records of a first claim"),
    "B78": Row("A quiet log gets a record now and then"),
    "B79": Row("An unknown record, or one with bytes too many, is refused by name"),
    # features
    "B80": Row("The levels of metadata.version, and what each brought"),
    "B81": Row("A feature is finalized where everybody supports the level"),
    "B82": Row("What a lower level would lose"),
    # settings, and producers
    "B83": Row("Settings: set, delete, append, subtract, replace"),
    # rights and quotas
    "B84": Row("ACLs"),
    "B85": Row("SCRAM credentials"),
    "B86": Row("Quotas of clients"),
    "B87": Row("Delegation tokens"),
    "B88": Row("Producer ids in blocks, never backwards"),
    # tools and metrics
    "B89": Row("The states of a migration from ZooKeeper", _NO_ZOOKEEPER),
    "B90": Row("`quorum status` and changes of voters on the command line"),
    "B91": Row(
        "A shell over one snapshot",
        not_built="`state`, `log` and SQL read any offset; there is no prompt that walks like a file system",
    ),
    "B92": Row("The log is dumped, record by record"),
    "B93": Row("Directories are formatted once, and described"),
    "B94": Row("Features are listed, upgraded and tried on the command line and over HTTP"),
    "B95": Row("Metrics of the quorum, with their values"),
    "B96": Row("Metrics of the controller, with their values"),
    "B97": Row("Metrics of brokers, with their values"),
    "B98": Row("Defaults of topics: one in sync, no unclean election, kept for seven days"),
    # beyond both
    "C1": Row("The state at any offset, and the difference of two"),
    "C2": Row("Every change says why"),
    "C3": Row("Every change says who asked for it"),
    "C4": Row("A dry run of a loss has the records that the loss then writes"),
    "C5": Row("Spark reads the log, and adds up to the same state"),
    "C6": Row(
        "A guided recovery after the loss of a majority",
        not_built="two of three disks that are lost for good end a quorum; ops/runbooks/no-leader.md says what can be saved",
    ),
    "C7": Row("A controller is ready only while it commits, and says why not"),
    "C8": Row("Nodes that hold different states at one offset are named"),
    "C9": Row("Everybody who stands in the way of a feature is named at once"),
    "C10": Row("A repeated request gets its first answer, also from the next controller"),
    "C11": Row("The fencing of a broker has a verdict: broker, network or controller"),
    "C12": Row("Balancing respects a threshold, and its preview is what it writes"),
    "C13": Row("A deleted topic can be had back for a while"),
    "C14": Row("What a downgrade would lose is listed before"),
    "C15": Row("A doubtful image makes no broker delete data"),
    "C16": Row("Large changes are made in parts, or refused before anything is written"),
    "C17": Row("Snapshots and images do not hold the loop"),
    "C18": Row("An export says what it holds, hides secrets, and keeps unknown records"),
    "C19": Row("A feed of changes that skips nothing and repeats nothing"),
    "C20": Row(
        "A file declares the state that shall be",
        not_built="plans are made for reassignments alone; all else is a command",
    ),
    "C21": Row("Reassignments have a history, and a stuck one has its reason"),
    "C22": Row("A broker that stopped cleanly is back at once; one that was killed waits"),
    "C23": Row("How far behind each broker is"),
}
