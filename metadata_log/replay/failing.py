"""Edge: what the work of a thread raises, handed to the thread that waits for it.
Tests: tests/unit/metadata_log/replay/test_creations.py.
"""

from concurrent.futures import Future
from typing import Any


class Failing:
    """As a context manager, ends a future with what its block raises."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True
