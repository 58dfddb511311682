"""Pure: how a quiet quorum marks that it is alive.

Nothing is written while nothing happens, and nothing while no controller is there: in the log both are silence. So its
readers could not tell for a quiet time whether the cluster served.
Source: Kafka's QuorumController writes a NoOpRecord after metadata.max.idle.interval.ms, and for the same reason.
"""

from typing import Final

from metadata_log.limits import QUIET_MARK_MS
from metadata_log.records.quorum import WRITE_NO_OP, NoOpRecord
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision


class QuietMark:
    """Appends a record without a change where nothing else was appended for a while."""

    operation: Final = WRITE_NO_OP

    def part(self, context: DecideContext) -> Decision:
        """Return the mark if it is due; with a clock that was set back it is due, too, as the last time is no measure."""
        quiet_ms = context.unix_ms - context.image.last_time_ms
        return Decision() if 0 <= quiet_ms < QUIET_MARK_MS else Decision(records=(NoOpRecord(),))
