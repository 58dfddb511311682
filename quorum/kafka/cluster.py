"""Edge: what a client asks first: which requests and features this controller knows, and which controllers there are."""

from functools import cache
from typing import Any, Final

from metadata_log.kafka.messages import ANSWERS, API_VERSIONS, REQUESTS, answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.records.acls import AclOperation
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL
from quorum.decide.features import supported as supported_levels
from quorum.kafka.door import NO_THROTTLE, Api, Asked, AtOnce, KafkaDoor
from quorum.kafka.errors import NONE, UNSUPPORTED_VERSION, KafkaError, whole
from quorum.kafka.fetches import kafka_address

DESCRIBE_CLUSTER: Final = 60
BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints."""
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115
_OPERATIONS: Final = (
    *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
    *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
ALL_OPERATIONS: Final = sum(1 << operation for operation in _OPERATIONS)
"""What a caller may do with the cluster, as Kafka answers without an authorizer: a bit for each operation."""
NOT_ASKED: Final = -(1 << 31)
KRAFT_VERSION: Final = "kraft.version"
NO_EPOCH: Final = -1
FEATURES_FROM_0: Final = 4
"""From this version of the answer on clients take a feature whose lowest level is 0. Source: KIP-1022."""


@cache
def known_versions() -> bytes:
    """Return the answer, in the oldest version, to a request for versions in one that is newer than those known here."""
    keys = ((API_VERSIONS, *REQUESTS[API_VERSIONS].versions),)
    return answer_tail(API_VERSIONS, 0, _values(keys, error=UNSUPPORTED_VERSION))


def api_versions(door: KafkaDoor, asked: Asked) -> bytes:
    version, image = asked.version, door.controller.committed
    finalized = tuple((name, level, level) for name, level in sorted(image.features.items()))
    kraft_version = image.quorum.kraft_version
    if kraft_version:
        finalized = (*finalized, (KRAFT_VERSION, kraft_version, kraft_version))
    known = supported_levels(unstable=door.settings.features.unstable_levels)
    supported = [*((name, *levels) for name, levels in sorted(known.items()))]
    supported.append((KRAFT_VERSION, 0, KRAFT_VERSION_LEVEL))
    if version < FEATURES_FROM_0:
        supported = [feature for feature in supported if feature[1] > 0]
    values = _values(door.advertised, tuple(supported), image.end_offset - 1, finalized)
    return answer_tail(API_VERSIONS, version, values)


def _values(
    keys: Any, supported: Any = (), epoch: int = NO_EPOCH, finalized: Any = (), *, error: int = NONE
) -> Values:
    return (error, keys, NO_THROTTLE, supported, epoch, finalized, False)


def describe_cluster(door: KafkaDoor, asked: Asked) -> Values:
    """Describe the controllers: a tool that connects to one asks for them, and goes to the one that leads."""
    with_operations, endpoint_type, _ = asked.values
    if endpoint_type != CONTROLLERS:
        code, what = MISMATCHED_ENDPOINT_TYPE, "brokers: ask one of them"
        if endpoint_type != BROKERS:
            code, what = UNSUPPORTED_ENDPOINT_TYPE, f"type {endpoint_type}"
        error = KafkaError(code, f"a controller describes controllers, and no endpoints of {what}")
        return whole(ANSWERS[DESCRIBE_CLUSTER], error)
    image = door.controller.committed
    node_ids = {*image.controllers, *(voter.node_id for voter in image.quorum.voters or ())}
    controllers = [
        (node_id, *address, None, False)
        for node_id in sorted(node_ids)
        if (address := kafka_address(image, node_id)) is not None
    ]
    return (
        NO_THROTTLE,
        NONE,
        None,
        endpoint_type,
        door.settings.cluster_id,
        door.kafka_log.fetches.leadership().leader,
        controllers,
        ALL_OPERATIONS if with_operations else NOT_ASKED,
    )


APIS: Final = (
    Api(API_VERSIONS, AtOnce(api_versions), operation=None),
    Api(DESCRIBE_CLUSTER, AtOnce(describe_cluster), "DescribeCluster"),
)
