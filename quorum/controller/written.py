"""Pure: what a write leads to, and what is kept of that in the log, so that a repetition gets the first answer.

What can be derived from the write's records is not kept. Tests: tests/unit/quorum/controller/test_controller.py.
"""

from collections.abc import Callable

import msgspec

from metadata_log.batch import RecordBatch
from metadata_log.errors import InvariantBroken
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.snapshots import RequestResultRecord
from metadata_log.sliced import Sliced
from quorum.decide.canonical import pack_outcome, unpack_outcome
from quorum.decide.decision import Outcome
from quorum.decide.registry import BY_OPERATION


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a write leads to, and the offsets of its records: `base_offset` inclusive, `end_offset` exclusive.

    One that wrote nothing has base = end = the offset it waited for.
    """

    outcome: Outcome
    base_offset: int
    end_offset: int


def kept(operation: str, outcome: Outcome) -> bytes:
    """Return what is kept of an outcome for a repetition."""
    how = BY_OPERATION[operation].kept
    return pack_outcome(outcome if how is None else how.keep(outcome))


def restored(
    result: RequestResultRecord,
    reading_batch_at: Callable[[int], Sliced[RecordBatch | None]],
    image: MetadataImage,
) -> Sliced[Written]:
    """Find out what a repetition leads to; `reading_batch_at` reads the committed batch that begins at an offset, None if
    the log does not hold it.
    """
    try:
        decides = BY_OPERATION[result.operation]
        how = decides.kept
        outcome = unpack_outcome(decides.outcome if how is None else how.kind, result.response)
    except (KeyError, ValueError) as error:
        raise InvariantBroken(
            f"the kept result of {result.operation} at offset {result.base_offset} cannot be read: {error}"
        ) from error
    if how is not None:
        batch = yield from reading_batch_at(result.base_offset)
        yield
        outcome = how.restore(outcome, None if batch is None else batch.records, image)
    return Written(outcome=outcome, base_offset=result.base_offset, end_offset=result.end_offset)
