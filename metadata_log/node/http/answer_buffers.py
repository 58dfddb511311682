"""Pure: how many bytes of answers a process holds that its clients have not read yet, and the refusal of more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from metadata_log import limits
from metadata_log.errors import ThrottlingQuotaExceeded


class AnswerBuffers:
    """Counts what each holder keeps of answers: a connection its unsent bytes, a handler the piece that it sends next.

    Small answers pass in any case: a node answers a health check whatever its other clients do. Their sum is bounded by
    the number of connections.
    """

    def __init__(self, *, bytes_max: int = limits.ANSWERS_UNSENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[object, int] = {}
        self.bytes_total = 0

    def hold(self, holder: object, size: int) -> None:
        """Count `size` bytes for a holder from now on; 0: it holds nothing any more."""
        self.bytes_total += size - self._held.pop(holder, 0)
        if size:
            self._held[holder] = size

    def refusal(self, size: int) -> ThrottlingQuotaExceeded | None:
        """Return why an answer of this size may not be made: it is large, and clients have not read what they asked for.

        An exception that is raised and kept would hold the answer, by its traceback, until the next collection.
        """
        if size <= limits.SMALL_ANSWER_BYTES or self.bytes_total + size <= self._bytes_max:
            return None
        return ThrottlingQuotaExceeded(
            f"clients have not read {self.bytes_total} bytes of their answers yet, and this node holds at most "
            f"{self._bytes_max}: ask again shortly, or another controller"
        )

    def check(self, size: int) -> None:
        """Check that an answer of this size may be made.

        Raises:
            ThrottlingQuotaExceeded: as `refusal`.
        """
        refused = self.refusal(size)
        if refused is not None:
            raise refused

    @contextmanager
    def holding(self, size: int) -> Iterator[Callable[[int], None]]:
        """Count `size` bytes for a large answer while it is sent piece by piece. What is yielded counts another size.

        Raises:
            ThrottlingQuotaExceeded: as `check`.
        """
        self.check(size)
        holder = object()
        self.hold(holder, size)
        try:
            yield partial(self.hold, holder)
        finally:
            self.hold(holder, 0)
