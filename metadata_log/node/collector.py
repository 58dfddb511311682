"""Edge: keeps the cycle collector's pauses short: a long walk is not made at all.

A full collection of Python visits every container of the process, and the event loop stands still meanwhile. A node holds
millions of containers (images, kept results, the log's tail), none of them part of a cycle. With 80,000 kept results
a walk takes 0.2 s of CPU every two seconds of full load; on a busy machine that exceeds a follower's election timeout.
So where more objects than a short walk visits have outlived the young collections, all of them are frozen, before anybody
walks them: reference counts still free them, and later walks see only newer objects.

Python counts how many more objects were made than freed since the last walk. While old objects go and new ones come, as when
connections take the place of closed ones, that count stays near zero. So nothing is walked, and then hundreds of thousands
of new objects at once. Therefore new objects are also walked by time, in turns of the loop where no decision adds to them.

The price: a cycle that was alive when it was frozen stays until the process ends, even if it becomes garbage. asyncio leaves
a cycle of a kilobyte for each closed connection. So few objects are not frozen, and connections that come and go beside an
image at rest never are.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Never

WALKED_MAX: Final = 10_000
"""Objects that a full collection may find, beside those of the next young collections; some milliseconds."""
YOUNG_MAX: Final = 10_000
"""New objects before they are walked (Python: 700). The 64 writes that are under way together have about half as many, and
nearly all are gone with their answers: a walk in their midst finds no garbage."""
YOUNG_WALKS: Final = 0
"""Each second collection is of the middle generation (Python: each twelfth): 20,000 objects at most, 5 to 7 ms."""
MIDDLE_WALKS: Final = 1_000
"""No full collection follows those of the middle generation by itself: `keep_walking` makes them."""
WALK_EVERY_S: Final = 0.25
"""New objects are walked so often, however few they are. Writes that are under way are walked, too: every 100 ms, that took
3 % of a leader's processor time under 64 writers."""
COUNT_EVERY: Final = 2
"""Of these walks; to count the oldest generation takes about a millisecond, so not behind each."""
FULL_EVERY: Final = 40
"""Of these walks: a closed connection's cycle is freed within 10 s."""


class ShortCollections:
    """The walks of this process; made by `short_collections` alone."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_timed = False

    def freeze_what_is_too_much(self) -> None:
        """Freeze all objects if more than a short walk visits have outlived the young collections."""
        if len(gc.get_objects(2)) > WALKED_MAX:
            gc.freeze()

    def walked(self, phase: str, info: dict[str, int]) -> None:
        """Look at the oldest generation: that of the middle one has just moved into it all that is alive.

        To count 30,000 objects takes 2 to 6 ms, so that is not done amid a decision, but in a turn of its own.
        """
        if phase != "stop" or info["generation"] != 1 or self._is_timed:
            return
        if self._loop is None:
            self.freeze_what_is_too_much()
        else:
            self._loop.call_soon_threadsafe(self.freeze_what_is_too_much)

    async def keep_walking(self) -> Never:
        """Walk, from now on, what was made since the last walk, and count in turns of the loop what has outlived it."""
        self._loop = asyncio.get_running_loop()
        try:
            walks = 0
            while True:
                await asyncio.sleep(WALK_EVERY_S)
                walks += 1
                self._is_timed = True
                gc.collect(1)
                self._is_timed = False
                if walks % COUNT_EVERY == 0:
                    await asyncio.sleep(0)
                    self.freeze_what_is_too_much()
                if walks % FULL_EVERY == 0:
                    await asyncio.sleep(0)
                    gc.collect()
        finally:
            self._loop = None


@contextmanager
def short_collections() -> Iterator[ShortCollections]:
    """Freeze all objects that are alive now, and later those that are too many for a short walk."""
    thresholds = gc.get_threshold()
    collections = ShortCollections()
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


@contextmanager
def no_collections() -> Iterator[None]:
    """Walk no objects meanwhile: records are tuples without cycles, and a walk of millions takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
