"""Edge: what every handler of a controller's HTTP needs: the parts of the node, and the answers' common rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiohttp import web

from metadata_log.errors import Fault, InvalidRequest, MetadataError, NotController
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http_answers import encoded, error_body, status_of
from metadata_log.wire.commands import AddVoter, Command, RemoveVoter
from quorum.config import ControllerSettings
from quorum.controller import Controller, Written
from quorum.fetch.service import FetchService
from quorum.http.bodies import request_id_of
from quorum.log.committed_log import CommittedLog
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.status import QuorumStatus
from snapshots.store import SnapshotStore

ANONYMOUS: Final = "User:ANONYMOUS"


class Write(NamedTuple):
    """One kind of command as POST /v1/batch takes it: how its body is read, and how its outcome is shown."""

    read: Callable[[Any], Any]
    answer_of: Callable[[Any], dict[str, Any]]
    status_of: Callable[[Any], int] = lambda _: 200
    """Returns the status of a command that was carried out."""


@dataclass(frozen=True, kw_only=True)
class Door:
    """The parts of one controller that its HTTP handlers use."""

    settings: ControllerSettings
    controller: Controller
    committed_log: CommittedLog
    fetches: FetchService
    keeper: SnapshotKeeper
    store: SnapshotStore
    status: QuorumStatus
    now_ms: Callable[[], int]
    on_fault: Callable[[Fault], None]

    # --- answers

    def headers(self) -> dict[str, str]:
        """Return the headers that every answer has."""
        committed = self.controller.committed
        return {
            "X-Controller-Epoch": str(committed.controller_epoch),
            "X-High-Watermark": str(committed.end_offset),
        }

    def ok(self, request: web.Request, body: object, *, status: int = 200) -> web.Response:
        return encoded(request, body, status=status, headers=self.headers())

    def error(self, request: web.BaseRequest, error: MetadataError) -> web.Response:
        """Return the answer that reports an error."""
        status, headers = self.refusal(error)
        return encoded(request, self.error_body(error), status=status, headers=headers)

    def refusal(self, error: MetadataError) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the answer that reports an error."""
        status = status_of(error)
        headers = self.headers()
        if isinstance(error, NotController):
            url = error.context.get("controller_url")
            if url is None:
                status = 503
                headers["Retry-After"] = "1"
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

    # --- writes

    async def write(
        self,
        request: web.Request,
        command: Command,
        answer_of: Callable[[Any], dict[str, Any]],
        *,
        status: int = 200,
    ) -> web.Response:
        """Carry out a client's command, and answer with its outcome as `answer_of` shows it and the records' offsets."""
        request_id = request_id_of(request)
        if isinstance(command, AddVoter | RemoveVoter):
            written = await self.controller.change_voters(command, actor=ANONYMOUS, request_id=request_id)
        else:
            written = await self.controller.submit(command, actor=ANONYMOUS, request_id=request_id)
        return self.ok(request, {**answer_of(written.outcome), **offsets_of(written)}, status=status)

    # --- reads

    async def read(self, request: web.Request, view: Callable[[MetadataImage], Any]) -> Any:
        """Return a view of the state, as fresh as the query asks: linearizable, or whatever is committed here."""
        consistency = request.query.get("consistency", "linearizable")
        if consistency == "stale":
            return view(self.controller.committed)
        if consistency != "linearizable":
            raise InvalidRequest("consistency is linearizable or stale")
        return await self.controller.read(view)

    async def read_items(
        self, request: web.Request, items: Callable[[MetadataImage], list[Any]]
    ) -> web.Response:
        """Answer with a list of items and the offset at which it holds."""
        body = await self.read(
            request,
            lambda image: {
                "end_offset": image.end_offset,
                "controller_epoch": image.controller_epoch,
                "items": items(image),
            },
        )
        return self.ok(request, body)


def offsets_of(written: Written) -> dict[str, Any]:
    return {"offsets": {"base": written.base_offset, "end": written.end_offset}}
