"""Edge: keeps the cycle collector's pauses short: what a long walk found alive is not walked again.

A full collection of Python visits every container of the process, and the event loop stands still meanwhile. A controller
holds millions (images, kept results, the log's tail), none of them part of a cycle: with 80,000 kept results a walk takes
0.2 s of CPU every two seconds of full load, and on a busy machine that is more than a follower's patience with its leader.
So when a walk took long, all that it found alive is frozen: reference counts still free it, and later walks see only what
came since.

The price is a cycle that was alive when it was frozen and is garbage later; it stays until the process ends. asyncio leaves
one of a kilobyte for each closed connection, so a walk that was short freezes nothing: no connection that comes and goes
beside an image at rest is ever frozen.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LONG_WALK_S: Final = 0.01
"""CPU time, some 5,000 nodes of an image; a fifth of a heartbeat."""
MIDDLE_WALKS: Final = 2
"""A full collection comes after so many of the middle generation (Python: 10): each sees 15,000 new objects, not 77,000."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Freeze what is alive now, and what each long full collection of this process finds alive from now on."""
    thresholds = gc.get_threshold()
    began_s = 0.0

    def freeze_after_long_walk(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if info["generation"] < 2:
            return
        if phase == "start":
            began_s = time.thread_time()
        elif time.thread_time() - began_s > LONG_WALK_S:
            gc.freeze()

    gc.collect()
    gc.freeze()
    gc.callbacks.append(freeze_after_long_walk)
    gc.set_threshold(*thresholds[:2], MIDDLE_WALKS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(freeze_after_long_walk)
        gc.unfreeze()
