"""Pure: a whole tree of ZooKeeper, folded: the records that say the same, and what speaks against taking them.

Tests: tests/unit/metadata_log/zookeeper/test_imported.py.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from metadata_log.ids import BrokerId
from metadata_log.records.acls import AccessControlEntryRecord, PatternType
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quotas import ClientQuotaRecord
from metadata_log.records.registry import Record
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.records.users import UserScramCredentialRecord
from metadata_log.wire.shapes import INT32_MAX, INT64_MAX
from metadata_log.zookeeper import access
from metadata_log.zookeeper.findings import Findings, Noted
from metadata_log.zookeeper.layout import Kind, Node, Place, place_of
from metadata_log.zookeeper.topics import Topics
from metadata_log.zookeeper.values import (
    BrokerAddress,
    ClusterIdNode,
    ControllerNode,
    DamagedNode,
    FeaturesNode,
    MigrationNode,
    ProducerIdsNode,
    entity_name,
    read,
    read_broker,
    read_number,
)

_OF_TOPICS: Final = frozenset(
    {
        *(Kind.TOPIC, Kind.REPLICAS, Kind.LEADER, Kind.ISR, Kind.STATE, Kind.REASSIGNMENTS),
        *(Kind.REASSIGNED, Kind.ADDED, Kind.REMOVED, Kind.DELETION),
    }
)
_LEFT_OUT: Final = {
    Kind.PREFERRED_ELECTIONS: "ask for them again: metaquorum partitions elect",
}
_OLD_OFFSETS: Final = (
    "the offsets of consumers from before 0.9: groups of brokers (since 0.9) keep theirs in a topic"
)
COUNTED: Final = {
    TopicRecord: "topics",
    PartitionRecord: "partitions",
    ConfigRecord: "settings",
    UserScramCredentialRecord: "credentials",
    DelegationTokenRecord: "tokens",
    ClientQuotaRecord: "quotas",
    AccessControlEntryRecord: "acls",
    ProducerIdsRecord: "producer_ids",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A tree as records, in the order of a snapshot; `controller_epoch` is the newest that its brokers may have seen."""

    records: tuple[Record, ...]
    cluster_id: str | None
    controller_epoch: int
    brokers: tuple[BrokerAddress, ...]
    """Those that have a node, and so run, or ended a session timeout ago at most."""
    controller: ControllerNode | None
    """What `/controller` holds; None: there is no such node."""
    controller_is_ephemeral: bool
    migrated_to: int | None
    """The KRaft controller to which a migration was begun."""
    topics_without_id: int
    """They got one here. Topics of 2.8 and later have one."""
    findings: Findings

    def counts(self) -> dict[str, int]:
        """Return how many records there are of each kind."""
        found = Counter(COUNTED[type(record)] for record in self.records)
        return {name: found[name] for name in COUNTED.values()}


class _Reader:
    """Goes through the nodes once; topics are made at the end, as their nodes may come in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.findings = Findings()
        self.topics = Topics(self.findings)
        self.topic_settings: list[tuple[str, Node]] = []
        self.broker_settings: list[Record] = []
        self.credentials: list[Record] = []
        self.tokens: list[Record] = []
        self.quotas: list[Record] = []
        self.acls: list[Record] = []
        self.brokers: list[BrokerAddress] = []
        self.producer_ids: list[Record] = []
        self.cluster_id: str | None = None
        self.controller_epoch = 0
        self.controller: ControllerNode | None = None
        self.controller_is_ephemeral = False
        self.migrated_to: int | None = None

    def take(self, node: Node) -> None:
        place = place_of(node.path)
        if place is None or (place.kind is Kind.FOLDER and node.data):
            self.findings.unknown.append(node.path)
            return
        with self.findings.reading(node):
            if place.kind in _OF_TOPICS:
                self.topics.gather(place, node)
            elif not self._access(place, node):
                self._cluster(place, node)

    def _access(self, place: Place, node: Node) -> bool:
        """Take settings, users, quotas and ACLs; answer whether the node is one of these."""
        match place:
            case Place(Kind.TOPIC_SETTINGS, (name,)):
                self.topic_settings.append((name, node))
            case Place(Kind.BROKER_SETTINGS, (name,)):
                self.broker_settings += access.broker_settings(name, node, self.rng, self.findings)
            case Place(Kind.USER, (name,)):
                for record in access.user(name, node, self.rng):
                    (self.quotas if isinstance(record, ClientQuotaRecord) else self.credentials).append(
                        record
                    )
            case Place(Kind.USER_CLIENT, (user, client)):
                self.quotas += access.user_client(user, client, node)
            case Place(Kind.CLIENT, (name,)):
                self.quotas += access.client(name, node)
            case Place(Kind.IP, (name,)):
                self.quotas += access.ip(name, node)
            case Place(Kind.TOKEN, _):
                self.tokens.append(access.token(node))
            case Place(Kind.ACLS, (kind, name)):
                self.acls += access.acls(kind, name, node, self.rng, pattern=PatternType.LITERAL)
            case Place(Kind.PREFIXED_ACLS, (kind, name)):
                self.acls += access.acls(kind, name, node, self.rng, pattern=PatternType.PREFIXED)
            case _:
                return False
        return True

    def _cluster(self, place: Place, node: Node) -> None:
        match place.kind:
            case Kind.BROKER:
                self.brokers.append(read_broker(_id_of(place.names[0]), node.data))
            case Kind.CONTROLLER:
                self.controller = read(ControllerNode, node.data)
                self.controller_is_ephemeral = node.is_ephemeral
            case Kind.CONTROLLER_EPOCH:
                self.controller_epoch = _checked(read_number(node.data), INT32_MAX - 1)
            case Kind.CLUSTER_ID:
                self.cluster_id = read(ClusterIdNode, node.data).id
            case Kind.MIGRATION:
                begun = read(MigrationNode, node.data).kraft_controller_id
                self.migrated_to = None if begun < 0 else begun
            case Kind.PRODUCER_IDS if node.data:
                self.producer_ids = [_producer_ids(node)]
            case Kind.FEATURES if node.data:
                self.findings.left_out += [
                    Noted(node.path, f"{name}: a quorum finalizes its own features")
                    for name in read(FeaturesNode, node.data).features
                ]
            case Kind.OLD_OFFSETS if node.is_parent:
                self.findings.left_out.append(Noted(node.path, _OLD_OFFSETS))
            case kind if kind in _LEFT_OUT and node.data:
                self.findings.left_out.append(Noted(node.path, f"{kind.value}: {_LEFT_OUT[kind]}"))
            case _:
                pass

    def imported(self) -> Imported:
        topics = [*self.topics.records(self.rng)]
        records = [record for record in topics if isinstance(record, TopicRecord)]
        names = {record.name for record in records}
        settings = [*self._topic_settings(names), *self.broker_settings]
        partitions = [record for record in topics if isinstance(record, PartitionRecord)]
        return Imported(
            records=(
                *records,
                *settings,
                *partitions,
                *self.producer_ids,
                *self.quotas,
                *self.acls,
                *self.credentials,
                *self.tokens,
            ),
            cluster_id=self.cluster_id,
            controller_epoch=self.controller_epoch,
            brokers=tuple(sorted(self.brokers)),
            controller=self.controller,
            controller_is_ephemeral=self.controller_is_ephemeral,
            migrated_to=self.migrated_to,
            topics_without_id=self.topics.drawn_ids,
            findings=self.findings,
        )

    def _topic_settings(self, names: set[str]) -> Iterator[Record]:
        for text, node in self.topic_settings:
            with self.findings.reading(node):
                name = entity_name(text)
                if name in names:
                    yield from access.topic_settings(name, node, self.rng)
                else:
                    self.findings.left_out.append(Noted(node.path, "no topic of this name is imported"))


def imported(nodes: Iterable[Node], rng: random.Random) -> Imported:
    """Return what the nodes of a tree add up to; `rng` draws ids of ACLs, of topics without one, and keys of masks."""
    reader = _Reader(rng)
    for node in nodes:
        reader.take(node)
    return reader.imported()


def _id_of(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise DamagedNode(f"{text!r} is no id of a broker")
    return int(text)


def _producer_ids(node: Node) -> ProducerIdsRecord:
    found = read(ProducerIdsNode, node.data)
    try:
        end = int(found.block_end)
    except ValueError as error:
        raise DamagedNode(f"block_end {found.block_end!r} is no number") from error
    return ProducerIdsRecord(BrokerId(found.broker), -1, _checked(end, INT64_MAX - 1) + 1)


def _checked(number: int, most: int) -> int:
    """Return a number that a record can hold; raises DamagedNode."""
    if not 0 <= number <= most:
        raise DamagedNode(f"{number} is outside 0 to {most}")
    return number
