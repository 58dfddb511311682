"""Pure: Kafka's metadata records as ours, one by one: each keeps its offset.

What Kafka derives from a record, apply derives from its counterpart: leader epochs, partition epochs, and what a removed
topic takes with it. Where one record of Kafka's does the work of several of ours, these have its offset together.
Tests: tests/unit/metadata_log/replay/kafka/test_log.py.
"""

import base64
import json
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from metadata_log.ids import MIGRATING, NodeId, TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.kafka.counterparts import ours
from metadata_log.kafka.records import SECRET_FIELDS, Decoded
from metadata_log.kafka.subjects.controllers import NO_REGISTRATION_EPOCH
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord, UnregisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.quotas import ClientQuotaRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.tokens import RemoveDelegationTokenRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.records.users import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from metadata_log.replay.opaque import OpaqueRecord, unread

AnyRecord: TypeAlias = Record | OpaqueRecord
PartitionKey: TypeAlias = tuple[TopicId, int]

ABORT_TRANSACTION: Final = 25


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
    """Another entry is that of the record at this offset."""


class Translator:
    """Turns Kafka's records, fed in order, into ours; remembers what their meaning rests on."""

    def __init__(self, image: MetadataImage, *, cluster_id: str, keeps_secrets: bool = False) -> None:
        """`keeps_secrets` is for what goes on as a cluster's state; nothing that is shown has them."""
        self._cluster_id = cluster_id
        self._keeps_secrets = keeps_secrets
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
        """Settings whose topic comes after them, as releases before 3.3 wrote them."""

    def entries(
        self, offset: int, record: Decoded, *, leader_epoch: int, names_voters: bool = False
    ) -> list[Entry]:
        """Return what a record at an offset says: one entry, and others at the same offset where it does more.

        `names_voters`: a record beside it names the voters.
        """
        early = self._early_settings(offset, record)
        one = counterpart(record, keeps_secrets=self._keeps_secrets)
        match one:
            case PartitionChangeRecord():
                found = [self._change(offset, one, record.name)]
            case ControllerClaimRecord():
                claim = one._replace(controller_epoch=leader_epoch, cluster_id=self._cluster_id)
                voters = [] if names_voters else self._named_voters(offset, record)
                found = [Entry(offset, claim, record.name), *voters]
            case None:
                found = [Entry(offset, _opaque(record), record.name)]
                if record.name == "ClearElr":
                    found += self._cleared(offset, record)
            case _:
                found = [Entry(offset, self._one(offset, one), record.name)]
        return [*found, *early]

    def aborted(self, offset: int, record: Decoded) -> Entry:
        """Return the entry of a record whose transaction was aborted: the record never counted."""
        opaque = _opaque(record)
        return Entry(
            offset, opaque._replace(type_id=ABORT_TRANSACTION, type_name=f"Aborted{record.name}"), record.name
        )

    def _one(self, offset: int, record: Record) -> Record:
        """Return a record as it counts, and remember what others rest on."""
        match record:
            case PartitionRecord(topic_id, partition_id):
                self.partitions[topic_id, partition_id] = PartitionImage._make(record[2:])
                self._counts[topic_id] = max(self._counts[topic_id], partition_id + 1)
            case TopicRecord(topic_id, name):
                self._names[topic_id], self._ids[name] = name, topic_id
                self._counts[topic_id] = 0
            case RemoveTopicRecord(topic_id):
                for partition_id in range(self._counts.pop(topic_id)):
                    self.partitions.pop((topic_id, partition_id), None)
                del self._ids[self._names.pop(topic_id)]
            case ConfigRecord():
                if record.resource_type == TOPIC and record.resource_name not in self._ids:
                    self._early.setdefault(record.resource_name, []).append((offset, record))
                    return _NO_OP
            case RegisterControllerRecord(controller_id):
                self._controllers[controller_id] = NO_REGISTRATION_EPOCH
            case UnregisterControllerRecord(controller_id):
                return record._replace(registration_epoch=self._controllers.pop(controller_id))
            case QuorumVersionRecord(kraft_version):
                self._kraft_version = kraft_version
            case VotersRecord(voters):
                self._voters = voters
        return record

    def _change(
        self, offset: int, change: PartitionChangeRecord, of: str, *, is_extra: bool = False
    ) -> Entry:
        key = (change.topic_id, change.partition_id)
        before = self.partitions[key]
        after = self.partitions[key] = before.changed_by(change)
        return Entry(offset, change, of, before, after, is_extra)

    def _cleared(self, offset: int, record: Decoded) -> list[Entry]:
        """Return the changes that a ClearElr of one topic, or of all, means."""
        assert record.fields is not None
        topic_name = record.fields["topic_name"]
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

    def _named_voters(self, offset: int, leader_change: Decoded) -> list[Entry]:
        """Return the voters as a new leader names them, where no record of the quorum's own does (kraft.version 0)."""
        assert leader_change.fields is not None
        ids = sorted(voter["voter_id"] for voter in leader_change.fields["voters"])
        if self._kraft_version > 0 or ids == [voter.node_id for voter in self._voters or ()]:
            return []
        self._voters = tuple(Voter(NodeId(node_id), MIGRATING, (), 0, 0) for node_id in ids)
        return [Entry(offset, VotersRecord(self._voters), "LeaderChange", is_extra=True)]

    def _early_settings(self, offset: int, record: Decoded) -> list[Entry]:
        """Return the settings that waited for a topic, once a record follows it."""
        if not self._early or record.name == "Topic":
            return []
        ready = [name for name in self._early if name in self._ids]
        return [
            Entry(offset, setting, "Config", is_extra=True)
            for name in ready
            for _, setting in self._early.pop(name)
        ]


def counterpart(record: Decoded, *, keeps_secrets: bool = False) -> Record | None:
    """Return our record of Kafka's, None where it has none.

    Kafka keeps endpoints, features and the parts of a quota's entity as maps, and lists the same ones in different orders.
    """
    match found := ours(record):
        case RegisterBrokerRecord() | RegisterControllerRecord():
            return found._replace(
                endpoints=tuple(sorted(found.endpoints, key=attrgetter("name"))),
                features=tuple(sorted(found.features, key=attrgetter("name"))),
            )
        case UserScramCredentialRecord() if not keeps_secrets:
            # Without a key of masks nothing of a secret is shown.
            return found._replace(salt=b"", stored_key=b"", server_key=b"")
        case ClientQuotaRecord(entity):
            return found._replace(entity=tuple(sorted(entity, key=attrgetter("entity_type"))))
        case VotersRecord(voters):
            return VotersRecord(tuple(sorted(voters, key=attrgetter("node_id"))))
        case _:
            return found


def snapshot_record(record: Decoded, *, keeps_secrets: bool = False) -> Record | None:
    """Return what a record of a checkpoint says of the state; None for one that says nothing, or has no counterpart."""
    found = counterpart(record, keeps_secrets=keeps_secrets)
    return None if isinstance(found, _NO_STATE) else found


_NO_OP: Final = NoOpRecord()
_NO_STATE: Final = (
    *(SnapshotHeaderRecord, SnapshotFooterRecord, NoOpRecord, ControllerClaimRecord),
    *(PartitionChangeRecord, RemoveTopicRecord, UnregisterControllerRecord),
    RemoveUserScramCredentialRecord,
    RemoveDelegationTokenRecord,
)
"""The records around the state in a checkpoint, and those that only a log holds."""


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
