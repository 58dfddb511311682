"""Edge: keeps the cycle collector's pauses short: a long walk is not made at all.

A full collection of Python visits every container of the process, and the event loop stands still meanwhile. A node holds
millions of containers (images, kept results, the log's tail), none of them part of a cycle. With 80,000 kept results
a walk takes 0.2 s of CPU every two seconds of full load; on a busy machine that exceeds a follower's election timeout.
So objects that outlive a long walk are frozen before anybody walks them again. Those that outlive short walks are frozen
once there are more than WALKED_MAX. Reference counts still free what is frozen, and later walks see only newer objects.

Python counts how many more objects were made than freed since the last walk. While old objects go and new ones come, as when
connections take the place of closed ones, that count stays near zero. So nothing is walked, and then hundreds of thousands
of new objects at once. Therefore new objects are also walked by time, in turns of the loop where no decision adds to them.

The price: a cycle that was alive when it was frozen stays until the process ends, even if it becomes garbage. asyncio leaves
a cycle of a kilobyte for each closed connection. Servers break it (`leave_no_cycle`); that of a connection that this process
opened itself stays. Few objects are not frozen, so beside an image at rest such connections never are.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Never

from metadata_log.node.pace import next_turn

WALKED_MAX: Final = 10_000
"""Objects that a full collection may find, beside those of the next young collections; some milliseconds."""
YOUNG_MAX: Final = 5_000
"""New objects, less those that went, before they are walked (Python: 700). The 64 writes that are under way together have
about as many, and nearly all are gone with their answers: a walk in their midst finds no garbage."""
YOUNG_WALKS: Final = 2
"""A collection of the middle generation follows three of the young one (Python: eleven), unless one of these took long."""
MIDDLE_WALKS: Final = 1_000
"""No full collection follows those of the middle generation by itself: `keep_walking` makes them."""
LONG_WALK_S: Final = 0.003
"""Processor time of a walk, after which whatever is alive is not walked again."""
WALK_EVERY_S: Final = 0.25
"""New objects are walked so often, however few they are; not more often, since what is under way is walked, too."""
COUNT_EVERY: Final = 2
"""Of these walks; to count the oldest generation takes about a millisecond, so not after each."""
FULL_EVERY: Final = 40
"""Of these walks: a closed connection's cycle is freed within 10 s."""


class ShortCollections:
    """The walks of this process; made by `short_collections` alone."""

    def __init__(self, spent_s: Callable[[], float]) -> None:
        self._spent_s = spent_s
        self._began_s = 0.0

    def walked(self, phase: str, info: dict[str, int]) -> None:
        """Freeze all objects that are alive after a long walk of those that are young."""
        if phase == "start":
            self._began_s = self._spent_s()
        elif info["generation"] < 2 and self._spent_s() - self._began_s > LONG_WALK_S:
            gc.freeze()

    async def keep_walking(self) -> Never:
        """Walk, from now on, what was made since the last walk, and count in turns of the loop what has outlived it."""
        walks = 0
        while True:
            await asyncio.sleep(WALK_EVERY_S)
            walks += 1
            gc.collect(1)
            if walks % COUNT_EVERY == 0:
                await next_turn()
                if len(gc.get_objects(2)) > WALKED_MAX:
                    gc.freeze()
            if walks % FULL_EVERY == 0:
                await next_turn()
                gc.collect()


@contextmanager
def short_collections(*, spent_s: Callable[[], float] = time.thread_time) -> Iterator[ShortCollections]:
    """Freeze all objects that are alive now, and later those that are too many for a short walk.

    `spent_s` tells the processor time of this thread.
    """
    thresholds = gc.get_threshold()
    collections = ShortCollections(spent_s)
    gc.collect()
    gc.freeze()
    gc.callbacks.append(collections.walked)
    gc.set_threshold(YOUNG_MAX, YOUNG_WALKS, MIDDLE_WALKS)
    try:
        yield collections
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collections.walked)
        gc.unfreeze()


def leave_no_cycle(transport: asyncio.BaseTransport | None) -> None:
    """Break the cycle of a transport whose connection is lost: its socket and itself are freed at once.

    A transport of asyncio keeps one of its own bound methods, and calls it only while it reads.
    """
    if transport is not None and hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None  # noqa: SLF001  # asyncio has no name for it
