"""Pure: what a decision is: the records to write, and what to answer once they are applied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metadata_log.batch import Cause
from metadata_log.errors import Rejected
from metadata_log.records.registry import Record

Answer = Mapping[str, Any]
"""The JSON answer of a write, uuids as text, without "offsets"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records to append as one batch (none: nothing to do), and the outcome.

    A refusal is a decision too: it may rest on records in flight, and is told only once those are applied.
    `more` says that this is a part, and that the rest must be decided on the image after it.
    """

    records: Sequence[Record] = ()
    answer: Answer | None = None
    refusal: Rejected | None = None
    cause: Cause | None = None
    more: bool = False

    def outcome(self) -> Answer:
        """Return the answer.

        Raises:
            Rejected: the refusal.
        """
        if self.refusal is not None:
            raise self.refusal
        return self.answer or {}
