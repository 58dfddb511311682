"""Pure: Kafka's metadata records as ours, one by one: each keeps its offset.

What Kafka derives from a record, apply derives from its counterpart: leader epochs, partition epochs, and what a removed
topic takes with it. Where one record of Kafka's does the work of several of ours, these have its offset together.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.ids import MIGRATING, BrokerId, NodeId, TopicId, Uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.kafka.records import SECRET_FIELDS, Decoded
from metadata_log.records.brokers import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    FeatureRange,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.replay.opaque import OpaqueRecord, unread

AnyRecord: TypeAlias = Record | OpaqueRecord
PartitionKey: TypeAlias = tuple[TopicId, int]

UNCHANGED_LEADER: Final = -2
_FENCED: Final[Mapping[int, bool | None]] = {-1: False, 0: None, 1: True}
ABORT_TRANSACTION: Final = 25
NO_REGISTRATION_EPOCH: Final = -1
"""Kafka's controllers have none, in the log or in a checkpoint: one state has one digest, wherever its log begins."""


class Entry(NamedTuple):
    """A record of ours at an offset, and what is needed to tell why Kafka wrote it."""

    offset: int
    record: AnyRecord
    of: str
    """The name of Kafka's record."""
    before: PartitionImage | None = None
    """The partition before a change of it."""
    after: PartitionImage | None = None
    is_extra: bool = False
    """Another entry stands for the record at this offset."""


class Translator:
    """Turns Kafka's records, fed in order, into ours; remembers what their meaning rests on."""

    def __init__(self, image: MetadataImage, *, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self.partitions: dict[PartitionKey, PartitionImage] = {
            (topic_id, partition_id): partition
            for topic_id, topic in image.topics.by_id.items()
            for partition_id, partition in enumerate(topic.partitions)
        }
        self._names: dict[TopicId, str] = {
            topic.topic_id: topic.name for topic in image.topics.by_id.values()
        }
        self._ids: dict[str, TopicId] = {name: topic_id for topic_id, name in self._names.items()}
        self._counts: dict[TopicId, int] = {
            topic.topic_id: len(topic.partitions) for topic in image.topics.by_id.values()
        }
        self._controllers: dict[int, int] = {
            node_id: record.registration_epoch for node_id, record in image.controllers.items()
        }
        self._voters: tuple[Voter, ...] | None = image.quorum.voters
        self._kraft_version = image.quorum.kraft_version or 0
        self._early: dict[str, list[tuple[int, ConfigRecord]]] = {}
        """Settings that stand before the topic that they are of, as releases before 3.3 wrote them."""

    def entries(
        self, offset: int, record: Decoded, *, leader_epoch: int, names_voters: bool = False
    ) -> list[Entry]:
        """Return what a record at an offset says: one entry, and others at the same offset where it does more.

        `names_voters`: a record beside it names the voters.
        """
        fields = record.fields
        if fields is None:
            return [Entry(offset, _opaque(record), record.name)]
        early = self._early_settings(offset, record)
        match record.name:
            case "PartitionChange":
                found = [self._change(offset, _partition_change(fields), record.name)]
            case "ClearElr":
                found = [
                    Entry(offset, _opaque(record), record.name),
                    *self._cleared(offset, fields["topic_name"]),
                ]
            case "LeaderChange":
                claim = ControllerClaimRecord(NodeId(fields["leader_id"]), leader_epoch, self._cluster_id)
                voters = () if names_voters else self._named_voters(offset, fields["voters"])
                found = [Entry(offset, claim, record.name), *voters]
            case _:
                found = [Entry(offset, self._one(offset, record, fields), record.name)]
        return [*found, *early]

    def aborted(self, offset: int, record: Decoded) -> Entry:
        """Return what stands for a record of a transaction that was aborted: it never counted."""
        opaque = _opaque(record)
        return Entry(
            offset, opaque._replace(type_id=ABORT_TRANSACTION, type_name=f"Aborted{record.name}"), record.name
        )

    def _one(self, offset: int, record: Decoded, fields: dict[str, Any]) -> AnyRecord:
        match record.name:
            case "NoOp":
                return _NO_OP
            case "Partition":
                partition = _partition(fields)
                self.partitions[partition.topic_id, partition.partition_id] = PartitionImage._make(
                    partition[2:]
                )
                self._counts[partition.topic_id] = max(
                    self._counts[partition.topic_id], partition.partition_id + 1
                )
                return partition
            case "Topic":
                topic = TopicRecord(TopicId(fields["topic_id"]), fields["name"])
                self._names[topic.topic_id], self._ids[topic.name] = topic.name, topic.topic_id
                self._counts[topic.topic_id] = 0
                return topic
            case "RemoveTopic":
                topic_id = TopicId(fields["topic_id"])
                for partition_id in range(self._counts.pop(topic_id)):
                    self.partitions.pop((topic_id, partition_id), None)
                del self._ids[self._names.pop(topic_id)]
                return RemoveTopicRecord(topic_id)
            case "Config":
                setting = ConfigRecord(
                    fields["resource_type"], fields["resource_name"], fields["name"], fields["value"]
                )
                if setting.resource_type == TOPIC and setting.resource_name not in self._ids:
                    self._early.setdefault(setting.resource_name, []).append((offset, setting))
                    return _NO_OP
                return setting
            case "RegisterController":
                self._controllers[fields["controller_id"]] = NO_REGISTRATION_EPOCH
                return _controller(fields)
            case "UnregisterController":
                controller_id = fields["controller_id"]
                return UnregisterControllerRecord(NodeId(controller_id), self._controllers.pop(controller_id))
            case "KRaftVersion":
                self._kraft_version = fields["kraft_version"]
                return QuorumVersionRecord(self._kraft_version)
            case "KRaftVoters":
                self._voters = _voters(fields["voters"])
                return VotersRecord(self._voters)
            case name if name in _PLAIN:
                plain: AnyRecord = _PLAIN[name](fields)
                return plain
            case _:
                return _opaque(record)

    def _change(
        self, offset: int, change: PartitionChangeRecord, of: str, *, is_extra: bool = False
    ) -> Entry:
        key = (change.topic_id, change.partition_id)
        before = self.partitions[key]
        after = self.partitions[key] = before.changed_by(change)
        return Entry(offset, change, of, before, after, is_extra)

    def _cleared(self, offset: int, topic_name: str) -> list[Entry]:
        """Return the changes that a ClearElr of one topic, or of all, stands for."""
        topic_ids = [self._ids[topic_name]] if topic_name else list(self._names)
        return [
            self._change(
                offset,
                PartitionChangeRecord(topic_id, partition_id, eligible_leader_replicas=(), last_known_elr=()),
                "ClearElr",
                is_extra=True,
            )
            for topic_id in topic_ids
            for partition_id in range(self._counts[topic_id])
            if (partition := self.partitions[topic_id, partition_id]).eligible_leader_replicas
            or partition.last_known_elr
        ]

    def _named_voters(self, offset: int, told: Sequence[Mapping[str, Any]]) -> list[Entry]:
        """Return the voters as a new leader names them, where no record of the quorum's own does (kraft.version 0)."""
        ids = sorted(voter["voter_id"] for voter in told)
        if self._kraft_version > 0 or ids == [voter.node_id for voter in self._voters or ()]:
            return []
        self._voters = tuple(Voter(NodeId(node_id), MIGRATING, (), 0, 0) for node_id in ids)
        return [Entry(offset, VotersRecord(self._voters), "LeaderChange", is_extra=True)]

    def _early_settings(self, offset: int, record: Decoded) -> list[Entry]:
        """Return the settings that waited for a topic, once a record stands behind it."""
        if not self._early or record.name == "Topic":
            return []
        ready = [name for name in self._early if name in self._ids]
        return [
            Entry(offset, setting, "Config", is_extra=True)
            for name in ready
            for _, setting in self._early.pop(name)
        ]


def snapshot_record(record: Decoded) -> Record | None:
    """Return what a record of a checkpoint says; None for those that have no counterpart."""
    fields = record.fields
    if fields is None:
        return None
    match record.name:
        case "Partition":
            return _partition(fields)
        case "Topic":
            return TopicRecord(TopicId(fields["topic_id"]), fields["name"])
        case "Config":
            return ConfigRecord(
                fields["resource_type"], fields["resource_name"], fields["name"], fields["value"]
            )
        case "RegisterController":
            return _controller(fields)
        case "KRaftVersion":
            return QuorumVersionRecord(fields["kraft_version"])
        case "KRaftVoters":
            return VotersRecord(_voters(fields["voters"]))
        case name if name in _PLAIN:
            plain: Record = _PLAIN[name](fields)
            return plain
        case _:
            return None


# --- record by record

_NO_OP: Final = NoOpRecord()


def _endpoints(rows: Sequence[Mapping[str, Any]]) -> tuple[BrokerEndpoint, ...]:
    # Kafka keeps both as maps: a log and a checkpoint list the same ones in different orders.
    return tuple(
        BrokerEndpoint(row["name"], row["host"], row["port"], row["security_protocol"])
        for row in sorted(rows, key=itemgetter("name"))
    )


def _features(rows: Sequence[Mapping[str, Any]]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(row["name"], row["min_supported_version"], row["max_supported_version"])
        for row in sorted(rows, key=itemgetter("name"))
    )


def _broker(fields: Mapping[str, Any]) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=BrokerId(fields["broker_id"]),
        incarnation_id=Uuid(fields["incarnation_id"]),
        broker_epoch=fields["broker_epoch"],
        endpoints=_endpoints(fields["end_points"]),
        features=_features(fields["features"]),
        rack=fields["rack"] or None,
        fenced=fields["fenced"],
        in_controlled_shutdown=fields["in_controlled_shutdown"],
        log_dirs=fields["log_dirs"],
        cordoned_log_dirs=fields["cordoned_log_dirs"],
    )


def _broker_change(fields: Mapping[str, Any]) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        BrokerId(fields["broker_id"]),
        fields["broker_epoch"],
        _FENCED[fields["fenced"]],
        True if fields["in_controlled_shutdown"] else None,
        fields["log_dirs"] or None,
        fields["cordoned_log_dirs"],
    )


def _controller(fields: Mapping[str, Any]) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        NodeId(fields["controller_id"]),
        Uuid(fields["incarnation_id"]),
        NO_REGISTRATION_EPOCH,
        fields["zk_migration_ready"],
        _endpoints(fields["end_points"]),
        _features(fields["features"]),
    )


def _partition(fields: Mapping[str, Any]) -> PartitionRecord:
    replicas = fields["replicas"]
    return PartitionRecord(
        TopicId(fields["topic_id"]),
        fields["partition_id"],
        replicas,
        fields["isr"],
        BrokerId(fields["leader"]),
        fields["leader_epoch"],
        fields["partition_epoch"],
        fields["leader_recovery_state"],
        fields["adding_replicas"],
        fields["removing_replicas"],
        fields["eligible_leader_replicas"] or (),
        fields["last_known_elr"] or (),
        fields["directories"] or (MIGRATING,) * len(replicas),
    )


def _partition_change(fields: Mapping[str, Any]) -> PartitionChangeRecord:
    leader, recovery = fields["leader"], fields["leader_recovery_state"]
    return PartitionChangeRecord(
        TopicId(fields["topic_id"]),
        fields["partition_id"],
        None if leader == UNCHANGED_LEADER else BrokerId(leader),
        fields["isr"],
        fields["replicas"],
        fields["adding_replicas"],
        fields["removing_replicas"],
        None if recovery < 0 else recovery,
        fields["eligible_leader_replicas"],
        fields["last_known_elr"],
        fields["directories"] or None,
    )


def _voters(rows: Sequence[Mapping[str, Any]]) -> tuple[Voter, ...]:
    voters = (
        Voter(
            NodeId(row["voter_id"]),
            Uuid(row["voter_directory_id"]),
            tuple(VoterEndpoint(end["name"], end["host"], end["port"]) for end in row["endpoints"]),
            row["kraft_version_feature"]["min_supported_version"],
            row["kraft_version_feature"]["max_supported_version"],
        )
        for row in rows
    )
    return tuple(sorted(voters, key=lambda voter: voter.node_id))


_PLAIN: Final[Mapping[str, Any]] = {
    "RegisterBroker": _broker,
    "BrokerRegistrationChange": _broker_change,
    "UnregisterBroker": lambda of: UnregisterBrokerRecord(BrokerId(of["broker_id"]), of["broker_epoch"]),
    "FenceBroker": lambda of: BrokerRegistrationChangeRecord(BrokerId(of["id"]), of["epoch"], fenced=True),
    "UnfenceBroker": lambda of: BrokerRegistrationChangeRecord(BrokerId(of["id"]), of["epoch"], fenced=False),
    "FeatureLevel": lambda of: FeatureLevelRecord(of["name"], of["feature_level"]),
    "ProducerIds": lambda of: ProducerIdsRecord(
        BrokerId(of["broker_id"]), of["broker_epoch"], of["next_producer_id"]
    ),
}
"""Kafka's records, by name, that are one of ours whatever stands before them."""


def _opaque(record: Decoded) -> OpaqueRecord:
    """Return a record that has no counterpart, its secrets left out; of an unknown type its bytes are not kept at all."""
    if record.fields is None:
        content = unread(record.version, record.raw)
    else:
        content = {name: value for name, value in record.fields.items() if name not in SECRET_FIELDS}
    text = json.dumps(content, default=_text, separators=(",", ":"), ensure_ascii=False)
    return OpaqueRecord(record.type_id, record.name, text)


def _text(value: bytes) -> str:
    return uuid_text(value) if len(value) == 16 else base64.b64encode(value).decode()
