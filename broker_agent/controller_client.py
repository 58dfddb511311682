"""Edge: HTTP to the controllers: one call, one outcome; nothing that a network or a peer can do raises."""

from types import TracebackType
from typing import Final, Self

import aiohttp
import msgpack

from broker_agent.session import Call, Fetched, Outcome, Refused, Unreachable
from metadata_log.errors import InvalidRequest, MetadataError, error_named
from metadata_log.limits import FETCH_BYTES_MAX, HTTP_BODY_TIMEOUT_MS, MIB
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import Registered
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest, decode_fetch_body
from metadata_log.wire.shapes import Shape, check_text, read_shape

MSGPACK: Final = "application/msgpack"
CONNECT_MAX_MS: Final = 500
"""A controller that does not even accept a connection by then is black-holed; the next one is asked."""
ANSWER_BYTES_MAX: Final = FETCH_BYTES_MAX + MIB
"""Frames of one fetch and the head before them; a longer answer is none of ours."""


class _ErrorBody(Shape, frozen=True, forbid_unknown_fields=False):
    """What a broker reads of a controller's error."""

    error: str
    message: str


class ControllerClient:
    """Keeps one connection to each controller alive; one call is under way at a time."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            headers={"Content-Type": MSGPACK, "Accept": MSGPACK},
            # Frames come as stored; a controller compresses nothing.
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """The session, for downloads beside our own calls."""
        assert self._http is not None, "the client is used inside its `async with`"
        return self._http

    async def perform(self, call: Call) -> Outcome:
        """Send one request and return what came of it."""
        path = "/v1/metadata/fetch" if isinstance(call.request, FetchRequest) else "/v1/brokers/register"
        timeout = aiohttp.ClientTimeout(
            total=(call.silence_max_ms + HTTP_BODY_TIMEOUT_MS) / 1000,
            sock_connect=min(CONNECT_MAX_MS, call.silence_max_ms) / 1000,
            sock_read=call.silence_max_ms / 1000,
        )
        try:
            async with self.http.post(
                call.url + path,
                data=msgpack.packb(call.request.to_map()),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await _body(response)
                session_timeout_ms = _session_timeout_ms(response)
                if response.status != 200:
                    return Refused(
                        error=_error(response.status, body),
                        controller_url=response.headers.get("X-Controller"),
                    )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Unreachable(reason=str(error) or type(error).__name__)
        except InvalidRequest as error:
            return Unreachable(reason=error.message)
        try:
            if isinstance(call.request, FetchRequest):
                answer, frames = decode_fetch_body(body)
                return Fetched(answer=answer, frames=frames, session_timeout_ms=session_timeout_ms)
            return Registered.from_map(unpack(body))
        except InvalidRequest as error:
            return Unreachable(reason=f"its answer is not understood: {error.message}")


def _session_timeout_ms(response: aiohttp.ClientResponse) -> int | None:
    """Return what a controller says of its session timeout; None where it says nothing of use."""
    text = response.headers.get(SESSION_TIMEOUT_HEADER, "")
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return a body of bounded size.

    Raises:
        InvalidRequest: it is larger than any answer of ours.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise InvalidRequest(f"its answer exceeds {ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _error(status: int, body: bytes) -> MetadataError:
    """Return the error that a controller sent as a map.

    Raises:
        InvalidRequest: it is no such map; something between us and the controller answered.
    """
    try:
        sent = read_shape(unpack(body), _ErrorBody, "error")
        check_text("error.error", sent.error)
        check_text("error.message", sent.message, bytes_max=MIB)
        return error_named(sent.error, sent.message)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"it answered HTTP {status} without an error of ours: {error.message}"
        ) from error
