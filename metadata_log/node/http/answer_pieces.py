"""Edge: large answers in pieces: no copy of the whole is held, and no call encodes much of it.
Tests: tests/unit/quorum/http/test_app.py.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.errors import Fault, MetadataError
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import JSON, MSGPACK, wants_msgpack
from metadata_log.node.http.encodings import joined, parts_of
from metadata_log.node.http.trace import trace_headers
from metadata_log.node.threads import Threads


async def pieces_of(threads: Threads, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield parts in pieces, each made in a thread."""
    order = threads.order_of_pieces()
    while piece := await threads.run(joined, parts, order=order):
        yield piece


class Sender:
    """Sends the large answers of one node."""

    def __init__(
        self,
        threads: Threads,
        buffers: AnswerBuffers,
        headers: Callable[[], Mapping[str, str]],
        *,
        on_fault: Callable[[Fault], None] = lambda _: None,
        recheck: Callable[[web.Request], None] = lambda _: None,
    ) -> None:
        """`headers` returns those of every answer; `on_fault` learns of a Fault that cut an answer short.

        `recheck` raises a MetadataError where its client may not be sent more of an answer.
        """
        self._threads = threads
        self._buffers = buffers
        self._headers = headers
        self._on_fault = on_fault
        self._recheck = recheck

    async def send_made(
        self,
        request: web.Request,
        make: Callable[[], object],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> web.StreamResponse:
        """Answer with what `make` returns. It is made and encoded in a thread, and sent in pieces unless it is small.

        `check` raises a MetadataError after a piece that may not be sent any more.

        Raises:
            MetadataError: what `make` or `check` raised before the first piece was sent.
            ThrottlingQuotaExceeded: too many reads wait, or too many answers have not been read.
        """
        as_msgpack = wants_msgpack(request)
        content_type, charset = (MSGPACK, None) if as_msgpack else (JSON, "utf-8")
        pieces = _checked(pieces_of(self._threads, _parts_made(make, as_msgpack=as_msgpack)), check)
        first = await anext(pieces)
        self._recheck(request)
        if len(first) < limits.ANSWER_PIECE_BYTES:
            self._buffers.check(len(first))
            return web.Response(
                body=first, content_type=content_type, charset=charset, headers=self._headers()
            )
        return await self.send(request, _behind(first, pieces), content_type=content_type, charset=charset)

    async def send(
        self,
        request: web.Request,
        pieces: AsyncIterator[bytes],
        *,
        content_type: str,
        charset: str | None = None,
        last_words: Callable[[MetadataError], bytes] = lambda _: b"",
    ) -> web.StreamResponse:
        """Answer with pieces that are made one after the other, each when the client has read most of the one before.

        If the first piece cannot be made, the answer is an ordinary refusal. If a later one cannot, `last_words` of the
        error are sent, and the connection closes before the answer is whole.

        Raises:
            ThrottlingQuotaExceeded: too many answers have not been read.
        """
        # One piece is in the connection while the next one is made.
        with self._buffers.holding(2 * limits.ANSWER_PIECE_BYTES) as hold:
            piece: bytes | None = await anext(pieces, None)
            self._recheck(request)
            response = web.StreamResponse(headers={**self._headers(), **trace_headers(request)})
            response.content_type = content_type
            if charset is not None:
                response.charset = charset
            await response.prepare(request)
            # Write nothing to a HEAD: aiohttp would send it, and the connection's next answer would begin with it.
            if request.method == hdrs.METH_HEAD:
                return response
            while piece is not None:
                hold(limits.ANSWER_PIECE_BYTES + max(len(piece), limits.ANSWER_PIECE_BYTES))
                await response.write(piece)
                try:
                    piece = await anext(pieces, None)
                    self._recheck(request)
                except MetadataError as error:
                    if isinstance(error, Fault):
                        self._on_fault(error)
                    await response.write(last_words(error))
                    if request.transport is not None:
                        request.transport.close()
                    raise ConnectionResetError("the answer is cut short: it is not whole") from error
            await response.write_eof()
            return response


def _parts_made(make: Callable[[], object], *, as_msgpack: bool) -> Iterator[bytes]:
    yield from parts_of(make(), as_msgpack=as_msgpack)


async def _checked(pieces: AsyncIterator[bytes], check: Callable[[], None]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        check()
        yield piece


async def _behind(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece
