"""Pure: where a Kafka that keeps its metadata in ZooKeeper keeps what: the paths of 3.9, and those of its earlier designs.

The first design had a node for the replicas, the leader and the ISR of each partition; the second one for leader and ISR;
the third is that of 0.8 to 3.9. Source: Kafka's wiki, "Kafka Replication"; kafka.zk.ZkData of 3.9.
Tests: tests/unit/metadata_log/zookeeper/test_layout.py.
"""

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class Node(NamedTuple):
    """A node of the tree, as it was read; `version` counts the changes of its data, `is_parent`: others lie below it."""

    path: str
    data: bytes
    version: int = 0
    is_ephemeral: bool = False
    is_parent: bool = False


class Kind(enum.Enum):
    """What a node says; the value is what a list of nodes calls it."""

    FOLDER = "a folder"
    NOTIFICATION = "a notification, which says only that another node changed"
    BROKER = "a broker that runs"
    BROKER_SEQUENCE = "the counter of generated broker ids"
    CONTROLLER = "the controller"
    CONTROLLER_EPOCH = "the controller's epoch"
    CLUSTER_ID = "the cluster's id"
    TOPIC = "a topic"
    REPLICAS = "the replicas of a partition"
    LEADER = "the leader of a partition"
    ISR = "the ISR of a partition"
    STATE = "the leader and the ISR of a partition"
    REASSIGNMENTS = "reassignments that were asked for"
    REASSIGNED = "a reassignment of a partition"
    ADDED = "a partition to add"
    REMOVED = "a partition to remove"
    DELETION = "the deletion of a topic"
    PREFERRED_ELECTIONS = "elections of preferred leaders that were asked for"
    TOPIC_SETTINGS = "a topic's settings"
    BROKER_SETTINGS = "a broker's settings"
    USER = "a user's credentials and quotas"
    USER_CLIENT = "quotas of a user's client"
    CLIENT = "quotas of a client id"
    IP = "quotas of an address"
    ACLS = "ACLs of a resource"
    PREFIXED_ACLS = "ACLs of resources whose names begin so"
    PRODUCER_IDS = "the newest block of producer ids"
    FEATURES = "the finalized features"
    TOKEN = "a delegation token"  # noqa: S105 what it is
    MIGRATION = "a migration to KRaft"
    OLD_OFFSETS = "offsets of consumers, which they kept in ZooKeeper before 0.9"
    OF_ZOOKEEPER = "ZooKeeper's own"


_PATHS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.FOLDER: (
        *("", "admin", "admin/delete_topics", "admin/partitions_reassigned", "admin/partitions_reassigned/*"),
        *("admin/partitions_add", "admin/partitions_add/*", "admin/partitions_remove"),
        *("admin/partitions_remove/*", "brokers", "brokers/ids", "brokers/topics"),
        *("brokers/partitions_reassigned", "brokers/partitions_reassigned/*", "brokers/topics/*/*"),
        *("brokers/topics/*/partitions/*", "cluster", "config", "config/brokers", "config/changes"),
        *("config/clients", "config/ips", "config/topics", "config/users", "config/users/*/clients"),
        *("delegation_token", "delegation_token/tokens", "delegation_token/token_changes"),
        *("isr_change_notification", "kafka-acl", "kafka-acl/*", "kafka-acl-changes"),
        *("kafka-acl-extended", "kafka-acl-extended/prefixed", "kafka-acl-extended/prefixed/*"),
        *("kafka-acl-extended-changes", "log_dir_event_notification"),
    ),
    Kind.NOTIFICATION: (
        *("config/changes/*", "delegation_token/token_changes/*", "isr_change_notification/*"),
        *("kafka-acl-changes/*", "kafka-acl-extended-changes/*", "log_dir_event_notification/*"),
    ),
    Kind.BROKER: ("brokers/ids/*",),
    Kind.BROKER_SEQUENCE: ("brokers/seqid",),
    Kind.CONTROLLER: ("controller",),
    Kind.CONTROLLER_EPOCH: ("controller_epoch",),
    Kind.CLUSTER_ID: ("cluster/id",),
    Kind.TOPIC: ("brokers/topics/*",),
    Kind.REPLICAS: ("brokers/topics/*/*/replicas",),
    Kind.LEADER: ("brokers/topics/*/*/leader",),
    Kind.ISR: ("brokers/topics/*/*/ISR",),
    Kind.STATE: (
        *("brokers/topics/*/partitions/*/state", "brokers/topics/*/*/state"),
        *("brokers/topics/*/*/leaderAndISR", "brokers/topics/*/partitions/*/leaderAndISR"),
    ),
    Kind.REASSIGNMENTS: ("admin/reassign_partitions",),
    Kind.REASSIGNED: ("admin/partitions_reassigned/*/*", "brokers/partitions_reassigned/*/*"),
    Kind.ADDED: ("admin/partitions_add/*/*",),
    Kind.REMOVED: ("admin/partitions_remove/*/*",),
    Kind.DELETION: ("admin/delete_topics/*",),
    Kind.PREFERRED_ELECTIONS: ("admin/preferred_replica_election",),
    Kind.TOPIC_SETTINGS: ("config/topics/*",),
    Kind.BROKER_SETTINGS: ("config/brokers/*",),
    Kind.USER: ("config/users/*",),
    Kind.USER_CLIENT: ("config/users/*/clients/*",),
    Kind.CLIENT: ("config/clients/*",),
    Kind.IP: ("config/ips/*",),
    Kind.ACLS: ("kafka-acl/*/*",),
    Kind.PREFIXED_ACLS: ("kafka-acl-extended/prefixed/*/*",),
    Kind.PRODUCER_IDS: ("latest_producer_id_block",),
    Kind.FEATURES: ("feature",),
    Kind.TOKEN: ("delegation_token/tokens/*",),
    Kind.MIGRATION: ("migration",),
    Kind.OLD_OFFSETS: ("consumers",),
    Kind.OF_ZOOKEEPER: ("zookeeper",),
}
"""Below the root, where `*` is any name; the first that fits counts, and those with a name in that place before others."""
NOT_ENTERED: Final = frozenset({Kind.OLD_OFFSETS, Kind.OF_ZOOKEEPER})
"""What lies below these is not looked at."""


class Place(NamedTuple):
    """The kind of a node, and the names that its path has in the places of `*`."""

    kind: Kind
    names: tuple[str, ...]


def _by_length() -> Mapping[int, Sequence[tuple[Kind, tuple[str, ...]]]]:
    found: defaultdict[int, list[tuple[Kind, tuple[str, ...]]]] = defaultdict(list)
    for kind, paths in _PATHS.items():
        for path in paths:
            parts = tuple(path.split("/"))
            found[len(parts)].append((kind, parts))
    for rows in found.values():
        rows.sort(key=lambda row: row[1].count("*"))
    return found


_BY_LENGTH: Final = _by_length()


def place_of(path: str) -> Place | None:
    """Return what a node at an absolute path is; None: no Kafka up to 3.9 has a node there."""
    parts = tuple(path.strip("/").split("/"))
    for kind, pattern in _BY_LENGTH.get(len(parts), ()):
        if all(wanted in ("*", part) for wanted, part in zip(pattern, parts, strict=True)):
            return Place(
                kind, tuple(part for wanted, part in zip(pattern, parts, strict=True) if wanted == "*")
            )
    return None


def is_entered(path: str) -> bool:
    """Answer whether what lies below a node is looked at: below unknown nodes, nothing is."""
    place = place_of(path)
    return place is not None and place.kind not in NOT_ENTERED
