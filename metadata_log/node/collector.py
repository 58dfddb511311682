"""Edge: keeps the cycle collector's pauses short: a long walk is not made at all.

A full collection of Python visits every container of the process, and the event loop stands still meanwhile. A node holds
millions of containers (images, kept results, the log's tail), none of them part of a cycle. With 80,000 kept results
a walk takes 0.2 s of CPU every two seconds of full load; on a busy machine that exceeds a follower's election timeout.
So where more objects than a short walk visits have outlived the young collections, all of them are frozen, before anybody
walks them: reference counts still free them, and later walks see only newer objects.

The price: a cycle that was alive when it was frozen stays until the process ends, even if it becomes garbage. asyncio leaves
a cycle of a kilobyte for each closed connection. So few objects are not frozen, and connections that come and go beside an
image at rest never are.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

WALKED_MAX: Final = 10_000
"""Objects that a full collection may find, beside those of the next young collections; some milliseconds."""
YOUNG_MAX: Final = 10_000
"""New objects before they are walked (Python: 700). The 64 writes that are under way together have about half as many, and
nearly all are gone with their answers: a walk in their midst finds no garbage."""
YOUNG_WALKS: Final = 0
"""Each second collection is of the middle generation (Python: each twelfth): 20,000 objects at most, 5 to 7 ms."""
MIDDLE_WALKS: Final = 2
"""A full collection follows three of the middle generation (Python: eleven). It visits WALKED_MAX objects that these left,
and 20,000 new ones, at most."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Freeze all objects that are alive now, and later those that are too many for a short walk."""
    thresholds = gc.get_threshold()

    def freeze_before_long_walk(phase: str, info: dict[str, int]) -> None:
        # The collection of the middle generation has just moved all that is alive into the oldest one.
        if phase == "stop" and info["generation"] == 1 and len(gc.get_objects(2)) > WALKED_MAX:
            gc.freeze()

    gc.collect()
    gc.freeze()
    gc.callbacks.append(freeze_before_long_walk)
    gc.set_threshold(YOUNG_MAX, YOUNG_WALKS, MIDDLE_WALKS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(freeze_before_long_walk)
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
