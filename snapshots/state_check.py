"""Edge: a node compares its state with that of other nodes, all the time, and names the first key that differs.

It counts its state's digest from nothing and asks a controller, which reads its log up to the same offset again. So it finds
what changed in memory, was applied in another way, or is another log.
Tests: tests/unit/snapshots/test_state_check.py.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, Never, TypeAlias

import aiohttp

from metadata_log import limits
from metadata_log.digest import EMPTY_BUCKETS, Buckets, digest_of_buckets
from metadata_log.errors import InvalidRequest
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.clock import monotonic_ms
from metadata_log.node.pace import until_done
from metadata_log.recount import LinesOfBucket, Recount, bucket_of, differing_buckets, first_difference
from metadata_log.wire.bodies import check_plain

log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[str], Awaitable[object]]
"""Returns what a controller answers to a path below its URL, of whatever form; None where none answers it now."""
ANSWER_MAX_S: Final = 60.0
_AS_JSON: Final = {"Accept": "application/json"}


class StateDiffers(NamedTuple):
    """Where this node's state is not that of the log: `here` and `there` are the digest's lines, None for none."""

    end_offset: int
    key: str
    here: str | None
    there: str | None

    @property
    def what(self) -> tuple[str, str | None, str | None]:
        """The key and its lines, which stay the same while the log goes on."""
        return self.key, self.here, self.there

    def __str__(self) -> str:
        return (
            f"at offset {self.end_offset}, {self.key}: here {self.here or 'nothing'}, in the log of a controller "
            f"{self.there or 'nothing'}: restart this node"
        )


class StateCheck:
    """One node's comparison with the log of a controller."""

    def __init__(self, image: Callable[[], MetadataImage], ask: Ask) -> None:
        """`image` returns the state as this node has applied it."""
        self._image, self._ask = image, ask
        self.differs: StateDiffers | None = None
        """What was found last; None once a check found none."""
        self.compared: int | None = None
        """The offset at which a state was compared last."""
        self._counting_ms = 0.0
        """How long it took to count that state, others' turns of the loop included."""

    def reasons(self) -> Iterable[tuple[str, str]]:
        """Yield code and detail of what an operator should see to."""
        if self.differs is not None:
            yield "STATE_DIFFERS", str(self.differs)

    async def run(self) -> Never:
        """Compare each STATE_CHECK_MS. A large state rests for STATE_CHECK_RESTS times as long as it took to count."""
        while True:
            await asyncio.sleep(
                max(limits.STATE_CHECK_MS, self._counting_ms * limits.STATE_CHECK_RESTS) / 1000
            )
            await self.check()

    async def check(self) -> None:
        """Compare the present state, if a controller answers."""
        image = self._image()
        partitions = image.topics.counts.partitions
        if image.end_offset == 0 or partitions > limits.STATE_CHECK_PARTITIONS_MAX:
            return
        answer = await self._ask(f"/v1/digest?at={image.end_offset}&consistency=stale")
        there = _buckets_in(answer, image.end_offset)
        if there is None:
            return  # none answers, or it lags, or keeps no more of the log
        recount, began_ms = Recount(image), monotonic_ms()
        await until_done(recount.count_some)
        self._counting_ms = monotonic_ms() - began_ms
        here = recount.buckets()
        self.compared = image.end_offset
        if here == there:
            self.differs = None
            return
        found = await self._first(image, here, there)
        if found is None:
            return  # what was found earlier holds: the state still differs
        if self.differs is None or found.what != self.differs.what:
            log.error("state_differs", extra=found._asdict())
        self.differs = found

    async def _first(self, image: MetadataImage, here: Buckets, there: Buckets) -> StateDiffers | None:
        """Return the first key of the buckets that differ; None: a controller did not answer for one of them.

        A line that changed is in one bucket here and another there.
        """
        mine: list[str] = []
        theirs: list[str] = []
        for bucket in [*differing_buckets(here, there)][: limits.STATE_CHECK_BUCKETS]:
            path = f"/v1/digest?at={image.end_offset}&bucket={bucket}&consistency=stale"
            lines = _lines_in(await self._ask(path), image.end_offset, bucket)
            if lines is None:
                return None
            own = LinesOfBucket(image, bucket)
            await until_done(own.find_some)
            mine += own.found
            theirs += lines
        first = first_difference(mine, theirs, image)
        return None if first is None else StateDiffers(image.end_offset, *first)


def _buckets_in(answer: object, end_offset: int) -> Buckets | None:
    """Return the buckets that a controller answered; None where it has no answer of this form, or one of another offset."""
    match answer:
        case {"end_offset": int(at), "digest": str(digest), "buckets": [*rows]} if at == end_offset:
            buckets: list[tuple[int, int, int]] = []
            for row in rows:
                match row:
                    case [int(count), int(x1), int(x2)]:
                        buckets.append((count, x1, x2))
            if (
                len(rows) == len(buckets) == len(EMPTY_BUCKETS)
                and digest_of_buckets(tuple(buckets)) == digest
            ):
                return tuple(buckets)
    return None


def _lines_in(answer: object, end_offset: int, bucket: int) -> list[str] | None:
    """Return a bucket's lines that a controller answered; None as for the buckets."""
    match answer:
        case {"end_offset": int(at), "lines": [*rows]} if at == end_offset:
            lines = [line for line in rows if isinstance(line, str) and bucket_of(line) == bucket]
            return lines if len(lines) == len(rows) else None
    return None


def asking(session: Callable[[], aiohttp.ClientSession], urls: Callable[[], Iterable[str]]) -> Ask:
    """Return what asks the controllers at some URLs, one after the other, until one answers with JSON."""

    async def ask(path: str) -> object:
        timeout = aiohttp.ClientTimeout(total=ANSWER_MAX_S)
        for url in urls():
            try:
                async with session().get(
                    url + path, timeout=timeout, allow_redirects=False, headers=_AS_JSON
                ) as response:
                    if response.status == 200:
                        return await _json_of(response)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError, InvalidRequest):
                continue
        return None

    return ask


async def _json_of(response: aiohttp.ClientResponse) -> object:
    """Return the value of an answer's body.

    Raises:
        InvalidRequest: it is nested too deeply, or is not Unicode.
        RecursionError: the same, so deeply that it cannot be read.
        ValueError: it is no JSON, or larger than STATE_CHECK_ANSWER_BYTES_MAX.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limits.STATE_CHECK_ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of more than {limits.STATE_CHECK_ANSWER_BYTES_MAX} bytes")
    value: object = json.loads(body)
    check_plain(value)
    return value
