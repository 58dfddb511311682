"""Edge: topics over HTTP: list, describe, create, delete."""

from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta, field, structs

from metadata_log import limits
from metadata_log.errors import UnknownTopicOrPartition
from metadata_log.ids import BrokerId, TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import TopicImage
from metadata_log.image.topics import list_topics as rows_of
from metadata_log.image.views import describe_topic, topic_json
from metadata_log.wire.commands import CreatePartitions, CreateTopic, DeleteTopic, MorePartitions
from metadata_log.wire.shapes import INT32_MAX, Int32, Shape, TextMap, check_text_map, read_shape
from quorum.decide.topics import TopicCreated, TopicDeleted, TopicsChanged
from quorum.http.bodies import read_body, read_raw
from quorum.http.door import Door, Write, items_of

Replicas = Annotated[
    tuple[Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)], ...], Meta(max_length=limits.LIST_ITEMS_MAX)
]
Assignment = Annotated[tuple[Replicas, ...], Meta(max_length=limits.PARTITIONS_PER_TOPIC_MAX + 1)]
"""The replicas of each partition; one partition too many is left to the decision, which has words for it."""


class NewTopic(Shape, frozen=True):
    """A topic to create, as clients describe it; the fields are those of CreateTopic."""

    name: str
    partitions: Int32 = -1
    replication_factor: Int32 = -1
    assignment: Assignment | None = None
    configs: TextMap = field(default_factory=dict)
    validate_only: bool = False


class NamedTopic(Shape, frozen=True):
    name: str


NO_TOPIC: Final = TopicId(bytes(16))
"""Stands in for the id of a topic that was only validated."""


async def list_topics(door: Door, request: web.Request) -> web.Response:
    return await door.read_large(
        request,
        lambda image: items_of(image, rows_of(image.topics)),
        is_large=lambda image: len(image.topics.ids) > limits.LARGE_VIEW_ITEMS,
    )


async def show_topic(door: Door, request: web.Request) -> web.Response:
    name = request.match_info["name"]

    def view(image: MetadataImage) -> dict[str, Any]:
        topic = image.topics.named(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return describe_topic(image, topic)

    def is_large(image: MetadataImage) -> bool:
        topic = image.topics.named(name)
        return topic is not None and len(topic.partitions) > limits.LARGE_VIEW_ITEMS

    return await door.read_large(request, view, is_large=is_large)


async def create_topic(door: Door, request: web.Request) -> web.Response:
    body = await read_body(request, door.bodies)
    command = _new_topic(body)
    return await door.write(request, command, _created, status=_created_status(command))


class GrownTopic(Shape, frozen=True):
    """A topic that gets more partitions; `partitions` is the number it shall have."""

    name: str
    partitions: Int32
    assignment: Assignment | None = None


class GrownTopics(Shape, frozen=True):
    topics: Annotated[tuple[GrownTopic, ...], Meta(min_length=1, max_length=limits.LIST_ITEMS_MAX)]
    validate_only: bool = False


async def create_partitions(door: Door, request: web.Request) -> web.Response:
    return await door.write(request, _grown_topics(await read_body(request, door.bodies)), _changed)


def _grown_topics(body: Any) -> CreatePartitions:
    wanted = read_shape(body, GrownTopics, "topics")
    return CreatePartitions(
        topics=tuple(MorePartitions(one.name, one.partitions, one.assignment) for one in wanted.topics),
        validate_only=wanted.validate_only,
    )


def _changed(outcome: TopicsChanged) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": one.name,
                "error": one.error,
                "message": one.message,
                "topic_id": None if one.topic_id is None else uuid_text(one.topic_id),
                "partitions": one.partitions,
                "replication_factor": one.replication_factor,
            }
            for one in outcome.results
        ]
    }


async def delete_topic(door: Door, request: web.Request) -> web.Response:
    await read_raw(request)
    return await door.write(request, DeleteTopic(name=request.match_info["name"]), _deleted)


def _new_topic(body: Any) -> CreateTopic:
    topic = read_shape(body, NewTopic, "topic")
    check_text_map("topic.configs", topic.configs, value_bytes_max=limits.CONFIG_VALUE_BYTES_MAX)
    return CreateTopic(**structs.asdict(topic))


def _created_status(command: CreateTopic) -> int:
    return 200 if command.validate_only else 201


def _named_topic(body: Any) -> DeleteTopic:
    return DeleteTopic(name=read_shape(body, NamedTopic, "topic").name)


def _created(outcome: TopicCreated) -> dict[str, Any]:
    described = topic_json(
        TopicImage(outcome.topic_id or NO_TOPIC, outcome.name, outcome.partitions), dict(outcome.configs)
    )
    return described if outcome.topic_id is not None else described | {"topic_id": None}


def _deleted(outcome: TopicDeleted) -> dict[str, Any]:
    return {"name": outcome.name, "topic_id": uuid_text(outcome.topic_id)}


WRITES: Final = {
    "CreateTopics": Write(_new_topic, _created, _created_status),
    "DeleteTopics": Write(_named_topic, _deleted),
    "CreatePartitions": Write(_grown_topics, _changed),
}
ROUTES: Final = (
    ("GET", "/v1/topics", list_topics),
    ("POST", "/v1/topics", create_topic),
    ("POST", "/v1/topics/partitions", create_partitions),
    ("GET", "/v1/topics/{name}", show_topic),
    ("DELETE", "/v1/topics/{name}", delete_topic),
)
