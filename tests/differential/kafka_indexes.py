"""Pure: two indexes of Kafka's ReplicationControlManager, followed from the records it writes, with what they forget.

Both are right as long as nothing below is met:

- BrokersToElrs (members of eligible leader replicas): CLEAR_ELR_RECORD empties the replicas of a partition and not the index
  (`removeTopicElrs` calls no `update`). A member that comes back is there twice; where it leaves then, both entries go, and
  one of partition 0 appears (`remove` copies into an array that is one shorter). REMOVE_TOPIC_RECORD takes out the members
  that the partitions have then, and so leaves those that were cleared.
- directoriesToPartitions: REMOVE_TOPIC_RECORD takes out a partition in the loop over its ISR, and so leaves one whose ISR
  is empty.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from metadata_log.records.features import METADATA_VERSION, METADATA_VERSION_LEVEL

Key: TypeAlias = tuple[str, int]
"""A topic id and the number of a partition."""
_FENCED: Final = {1: True, -1: False}


@dataclass(slots=True)
class Broker:
    log_dirs: list[str]
    is_fenced: bool


@dataclass(slots=True)
class Partition:
    replicas: list[int]
    isr: list[int]
    leader: int
    eligible: list[int]
    directories: list[str]
    last_known: list[int]

    def directory_of(self, broker_id: int) -> str | None:
        """Return the log directory of a broker's replica; None where it has none, or old levels do not say it."""
        by_replica = dict(zip(self.replicas, self.directories, strict=False))
        return by_replica.get(broker_id)


@dataclass(slots=True)
class KafkaIndexes:
    """The brokers, partitions and delegation tokens of a log, and both indexes."""

    level: int = METADATA_VERSION_LEVEL
    """Of metadata.version."""
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[Key, Partition] = field(default_factory=dict)
    tokens: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By id, the last record of each."""
    _eligible: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """BrokersToElrs: of a broker and a topic id, the numbers of partitions, as in its array."""
    _directories: dict[str, set[Key]] = field(default_factory=dict)

    def follow(self, batches: Iterable[Iterable[Mapping[str, Any]]]) -> None:
        for batch in batches:
            for record in batch:
                self._apply(record)

    def changed(self, record: Mapping[str, Any]) -> Partition:
        """Return the partition that a record is about, as it is after it."""
        before = self.partitions.get(
            (record["topic_id"], record["partition_id"]), Partition([], [], -1, [], [], [])
        )
        return Partition(
            record.get("replicas", before.replicas),
            record.get("isr", before.isr),
            record.get("leader", before.leader),
            record.get("eligible_leader_replicas", before.eligible),
            record.get("directories", before.directories),
            record.get("last_known_elr", before.last_known),
        )

    # --- what the indexes hold

    def stale(self, broker_id: int) -> Counter[Key]:
        """Return the entries of a broker in BrokersToElrs for which it is no member, or is one less often."""
        true = Counter(key for key, partition in self.partitions.items() if broker_id in partition.eligible)
        return Counter(self._entries(broker_id)) - true

    def gone(self, broker_id: int) -> set[Key]:
        """Return the entries of a broker in BrokersToElrs that belong to no partition any more."""
        return {*self._entries(broker_id)} - self.partitions.keys()

    def gone_in(self, log_dir: str) -> set[Key]:
        """Return the entries of a directory in directoriesToPartitions that belong to no partition any more."""
        return self._directories.get(log_dir, set()) - self.partitions.keys()

    def _entries(self, broker_id: int) -> list[Key]:
        return [
            (topic_id, number)
            for (member, topic_id), numbers in self._eligible.items()
            if member == broker_id
            for number in numbers
        ]

    # --- records

    def _apply(self, record: Mapping[str, Any]) -> None:
        match record["type"]:
            case "REGISTER_BROKER_RECORD":
                self.brokers[record["broker_id"]] = Broker(record.get("log_dirs", []), record["fenced"])
            case "UNREGISTER_BROKER_RECORD":
                del self.brokers[record["broker_id"]]
            case "BROKER_REGISTRATION_CHANGE_RECORD":
                broker = self.brokers[record["broker_id"]]
                broker.is_fenced = _FENCED.get(record.get("fenced", 0), broker.is_fenced)
                broker.log_dirs = record.get("log_dirs") or broker.log_dirs
            case "FEATURE_LEVEL_RECORD" if record["name"] == METADATA_VERSION:
                self.level = record["feature_level"]
            case "TOPIC_RECORD":
                self.topics[record["topic_id"]] = record["name"]
            case "REMOVE_TOPIC_RECORD":
                self._remove(record["topic_id"])
            case "PARTITION_RECORD" | "PARTITION_CHANGE_RECORD":
                self._change(record)
            case "DELEGATION_TOKEN_RECORD":
                self.tokens[record["token_id"]] = record
            case "REMOVE_DELEGATION_TOKEN_RECORD":
                self.tokens.pop(record["token_id"], None)
            case "CLEAR_ELR_RECORD":
                for (topic_id, _), partition in self.partitions.items():
                    if record["topic_name"] in ("", self.topics[topic_id]):
                        partition.eligible, partition.last_known = [], []

    def _change(self, record: Mapping[str, Any]) -> None:
        topic_id, number = key = record["topic_id"], record["partition_id"]
        before, after = self.partitions.get(key), self.changed(record)
        members, directories = ([], []) if before is None else (before.eligible, before.directories)
        for broker_id in set(after.eligible) - set(members):
            self._eligible.setdefault((broker_id, topic_id), []).append(number)
        for broker_id in set(members) - set(after.eligible):
            entries = self._eligible.pop((broker_id, topic_id), [])
            others = [each for each in entries if each != number]
            if padded := others + [0] * (len(entries) - 1 - len(others)):
                self._eligible[broker_id, topic_id] = padded
        for log_dir in directories:
            self._directories[log_dir].discard(key)
        for log_dir in after.directories:
            self._directories.setdefault(log_dir, set()).add(key)
        self.partitions[key] = after

    def _remove(self, topic_id: str) -> None:
        del self.topics[topic_id]
        for key in [key for key in self.partitions if key[0] == topic_id]:
            partition = self.partitions.pop(key)
            for broker_id in partition.eligible:
                self._eligible.pop((broker_id, topic_id), None)
            if partition.isr:
                for log_dir in partition.directories:
                    self._directories[log_dir].discard(key)
