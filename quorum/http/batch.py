"""Edge: many commands in one request, each with its own request id, result and offsets."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from metadata_log import limits
from metadata_log.errors import InvalidRequest, MetadataError
from metadata_log.ids import Uuid
from metadata_log.node.http.answers import encoded_items, wants_msgpack
from metadata_log.node.http.encodings import json_bytes, packed
from metadata_log.node.pace import Pace
from metadata_log.wire.commands import Command
from metadata_log.wire.shapes import Shape, read_shape
from quorum.controller.callers import Caller
from quorum.controller.written import Written
from quorum.http import acls, brokers, configs, features, partitions, quotas, topics, users
from quorum.http.bodies import caller_of, read_body, request_id_from
from quorum.http.door import Door, Write, is_large, offsets_of
from quorum.http.routes import writing

KINDS: Final[Mapping[str, Write]] = {
    **topics.WRITES,
    **configs.WRITES,
    **brokers.WRITES,
    **partitions.WRITES,
    **features.WRITES,
    **acls.WRITES,
    **quotas.WRITES,
    **users.WRITES,
}
"""By the operation that a command of a batch names."""


class Item(Shape, frozen=True):
    """One command: `body` is that of the same request alone, or names what is deleted; `id` is its request id."""

    operation: str
    body: Any
    id: str | None = None


class Commands(Shape, frozen=True):
    """A batch as it is described; `write_all` reads each command apart, so that a malformed one stops no other."""

    commands: Annotated[list[Item], Meta(min_length=1, max_length=limits.HTTP_BATCH_COMMANDS_MAX)]


class Batch(Shape, frozen=True):
    commands: Annotated[list[Any], Meta(min_length=1, max_length=limits.HTTP_BATCH_COMMANDS_MAX)]


async def write_all(door: Door, request: web.Request) -> web.Response:
    """Carry out commands in their order, and answer with one result for each, once all are known."""
    if "X-Request-Id" in request.headers:
        raise InvalidRequest('a batch has no X-Request-Id: give each command its own "id"')
    body = await read_body(request, door.bodies)
    items = read_shape(body, Batch, "batch").commands
    commands: list[tuple[Write, Command] | None] = []
    caller = caller_of(request)

    def read_each() -> Iterator[tuple[Command, Caller] | MetadataError]:
        """Read each command just before it is decided, so that both count as one part of the work."""
        for number, item in enumerate(items):
            try:
                kind, command, request_id = _read(item, f"commands[{number}]")
            except InvalidRequest as error:
                commands.append(None)
                yield error
            else:
                commands.append((kind, command))
                yield command, caller._replace(request_id=request_id)

    results = await door.controller.submit_all(read_each())
    as_msgpack = wants_msgpack(request)
    encode = packed if as_msgpack else json_bytes
    encoded: list[bytes] = []
    size, pace = 0, Pace(door.now_ms, pause_ms=0)
    for command, result in zip(commands, results, strict=True):
        await pace.rest_if_due()
        is_short = size >= limits.HTTP_BATCH_ANSWER_BYTES_MAX
        if isinstance(result, Written) and not is_short and is_large(result.outcome):
            shown = partial(_shown, door, command, result, is_short=False)
            encoded.append(await door.made_beside(shown, as_msgpack=as_msgpack))
        else:
            encoded.append(encode(_shown(door, command, result, is_short=is_short)))
        size += len(encoded[-1])
    return encoded_items(request, "results", encoded, headers=door.headers())


def _read(item: object, what: str) -> tuple[Write, Command, Uuid | None]:
    read = read_shape(item, Item, what)
    kind = KINDS.get(read.operation)
    if kind is None:
        raise InvalidRequest(f"{what}.operation must be one of {', '.join(sorted(KINDS))}")
    request_id = None if read.id is None else request_id_from(read.id, f"{what}.id")
    return kind, kind.read(read.body), request_id


def _shown(
    door: Door, command: tuple[Write, Command] | None, result: Written | MetadataError, *, is_short: bool
) -> dict[str, Any]:
    if isinstance(result, MetadataError):
        return {"status": door.refusal(result)[0], **door.error_body(result)}
    assert command is not None
    kind, asked = command
    shown = {} if is_short else kind.answer_of(result.outcome)
    return {"status": kind.status_of(asked), **shown, **offsets_of(result)}


ROUTES: Final = (writing("POST", "/v1/batch", write_all, "Batch"),)
