"""Edge: keeps the cycle collector's pauses short: objects that a long walk found alive are not walked again.

A full collection of Python visits every container of the process, and the event loop stands still meanwhile. A controller
holds millions of containers (images, kept results, the log's tail), none of them part of a cycle. With 80,000 kept results
a walk takes 0.2 s of CPU every two seconds of full load; on a busy machine that exceeds a follower's election timeout.
After a long walk all objects that it found alive are therefore frozen: reference counts still free them, and later walks
see only newer objects.

The price: a cycle that was alive when it was frozen stays until the process ends, even if it becomes garbage. asyncio leaves
a cycle of a kilobyte for each closed connection. So a short walk freezes nothing, and connections that come and go beside
an image at rest are never frozen.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LONG_WALK_S: Final = 0.01
"""CPU time, some 5,000 nodes of an image; a fifth of a heartbeat."""
MIDDLE_WALKS: Final = 2
"""A full collection follows two of the middle generation (Python: 10), so that each sees 15,000 new objects, not 77,000."""


@contextmanager
def short_collections() -> Iterator[None]:
    """Freeze all objects that are alive now, and those that each later long collection finds alive."""
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
