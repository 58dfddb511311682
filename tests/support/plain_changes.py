"""Pure: what changed, once more in plain Python: the oracle of the families of changes.

It folds the history record by record, and compares each image with the one before.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from metadata_log.ids import uuid_text
from metadata_log.image.configs import config_record
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.quotas import parts_of
from metadata_log.image.topics import DeletedTopic
from metadata_log.records.acls import AccessControlEntryRecord
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.declaration import shown
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import ControllerClaimRecord, QuorumVersionRecord, Voter, VotersRecord
from metadata_log.records.quotas import ClientQuotaRecord, QuotaEntity
from metadata_log.records.tokens import DelegationTokenRecord, RemoveDelegationTokenRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from tests.support.histories import Step, step_of

Values = tuple[Any, ...]


class Change(NamedTuple):
    """One row of a family, without its envelope."""

    log_offset: int
    op: str | None
    key: Values
    before: Values
    after: Values
    prev_offset: int | None


class Moment(NamedTuple):
    """The cluster between two records."""

    image: MetadataImage
    controller_id: int | None


class Family(NamedTuple):
    """How a family's rows are compared with images."""

    key: tuple[str, ...]
    after: tuple[str, ...]
    before: tuple[str, ...]
    entities: Callable[[Moment], Mapping[Values, Values]]
    """Their values by key."""
    absent: Values
    """The values of an entity that is not there."""
    records: Mapping[type, tuple[str | None, Callable[[Any], Values]]]
    """By record type: its op, and the key of the entity that it names."""


def changes(name: str, history: Sequence[Step], *, first_offset: int = 0, begins_at: int = 0) -> list[Change]:
    """Return the changes of a family from an offset on; who claimed before `begins_at` is not known."""
    family = FAMILIES[name]
    found: list[Change] = []
    last: dict[Values, int] = {}
    for offset, record, before, after in _records(history, begins_at):
        was, now = family.entities(before), family.entities(after)
        op, key_of = family.records.get(type(record), ("delete", None))
        keys = {key for key in {**was, **now} if was.get(key) != now.get(key)}
        for key in sorted(keys if key_of is None else keys | {key_of(record)}):
            # The quorum's version and its voters are told of apart; who is in charge is no entity.
            of = (*key, type(record)) if name == "quorum_changes" else key
            since = last.get(of)
            if op == "claim" or since is None or since < first_offset:
                since = None
            if offset >= first_offset:
                values = was.get(key, family.absent), now.get(key, family.absent)
                told = (
                    {"set": "unset" if name in ("config_changes", "quota_changes") else "remove"}
                    if key not in now
                    else {}
                )
                found.append(Change(offset, told.get(op or "", op), key, *values, since))
            last.pop(of, None)
            if key in now:
                last[of] = offset
    return found


def _records(history: Sequence[Step], begins_at: int) -> Iterator[tuple[int, Any, Moment, Moment]]:
    """Yield each record with its offset, and what the cluster is before and after it."""
    before = Moment(EMPTY, None)
    for step in history:
        begin, batch = before, step.batch
        for place, record in enumerate(batch.records):
            if isinstance(record, ControllerClaimRecord) and batch.base_offset >= begins_at:
                controller_id: int | None = record.controller_id
            else:
                controller_id = before.controller_id
            image = step_of(
                begin.image, batch.records[: place + 1], appended_at_ms=batch.appended_at_ms
            ).image
            after = Moment(image, controller_id)
            yield batch.base_offset + place, record, before, after
            before = after


class PartitionChange(NamedTuple):
    """One row of partition_changes: op, and what the partition was and is, None where there is none."""

    log_offset: int
    op: str
    topic_id: str
    partition: int
    before: PartitionImage | None
    after: PartitionImage | None


def partition_changes(history: Sequence[Step], *, first_offset: int = 0) -> Iterator[PartitionChange]:
    """Yield the changes of partitions from an offset on."""
    for offset, record, before, after in _records(history, 0):
        op = _PARTITION_OPS.get(type(record))
        if op is None or offset < first_offset:
            continue
        was, now = before.image.topics.known(record.topic_id), after.image.topics.known(record.topic_id)
        of_topic = max(len(topic.partitions) for topic in (was, now) if topic is not None)
        for partition in range(of_topic) if op in ("delete", "restore") else (record.partition_id,):
            yield PartitionChange(
                offset,
                op,
                uuid_text(record.topic_id),
                partition,
                None if was is None or partition >= len(was.partitions) else was.partitions[partition],
                None if now is None or op == "delete" else now.partitions[partition],
            )


_PARTITION_OPS: Final[Mapping[type, str]] = {
    PartitionRecord: "create",
    PartitionChangeRecord: "change",
    RemoveTopicRecord: "delete",
    TopicTombstoneRecord: "delete",
    TopicRestoreRecord: "restore",
}


def _topics(moment: Moment) -> Mapping[Values, Values]:
    topics = moment.image.topics
    return {(uuid_text(topic_id),): ("LIVE", None, None, None) for topic_id in topics.by_id} | {
        (uuid_text(topic_id),): _deleted(topic) for topic_id, topic in topics.deleted.items()
    }


def _deleted(topic: DeletedTopic) -> Values:
    record = TopicTombstoneRecord(
        topic.topic.topic_id, topic.topic.name, topic.deleted_at_ms, topic.grace_ms, topic.configs, 0
    )
    kept = [setting._asdict() for setting in shown(record).configs]
    return "DELETED", topic.deleted_at_ms, topic.grace_ms, kept


def _configs(moment: Moment) -> Mapping[Values, Values]:
    return {
        (*resource, name): (shown(config_record(*resource, name, value)).value,)
        for resource, settings in moment.image.configs.items()
        for name, value in settings.items()
    }


def _quorum(moment: Moment) -> Mapping[Values, Values]:
    quorum = moment.image.quorum
    if quorum.cluster_id is None:
        return {}
    epoch, voters = moment.image.controller_epoch, quorum.voters
    shown_voters = None if voters is None else [_voter(voter) for voter in voters]
    return {(): (moment.controller_id, epoch, quorum.kraft_version, shown_voters)}


def _voter(voter: Voter) -> dict[str, Any]:
    return {
        "id": voter.node_id,
        "directory_id": uuid_text(voter.directory_id),
        "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
        "min": voter.min_version,
        "max": voter.max_version,
    }


def _controllers(moment: Moment) -> Mapping[Values, Values]:
    return {
        (node_id,): (
            controller.registration_epoch,
            uuid_text(controller.incarnation_id),
            [endpoint._asdict() for endpoint in controller.endpoints],
            [_feature(feature) for feature in controller.features],
        )
        for node_id, controller in moment.image.controllers.items()
    }


def _entity(parts: Iterable[QuotaEntity]) -> str:
    return json.dumps([part._asdict() for part in parts])


def _quotas(moment: Moment) -> Mapping[Values, Values]:
    return {
        (_entity(parts_of(entity)), key): (value,)
        for entity, values in moment.image.quotas.items()
        for key, value in values.items()
    }


def _brokers(moment: Moment) -> Mapping[Values, Values]:
    return {
        (broker_id,): (
            uuid_text(broker.incarnation_id),
            broker.rack,
            broker.fenced,
            broker.in_controlled_shutdown,
            [endpoint._asdict() for endpoint in broker.endpoints],
            [_feature(feature) for feature in broker.features],
            list(map(uuid_text, broker.log_dirs)),
            None if broker.cordoned_log_dirs is None else list(map(uuid_text, broker.cordoned_log_dirs)),
        )
        for broker_id, broker in moment.image.brokers.items()
    }


def _broker_key(record: Any) -> Values:
    return (record.broker_id,)


def _feature(feature: FeatureRange) -> dict[str, Any]:
    return dict(zip(("name", "min", "max"), feature, strict=True))


def _producer_ids(moment: Moment) -> Mapping[Values, Values]:
    next_id = moment.image.next_producer_id
    return {} if next_id is None else {(): (next_id,)}


def _topic_key(record: Any) -> Values:
    return (uuid_text(record.topic_id),)


def _controller_key(record: Any) -> Values:
    return (record.controller_id,)


def _acl_key(record: AccessControlEntryRecord) -> Values:
    return (uuid_text(record.id), *record[1:])


def _no_key(_record: Any) -> Values:
    return ()


_BROKER_COLUMNS: Final = (
    *("incarnation_id", "rack", "fenced", "in_controlled_shutdown", "endpoints", "features", "log_dirs"),
    "cordoned_log_dirs",
)

FAMILIES: Final[Mapping[str, Family]] = {
    "topic_changes": Family(
        ("topic_id",),
        ("state", "deleted_at_ms", "grace_ms", "kept_configs"),
        ("prev_state", "prev_deleted_at_ms", "prev_grace_ms", "prev_kept_configs"),
        _topics,
        (None, None, None, None),
        {
            TopicRecord: ("create", _topic_key),
            RemoveTopicRecord: ("remove", _topic_key),
            TopicTombstoneRecord: ("delete", _topic_key),
            TopicRestoreRecord: ("restore", _topic_key),
        },
    ),
    "config_changes": Family(
        ("resource_type", "resource_name", "config_name"),
        ("config_value",),
        ("prev_value",),
        _configs,
        (None,),
        {ConfigRecord: ("set", lambda record: record[:3])},
    ),
    "feature_changes": Family(
        ("feature_name",),
        ("feature_level",),
        ("prev_level",),
        lambda moment: {(name,): (level,) for name, level in moment.image.features.items()},
        (0,),
        {FeatureLevelRecord: ("set", lambda record: (record.name,))},
    ),
    "producer_id_changes": Family(
        (),
        ("next_producer_id",),
        ("prev_next_producer_id",),
        _producer_ids,
        (None,),
        {ProducerIdsRecord: (None, _no_key)},
    ),
    "quorum_changes": Family(
        (),
        ("controller_id", "controller_epoch", "kraft_version", "voters"),
        ("prev_controller_id", "prev_controller_epoch", "prev_kraft_version", "prev_voters"),
        _quorum,
        (None, None, None, None),
        {
            ControllerClaimRecord: ("claim", _no_key),
            QuorumVersionRecord: ("version", _no_key),
            VotersRecord: ("voters", _no_key),
        },
    ),
    "broker_changes": Family(
        ("broker_id",),
        _BROKER_COLUMNS,
        tuple(f"prev_{column}" for column in _BROKER_COLUMNS),
        _brokers,
        (None,) * len(_BROKER_COLUMNS),
        {
            RegisterBrokerRecord: ("register", _broker_key),
            BrokerRegistrationChangeRecord: ("change", _broker_key),
            UnregisterBrokerRecord: ("unregister", _broker_key),
        },
    ),
    "quota_changes": Family(
        ("quota_entity", "quota_key"),
        ("quota",),
        ("prev_quota",),
        _quotas,
        (None,),
        {ClientQuotaRecord: ("set", lambda record: (_entity(record.entity), record.key))},
    ),
    "acl_changes": Family(
        (
            *("acl_id", "resource_type", "resource_name", "pattern_type"),
            *("principal", "host", "acl_operation", "permission_type"),
        ),
        (),
        (),
        lambda moment: {_acl_key(acl): () for acl in moment.image.acls.by_id.values()},
        (),
        {AccessControlEntryRecord: ("create", _acl_key)},
    ),
    "user_changes": Family(
        ("user_name", "scram_mechanism"),
        ("scram_iterations",),
        ("prev_iterations",),
        lambda moment: {key: (each.iterations,) for key, each in moment.image.users.items()},
        (None,),
        {
            UserScramCredentialRecord: ("set", lambda record: (record.name, record.mechanism)),
            RemoveUserScramCredentialRecord: ("remove", lambda record: (record.name, record.mechanism)),
        },
    ),
    "token_changes": Family(
        ("token_id",),
        ("token_expires_ms",),
        ("prev_expires_ms",),
        lambda moment: {
            (each.token_id,): (each.expiry_timestamp_ms,) for each in moment.image.tokens.values()
        },
        (None,),
        {
            DelegationTokenRecord: ("set", lambda record: (record.token_id,)),
            RemoveDelegationTokenRecord: ("remove", lambda record: (record.token_id,)),
        },
    ),
    "controller_changes": Family(
        ("node_id",),
        ("registration_epoch", "incarnation_id", "endpoints", "features"),
        ("prev_registration_epoch", "prev_incarnation_id", "prev_endpoints", "prev_features"),
        _controllers,
        (None, None, None, None),
        {
            RegisterControllerRecord: ("register", _controller_key),
            UnregisterControllerRecord: ("unregister", _controller_key),
        },
    ),
}
