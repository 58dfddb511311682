"""Pure: a change of many partitions, made in parts: each fits into one batch and one turn of the leader's loop.

A part is a stretch of a walk over a broker's partitions, or over those without a leader. The next part goes on after it, so
its cost does not depend on how far the walk got. Where a walk is, the active controller alone knows: the next one walks from
the start, past what is done already. Tests: tests/property/test_changes_in_parts.py.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from metadata_log.image.topics import PartitionKey
from metadata_log.limits import BATCH_BYTES_MAX, KIB
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from quorum.decide.context import DecideContext
from quorum.decide.decision import Walk, Walked

_PART_BYTES_MAX: Final = BATCH_BYTES_MAX - 64 * KIB
"""Bytes for the changes of a part; the rest is for the envelope and the records beside them."""

_VISITS_BETWEEN_LOOKS: Final = 64
"""Partitions visited between two looks at the clock."""


class Part(NamedTuple):
    """The changes of one part, whether others are left, and where the walk stands after it."""

    records: list[Record]
    more: bool
    walked: Walked


def part_of(
    context: DecideContext,
    walk: Walk,
    visits: Iterable[tuple[PartitionKey, PartitionChangeRecord | None]],
    *,
    room: int | None = None,
) -> Part:
    """Return a stretch of a broker's walk; `visits` are its partitions after the last one visited."""
    records, more, last = stretch_of(context, visits, after=context.changes.visited(walk), room=room)
    return Part(records, more, Walked(walk, last if more else None))


def stretch_of(
    context: DecideContext,
    visits: Iterable[tuple[PartitionKey, PartitionChangeRecord | None]],
    *,
    after: PartitionKey | None,
    room: int | None = None,
) -> tuple[list[Record], bool, PartitionKey | None]:
    """Return the changes that fit into a batch, and into the time of one turn, together with one more record.

    Also whether others are left, and the last partition visited. `visits` are the partitions behind `after`, each with its
    change, None where nothing changes. `room` are the records that the batch still holds; None: all of it.
    """
    records: list[Record] = []
    records_max = (context.records_max if room is None else room) - 1
    bytes_left = _PART_BYTES_MAX
    last = after
    for visited, (key, record) in enumerate(visits, start=1):
        if record is not None:
            # No record packs into more: 48 bytes beside the ISR, 5 for each member.
            bytes_left -= 48 + 5 * len(record.isr or ())
            if len(records) >= records_max or bytes_left < 0:
                return records, True, last
            records.append(record)
        last = key
        if visited % _VISITS_BETWEEN_LOOKS == 0 and context.is_turn_over():
            return records, True, last
    return records, False, last
