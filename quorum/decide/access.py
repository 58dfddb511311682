"""Pure: what a caller needs for an operation: a right of its role, and what the operation does to which resources.

The types of resources and what is done to them are Kafka's, so that ACL records can name them. Source: Kafka's ResourceType
and AclOperation; its ControllerApis for what each request needs. Tests: tests/unit/quorum/controller/test_callers.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.rights import Right
from metadata_log.records.acls import AclOperation, ResourceType


class Resource(NamedTuple):
    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}"


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")


def topic_resource(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def _whole_cluster(_command: Any, _image: MetadataImage) -> Iterable[Resource]:
    return (CLUSTER,)


class Access(NamedTuple):
    """What one operation needs.

    `resources` returns those that a command names; the image has the names of topics that it names by id. Of an operation
    that decides nothing, the door names them. `sender` returns the node that alone may send the command, `Broker:11`; None:
    any client with the right may.
    """

    right: Right
    does: AclOperation
    resources: Callable[[Any, MetadataImage], Iterable[Resource]] = _whole_cluster
    sender: Callable[[Any], str] | None = None


BY_BROKER: Final = Access(
    Right.BROKER, AclOperation.CLUSTER_ACTION, sender=lambda command: f"Broker:{command.broker_id}"
)
BY_CONTROLLER: Final = Access(
    Right.CONTROLLER,
    AclOperation.CLUSTER_ACTION,
    sender=lambda command: f"Controller:{command.controller_id}",
)
ALTERS_CLUSTER: Final = Access(Right.CLUSTER, AclOperation.ALTER)
ALTERS_PARTITIONS: Final = Access(Right.ALTER, AclOperation.ALTER)
"""Kafka asks for ALTER on the cluster."""
DESCRIBES: Final = Access(Right.READ, AclOperation.DESCRIBE)
DESCRIBES_CONFIGS: Final = Access(Right.READ, AclOperation.DESCRIBE_CONFIGS)
FETCHES: Final = Access(Right.RAW, AclOperation.CLUSTER_ACTION)
FETCH: Final = "Fetch"
"""The log itself, by observers and in frames. A broker's poll is its BrokerHeartbeat."""
OF_NO_SUBJECT: Final[Mapping[str, Access]] = {
    "Batch": Access(Right.ALTER, AclOperation.ALTER),  # and each of its commands what it needs itself
    "DescribeHealth": Access(Right.OPEN, AclOperation.DESCRIBE),
    "DescribeLog": DESCRIBES,
    "DescribeMetrics": DESCRIBES,
    "DescribeState": DESCRIBES,
    "Envelope": Access(
        Right.BROKER, AclOperation.CLUSTER_ACTION
    ),  # and the request in it what that needs itself
    FETCH: FETCHES,
    "FetchSnapshot": FETCHES,
    "ListPrincipals": Access(Right.PRINCIPALS, AclOperation.DESCRIBE),
    "ListSnapshots": DESCRIBES,
    "LogIn": Access(Right.OPEN, AclOperation.DESCRIBE),
    "ShowConsole": Access(Right.OPEN, AclOperation.DESCRIBE),
    "TakeSnapshot": ALTERS_CLUSTER,
}
"""Operations that decide nothing, by name; a subject's file has its own as OTHER_OPERATIONS."""
