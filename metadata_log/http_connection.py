"""E: a connection of aiohttp's server on which every failure has a name, as all our answers have."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeAlias

from aiohttp import web

from metadata_log.errors import ExpectationFailed, Fault, InvalidRequest, MetadataError

Answer: TypeAlias = Callable[[web.BaseRequest, MetadataError], web.Response]
REASON_MAX: Final = 200
UNFORESEEN: Final = (
    "this node met an error that nobody foresaw, and describes it in its log; a write may still take effect: repeat it "
    "with the same X-Request-Id, and report the log"
)


class NamedErrors(web.RequestHandler):
    """Answers bytes that are not HTTP, what aiohttp itself refuses before it asks a handler, and what a handler did not
    foresee, as other refusals are answered.
    """

    __slots__ = ("_answer",)

    def __init__(self, server: web.Server, answer: Answer, *, keepalive_s: float) -> None:
        """Take how a node answers with an error, and how long a connection may be silent: before the first request, too,
        and until all headers of one are here. A compressed body stays as it came.
        """
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=keepalive_s,
            access_log=None,  # type: ignore[arg-type]  # no log of every request, as web.AppRunner takes it
            auto_decompress=False,
        )
        self._answer = answer

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPExpectationFailed):
            expected = request.headers.get("Expect", "")[:REASON_MAX]
            resp = self._answer(
                request, ExpectationFailed(f"Expect: {expected} is not known here, only 100-continue")
            )
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        # It logs, and ends a connection on which an answer had begun.
        super().handle_error(request, status, exc, message)
        error: MetadataError = Fault(UNFORESEEN)
        if status != HTTPStatus.INTERNAL_SERVER_ERROR:
            reason = " ".join(str(exc or message or "").split())[:REASON_MAX]
            error = InvalidRequest(f"what was sent is not HTTP as this node speaks it: {reason}")
        response = self._answer(request, error)
        response.force_close()
        return response
