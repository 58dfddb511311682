"""Pure: what settings may be, and what a change of them is written as.

Settings of a topic, a group and a subscription to clients' metrics are checked by name and value; those of a broker and of
the cluster are not, as a broker may be newer than its controller. Source: Kafka's ConfigurationControlManager.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    Rejected,
    UnknownTopicOrPartition,
)
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.configs import mask_key_of
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import CONFIG_VALUE_BYTES_MAX
from metadata_log.node.identity.rights import Right
from metadata_log.records.acls import AclOperation, ResourceType
from metadata_log.records.configs import (
    BROKER,
    CLIENT_METRICS,
    CLUSTER_DEFAULT,
    GROUP,
    MASK_KEY_BYTES,
    MIN_IN_SYNC_REPLICAS,
    TOPIC,
    ConfigRecord,
    is_sensitive,
)
from metadata_log.records.declaration import shown
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.wire.commands import Command
from quorum.decide.access import CLUSTER, DESCRIBES_CONFIGS, Access, Resource, topic_resource
from quorum.decide.config_types import (
    INTEGER,
    LIST_CONFIGS,
    check_broker_configs,
    check_topic_configs,
)
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision, Outcome
from quorum.decide.group_configs import check_client_metrics, check_group_configs
from quorum.decide.items import ManyItems, check_fits, why
from quorum.decide.topic_names import check_name


class ConfigOperation(enum.IntEnum):
    """What a change does with a setting; the last two are for lists. Source: KIP-339."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None


class ResourceChange(NamedTuple):
    """Changes of one resource's settings; resource_type and resource_name as in ConfigRecord."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigs(ManyItems):
    """Change settings of resources in one batch; each resource gets a result of its own. Source: KIP-339."""

    resources: tuple[ResourceChange, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyAlterConfigs(ManyItems):
    """Give resources these settings and no others, in one batch. Every change is a SET."""

    resources: tuple[ResourceChange, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs(Command):
    """Set some settings of one resource and delete others; resource_type and resource_name as in ConfigRecord."""

    resource_type: int
    resource_name: str
    set: Mapping[str, str]
    unset: tuple[str, ...]


ELIGIBLE_CLEARED: Final = "ELIGIBLE_REPLICAS_CLEARED"
"""The cause of a part that comes before a change of min.insync.replicas."""


class ConfigsAltered(NamedTuple):
    """The settings of one resource that the change wrote, by name, secrets masked; without those that it removed.

    The log keeps it as the answer of repetitions, so it does not grow with what the resource has beside.
    """

    resource_type: int
    resource_name: str
    settings: tuple[tuple[str, str], ...]


class ResourceAltered(NamedTuple):
    """What became of one resource: the error's name and text, None where its settings are as asked."""

    resource_type: int
    resource_name: str
    error: str | None = None
    message: str | None = None


class ResourcesAltered(NamedTuple):
    """What became of each resource, in the order of the request; of one given twice, once."""

    results: tuple[ResourceAltered, ...]


def alter(context: DecideContext, command: AlterConfigs) -> Decision:
    """Decide a change of one resource's settings.

    A value that is there already gives no record, except for a broker or the cluster: their readers act on the record.

    Raises:
        UnknownTopicOrPartition, BrokerIdNotRegistered, InvalidConfig, InvalidRequest, InvalidTopic, PolicyViolation.
    """
    resource = ResourceChange(
        command.resource_type,
        command.resource_name,
        (
            *(ConfigChange(name, ConfigOperation.SET, value) for name, value in command.set.items()),
            *(ConfigChange(name, ConfigOperation.DELETE, None) for name in command.unset),
        ),
    )
    _check_named_once(resource)
    records = _changed(context, resource)
    records.sort(key=lambda record: record.name)
    changed = ((record.name, shown(record).value) for record in records)
    settings = tuple((name, value) for name, value in changed if value is not None)
    outcome = ConfigsAltered(command.resource_type, command.resource_name, settings)
    return _decided(context, records, outcome)


def alter_incrementally(context: DecideContext, command: IncrementalAlterConfigs) -> Decision:
    """Decide changes of several resources' settings; one that is refused does not change what becomes of the others.

    A resource that is given twice is refused, with one result.

    Raises:
        PolicyViolation: they need more records than one batch holds.
    """
    return _per_resource(context, command, _changed)


def alter_wholly(context: DecideContext, command: LegacyAlterConfigs) -> Decision:
    """Decide the complete settings of several resources; results and errors as for `alter_incrementally`."""
    return _per_resource(context, command, _replaced)


def _per_resource(
    context: DecideContext,
    command: IncrementalAlterConfigs | LegacyAlterConfigs,
    changed: Callable[[DecideContext, ResourceChange], list[ConfigRecord]],
) -> Decision:
    changes = sum(len(resource.changes) for resource in command.resources)
    check_fits(changes, "settings")
    times = Counter((resource.resource_type, resource.resource_name) for resource in command.resources)
    results: dict[tuple[int, str], ResourceAltered] = {}
    records: list[ConfigRecord] = []
    for resource in command.resources:
        key = (resource.resource_type, resource.resource_name)
        if times[key] > 1:
            results[key] = ResourceAltered(*key, InvalidRequest.error, "the resource is given twice")
            continue
        try:
            records += changed(context, resource)
        except Rejected as refusal:
            results[key] = ResourceAltered(*key, *why(refusal))
        else:
            results[key] = ResourceAltered(*key)
    outcome = ResourcesAltered(tuple(results.values()))
    return Decision(outcome=outcome) if command.validate_only else _decided(context, records, outcome)


def _decided(context: DecideContext, settings: Sequence[ConfigRecord], outcome: Outcome) -> Decision:
    """Decide that settings are written, with what a change of min.insync.replicas means: who was eligible to lead under
    another number no longer is.

    Kafka writes a ClearElrRecord, and every reader finds out which partitions it changes. Here these are in the log, in as
    many parts as they need; the settings come in the last.
    """
    check_fits(len(settings), "settings")
    cleared, more = _cleared(context, _topics_cleared(context.image, settings))
    cleared.sort(key=lambda record: record[:2])  # the topics came in no order
    if more or (cleared and len(settings) + len(cleared) > context.records_max):
        return Decision(records=cleared, cause=Cause(ELIGIBLE_CLEARED, None, {}), more=True)
    return Decision(records=[*settings, *cleared], outcome=outcome)


def _topics_cleared(image: MetadataImage, settings: Sequence[ConfigRecord]) -> Iterable[TopicId]:
    """Return the topics with somebody eligible that these settings concern."""
    eligible = image.topics.index.eligible
    if not _has_eligible(image) or not eligible:
        return ()
    concerned = [record for record in settings if record.name == MIN_IN_SYNC_REPLICAS]
    if any(record.resource_type != TOPIC for record in concerned):
        return eligible
    ids = {image.topics.ids.get(record.resource_name) for record in concerned}
    return [topic_id for topic_id in ids if topic_id is not None and topic_id in eligible]


def _cleared(context: DecideContext, topics: Iterable[TopicId]) -> tuple[list[PartitionChangeRecord], bool]:
    """Return the changes of a part, and whether there may be others: what is cleared is not found again."""
    records: list[PartitionChangeRecord] = []
    for topic_id in topics:
        if records and context.is_turn_over():
            return records, True
        for partition_id, partition in enumerate(context.image.topics.by_id[topic_id].partitions):
            if partition.eligible_leader_replicas or partition.last_known_elr:
                if len(records) >= context.records_max:
                    return records, True
                records.append(
                    PartitionChangeRecord(
                        topic_id, partition_id, eligible_leader_replicas=(), last_known_elr=()
                    )
                )
    return records, False


def _has_eligible(image: MetadataImage) -> bool:
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def _changed(context: DecideContext, resource: ResourceChange) -> list[ConfigRecord]:
    """Return the records of single changes; of a setting that is named twice, the last counts."""
    before: Mapping[str, str] = (
        context.image.configs.get((resource.resource_type, resource.resource_name)) or {}
    )
    if context.checks_as_brokers:
        _check_named_once(resource)
        _check_valued(resource)
    values: dict[str, str | None] = {}
    for name, operation, value in resource.changes:
        if operation is ConfigOperation.SET:
            values[name] = value
        elif operation is ConfigOperation.DELETE:
            values[name] = None
        else:
            values[name] = _list_changed(resource, name, before.get(name), operation, value or "")
    records = _records(context, resource, before, values)
    _check_as_brokers(context, resource, values)
    _check(context, resource, before, records)
    return records


def _replaced(context: DecideContext, resource: ResourceChange) -> list[ConfigRecord]:
    """Return the records that make the changes the complete settings."""
    before: Mapping[str, str] = (
        context.image.configs.get((resource.resource_type, resource.resource_name)) or {}
    )
    if context.checks_as_brokers:
        _check_named_once(resource)
        _check_valued(resource)
    values = {change.name: change.value for change in resource.changes}
    _check_as_brokers(context, resource, values)
    explicit = _records(context, resource, before, values)
    implicit = [
        ConfigRecord(resource.resource_type, resource.resource_name, name, None)
        for name in sorted(before)
        if name not in values
    ]
    _check(context, resource, before, [*explicit, *implicit])
    return [*explicit, *implicit]


def _records(
    context: DecideContext,
    resource: ResourceChange,
    before: Mapping[str, str],
    values: Mapping[str, str | None],
) -> list[ConfigRecord]:
    return [
        ConfigRecord(
            resource.resource_type,
            resource.resource_name,
            name,
            value,
            _mask_key(context, before.get(name), value)
            if is_sensitive(resource.resource_type, name)
            else None,
        )
        for name, value in values.items()
        if resource.resource_type == BROKER or before.get(name) != value
    ]


def _mask_key(context: DecideContext, before: str | None, value: str | None) -> bytes | None:
    """Return the key of a secret's mask: the one it has, as long as the secret stays the same."""
    if value is None:
        return None
    key = mask_key_of(before) if before is not None and before == value else None
    return key or context.rng.randbytes(MASK_KEY_BYTES)


def _list_changed(
    resource: ResourceChange, name: str, before: str | None, operation: ConfigOperation, value: str
) -> str:
    """Return a list with items appended or taken away; it starts from the default where nothing is set."""
    defaults = (
        LIST_CONFIGS[resource.resource_type].get(name) if resource.resource_type in LIST_CONFIGS else None
    )
    if defaults is None:
        raise InvalidConfig(f"{name} is no list: nothing can be appended to it or taken from it")
    items = [item for item in (defaults if before is None else before).split(",") if item]
    # As Java splits: the empty text is one empty item, and empty items at the end of another text are none.
    given = value.rstrip(",").split(",") if value.strip(",") or not value else []
    if operation is ConfigOperation.APPEND:
        known = set(items)
        return ",".join([*items, *dict.fromkeys(item for item in given if item not in known)])
    # Each item that is taken away takes the first of its kind; counted, since a list may have 16,000 items.
    taken = Counter(given)
    kept = []
    for item in items:
        if taken[item]:
            taken[item] -= 1
        else:
            kept.append(item)
    return ",".join(kept)


def _check_named_once(resource: ResourceChange) -> None:
    """Refuse a setting that is named twice, or has no name."""
    names = {change.name for change in resource.changes}
    if len(names) < len(resource.changes):
        times = Counter(change.name for change in resource.changes)
        twice = sorted(name for name, count in times.items() if count > 1)
        raise InvalidRequest(f"a setting is named twice: {', '.join(twice)}")
    if "" in names:
        raise InvalidRequest("a setting needs a name")


def _check_valued(resource: ResourceChange) -> None:
    """Refuse null as a value: only a deletion has none."""
    without = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation is not ConfigOperation.DELETE
    ]
    if without:
        raise InvalidRequest(f"null is no value of a setting: {', '.join(sorted(without))}")


def _check_as_brokers(
    context: DecideContext, resource: ResourceChange, values: Mapping[str, str | None]
) -> None:
    """Refuse values of brokers' settings that Kafka's brokers refuse; its controller stores whatever they forward."""
    if context.checks_as_brokers and resource.resource_type == BROKER:
        given = {name: value for name, value in values.items() if value is not None}
        check_broker_configs(resource.resource_name, given)


def _check(
    context: DecideContext,
    resource: ResourceChange,
    before: Mapping[str, str],
    records: Sequence[ConfigRecord],
) -> None:
    image = context.image
    if resource.resource_type == TOPIC:
        # As in Kafka before the values, which need no topic to be judged.
        if not resource.resource_name:
            raise InvalidRequest("the settings of a topic need its name; those of all are the cluster's")
        check_name(resource.resource_name)
    after: dict[str, str | None] = {**before}
    for record in records:
        if _has_eligible(image) and record.name == MIN_IN_SYNC_REPLICAS and record.resource_type == BROKER:
            if record.resource_name != CLUSTER_DEFAULT:
                raise InvalidConfig(
                    f"{record.name} of one broker cannot change with eligible leader replicas"
                )
            if record.value is None:
                raise InvalidConfig(f"{record.name} of the cluster is needed by eligible leader replicas")
        if record.value is not None and len(record.value) > CONFIG_VALUE_BYTES_MAX:
            raise InvalidConfig(f"the value of {record.name} is longer than {CONFIG_VALUE_BYTES_MAX}")
        after[record.name] = record.value
    given = {name: value for name, value in after.items() if value is not None}
    if resource.resource_type == TOPIC:
        check_topic_configs(given, before, has_remote_storage=context.has_remote_storage)
    elif resource.resource_type == CLIENT_METRICS:
        check_client_metrics(resource.resource_name, given)
    elif resource.resource_type == GROUP:
        check_group_configs(resource.resource_name, given)
    _check_resource(context, resource.resource_type, resource.resource_name)


def _check_resource(context: DecideContext, resource_type: int, resource_name: str) -> None:
    image = context.image
    if resource_type == TOPIC:
        if resource_name not in image.topics.ids:
            raise UnknownTopicOrPartition(f"topic {resource_name!r} does not exist")
    elif resource_type in (CLIENT_METRICS, GROUP):
        pass  # brokers know which there are
    elif resource_type != BROKER:
        raise InvalidRequest(no_settings(resource_type))
    elif resource_name != CLUSTER_DEFAULT:
        check_node(image, resource_name, context.node_id)


def no_settings(resource_type: int) -> str:
    """Say that resources of a type have no settings here."""
    return f"resource type {resource_type} is none of topics (2), brokers (4), clients' metrics (16) and groups (32)"


def check_node(image: MetadataImage, resource_name: str, *others: int) -> None:
    """Check that settings of a broker have the id of a node: a broker, a voter or one of `others`.

    Raises:
        InvalidRequest, BrokerIdNotRegistered.
    """
    if not INTEGER.fullmatch(resource_name):
        raise InvalidRequest(f"{resource_name!r} is not the id of a broker")
    node_id = int(resource_name)
    if str(node_id) != resource_name:
        raise InvalidRequest(f"the id of a broker is written {node_id}, not {resource_name}")
    controllers = [*others, *(int(voter.node_id) for voter in image.quorum.voters or ())]
    if BrokerId(node_id) not in image.brokers and node_id not in controllers:
        raise BrokerIdNotRegistered(f"no node has the id {node_id}", broker_id=node_id)


def resource_of(resource_type: int, resource_name: str) -> Resource:
    """Return whose settings are altered; those of a broker are the cluster's."""
    if resource_type == GROUP:
        return Resource(ResourceType.GROUP, resource_name)
    return topic_resource(resource_name) if resource_type == TOPIC else CLUSTER


def _altered_one(command: AlterConfigs, _image: MetadataImage) -> Iterable[Resource]:
    return (resource_of(command.resource_type, command.resource_name),)


def _altered_many(
    command: IncrementalAlterConfigs | LegacyAlterConfigs, _image: MetadataImage
) -> Iterable[Resource]:
    return (resource_of(one.resource_type, one.resource_name) for one in command.resources)


_ALTERS_ONE: Final = Access(Right.ALTER, AclOperation.ALTER_CONFIGS, _altered_one)
_ALTERS_MANY: Final = Access(Right.ALTER, AclOperation.ALTER_CONFIGS, _altered_many)
DECISIONS: Final = (
    Decides(AlterConfigs, "IncrementalAlterConfigs", ConfigsAltered, _ALTERS_ONE, alter),
    Decides(
        IncrementalAlterConfigs,
        "IncrementalAlterConfigs.many",
        ResourcesAltered,
        _ALTERS_MANY,
        alter_incrementally,
    ),
    Decides(LegacyAlterConfigs, "LegacyAlterConfigs", ResourcesAltered, _ALTERS_MANY, alter_wholly),
)
OTHER_OPERATIONS: Final = {"DescribeConfigs": DESCRIBES_CONFIGS}
