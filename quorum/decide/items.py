"""Pure: decisions on many items: what their results have in common, and a request that wants all of its items or none."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from metadata_log.errors import ElectionNotNeeded, OperationNotAttempted, PolicyViolation, Rejected
from metadata_log.limits import ITEM_MESSAGE_LENGTH_MAX, RECORDS_PER_BATCH_MAX
from metadata_log.wire.commands import Command
from quorum.decide.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyItems(Command):
    """Base of commands with many items, each of which gets a result of its own.

    With `all_or_nothing`, nothing is written if one item is refused.
    """

    all_or_nothing: bool = False


NOT_ATTEMPTED: Final = "another item of the request was refused, and the request wants all or nothing"
_AS_WANTED: Final = frozenset({ElectionNotNeeded.error})
"""The answer for an item that is as wanted already: it refuses nothing."""


class ItemResult(Protocol):
    """What became of one item: a named tuple of what names it, and then, each with a default, of its error and state."""

    @property
    def error(self) -> str | None: ...

    @property
    def message(self) -> str | None: ...


def why(refusal: Rejected) -> tuple[str, str]:
    """Return the error and the message of a refused item, as its result has them."""
    return refusal.error, refusal.message[:ITEM_MESSAGE_LENGTH_MAX]


def check_fits(count: int, what: str) -> None:
    """Refuse a request that needs more records than one batch holds; `what` is counted.

    Raises:
        PolicyViolation: names the count and the bound.
    """
    if count > RECORDS_PER_BATCH_MAX:
        raise PolicyViolation(
            f"{count} {what} in one request; at most {RECORDS_PER_BATCH_MAX} can be written at once: ask for less at once"
        )


def all_or_nothing(decision: Decision) -> Decision:
    """Return a decision on many items if it refuses none of them; else one that writes nothing.

    The items that are not refused then get OPERATION_NOT_ATTEMPTED.
    """
    outcome: Any = decision.outcome
    if outcome is None or not any(map(_is_refused, outcome.results)):
        return decision
    results = (row if row.error is not None else _not_attempted(row) for row in outcome.results)
    return Decision(outcome=outcome._replace(results=tuple(results)))


def _is_refused(result: ItemResult) -> bool:
    return result.error is not None and result.error not in _AS_WANTED


def _not_attempted(row: Any) -> Any:
    told = {"error": OperationNotAttempted.error, "message": NOT_ATTEMPTED}
    return row._replace(**(row._field_defaults | told))
