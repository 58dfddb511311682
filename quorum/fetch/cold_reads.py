"""Edge: polls whose frames are in segments only: each range is read once, in a thread, for all that ask for it.
Tests: tests/unit/quorum/fetch/test_service.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from metadata_log.errors import MetadataError, OffsetCompacted
from quorum.fetch.poll import Poll, PollEvent
from quorum.fetch.polls import Polls
from quorum.fetch.replies import ColdRead
from quorum.log.committed_log import CommittedLog


class ColdReads:
    """The reads that polls wait for; brokers that start together ask for the same frames."""

    def __init__(
        self,
        committed_log: CommittedLog,
        polls: Polls,
        *,
        refusal: Callable[[int], MetadataError | None],
        answer: Callable[[ColdRead, Sequence[Poll], bytes], Awaitable[None]],
    ) -> None:
        """`refusal` returns why an answer of so many bytes may not be made now; `answer` answers the polls of a read."""
        self._log = committed_log
        self._polls = polls
        self._refusal = refusal
        self._answer = answer
        self._reads: asyncio.Queue[ColdRead] = asyncio.Queue()
        self._waiting: dict[ColdRead, list[Poll]] = {}

    def add(self, poll: Poll, read: ColdRead) -> None:
        poll.on(PollEvent.FRAMES_ARE_COLD)
        if read not in self._waiting:
            self._waiting[read] = []
            self._reads.put_nowait(read)
        self._waiting[read].append(poll)

    async def run(self) -> None:
        """Read, and answer the polls, until cancelled; COLD_FETCHES tasks do so."""
        while True:
            read = await self._reads.get()
            refused = self._refusal(read.bytes_wanted)
            if refused is not None:
                self._fail(read, refused)
                continue
            try:
                frames, _ = await self._log.read_in_thread(read.from_offset, max_bytes=read.bytes_wanted)
            except OffsetCompacted:
                # A retention went on meanwhile: there is a snapshot to send.
                self._polls.have_news(self._waiting.pop(read))
            except MetadataError as error:
                self._fail(read, error)
            else:
                polls = [poll for poll in self._waiting.pop(read) if not poll.is_over]
                await self._answer(read, polls, frames)

    def _fail(self, read: ColdRead, error: MetadataError) -> None:
        for poll in self._waiting.pop(read):
            self._polls.finish(poll, error)
