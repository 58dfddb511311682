"""Pure: how many bytes of requests' bodies a process holds, and the refusal of more."""

from metadata_log import limits
from metadata_log.errors import ThrottlingQuotaExceeded


class BodyBuffers:
    """Counts the body of each request from its first bytes until the request is answered.

    Bodies of at most HTTP_BODY_AT_ONCE_BYTES are not counted and pass in any case: a node takes heartbeats and small writes
    whatever its other clients send. Their sum is bounded by the number of connections.
    """

    def __init__(self, *, bytes_max: int | None = None) -> None:
        self._bytes_max = limits.BODIES_HELD_BYTES_MAX if bytes_max is None else bytes_max
        self.bytes_total = 0

    def more(self, held: int, size: int) -> ThrottlingQuotaExceeded | None:
        """Count a body of `size` bytes, of which `held` are counted; return why it may not grow that far.

        An exception that is raised and kept would hold the body, by its traceback, until the next collection.
        """
        total = self.bytes_total - held + size
        if total > self._bytes_max:
            return ThrottlingQuotaExceeded(
                f"this node holds {self.bytes_total} bytes of larger requests that are not answered yet, and at most "
                f"{self._bytes_max}: ask again shortly, or send less at once"
            )
        self.bytes_total = total
        return None

    def release(self, held: int) -> None:
        """Forget the body of a request that is answered, of which `held` bytes are counted."""
        self.bytes_total -= held
