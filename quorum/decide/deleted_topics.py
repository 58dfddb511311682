"""Pure: topics that were deleted for a time: how they go, come back within it, or end after it.

A deleted topic is hidden from all clients, and its name is free. Its partitions keep their replicas and the ISR that they
had. They have no leaders, so no message is acknowledged that not all of the ISR have: a broker that is fenced, or
restarts cleanly, still has all. A broker leaves these ISRs if it may have lost messages: if it registers after an unclean
end, is removed, or reports that the directory of its replica failed.

The time is the log's own (`MetadataImage.elapsed_ms`), so a clock that jumps, or another leader's, ends no window early.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from metadata_log.batch import Cause
from metadata_log.errors import (
    InvalidRequest,
    PolicyViolation,
    Rejected,
    TopicAlreadyExists,
    UndeleteWindowPassed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from metadata_log.ids import TopicId, uuid_text
from metadata_log.image.configs import with_settings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import DeletedTopic, TopicImage
from metadata_log.limits import DELETED_TOPICS_MAX, LOG_TIME_STEP_MS
from metadata_log.records.configs import TOPIC, ConfigRecord, is_sensitive
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import (
    KeptSetting,
    RemoveTopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision, ElectionDue
from quorum.decide.elections import Electorate
from quorum.decide.items import ManyItems, check_fits
from quorum.decide.topic_names import check_collision


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeleteTopics(ManyItems):
    """Restore deleted topics, by name or by id; each gets a result of its own."""

    topics: tuple[str | TopicId, ...]


_VISITS_BETWEEN_LOOKS: Final = 64
"""Partitions visited between two looks at the clock."""


class TopicUndeleted(NamedTuple):
    """What became of one topic of a request, or the error's name and text."""

    name: str
    topic_id: TopicId | None
    error: str | None = None
    message: str | None = None
    partitions: int = -1


class TopicsUndeleted(NamedTuple):
    """What became of each topic, in the order of the request; of a topic named twice, once."""

    results: tuple[TopicUndeleted, ...]


class Ending:
    """Makes the records that end the topics of one request: for a time, if the settings say so, or with `now` for ever."""

    def __init__(self, context: DecideContext, *, now: bool) -> None:
        self._context = context
        self._window_ms = 0 if now else context.topic_defaults.undelete_window_ms
        self._room = DELETED_TOPICS_MAX - len(context.image.topics.deleted)

    def record(self, topic: TopicImage) -> Record:
        """Return the record that ends a topic.

        Raises:
            PolicyViolation: as many topics as can be kept are deleted already.
        """
        if not self._window_ms:
            return RemoveTopicRecord(topic.topic_id)
        self._room -= 1
        if self._room < 0:
            raise PolicyViolation(
                f"{DELETED_TOPICS_MAX} deleted topics can be restored, and no more are kept: delete this one at once "
                "(topics delete --now), or end others so"
            )
        context = self._context
        configs: Mapping[str, str] = context.image.configs.get((TOPIC, topic.name)) or {}
        # A setting that Kafka does not know, as an older Kafka's, may be a secret, and has no effect: it is not kept.
        kept = tuple(
            KeptSetting(name, configs[name]) for name in sorted(configs) if not is_sensitive(TOPIC, name)
        )
        return TopicTombstoneRecord(topic.topic_id, topic.name, context.unix_ms, self._window_ms, kept, 0)


def cause_of_deletion(records: Iterable[Record]) -> Cause | None:
    """Return the cause of a batch that deletes topics; None where all of them end for ever, as in Kafka."""
    return (
        Cause("TOPIC_DELETED", None, {})
        if any(isinstance(record, TopicTombstoneRecord) for record in records)
        else None
    )


def deleted_topic(image: MetadataImage, named: str | TopicId) -> DeletedTopic:
    """Return a deleted topic by its name or id.

    Raises:
        UnknownTopicOrPartition, UnknownTopicId: there is none.
        InvalidRequest: several had the name.
    """
    if not isinstance(named, str):
        found = image.topics.deleted.get(named)
        if found is None:
            raise UnknownTopicId(f"no deleted topic has the id {uuid_text(named)}")
        return found
    return _only(named, [each for each in image.topics.deleted.values() if each.topic.name == named])


def _only(name: str, found: list[DeletedTopic]) -> DeletedTopic:
    if not found:
        raise UnknownTopicOrPartition(f"no topic {name!r} was deleted that can be restored")
    if len(found) > 1:
        ids = ", ".join(sorted(uuid_text(each.topic.topic_id) for each in found))
        raise InvalidRequest(f"{len(found)} deleted topics were named {name!r}: give the id of one ({ids})")
    return found[0]


def undelete(context: DecideContext, command: UndeleteTopics) -> Decision:
    """Decide that deleted topics come back, each under its id, with its settings and partitions.

    One that is refused changes nothing for the others. Their partitions get leaders in the same batch, as many as one part
    of a change holds; the elections of the controller elect the rest.

    Raises:
        PolicyViolation: they need more records than one batch holds.
    """
    image = context.image
    times = Counter(command.topics)
    by_name: dict[str, list[DeletedTopic]] = {}
    for each in image.topics.deleted.values():
        by_name.setdefault(each.topic.name, []).append(each)
    restored: dict[str, DeletedTopic] = {}
    results: dict[str | TopicId, TopicUndeleted] = {}
    for named in command.topics:
        topic_id, name = (None, named) if isinstance(named, str) else (named, "")
        try:
            if times[named] > 1:
                raise InvalidRequest("the topic is given twice")
            found = _to_restore(image, named, by_name)
            topic_id, _, partitions = found.topic
            name = found.topic.name
            if found.left_ms(image.elapsed_at(context.unix_ms)) <= 0:
                raise UndeleteWindowPassed(
                    f"topic {name!r} could be restored for {found.grace_ms} ms, which have passed"
                )
            if name in image.topics.ids or name in restored:
                raise TopicAlreadyExists(
                    f"another topic is named {name!r} now: delete it, and restore this one by its id "
                    f"{uuid_text(topic_id)}"
                )
            check_collision(image, name)
        except Rejected as refusal:
            results[named] = TopicUndeleted(name, topic_id, refusal.error, refusal.message)
            continue
        restored[name] = found
        results[named] = TopicUndeleted(name, topic_id, partitions=len(partitions))
    records = [record for deleted in restored.values() for record in _restoring(deleted)]
    check_fits(len(records), "records")
    elected, more = _elections(context, restored.values(), room=context.records_max - len(records))
    return Decision(
        records=[*records, *elected],
        outcome=TopicsUndeleted(tuple(results.values())),
        cause=Cause("TOPIC_UNDELETED", None, {}) if records else None,
        session_changes=(ElectionDue(None),) if more else (),
    )


def _to_restore(
    image: MetadataImage, named: str | TopicId, by_name: dict[str, list[DeletedTopic]]
) -> DeletedTopic:
    if isinstance(named, str):
        if named in image.topics.ids and named not in by_name:
            raise TopicAlreadyExists(f"topic {named!r} is not deleted")
        return _only(named, by_name.get(named, []))
    if named in image.topics.by_id:
        raise TopicAlreadyExists(f"topic {image.topics.by_id[named].name!r} is not deleted")
    return deleted_topic(image, named)


def _restoring(deleted: DeletedTopic) -> list[Record]:
    name = deleted.topic.name
    settings = [ConfigRecord(TOPIC, name, setting, value) for setting, value in deleted.configs]
    return [TopicRestoreRecord(deleted.topic.topic_id), *settings]


def _elections(
    context: DecideContext, restored: Iterable[DeletedTopic], *, room: int
) -> tuple[list[Record], bool]:
    """Return elections of topics that come back, as many as there is room and time for, and whether others are left."""
    topics, configs = context.image.topics.by_id, context.image.configs
    for deleted in restored:
        topics = topics.set(deleted.topic.topic_id, deleted.topic)
        if deleted.configs:
            configs = with_settings(configs, (TOPIC, deleted.topic.name), deleted.configs)
    image = replace(context.image, topics=replace(context.image.topics, by_id=topics), configs=configs)
    electorate = Electorate(structs.replace(context, image=image))
    records: list[Record] = []
    visited = 0
    for deleted in restored:
        for partition_id, partition in enumerate(deleted.topic.partitions):
            visited += 1
            is_over = visited % _VISITS_BETWEEN_LOOKS == 0 and context.is_turn_over()
            if len(records) >= room or is_over:
                return records, True
            change = electorate.change(deleted.topic.topic_id, partition_id, partition)
            records += [] if change is None else [change]
    return records, False


class Expiry:
    """Removes deleted topics whose time has passed, in parts; while there are any, it lets the log's time go on."""

    operation: Final = "expireDeletedTopics"

    def part(self, context: DecideContext) -> Decision:
        """Return the removals of one part; with `more` others are due at once."""
        image, deleted = context.image, context.image.topics.deleted
        if not deleted:
            return Decision()
        elapsed_ms = image.elapsed_at(context.unix_ms)
        due = sorted(topic_id for topic_id, each in deleted.items() if each.left_ms(elapsed_ms) <= 0)
        records: list[Record] = []
        partitions = 0
        for topic_id in due:
            partitions += len(deleted[topic_id].topic.partitions)
            if records and partitions > context.records_max:
                break
            records.append(RemoveTopicRecord(topic_id))
        if records:
            cause = Cause("UNDELETE_WINDOW_PASSED", None, {})
            return Decision(records=records, cause=cause, more=len(records) < len(due))
        # After the last batch's time, too: time would stand still until this clock has caught up with another one.
        if not 0 <= context.unix_ms - image.last_time_ms < LOG_TIME_STEP_MS // 2:
            return Decision(records=(NoOpRecord(),), cause=Cause("UNDELETE_WINDOW_COUNTED", None, {}))
        return Decision()
