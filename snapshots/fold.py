"""Pure: a snapshot and the batches after it, folded into an image: the reference for every other way to the same state.
Tests: tests/property/test_folding.py.
"""

from collections.abc import Iterable

from metadata_log.apply import apply, is_next
from metadata_log.batch import RecordBatch
from metadata_log.errors import InvariantBroken
from metadata_log.image.metadata_image import EMPTY, MetadataImage


def fold(
    batches: Iterable[RecordBatch], *, onto: MetadataImage = EMPTY, keeps_results: bool = True
) -> MetadataImage:
    """Return the image after `batches`, the first of which continues `onto`; `keeps_results` as in `applying`.

    Raises:
        InvariantBroken: a batch does not continue the image before it, or contradicts it.
    """
    image = onto
    for batch in batches:
        if not is_next(image, batch):
            raise InvariantBroken(
                f"the batch at offset {batch.base_offset} of epoch {batch.controller_epoch} does not continue the state "
                f"at offset {image.end_offset} of epoch {image.controller_epoch}"
            )
        image = apply(image, batch, keeps_results=keeps_results).image
    return image
