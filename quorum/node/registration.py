"""Edge: this controller's own registration: sent to the active controller until the log shows it.

A registration tells the quorum which levels of features this process supports, and where it is reached. Each process is an
incarnation of its own and gets one record: it sends nothing while its own log shows its registration, and a request that is
repeated carries the same request id. If an operator removes the registration of a controller that runs after all, the
controller registers again. So it does when metadata.version rises to the level from which Kafka's log has registrations: the
one before is a NoOp there. Source: KIP-919; Kafka's ControllerRegistrationManager, and its times.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Final, Never, TypeAlias

import aiohttp
from msgspec import Meta

from metadata_log.batch import RecordBatch
from metadata_log.errors import Fault, MetadataError, NotController, error_named
from metadata_log.ids import NodeId, Uuid, random_uuid, uuid_text
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.metadata_versions import CONTROLLERS_FROM
from metadata_log.node.addresses import read_url
from metadata_log.node.http.answers import MSGPACK
from metadata_log.node.http.encodings import packed
from metadata_log.node.identity.credentials import why_it_failed
from metadata_log.node.identity.rights import ROLES, Principal
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.quorum import KAFKA_ENDPOINT, RAFT_ENDPOINT
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import RegisterController
from metadata_log.wire.shapes import INT64_MAX, Shape, read_shape
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.callers import Caller
from quorum.controller.controller import Controller
from quorum.decide.features import registered
from quorum.node.config import KAFKA_SECURITY, ControllerSettings

log = logging.getLogger(__name__)
FIRST_PAUSE_MS: Final = 100
PAUSE_MAX_MS: Final = 120_000
"""After a failure the pause is doubled, up to two minutes: Kafka's numbers. A change of leaders ends a pause at once."""
JITTER: Final = 0.02
FAILURES_TO_WARN: Final = 6
"""The failures before, within about six seconds, are those of a quorum that has no leader yet."""
ANSWER_BYTES_MAX: Final = 64 * 1024


Send: TypeAlias = Callable[[str, RegisterController, Uuid], Awaitable[int]]
"""Sends a registration to the controller at a URL, under a request id; returns the end of the records it led to."""


class _Offsets(Shape, frozen=True, forbid_unknown_fields=False):
    end: Annotated[int, Meta(ge=0, le=INT64_MAX)]


class _Answer(Shape, frozen=True, forbid_unknown_fields=False):
    offsets: _Offsets


class _ErrorBody(Shape, frozen=True, forbid_unknown_fields=False):
    error: str
    message: str


def registration_of(settings: ControllerSettings, incarnation_id: Uuid) -> RegisterController:
    """Return what a controller with these settings registers."""
    endpoints: tuple[BrokerEndpoint, ...] = (
        BrokerEndpoint(RAFT_ENDPOINT, *settings.raft_address, 0),
        BrokerEndpoint("HTTP", *read_url(settings.http_url), 0),
    )
    if settings.kafka_address is not None:
        protocol = KAFKA_SECURITY.index(settings.kafka_security)
        endpoints = (*endpoints, BrokerEndpoint(KAFKA_ENDPOINT, *settings.kafka_address, protocol))
    return RegisterController(
        cluster_id=settings.cluster_id,
        controller_id=settings.node_id,
        incarnation_id=incarnation_id,
        endpoints=endpoints,
        features=registered(unstable=settings.features.unstable_levels),
    )


class Registration(AppliedListener):
    """Keeps one controller registered."""

    def __init__(
        self,
        command: RegisterController,
        *,
        controller: Controller,
        url_of: Callable[[NodeId], str | None],
        send: Send,
        rng: random.Random,
    ) -> None:
        """`url_of` returns where another controller answers HTTP."""
        self._command = command
        self._controller = controller
        self._url_of = url_of
        self._send = send
        self._rng = rng
        self._changed = asyncio.Event()
        """Set when another controller took over, or a registration of this id was written or removed."""
        self._request_id: Uuid | None = None
        """Of the registration that is being sent, for as long as its outcome is not known."""
        self._counts_from = 0
        """Kafka's log lacks registrations below this offset, because the level of metadata.version was too low for them."""
        self._is_too_low = False
        """Whether the level was too low at the last look."""
        self._accepted_end = 0
        """The end of the records of the last registration that was accepted: until they are applied here, all is well."""
        self.failures = 0
        """In a row."""

    @property
    def is_wanted(self) -> bool:
        """Whether this process is not registered as it is now."""
        committed, command = self._controller.committed, self._command
        if committed.end_offset < self._accepted_end:
            return False
        registered = committed.controllers.get(command.controller_id)
        return (
            registered is None
            or registered.registration_epoch < self._counts_from
            or (
                (registered.incarnation_id, registered.endpoints, registered.features)
                != (command.incarnation_id, command.endpoints, command.features)
            )
        )

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if delta.features:
            self._follow_level(image)
        if delta.claim or self._command.controller_id in delta.controllers:
            self._changed.set()

    def on_restored(self, image: MetadataImage) -> None:
        self._follow_level(image)
        self._changed.set()

    def _follow_level(self, image: MetadataImage) -> None:
        was_too_low, self._is_too_low = (
            self._is_too_low,
            metadata_level(image.features) < CONTROLLERS_FROM,
        )
        if was_too_low and not self._is_too_low:
            self._counts_from = image.end_offset
            self._changed.set()

    async def run(self) -> Never:
        """Register whenever it is wanted, until cancelled."""
        while True:
            self._changed.clear()
            pause_s: float | None = None
            if self.is_wanted:
                pause_s = await self._try()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _try(self) -> float | None:
        """Register once; return the pause before the next attempt in seconds, None after a success."""
        if self._request_id is None:
            self._request_id = random_uuid(self._rng)
        try:
            self._accepted_end = await self._register(self._request_id)
        except Fault:
            raise
        except MetadataError as error:
            pause_ms = min(FIRST_PAUSE_MS << min(self.failures, 20), PAUSE_MAX_MS)
            self.failures += 1
            if self.failures >= FAILURES_TO_WARN:
                log.warning("controller_not_registered", extra={"reason": error.message, "code": error.error})
            return pause_ms * self._rng.uniform(1 - JITTER, 1 + JITTER) / 1000
        log.info("controller_registered", extra={"node_id": self._command.controller_id})
        self.failures, self._request_id = 0, None
        return None

    async def _register(self, request_id: Uuid) -> int:
        """Have the active controller write the registration; return the end of its records.

        Raises:
            NotController: none is known, or it does not answer.
            MetadataError: what it refused with.
        """
        controller, command = self._controller, self._command
        if controller.is_active:
            itself = Principal(f"Controller:{command.controller_id}", ROLES["controller"])
            written = await controller.submit(command, Caller(itself, request_id=request_id))
            return written.end_offset
        leader = controller.leader_hint
        url = None if leader in (None, command.controller_id) else self._url_of(leader)
        if url is None:
            raise controller.not_controller()
        return await self._send(url, command, request_id)


def over_http(session: Callable[[], aiohttp.ClientSession], *, silence_max_ms: int) -> Send:
    """Return what sends registrations over HTTP; an answer may take `silence_max_ms`."""

    async def send(url: str, command: RegisterController, request_id: Uuid) -> int:
        timeout = aiohttp.ClientTimeout(total=silence_max_ms / 1000)
        headers = {"Content-Type": MSGPACK, "Accept": MSGPACK, "X-Request-Id": uuid_text(request_id)}
        body = packed(command.to_map())
        try:
            async with session().post(
                f"{url}/v1/controllers/register",
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = unpack(await response.content.read(ANSWER_BYTES_MAX))
                if response.status == 200:
                    return read_shape(answer, _Answer, "answer").offsets.end
                refusal = read_shape(answer, _ErrorBody, "answer")
        except (
            aiohttp.ClientError,
            TimeoutError,
            ValueError,
        ) as error:  # ValueError: no address, or no answer
            raise NotController(f"{url} does not answer: {why_it_failed(error)}") from error
        raise error_named(refusal.error, refusal.message)

    return send
