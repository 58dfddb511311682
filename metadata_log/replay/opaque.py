"""Pure: a record of another system's log that has no counterpart among ours: it keeps its offset, and changes nothing."""

from typing import NamedTuple


class OpaqueRecord(NamedTuple):
    """Kept as text: the log stays dense, and an analyst sees that something was written."""

    type_id: int
    type_name: str
    content: str
    """JSON, without secrets."""
