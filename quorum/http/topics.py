"""Edge: topics over HTTP: list, describe, create, delete, restore. Tests: tests/unit/quorum/http/test_administration.py."""

from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType, field, structs

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnknownTopicOrPartition
from metadata_log.ids import BrokerId, TopicId, uuid_from_text, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import TopicImage, list_deleted
from metadata_log.image.topics import list_topics as rows_of
from metadata_log.image.views import describe_at_length, has_many_partitions, topic_json
from metadata_log.items import Items
from metadata_log.node.clock import unix_ms
from metadata_log.node.http.query import flag
from metadata_log.node.http.routes import FLAG, NAME, NUMBER, one_of
from metadata_log.wire.shapes import INT32_MAX, Int32, Shape, TextMap, check_text, check_text_map, read_shape
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.placement import Placement
from quorum.decide.topic_outcomes import TopicCreated, TopicsChanged
from quorum.decide.topics import (
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicDeleted,
    TopicsDeleted,
)
from quorum.http.bodies import integer, read_no_body
from quorum.http.door import Door, Write, carry_out, items_of, results_as
from quorum.http.routes import AS_FRESH, TRIAL, reading, topic_in_path, writing
from quorum.views.topic_window import WINDOW_MAX, topic_window

Replicas = Annotated[
    tuple[Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)], ...], Meta(max_length=limits.LIST_ITEMS_MAX)
]
Assignment = Annotated[tuple[Replicas, ...], Meta(max_length=limits.PARTITIONS_PER_TOPIC_MAX + 1)]
"""The replicas of each partition; one partition too many is left to the decision, which has words for it."""


class NewTopicShape(Shape, frozen=True):
    """A topic to create, as clients describe it; the fields are those of CreateTopic."""

    name: str
    partitions: Int32 = -1
    replication_factor: Int32 = -1
    assignment: Assignment | None = None
    configs: TextMap = field(default_factory=dict)
    placement: Placement = Placement.STRIPED


class NewTopicAlone(NewTopicShape, frozen=True):
    validate_only: bool = False


class NewTopics(Shape, frozen=True):
    topics: Annotated[tuple[NewTopicShape, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


class NamedTopic(Shape, frozen=True):
    name: str
    now: bool = False


class TopicByNameOrId(Shape, frozen=True):
    name: str | UnsetType = UNSET
    topic_id: str | UnsetType = UNSET


class TopicsByNameOrId(Shape, frozen=True):
    topics: Annotated[tuple[TopicByNameOrId, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    all_or_nothing: bool = False


class EndingTopics(TopicsByNameOrId, frozen=True):
    now: bool = False


NO_TOPIC: Final = TopicId(bytes(16))
"""The id of a topic that was only validated."""


async def list_topics(door: Door, request: web.Request) -> web.StreamResponse:
    if flag(request, "deleted"):
        return await _list_deleted(door, request)
    if "limit" in request.query:
        return await _list_window(door, request)
    if request.query.keys() & {"contains", "after", "only"}:
        raise InvalidRequest("contains, after and only narrow a window: say how many topics by limit")
    return await door.read_large(
        request,
        lambda image: items_of(image, rows_of(image.topics)),
        is_large=lambda image: len(image.topics.ids) > limits.LARGE_VIEW_ITEMS,
    )


async def _list_window(door: Door, request: web.Request) -> web.StreamResponse:
    query = request.query
    limit = integer(query["limit"], "limit")
    if not 1 <= limit <= WINDOW_MAX:
        raise InvalidRequest(f"limit must be from 1 to {WINDOW_MAX}")

    def view(image: MetadataImage) -> dict[str, Any]:
        rows, total, last = topic_window(
            image,
            contains=query.get("contains", ""),
            after=query.get("after", ""),
            only=query.get("only"),
            limit=limit,
        )
        return items_of(image, rows) | {"total": total, "next_after": last}

    return await door.read_large(
        request, view, is_large=lambda image: len(image.topics.ids) > limits.LARGE_VIEW_ITEMS
    )


async def _list_deleted(door: Door, request: web.Request) -> web.StreamResponse:
    """List the topics that can be restored, by name, and say for how long a topic that is deleted now could be."""
    now_ms = unix_ms()

    def view(image: MetadataImage) -> dict[str, Any]:
        rows = list_deleted(image.topics, elapsed_ms=image.elapsed_at(now_ms))
        items = Items(len(rows), ({**row, "gone_at_ms": now_ms + row["left_ms"]} for row in rows))
        return {"undelete_window_ms": door.settings.topics.undelete_window_ms, **items_of(image, items)}

    return await door.read_large(
        request, view, is_large=lambda image: len(image.topics.deleted) > limits.LARGE_VIEW_ITEMS
    )


async def show_topic(door: Door, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]

    def view(image: MetadataImage) -> dict[str, Any]:
        topic = image.topics.named(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return describe_at_length(image, topic)

    def is_large(image: MetadataImage) -> bool:
        topic = image.topics.named(name)
        return topic is not None and has_many_partitions(topic)

    return await door.read_large(request, view, is_large=is_large)


class GrownTopic(Shape, frozen=True):
    """A topic that gets more partitions; `partitions` is the number it shall have."""

    name: str
    partitions: Int32
    assignment: Assignment | None = None
    placement: Placement = Placement.STRIPED


class GrownTopics(Shape, frozen=True):
    topics: Annotated[tuple[GrownTopic, ...], Meta(min_length=1, max_length=limits.REQUEST_ITEMS_MAX)]
    validate_only: bool = False
    all_or_nothing: bool = False


def _grown_topics(body: Any) -> CreatePartitions:
    wanted = read_shape(body, GrownTopics, "topics")
    for one in wanted.topics:
        check_text("topics.name", one.name)
    return CreatePartitions(
        topics=tuple(
            MorePartitions(one.name, one.partitions, one.assignment, one.placement) for one in wanted.topics
        ),
        validate_only=wanted.validate_only,
        all_or_nothing=wanted.all_or_nothing,
    )


async def delete_topic(door: Door, request: web.Request) -> web.Response:
    await read_no_body(request)
    command = DeleteTopic(name=request.match_info["name"], now=flag(request, "now"))
    carry_it_out = door.try_out if flag(request, "validate_only") else door.write
    return await carry_it_out(request, command, _deleted)


def _new_topics(body: Any) -> CreateTopic | CreateTopics:
    """Return the creation of one topic, or, where a body has "topics", of many."""
    if not (isinstance(body, dict) and "topics" in body):
        topic = read_shape(body, NewTopicAlone, "topic")
        _check_new_topic(topic)
        return CreateTopic(**structs.asdict(topic))
    wanted = read_shape(body, NewTopics, "topics")
    for one in wanted.topics:
        _check_new_topic(one)
    return CreateTopics(
        topics=tuple(
            NewTopic(
                one.name,
                one.partitions,
                one.replication_factor,
                tuple(enumerate(one.assignment or ())),
                one.configs,
                one.placement,
            )
            for one in wanted.topics
        ),
        validate_only=wanted.validate_only,
        all_or_nothing=wanted.all_or_nothing,
    )


def _check_new_topic(topic: NewTopicShape) -> None:
    check_text("topic.name", topic.name)
    check_text_map("topic.configs", topic.configs, value_bytes_max=limits.CONFIG_VALUE_BYTES_MAX)


def _created_status(command: CreateTopic | CreateTopics) -> int:
    """Return 201 where the one topic asked for is created; of many, each has a result of its own."""
    return 200 if isinstance(command, CreateTopics) or command.validate_only else 201


def _ending_topics(body: Any) -> DeleteTopic | DeleteTopics:
    """Return the end of one topic, or, where a body has "topics", of many."""
    if not (isinstance(body, dict) and "topics" in body):
        topic = read_shape(body, NamedTopic, "topic")
        return DeleteTopic(name=topic.name, now=topic.now)
    return _many_ending_topics(body)


def _many_ending_topics(body: Any) -> DeleteTopics:
    wanted = read_shape(body, EndingTopics, "topics")
    return DeleteTopics(
        topics=tuple(map(_given, wanted.topics)), now=wanted.now, all_or_nothing=wanted.all_or_nothing
    )


def _undelete(body: Any) -> UndeleteTopics:
    wanted = read_shape(body, TopicsByNameOrId, "topics")
    return UndeleteTopics(topics=tuple(map(_given, wanted.topics)), all_or_nothing=wanted.all_or_nothing)


def _given(topic: TopicByNameOrId) -> str | TopicId:
    if isinstance(topic.name, str) and topic.topic_id is UNSET:
        check_text("topics.name", topic.name)
        return topic.name
    if isinstance(topic.topic_id, str) and topic.name is UNSET:
        try:
            return TopicId(uuid_from_text(topic.topic_id))
        except ValueError as error:
            raise InvalidRequest(f"topics.topic_id: {error}") from error
    raise InvalidRequest('give each of the topics by its "name" or its "topic_id"')


def _created(outcome: TopicCreated | TopicsChanged) -> dict[str, Any]:
    if isinstance(outcome, TopicsChanged):
        return _changed(outcome)
    described = topic_json(
        TopicImage(outcome.topic_id or NO_TOPIC, outcome.name, outcome.partitions), dict(outcome.configs)
    )
    return described if outcome.topic_id is not None else described | {"topic_id": None}


def _deleted(outcome: TopicDeleted | TopicsDeleted) -> dict[str, Any]:
    if isinstance(outcome, TopicsDeleted):
        return _changed(outcome)
    return {"name": outcome.name, "topic_id": uuid_text(outcome.topic_id)}


_changed: Final = results_as("topics")
WRITES: Final = {
    "CreateTopics": Write(_new_topics, _created, _created_status),
    "DeleteTopics": Write(_ending_topics, _deleted),
    "CreatePartitions": Write(_grown_topics, _changed),
    "UndeleteTopics": Write(_undelete, _changed),
}
ROUTES: Final = (
    reading(
        "/v1/topics",
        list_topics,
        "DescribeTopicPartitions",
        {
            **AS_FRESH,
            "deleted": FLAG,
            "limit": NUMBER,
            "contains": NAME,
            "after": NAME,
            "only": one_of("unavailable", "under-replicated", "not-preferred", "reassigning"),
        },
    ),
    writing("POST", "/v1/topics", carry_out(WRITES["CreateTopics"]), "CreateTopics"),
    writing("POST", "/v1/topics/partitions", carry_out(WRITES["CreatePartitions"]), "CreatePartitions"),
    writing(
        "POST", "/v1/topics/delete", carry_out(Write(_many_ending_topics, _changed)), "DeleteTopics", TRIAL
    ),
    writing("POST", "/v1/topics/undelete", carry_out(WRITES["UndeleteTopics"]), "UndeleteTopics", TRIAL),
    reading("/v1/topics/{name}", show_topic, "DescribeTopicPartitions", resources=topic_in_path),
    writing("DELETE", "/v1/topics/{name}", delete_topic, "DeleteTopics", {**TRIAL, "now": FLAG}),
)
