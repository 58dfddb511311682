"""Edge: topics over HTTP: list, describe, create, delete."""

from typing import Any, Final

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import UnknownTopicOrPartition
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import list_topics as rows_of
from metadata_log.image.views import describe_topic
from metadata_log.wire.commands import CreateTopic, DeleteTopic
from metadata_log.wire.fields import Fields
from quorum.http.bodies import read_body, read_raw
from quorum.http.door import Door


async def list_topics(door: Door, request: web.Request) -> web.Response:
    return await door.read_items(request, lambda image: rows_of(image.topics))


async def show_topic(door: Door, request: web.Request) -> web.Response:
    name = request.match_info["name"]

    def view(image: MetadataImage) -> dict[str, Any]:
        topic = image.topics.named(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return describe_topic(image, topic)

    return door.ok(request, await door.read(request, view))


async def create_topic(door: Door, request: web.Request) -> web.Response:
    body, raw = await read_body(request)
    fields = Fields(body, "topic")
    command = CreateTopic(
        name=fields.text("name", bytes_max=limits.HTTP_BODY_BYTES_MAX),
        partitions=fields.integer("partitions", low=-(2**31), high=2**31 - 1, default=-1),
        replication_factor=fields.integer("replication_factor", low=-(2**31), high=2**31 - 1, default=-1),
        assignment=_assignment(fields),
        configs=fields.text_map("configs", bytes_max=limits.CONFIG_VALUE_BYTES_MAX, default={}),
        validate_only=fields.boolean("validate_only", default=False),
    )
    fields.done()
    return await door.write(request, command, raw, status=200 if command.validate_only else 201)


async def delete_topic(door: Door, request: web.Request) -> web.Response:
    return await door.write(request, DeleteTopic(name=request.match_info["name"]), await read_raw(request))


def _assignment(fields: Fields) -> tuple[tuple[BrokerId, ...], ...] | None:
    def replicas(value: object) -> tuple[BrokerId, ...]:
        if not isinstance(value, list | tuple) or len(value) > limits.LIST_ITEMS_MAX:
            raise fields.wrong("assignment", "a list of lists of broker ids")
        for broker_id in value:
            if isinstance(broker_id, bool) or not isinstance(broker_id, int) or not 0 <= broker_id < 2**31:
                raise fields.wrong("assignment", "a list of lists of broker ids")
        return tuple(map(BrokerId, value))

    if not fields.has("assignment"):
        return None
    return fields.optional(
        "assignment",
        lambda value: Fields({"assignment": value}, "topic").items(
            "assignment", replicas, most=limits.PARTITIONS_PER_TOPIC_MAX + 1
        ),
    )


ROUTES: Final = (
    ("GET", "/v1/topics", list_topics),
    ("POST", "/v1/topics", create_topic),
    ("GET", "/v1/topics/{name}", show_topic),
    ("DELETE", "/v1/topics/{name}", delete_topic),
)
