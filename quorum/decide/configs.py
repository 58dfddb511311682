"""Pure: what settings may be, and what a change of them is written as.

Settings of a topic are checked by name and value; those of a broker and of the cluster are not, as a broker may be newer
than its controller. Source: Kafka's ConfigurationControlManager; the table is its LogConfig.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from metadata_log.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from metadata_log.ids import BrokerId
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC, ConfigRecord
from metadata_log.wire.commands import AlterConfigs
from metadata_log.wire.shapes import INT32_MAX, INT64_MAX
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision


class ConfigsAltered(NamedTuple):
    """All settings of one resource after the change, by name, secrets masked."""

    resource_type: int
    resource_name: str
    settings: tuple[tuple[str, str], ...]


Check = Callable[[str], str | None]
"""Returns what is wrong with a value, if anything is."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def _integer(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        if not _INTEGER.fullmatch(value):
            return "not an integer"
        return None if low <= int(value) <= high else f"not from {low} to {high}"

    return check


def _int32(low: int = -INT32_MAX - 1, high: int = INT32_MAX) -> Check:
    return _integer(low, high)


def _int64(low: int = -INT64_MAX - 1) -> Check:
    return _integer(low, INT64_MAX)


def _fraction(value: str) -> str | None:
    return None if _DECIMAL.fullmatch(value) and 0 <= float(value) <= 1 else "not a number from 0 to 1"


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "not true or false"


def _one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"not one of {', '.join(allowed)}"


def _list_of(*allowed: str) -> Check:
    def check(value: str) -> str | None:
        items = _items(value)
        if not set(items) <= set(allowed):
            return f"not a list of {', '.join(allowed)}"
        return None if len(set(items)) == len(items) else "a list with an item twice"

    return check


def _throttled_replicas(value: str) -> str | None:
    items = _items(value)
    if items in ([], ["*"]) or all(_REPLICA.fullmatch(item) for item in items):
        return None
    return "neither * nor a list of PARTITION:BROKER"


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",")] if value else []


TOPIC_CONFIGS: Final[Mapping[str, Check]] = {
    "cleanup.policy": _list_of("compact", "delete"),
    "compression.gzip.level": lambda value: None if value == "-1" else _int32(1, 9)(value),
    "compression.lz4.level": _int32(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int32(-131072, 22),
    "delete.retention.ms": _int64(0),
    "file.delete.delay.ms": _int64(0),
    "flush.messages": _int64(1),
    "flush.ms": _int64(0),
    "follower.replication.throttled.replicas": _throttled_replicas,
    "index.interval.bytes": _int32(0),
    "internal.segment.bytes": _int32(),
    "leader.replication.throttled.replicas": _throttled_replicas,
    "local.retention.bytes": _int64(-2),
    "local.retention.ms": _int64(-2),
    "max.compaction.lag.ms": _int64(1),
    "max.message.bytes": _int32(0),
    "message.timestamp.after.max.ms": _int64(0),
    "message.timestamp.before.max.ms": _int64(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _fraction,
    "min.compaction.lag.ms": _int64(0),
    "min.insync.replicas": _int32(1),
    "preallocate": _boolean,
    "remote.log.copy.disable": _boolean,
    "remote.log.delete.on.disable": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _int64(),
    "retention.ms": _int64(-1),
    "segment.bytes": _int32(1024 * 1024),
    "segment.index.bytes": _int32(4),
    "segment.jitter.ms": _int64(0),
    "segment.ms": _int64(1),
    "unclean.leader.election.enable": _boolean,
}


def check_topic_configs(settings: Mapping[str, str]) -> None:
    """Check a topic's settings by name, by value, and against each other.

    Raises:
        InvalidConfig: names the first that is wrong.
    """
    for name, value in sorted(settings.items()):
        check = TOPIC_CONFIGS.get(name)
        if check is None:
            raise InvalidConfig(f"{name!r} is no setting of a topic")
        fault = check(value.strip())
        if fault is not None:
            raise InvalidConfig(f"{name} = {value!r} is {fault}")
    low = int(settings.get("min.compaction.lag.ms", "0"))
    high = int(settings.get("max.compaction.lag.ms", str(INT64_MAX)))
    if low > high:
        raise InvalidConfig(f"min.compaction.lag.ms {low} exceeds max.compaction.lag.ms {high}")


def alter(context: DecideContext, command: AlterConfigs) -> Decision:
    """Decide a change of one resource's settings.

    A value that is there already gives no record, except for a broker or the cluster: their readers act on the record.

    Raises:
        UnknownTopicOrPartition, BrokerIdNotRegistered, InvalidConfig, InvalidRequest, PolicyViolation.
    """
    image, resource_type, resource_name = context.image, command.resource_type, command.resource_name
    twice = sorted(set(command.set) & set(command.unset))
    if twice or len(set(command.unset)) != len(command.unset):
        raise InvalidRequest(f"a setting is named twice: {', '.join(twice or sorted(command.unset))}")
    if "" in command.set or "" in command.unset:
        raise InvalidRequest("a setting needs a name")
    before = dict(image.configs.get((resource_type, resource_name)) or {})
    changes: dict[str, str | None] = {**command.set, **dict.fromkeys(command.unset)}
    after = {name: value for name, value in (before | changes).items() if value is not None}
    if resource_type == TOPIC:
        check_topic_configs(after)
    _check_resource(image, resource_type, resource_name)
    records = tuple(
        ConfigRecord(resource_type, resource_name, name, value)
        for name, value in sorted(changes.items())
        if resource_type == BROKER or before.get(name) != value
    )
    if len(records) > RECORDS_PER_BATCH_MAX:
        raise PolicyViolation(
            f"{len(records)} settings in one request; at most {RECORDS_PER_BATCH_MAX} are allowed"
        )
    shown = shown_settings(resource_type, resource_name, after)
    return Decision(
        records=records, outcome=ConfigsAltered(resource_type, resource_name, tuple(shown.items()))
    )


def _check_resource(image: MetadataImage, resource_type: int, resource_name: str) -> None:
    if resource_type == TOPIC:
        if resource_name not in image.topics.ids:
            raise UnknownTopicOrPartition(f"topic {resource_name!r} does not exist")
    elif resource_type != BROKER:
        raise InvalidRequest(f"resource type {resource_type} is neither a topic (2) nor a broker (4)")
    elif resource_name != CLUSTER_DEFAULT:
        if not _INTEGER.fullmatch(resource_name):
            raise InvalidRequest(f"{resource_name!r} is not the id of a broker")
        node_id = int(resource_name)
        if str(node_id) != resource_name:
            raise InvalidRequest(f"the id of a broker is written {node_id}, not {resource_name}")
        controllers = [int(voter.node_id) for voter in image.quorum.voters or ()]
        if BrokerId(node_id) not in image.brokers and node_id not in controllers:
            raise BrokerIdNotRegistered(f"no node has the id {node_id}", broker_id=node_id)


DECISIONS: Final = (Decides(AlterConfigs, "IncrementalAlterConfigs", ConfigsAltered, alter),)
