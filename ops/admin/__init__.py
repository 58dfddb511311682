"""Edge: the client library of administrators: `connect` to a cluster, ask it, change it (docs/administer-in-python.md)."""

from ops.admin.client import Unreachable
from ops.admin.cluster import Broker, Cluster, Partition, Reassignment, Topic
from ops.admin.connect import NoBootstrap, connect
from ops.admin.items import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT,
    REASSIGN,
    REPLACE_CONFIGS,
    UNDELETE_TOPICS,
)
from ops.given import Misuse

__all__ = [
    "ALTER_CONFIGS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "ELECT",
    "REASSIGN",
    "REPLACE_CONFIGS",
    "UNDELETE_TOPICS",
    "Broker",
    "Cluster",
    "Misuse",
    "NoBootstrap",
    "Partition",
    "Reassignment",
    "Topic",
    "Unreachable",
    "connect",
]
