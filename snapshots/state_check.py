"""Edge: a node compares its state with that of other nodes, all the time, and names the first key that differs.

It counts its state's digest from nothing and asks a controller, which reads its log up to the same offset again. So it finds
what changed in memory, was applied in another way, or is another log.
Tests: tests/unit/snapshots/test_state_check.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Never, TypeAlias

import aiohttp

from metadata_log import limits
from metadata_log.digest import Buckets, digest_of_buckets
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.clock import monotonic_ms
from metadata_log.node.pace import until_done
from metadata_log.recount import LinesOfBucket, Recount, differing_buckets, first_difference

log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[str], Awaitable[Mapping[str, Any] | None]]
"""Returns what a controller answers to a path below its URL; None where none answers it now."""
ANSWER_MAX_S: Final = 60.0
_AS_JSON: Final = {"Accept": "application/json"}


class StateDiffers(NamedTuple):
    """Where this node's state is not that of the log: `here` and `there` are the digest's lines, None for none."""

    end_offset: int
    key: str
    here: str | None
    there: str | None

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
        """What was found by the last check that could compare."""
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
        if answer is None or answer.get("end_offset") != image.end_offset:
            return  # it lags, or keeps no more of the log
        recount, began_ms = Recount(image), monotonic_ms()
        await until_done(recount.count_some)
        self._counting_ms = monotonic_ms() - began_ms
        here = recount.buckets()
        self.compared = image.end_offset
        if digest_of_buckets(here) == answer["digest"]:
            self.differs = None
            return
        there: Buckets = tuple((count, x1, x2) for count, x1, x2 in answer["buckets"])
        found = await self._first(image, here, there)
        if found is not None and found != self.differs:
            log.error("state_differs", extra=found._asdict())
        self.differs = found

    async def _first(self, image: MetadataImage, here: Buckets, there: Buckets) -> StateDiffers | None:
        """Return the first key of the buckets that differ; a line that changed is in one bucket here and another there."""
        mine: list[str] = []
        theirs: list[str] = []
        for bucket in [*differing_buckets(here, there)][: limits.STATE_CHECK_BUCKETS]:
            path = f"/v1/digest?at={image.end_offset}&bucket={bucket}&consistency=stale"
            answer = await self._ask(path)
            if answer is None:
                return None
            own = LinesOfBucket(image, bucket)
            await until_done(own.find_some)
            mine += own.found
            theirs += answer["lines"]
        first = first_difference(mine, theirs, image)
        return None if first is None else StateDiffers(image.end_offset, *first)


def asking(session: Callable[[], aiohttp.ClientSession], urls: Callable[[], Iterable[str]]) -> Ask:
    """Return what asks the controllers at some URLs, one after the other, until one answers."""

    async def ask(path: str) -> Mapping[str, Any] | None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_MAX_S)
        for url in urls():
            try:
                async with session().get(
                    url + path, timeout=timeout, allow_redirects=False, headers=_AS_JSON
                ) as response:
                    if response.status == 200:
                        answer: Mapping[str, Any] = await response.json()
                        return answer
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
                continue
        return None

    return ask
