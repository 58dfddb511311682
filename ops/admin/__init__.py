"""Edge: the client library of administrators: `connect` to a cluster, ask it, change it (docs/administer-in-python.md)."""

from ops.admin.cluster import Cluster
from ops.admin.connect import NoBootstrap, connect
from ops.admin.exchange import Unreachable
from ops.given import Misuse

__all__ = ["Cluster", "Misuse", "NoBootstrap", "Unreachable", "connect"]
