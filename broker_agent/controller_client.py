"""Edge: HTTP to the controllers: each call has one outcome, and no failure of a network or a peer raises.
Tests: tests/unit/broker_agent/test_agent.py.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import aiohttp
import msgpack

from broker_agent.session import Call, Fetched, Outcome, Refused, Unreachable
from metadata_log.errors import InvalidRequest, MetadataError, error_named
from metadata_log.limits import FETCH_BYTES_MAX, HTTP_SILENCE_MAX_MS, MIB
from metadata_log.node.http.kept_connections import KeptConnections
from metadata_log.node.identity.credentials import bearer_from, why_it_failed
from metadata_log.node.identity.tls import Tls
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import (
    AlteredPartitions,
    AlterPartition,
    AssignReplicasToDirs,
    Registered,
    ReplicasPlaced,
)
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest, decode_fetch_body
from metadata_log.wire.shapes import Shape, check_text, read_shape

MSGPACK: Final = "application/msgpack"
CONNECT_MAX_MS: Final = 500
"""If a controller does not accept a connection within this time, the broker asks the next one."""
ANSWER_BYTES_MAX: Final = FETCH_BYTES_MAX + MIB
"""The frames of one fetch and the head before them; no controller sends a longer answer."""


class _ErrorBody(Shape, frozen=True, forbid_unknown_fields=False):
    """The fields of a controller's error that a broker uses."""

    error: str
    message: str


class _Answered(NamedTuple):
    """The body of an answer with status 200, and the session timeout in its header."""

    body: bytes
    session_timeout_ms: int | None


class ControllerClient:
    """Keeps a connection to each controller open; one call of the session is under way at a time, and some reports."""

    def __init__(self, token_file: Path | None = None, tls: Tls | None = None) -> None:
        self._token_file = token_file
        self._tls = tls
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            headers={"Content-Type": MSGPACK, "Accept": MSGPACK, **bearer_from(self._token_file)},
            connector=KeptConnections(self._tls),
            # A controller sends frames as stored and compresses nothing.
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """The HTTP session, also for downloads."""
        assert self._http is not None, "the client is used inside its `async with`"
        return self._http

    async def perform(self, call: Call) -> Outcome:
        """Send one request of the session and return its outcome."""
        path = "/v1/metadata/fetch" if isinstance(call.request, FetchRequest) else "/v1/brokers/register"
        answered = await self._post(call.url + path, call.request.to_map(), call.silence_max_ms)
        if not isinstance(answered, _Answered):
            return answered
        try:
            if isinstance(call.request, FetchRequest):
                answer, frames = decode_fetch_body(answered.body)
                return Fetched(answer=answer, frames=frames, session_timeout_ms=answered.session_timeout_ms)
            return Registered.from_map(unpack(answered.body))
        except InvalidRequest as error:
            return Unreachable(reason=f"its answer is not understood: {error.message}")

    async def alter_partitions(
        self, url: str, command: AlterPartition, *, silence_max_ms: int
    ) -> AlteredPartitions | Refused | Unreachable:
        """Report ISRs to the controller at `url`, beside the session's call, and return what became of them."""
        answered = await self._post(url + "/v1/partitions/alter", command.to_map(), silence_max_ms)
        if not isinstance(answered, _Answered):
            return answered
        try:
            return AlteredPartitions.from_map(unpack(answered.body))
        except InvalidRequest as error:
            return Unreachable(reason=f"its answer is not understood: {error.message}")

    async def place_replicas(
        self, url: str, command: AssignReplicasToDirs, *, silence_max_ms: int
    ) -> ReplicasPlaced | Refused | Unreachable:
        """Report to the controller at `url` where replicas lie, and return what became of each."""
        answered = await self._post(url + "/v1/partitions/directories", command.to_map(), silence_max_ms)
        if not isinstance(answered, _Answered):
            return answered
        try:
            return ReplicasPlaced.from_map(unpack(answered.body))
        except InvalidRequest as error:
            return Unreachable(reason=f"its answer is not understood: {error.message}")

    async def _post(
        self, url: str, body: dict[str, Any], silence_max_ms: int
    ) -> "_Answered | Refused | Unreachable":
        timeout = aiohttp.ClientTimeout(
            total=(silence_max_ms + HTTP_SILENCE_MAX_MS) / 1000,
            sock_connect=min(CONNECT_MAX_MS, silence_max_ms) / 1000,
            sock_read=silence_max_ms / 1000,
        )
        try:
            async with self.http.post(
                url, data=msgpack.packb(body), timeout=timeout, allow_redirects=False
            ) as response:
                answer = await _body(response)
                if response.status != 200:
                    return Refused(
                        error=_error(response.status, answer),
                        controller_url=response.headers.get("X-Controller"),
                    )
                return _Answered(answer, _session_timeout_ms(response))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Unreachable(reason=why_it_failed(error))
        except InvalidRequest as error:
            return Unreachable(reason=error.message)


def _session_timeout_ms(response: aiohttp.ClientResponse) -> int | None:
    """Return the session timeout in an answer's header; None if it is missing or no positive number."""
    text = response.headers.get(SESSION_TIMEOUT_HEADER, "")
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return a body of bounded size.

    Raises:
        InvalidRequest: it is larger than any answer of a controller.
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
        InvalidRequest: it is no such map: something between broker and controller answered.
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
