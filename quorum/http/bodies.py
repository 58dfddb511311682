"""Edge: what a request holds: its body, its X-Request-Id, and the parameters in its path and query."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import InvalidRequest, UnsupportedMediaType
from metadata_log.ids import BrokerId, Uuid, uuid_from_text
from metadata_log.node.http.answers import JSON, MSGPACK
from metadata_log.node.http.bodies import read_raw
from metadata_log.node.http.encodings import packed
from metadata_log.node.http.identities import of
from metadata_log.node.http.trace import trace_id_of
from metadata_log.node.identity.access import peer_address
from metadata_log.node.threads import Threads
from metadata_log.wire.bodies import check_plain, distinct, unpack
from metadata_log.wire.shapes import INT32_MAX
from quorum.controller.callers import Caller

NDJSON: Final = "application/x-ndjson"
_JSON: Final = json.JSONDecoder(object_pairs_hook=distinct)
"""Made once: `json.loads` makes one for each body, which takes longer than to parse the body of a usual write."""
_HYPHENATED: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SAYS_NOTHING: Final = (b"", b"{}", packed({}))
"""The bodies of clients that send one with every write."""
OCTETS: Final = "application/octet-stream"


async def read_body(request: web.Request, threads: Threads) -> Any:
    """Return the body's value; a large body is decoded in one of `threads`.

    Raises:
        InvalidRequest: the body is not one value of JSON or msgpack, or is nested too deep.
        UnsupportedMediaType: the body claims to be something else.
        ThrottlingQuotaExceeded: too many large bodies wait.
    """
    raw = await read_raw(request)
    decode: Callable[[bytes], Any]
    if request.content_type == MSGPACK:
        decode = unpack
    elif request.content_type == JSON:
        decode = _from_json
    else:
        raise UnsupportedMediaType(f"send {JSON} or {MSGPACK}, not {request.content_type}")
    return decode(raw) if len(raw) <= limits.HTTP_BODY_AT_ONCE_BYTES else await threads.run(decode, raw)


def _from_json(raw: bytes) -> Any:
    try:
        value = _JSON.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    check_plain(value)
    return value


async def read_no_body(request: web.Request) -> None:
    """Refuse a body where none is looked at: what it asks for, such as a trial run, would be ignored.

    Raises:
        InvalidRequest: the body says something, or did not arrive in time.
    """
    if await read_raw(request) not in _SAYS_NOTHING:
        raise InvalidRequest(
            f"{request.method} {request.path} takes no body: what it takes stands in its query"
        )


async def read_broker_body(request: web.Request, threads: Threads) -> Any:
    """Return the value of a body that must be msgpack: brokers send nothing else."""
    body = await read_body(request, threads)
    if request.content_type != MSGPACK:
        raise UnsupportedMediaType(f"brokers speak {MSGPACK}")
    return body


def caller_of(request: web.Request) -> Caller:
    """Return the sender of a request that was let through, without a request id."""
    return Caller(of(request), peer_address(request.transport), trace_id=trace_id_of(request))


def repeating_caller_of(request: web.Request) -> Caller:
    """Return the sender of a request that was let through, with the request id in its header, if there is one.

    Raises:
        InvalidRequest: the header holds no uuid.
    """
    return caller_of(request)._replace(request_id=request_id_of(request))


def request_id_of(request: web.Request) -> Uuid | None:
    text = request.headers.get("X-Request-Id")
    return None if text is None else request_id_from(text, "X-Request-Id")


def request_id_from(text: str, what: str) -> Uuid:
    try:
        return uuid_from_text(text) if len(text) == 22 else _hyphenated(text)
    except ValueError as error:
        raise InvalidRequest(f"{what} must be a uuid as 8-4-4-4-12 or as 22 characters: {error}") from error


def _hyphenated(text: str) -> Uuid:
    if not _HYPHENATED.fullmatch(text):
        raise ValueError(f"not 8-4-4-4-12: {text!r}")
    return Uuid(bytes.fromhex(text.replace("-", "")))


def integer(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise InvalidRequest(f"{what} must be a number, not {text!r}")
    return int(text)


def int32(text: str, what: str) -> int:
    value = integer(text, what)
    if value > INT32_MAX:
        raise InvalidRequest(f"{what} is at most {INT32_MAX}, not {text}")
    return value


def broker_id_of(text: str) -> BrokerId:
    return BrokerId(int32(text, "a broker id"))


def directory_id_of(text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise InvalidRequest(f"directory_id: {error}") from error
