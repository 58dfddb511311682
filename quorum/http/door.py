"""Edge: what every handler of a controller's HTTP needs: the parts of the node, and the answers' common rules.
Tests: tests/unit/quorum/http/test_app.py.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import (
    MetadataError,
    NotController,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.items import Items, listed
from metadata_log.node.console.login import Login
from metadata_log.node.http.answer_pieces import Sender
from metadata_log.node.http.answers import (
    AS_IT_IS_CALLED,
    JSON,
    MSGPACK,
    encoded,
    error_body,
    status_of,
    wants_msgpack,
)
from metadata_log.node.http.caller import OwnNames
from metadata_log.node.http.encodings import parts_of
from metadata_log.node.http.identities import Identities
from metadata_log.node.http.query import flag
from metadata_log.node.leaderless import LEADERLESS
from metadata_log.records.registry import json_rows
from metadata_log.wire.commands import Command
from quorum.controller.audited import outcome_of
from quorum.controller.written import Written
from quorum.http.bodies import caller_of, read_body, read_broker_body, repeating_caller_of
from quorum.node.parts import Parts
from quorum.views.trial import records_shown


class Write(NamedTuple):
    """One kind of command as POST /v1/batch takes it: how its body is read, and how its outcome is shown."""

    read: Callable[[Any], Any]
    answer_of: Callable[[Any], dict[str, Any]]
    status_of: Callable[[Any], int] = lambda _: 200
    """Returns the status of a command that was carried out."""


Handler: TypeAlias = "Callable[[Door, web.Request], Awaitable[web.StreamResponse]]"


def carry_out(write: Write) -> Handler:
    """Return the handler of a request whose body is a command of this kind; with `validate_only` it is only tried out."""

    async def handle(door: Door, request: web.Request) -> web.StreamResponse:
        command = write.read(await read_body(request, door.bodies))
        if flag(request, "validate_only"):
            return await door.try_out(request, command, write.answer_of)
        return await door.write(request, command, write.answer_of, status=write.status_of(command))

    return handle


def results_as(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return what shows the outcome of a command on many items: a list of this name, with a result of each."""
    return lambda outcome: {name: json_rows(outcome.results)}


def items_of(image: MetadataImage, items: Sequence[Any] | Items[Any]) -> dict[str, Any]:
    """Return a list of items with the offset at which it holds."""
    return {"end_offset": image.end_offset, "controller_epoch": image.controller_epoch, "items": items}


@dataclass(frozen=True, kw_only=True)
class Door(Parts):
    """The parts of one controller as its HTTP handlers use them."""

    own_names: OwnNames
    identities: Identities
    login: Login

    @classmethod
    def of(cls, parts: Parts, own_names: OwnNames, identities: Identities, login: Login) -> "Door":
        shared = {field.name: getattr(parts, field.name) for field in fields(Parts)}
        return cls(**shared, own_names=own_names, identities=identities, login=login)

    # --- answers

    def headers(self) -> dict[str, str]:
        """Return the headers that every answer has, but those to strangers."""
        committed = self.controller.committed
        return {
            **AS_IT_IS_CALLED,
            "X-Controller-Epoch": str(committed.controller_epoch),
            "X-High-Watermark": str(committed.end_offset),
        }

    def ok(self, request: web.Request, body: object, *, status: int = 200) -> web.Response:
        headers = self.headers() if self.identities.knows(request) else {}
        return encoded(request, body, status=status, headers=headers)

    def error(self, request: web.BaseRequest, error: MetadataError) -> web.Response:
        """Return the answer that reports an error. It tells a stranger nothing of the log and of who leads."""
        if not self.identities.knows(request):
            return encoded(request, error_body(error), status=status_of(error), headers={})
        status, headers = self.refusal(error)
        return encoded(request, self.error_body(error), status=status, headers=headers)

    def refusal(self, error: MetadataError) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the answer that reports an error."""
        status = status_of(error)
        headers = self.headers()
        if "read_replica_url" in error.context:
            headers["X-Preferred-Read-Replica"] = str(error.context["read_replica_url"])
        if isinstance(error, NotController):
            url = error.context.get("controller_url")
            if url is None:
                status = 503
                headers["Retry-After"] = "1"
                if "leaderless_ms" in error.context:
                    headers[LEADERLESS] = str(error.context["leaderless_ms"])
            else:
                headers["X-Controller"] = str(url)
        return status, headers

    def error_body(self, error: MetadataError) -> dict[str, Any]:
        leader_id = self.controller.leader_hint
        controller_id: object = -1 if leader_id is None else leader_id
        if isinstance(error, NotController):
            controller_id = error.context.get("controller_id", -1)
        epoch = self.controller.committed.controller_epoch
        return error_body(error, controller_id=controller_id, controller_epoch=epoch)

    @cached_property
    def sender(self) -> Sender:
        """Sends large answers in pieces."""
        return Sender(
            self.reads, self.buffers, self.headers, on_fault=self.on_fault, recheck=self.identities.recheck
        )

    # --- the audit log

    @contextmanager
    def audited(self, request: web.Request, operation: str) -> Iterator[None]:
        """Have the audit log take what is carried out within the block and decides nothing."""
        caller = repeating_caller_of(request)
        note = partial(
            self.access.audit.note,
            door=caller.door,
            principal=caller.principal.name,
            address=caller.address,
            operation=operation,
            request_id=None if caller.request_id is None else uuid_text(caller.request_id),
            trace_id=caller.trace_id,
        )
        try:
            yield
        except MetadataError as error:
            note(outcome=outcome_of(error), error=error.error, message=error.message)
            raise
        note(outcome="allowed")

    # --- writes

    async def broker_body(self, request: web.Request) -> Any:
        """Return the body of what a node sends; raises as `read_broker_body`.

        To read the bodies of a thousand registrations takes as long as to decide them: they wait for decisions, too.
        """
        await self.controller.until_decisions_rest()
        return await read_broker_body(request, self.bodies)

    async def write(
        self,
        request: web.Request,
        command: Command,
        answer_of: Callable[[Any], dict[str, Any]],
        *,
        status: int = 200,
    ) -> web.Response:
        """Carry out a client's command, and answer with its outcome as `answer_of` shows it and the records' offsets."""
        written = await self.controller.submit(command, repeating_caller_of(request))
        if not is_large(written.outcome):
            return self.ok(request, {**answer_of(written.outcome), **offsets_of(written)}, status=status)
        as_msgpack = wants_msgpack(request)
        body = await self.made_beside(
            lambda: {**answer_of(written.outcome), **offsets_of(written)}, as_msgpack=as_msgpack
        )
        content_type, charset = (MSGPACK, None) if as_msgpack else (JSON, "utf-8")
        return web.Response(
            body=body, status=status, content_type=content_type, charset=charset, headers=self.headers()
        )

    async def try_out(
        self, request: web.Request, command: Command, answer_of: Callable[[Any], dict[str, Any]]
    ) -> web.Response:
        """Answer as `write` would, refusals included, and write nothing; "foreseen" has the records that would be written.

        Of a change in parts these are the first part's.
        """
        tried, decision = await self.controller.try_out(command, caller_of(request))
        shown = {} if decision.more else answer_of(tried.outcome)
        foreseen = records_shown(decision, self.controller.committed)
        return self.ok(request, {**shown, **offsets_of(tried), "foreseen": foreseen})

    async def made_beside(self, make: Callable[[], object], *, as_msgpack: bool) -> bytes:
        """Return the encoding of what `make` returns about a write, both made in a thread.

        The write is carried out: if too many reads wait, its answer is made here, and not refused.
        """

        def made() -> bytes:
            return b"".join(parts_of(make(), as_msgpack=as_msgpack))

        try:
            return await self.reads.run(made)
        except ThrottlingQuotaExceeded:
            return made()

    # --- reads

    async def read(self, request: web.Request, view: Callable[[MetadataImage], Any]) -> Any:
        """Return a view of the state, as fresh as the query asks: linearizable, or whatever is committed here.

        Raises:
            NotController: this node is not active, or has started and lacks what it had applied before.
        """
        if not takes_stale(request):
            return await self.controller.read(view)
        committed, end_at_start = self.controller.committed, self.committed_log.end_at_start
        if committed.end_offset < end_at_start:
            elsewhere = self.controller.not_controller()
            raise NotController(
                f"this controller has started, and has applied its log to offset {committed.end_offset} of {end_at_start}: "
                f"{elsewhere.message}",
                **elsewhere.context,
            )
        return view(committed)

    async def log_end(self, request: web.Request) -> int:
        """Return the end of the log, as fresh as the query asks; raises as `read`. What a node has just started with may
        be read at once: other nodes repair their logs from it.
        """
        committed = self.controller.committed
        end_offset: int = (
            committed.end_offset
            if takes_stale(request)
            else await self.controller.read(lambda image: image.end_offset)
        )
        return end_offset

    async def read_items(
        self, request: web.Request, items: Callable[[MetadataImage], list[Any]]
    ) -> web.Response:
        """Answer with a list of items and the offset at which it holds."""
        return self.ok(request, await self.read(request, lambda image: items_of(image, items(image))))

    async def read_large(
        self,
        request: web.Request,
        view: Callable[[MetadataImage], Any],
        *,
        is_large: Callable[[MetadataImage], bool],
    ) -> web.StreamResponse:
        """Answer with a view of the state. A large one is made and encoded in a thread, and sent in pieces.

        Raises:
            ThrottlingQuotaExceeded: too many reads wait, or too many answers have not been read.
        """
        image: MetadataImage = await self.read(request, lambda image: image)
        if not is_large(image):
            return self.ok(request, listed(view(image)))
        # Leave out the kept answers: a slow reader would keep evicted ones in memory.
        shown = image.without_results()
        return await self.sender.send_made(request, lambda: view(shown))


def takes_stale(request: web.Request) -> bool:
    """Return whether a client takes whatever is committed here, from any controller."""
    return request.query.get("consistency") == "stale"


def is_large(outcome: Any) -> bool:
    """Answer whether a write's outcome has so many items that its answer is made in a thread."""
    for field in outcome:  # noqa: SIM110 (each write asks: a generator costs thrice as much)
        if isinstance(field, tuple) and len(field) > limits.LARGE_VIEW_ITEMS:
            return True
    return False


def offsets_of(written: Written) -> dict[str, Any]:
    return {"offsets": {"base": written.base_offset, "end": written.end_offset}}
