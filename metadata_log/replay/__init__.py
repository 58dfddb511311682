"""Edge: the log as an analyst reads it: `log = replay.open(PATH)`, then `log.leader_intervals().show()`."""

from metadata_log.replay.library import Log
from metadata_log.replay.library import open_log as open  # noqa: A004 `replay.open`, as `gzip.open`

__all__ = ["Log", "open"]
