"""Pure: topics, partitions and reassignments of a tree of ZooKeeper, as records.

No broker leads: the partitions keep their ISRs, and the first broker of an ISR that comes is elected. The epochs go on above
those of the tree. Source: Kafka 3.9's ZkTopicMigrationClient. Tests: tests/unit/metadata_log/zookeeper/test_topics.py.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metadata_log.ids import MIGRATING, NO_LEADER, BrokerId, TopicId, is_reserved, random_uuid, uuid_from_text
from metadata_log.limits import PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.wire.shapes import INT32_MAX
from metadata_log.zookeeper.findings import Findings, Noted
from metadata_log.zookeeper.layout import Kind, Node, Place
from metadata_log.zookeeper.values import (
    DamagedNode,
    ReassignmentsNode,
    read,
    read_number,
    read_numbers,
    read_state,
    read_topic,
)

_STATE_OF_NOBODY: Final = "the topic has no such partition"
_OF_NO_TOPIC: Final = "there is no topic of this name"


class PartitionState(NamedTuple):
    """What a leader and the controller wrote last of a partition."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    recovery_state: int


class Assignment(NamedTuple):
    """The replicas of a partition, those that are being added and removed among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(slots=True)
class Topic:
    """A topic of the tree; `id_text` is None in trees of before 2.8."""

    path: str
    id_text: str | None = None
    assignments: dict[int, Assignment] = field(default_factory=dict)
    states: dict[int, tuple[str, PartitionState]] = field(default_factory=dict)
    """With the path that says so."""
    leaders: dict[int, int] = field(default_factory=dict)
    isrs: dict[int, tuple[str, tuple[int, ...], int]] = field(default_factory=dict)
    """Of the first design, with the path, and the version of the node."""


@dataclass(slots=True)
class Topics:
    """Gathers the nodes of topics, in any order; `records` makes of them what they add up to."""

    findings: Findings
    by_name: dict[str, Topic] = field(default_factory=dict)
    reassigned: dict[tuple[str, int], tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """What was asked for and not begun, with the path that asks."""
    added: dict[tuple[str, int], tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    deletions: dict[str, str] = field(default_factory=dict)
    """Paths by the names of topics whose deletion was asked for."""
    drawn_ids: int = 0
    """Topics that had no id, and got one."""

    def gather(self, place: Place, node: Node) -> None:
        """Take a node of one of the kinds below; raises DamagedNode."""
        match place:
            case Place(Kind.TOPIC, (name,)):
                self._topic(name, node)
            case Place(Kind.REPLICAS, (name, number)):
                replicas = read_numbers(node.data)
                self._of(name).assignments.setdefault(_partition(number), Assignment(replicas))
            case Place(Kind.LEADER, (name, number)):
                self._of(name).leaders[_partition(number)] = read_number(node.data)
            case Place(Kind.ISR, (name, number)):
                found = (node.path, read_numbers(node.data), node.version)
                self._of(name).isrs[_partition(number)] = found
            case Place(Kind.STATE, (name, number)):
                self._of(name).states[_partition(number)] = (node.path, _state(node))
            case Place(Kind.REASSIGNMENTS, _):
                for each in read(ReassignmentsNode, node.data).partitions:
                    self.reassigned[each.topic, each.partition] = (node.path, each.replicas)
            case Place(Kind.REASSIGNED, (name, number)):
                self.reassigned[name, _partition(number)] = (node.path, read_numbers(node.data))
            case Place(Kind.ADDED, (name, number)):
                self.added[name, _partition(number)] = (node.path, read_numbers(node.data))
            case Place(Kind.REMOVED, _):
                self.findings.left_out.append(Noted(node.path, "no Kafka removes a partition of a topic"))
            case Place(Kind.DELETION, (name,)):
                self.deletions[name] = node.path
            case _:
                raise AssertionError(place)

    def _of(self, name: str) -> Topic:
        return self.by_name.setdefault(name, Topic(""))

    def _topic(self, name: str, node: Node) -> None:
        topic = self._of(name)
        topic.path = node.path
        if not node.data:
            return  # of the first design: its partitions have nodes of their own
        found = read_topic(node.data)
        topic.id_text = found.topic_id
        for number, replicas in found.partitions.items():
            topic.assignments[number] = Assignment(
                replicas, found.adding_replicas.get(number, ()), found.removing_replicas.get(number, ())
            )

    def records(self, rng: random.Random) -> Iterator[TopicRecord | PartitionRecord]:
        """Yield a record of each topic, after it those of its partitions; `rng` draws ids for topics without one."""
        self._add_partitions()
        self._begin_reassignments()
        taken: set[bytes] = set()
        for name, topic in sorted(self.by_name.items()):
            if name in self.deletions:
                why = f"the deletion of topic {name} was asked for, and its replicas are not deleted yet"
                self.findings.left_out.append(Noted(self.deletions.pop(name), why))
                continue
            try:
                topic_id = self._id_of(topic, taken, rng)
                partitions = [*_partitions(topic_id, topic, self.findings)]
            except DamagedNode as error:
                self.findings.damaged.append(Noted(topic.path or f"/brokers/topics/{name}", str(error)))
                continue
            yield TopicRecord(topic_id, name)
            yield from partitions
        self.findings.left_out += [Noted(path, _OF_NO_TOPIC) for path in self.deletions.values()]

    def _id_of(self, topic: Topic, taken: set[bytes], rng: random.Random) -> TopicId:
        if topic.id_text is None:
            self.drawn_ids += 1
            found = random_uuid(rng)
        else:
            try:
                found = uuid_from_text(topic.id_text)
            except ValueError as error:
                raise DamagedNode(f"topic_id: {error}") from error
        if found in taken or is_reserved(found):
            raise DamagedNode(f"topic_id {topic.id_text} is another topic's, or has a meaning of its own")
        taken.add(found)
        return TopicId(found)

    def _add_partitions(self) -> None:
        for (name, number), (path, replicas) in self.added.items():
            topic = self.by_name.get(name)
            if topic is None:
                self.findings.left_out.append(Noted(path, _OF_NO_TOPIC))
            elif number not in topic.assignments:
                topic.assignments[number] = Assignment(replicas)

    def _begin_reassignments(self) -> None:
        """Let reassignments that were asked for begin, as the controller would have; one under way is replaced by it."""
        for (name, number), (path, target) in self.reassigned.items():
            topic = self.by_name.get(name)
            before = None if topic is None else topic.assignments.get(number)
            if topic is None or before is None:
                self.findings.left_out.append(
                    Noted(path, _OF_NO_TOPIC if topic is None else _STATE_OF_NOBODY)
                )
                continue
            if not target or len({*target}) != len(target):
                self.findings.damaged.append(
                    Noted(path, f"{name}:{number} cannot get the replicas {[*target]}")
                )
                continue
            present = tuple(one for one in before.replicas if one not in before.adding)
            topic.assignments[number] = Assignment(
                (*target, *(one for one in before.replicas if one not in target)),
                tuple(one for one in target if one not in present),
                tuple(one for one in before.replicas if one not in target),
            )


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise DamagedNode(f"{text!r} is no number of a partition")
    return int(text)


def _state(node: Node) -> PartitionState:
    found = read_state(node.data)
    if found.leader < NO_LEADER or not 0 <= found.leader_epoch < INT32_MAX:
        raise DamagedNode(f"leader {found.leader} in leader epoch {found.leader_epoch}")
    if found.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise DamagedNode(f"leader_recovery_state {found.leader_recovery_state}")
    return PartitionState(
        found.leader, found.isr, found.leader_epoch, node.version, found.leader_recovery_state
    )


def _partitions(topic_id: TopicId, topic: Topic, findings: Findings) -> Iterator[PartitionRecord]:
    """Yield the partitions of a topic in order; raises DamagedNode."""
    numbers = sorted(topic.assignments)
    if not numbers:
        raise DamagedNode("it has no partition")
    if numbers != [*range(len(numbers))]:
        raise DamagedNode(f"its partitions are not numbered from 0 on: {_some(numbers)}")
    if len(numbers) > PARTITIONS_PER_TOPIC_MAX:
        raise DamagedNode(
            f"it has {len(numbers)} partitions, and a topic here {PARTITIONS_PER_TOPIC_MAX} at most"
        )
    states = _states(topic)
    for number, (path, _) in states.items():
        if number not in topic.assignments:
            findings.left_out.append(Noted(path, _STATE_OF_NOBODY))
    for number in numbers:
        found = states.get(number)
        try:
            yield _record(topic_id, number, topic.assignments[number], None if found is None else found[1])
        except DamagedNode as error:
            findings.damaged.append(Noted(topic.path if found is None else found[0], str(error)))


def _states(topic: Topic) -> Mapping[int, tuple[str, PartitionState]]:
    """Return the states of partitions, those of the first design among them."""
    old = {
        number: (path, PartitionState(topic.leaders.get(number, NO_LEADER), isr, 0, version, RECOVERED))
        for number, (path, isr, version) in topic.isrs.items()
    }
    return {**old, **topic.states}


def _record(
    topic_id: TopicId, number: int, assignment: Assignment, state: PartitionState | None
) -> PartitionRecord:
    """Return a partition without a leader; one that has no state never had a leader, and all its replicas are in sync.

    A leader that the tree names does not run any more, so its leadership ends here: each epoch of the partition rises by 1.
    """
    replicas = assignment.replicas
    _check_ids(number, "replicas", replicas)
    if state is None:
        state = PartitionState(NO_LEADER, replicas, 0, 0, RECOVERED)
    _check_ids(number, "isr", state.isr)
    if not {*state.isr} <= {*replicas}:
        raise DamagedNode(f"partition {number} has the ISR {[*state.isr]} and the replicas {[*replicas]}")
    if not {*assignment.adding, *assignment.removing} <= {*replicas}:
        raise DamagedNode(f"partition {number} adds or removes a replica that it has not")
    steps = int(state.leader != NO_LEADER)
    return PartitionRecord(
        topic_id,
        number,
        _ids(replicas),
        _ids([one for one in replicas if one in state.isr]),
        NO_LEADER,
        state.leader_epoch + steps,
        state.partition_epoch + steps,
        state.recovery_state,
        _ids(assignment.adding),
        _ids(assignment.removing),
        (),
        (),
        (MIGRATING,) * len(replicas),
    )


def _check_ids(number: int, what: str, ids: Sequence[int]) -> None:
    if not ids or len({*ids}) != len(ids) or min(ids) < 0 or max(ids) > INT32_MAX:
        raise DamagedNode(f"partition {number}: {what} {[*ids]}")


def _ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown}, ..."
