"""Pure: the analyses once more in plain Python: the oracle that the SQL texts are compared with.

It walks the history record by record, and keeps no more than what a cluster is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.ids import NO_LEADER, NodeId, Uuid
from metadata_log.image.partitions import PartitionImage, without_leader
from metadata_log.records.configs import CLUSTER_DEFAULT, TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.quorum import VotersRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from tests.support.histories import Step
from tests.support.plain_clock import Clock, Reading, gaps

MIN_ISR = "min.insync.replicas"


class Moment(NamedTuple):
    """The cluster after one record."""

    log_offset: int
    now: Reading
    cause_code: str | None
    partitions: Mapping[tuple[str, int, int], PartitionImage]
    """By topic name, offset of the topic's creation, and partition: those that live and are not deleted for a time."""
    hidden_too: Mapping[tuple[str, int, int], PartitionImage]
    """Also those of topics that are deleted."""
    min_isr: Mapping[str | None, int]
    """By topic; None is the cluster's."""


class Spell(NamedTuple):
    topic_name: str
    partition: int
    from_offset: int
    to_offset: int | None
    duration_ms: int
    unknown_ms: int


def moments(history: Sequence[Step]) -> Iterator[Moment]:
    """Yield what the cluster is after each record."""
    names: dict[bytes, tuple[str, int]] = {}
    all_partitions: dict[tuple[str, int, int], PartitionImage] = {}
    hidden: set[bytes] = set()
    min_isr: dict[str | None, int] = {}
    for step, now in zip(history, Clock(history).readings, strict=True):
        batch = step.batch
        for offset, record in enumerate(batch.records, batch.base_offset):
            match record:
                case TopicRecord():
                    names[record.topic_id] = (record.name, offset)
                case RemoveTopicRecord() | TopicTombstoneRecord():
                    hidden.add(record.topic_id)
                    for key, image in all_partitions.items():
                        if key[:2] == names[record.topic_id]:
                            all_partitions[key] = without_leader(image)
                    if isinstance(record, TopicTombstoneRecord) or record.topic_id in names:
                        name = names[record.topic_id][0]
                        if not any(
                            named[0] == name and other not in hidden for other, named in names.items()
                        ):
                            min_isr.pop(name, None)
                case TopicRestoreRecord():
                    hidden.discard(record.topic_id)
                case PartitionRecord():
                    all_partitions[(*names[record.topic_id], record.partition_id)] = PartitionImage._make(
                        record[2:]
                    )
                case PartitionChangeRecord():
                    key = (*names[record.topic_id], record.partition_id)
                    all_partitions[key] = all_partitions[key].changed_by(record)
                case ConfigRecord() if record.name == MIN_ISR:
                    if record.resource_type == TOPIC or record.resource_name == CLUSTER_DEFAULT:
                        of = record.resource_name if record.resource_type == TOPIC else None
                        min_isr.pop(of, None)
                        if record.value is not None and record.value.isdigit():
                            min_isr[of] = int(record.value)
                case _:
                    pass
            gone = {names[topic_id] for topic_id in hidden}
            yield Moment(
                offset,
                now,
                None if batch.envelope.cause is None else batch.envelope.cause.code,
                {key: image for key, image in all_partitions.items() if key[:2] not in gone},
                dict(all_partitions),
                dict(min_isr),
            )


def spells(history: Sequence[Step], holds: Callable[[Moment, str, PartitionImage], bool]) -> list[Spell]:
    """Return when a condition held for each partition."""
    since: dict[tuple[str, int, int], Moment] = {}
    found: list[Spell] = []
    last = None
    for moment in moments(history):
        last = moment
        now = {key for key, image in moment.partitions.items() if holds(moment, key[0], image)}
        for key in [key for key in since if key not in now]:
            began = since.pop(key)
            found.append(_spell(key, began, moment.log_offset, moment.now))
        for key in now:
            since.setdefault(key, moment)
    assert last is not None
    return [*found, *(_spell(key, began, None, last.now) for key, began in since.items())]


def _spell(key: tuple[str, int, int], began: Moment, to_offset: int | None, end: Reading) -> Spell:
    return Spell(key[0], key[2], began.log_offset, to_offset, *(end - began.now)[:2])


def under_replicated(_moment: Moment, _topic: str, image: PartitionImage) -> bool:
    return len(image.isr) < len(image.replicas)


def not_preferred(_moment: Moment, _topic: str, image: PartitionImage) -> bool:
    return image.leader not in {NO_LEADER, image.replicas[0]}


def under_min_isr(moment: Moment, topic: str, image: PartitionImage) -> bool:
    needed = moment.min_isr.get(topic) or moment.min_isr.get(None) or 1
    return len(image.isr) < min(needed, len(image.replicas))


def isr_events(history: Sequence[Step]) -> list[tuple[Any, ...]]:
    """Return offset, topic, partition, who left and who came, of each change of an ISR."""
    found = []
    before: Mapping[tuple[str, int, int], PartitionImage] = {}
    for moment in moments(history):
        for key, image in moment.hidden_too.items():
            old = before.get(key)
            if old is not None and set(old.isr) != set(image.isr):
                out = [broker for broker in old.isr if broker not in image.isr]
                came = [broker for broker in image.isr if broker not in old.isr]
                found.append((moment.log_offset, key[0], key[2], out, came))
        before = moment.hidden_too
    return found


class Change(NamedTuple):
    """A change of one partition, with what stood before it."""

    batch_base: int
    topic_name: str
    cause_code: str | None
    before: PartitionImage
    after: PartitionImage


def changes(history: Sequence[Step]) -> Iterator[Change]:
    """Yield what each PartitionChange did."""
    of = {
        offset: (step.batch.base_offset, record)
        for step in history
        for offset, record in enumerate(step.batch.records, step.batch.base_offset)
    }
    before: Mapping[tuple[str, int, int], PartitionImage] = {}
    for moment in moments(history):
        batch_base, record = of[moment.log_offset]
        if isinstance(record, PartitionChangeRecord):
            for key, image in moment.hidden_too.items():
                if image is not before[key]:
                    yield Change(batch_base, key[0], moment.cause_code, before[key], image)
        before = moment.hidden_too


def leader_moves(history: Sequence[Step]) -> Counter[tuple[Any, ...]]:
    """Return how many leaderships each batch moved: its first offset, its cause, from whom, to whom."""
    return Counter(
        (each.batch_base, each.cause_code, each.before.leader, each.after.leader)
        for each in changes(history)
        if each.before.leader != each.after.leader
    )


def topic_churn(history: Sequence[Step]) -> dict[tuple[str, str], list[int]]:
    """Return changes of leader, losses of it, shrinks and expansions of ISRs, by topic and cause."""
    found: dict[tuple[str, str], list[int]] = {}
    for _, topic_name, cause_code, before, after in changes(history):
        counts = found.setdefault((topic_name, cause_code or ""), [0, 0, 0, 0])
        counts[0] += before.leader != after.leader
        counts[1] += before.leader != after.leader == NO_LEADER
        counts[2] += len(after.isr) < len(before.isr)
        counts[3] += len(after.isr) > len(before.isr)
    return found


CRASH_MS = 600_000
"""A process that registers within this time behind a takeover shows that the one before had ended."""


MISSED_AFTER_MS = 300
"""Whoever falls silent is not followed sooner."""


def takeover_kinds(history: Sequence[Step]) -> dict[int, str]:
    """Return how each takeover came, by the offset of its claim."""
    found: dict[int, str] = {}
    former: NodeId | None = None
    processes: dict[NodeId, Uuid] = {}
    for place, (step, gap) in enumerate(zip(history, gaps(history), strict=True)):
        batch = step.batch
        if (claim := batch.claim) is not None:
            before = [] if place == 0 else history[place - 1].batch.records
            if batch.base_offset == 0:
                kind = "founded"
            elif any(isinstance(record, VotersRecord) for record in before):
                kind = "voters"
            elif claim.controller_id == former:
                kind = "again"
            else:
                assert former is not None, "the first claim founds the cluster"
                kind = _fate_of(former, processes.get(former), history[place:])
                if kind in {"crash", "unknown"} and _is_another(
                    former, processes.get(former), history[place:]
                ):
                    if _is_another(
                        claim.controller_id, processes.get(claim.controller_id), history[place:], ends=1
                    ):
                        kind = "restart"
                    elif _is_handed_over(batch) or (
                        gap.known_ms < MISSED_AFTER_MS and not gap.unknown_ms and not gap.is_step
                    ):
                        kind = "stopped"
            found[batch.base_offset] = kind
            former = claim.controller_id
        for record in batch.records:
            if isinstance(record, RegisterControllerRecord):
                processes[record.controller_id] = record.incarnation_id
    return found


def _is_handed_over(batch: RecordBatch) -> bool:
    cause = batch.envelope.cause
    return cause is not None and "handed_over" in cause.detail


def _fate_of(former: NodeId, process: Uuid | None, later: Sequence[Step]) -> str:
    """Return what the batches from a claim on show of the controller before it."""
    has_claimed = False
    for step in later:
        batch = step.batch
        if batch.claim is not None:
            if has_claimed:
                break
            has_claimed = batch.claim.controller_id == former
        for record in batch.records:
            if isinstance(record, RegisterControllerRecord) and record.controller_id == former:
                if process is None:
                    return "unknown"
                if record.incarnation_id == process:
                    return "handover"
                after_ms = batch.appended_at_ms - later[0].batch.appended_at_ms
                return "crash" if after_ms <= CRASH_MS else "unknown"
    lives_on = has_claimed and process is not None
    return "handover" if lives_on or _is_handed_over(later[0].batch) else "unknown"


def _is_another(
    controller: NodeId, process: Uuid | None, later: Sequence[Step], *, ends: int | None = None
) -> bool:
    """Answer whether the first process that a controller registers from a claim on is another than before.

    The claim after its own next one ends the search; with `ends`, the claim of that number behind the first.
    """
    claims, is_back = -1, False
    for step in later:
        claim = step.batch.claim
        if claim is not None:
            claims += 1
            if (ends is not None and claims >= ends) or (ends is None and is_back):
                return False
            is_back = is_back or (claims > 0 and claim.controller_id == controller)
        for record in step.batch.records:
            if isinstance(record, RegisterControllerRecord) and record.controller_id == controller:
                return process is not None and record.incarnation_id != process
    return False
