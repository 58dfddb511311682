"""Edge: work during which the cycle collector does not run. Tests: tests/unit/metadata_log/node/test_collector.py."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
