"""Pure: the next producer id as the log has made it; None until a first block was given away.
Tests: tests/property/test_folding.py.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from metadata_log.ids import BrokerId
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.registry import Record

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

ProducerIdsImage: TypeAlias = int | None


class ProducerIdsBuilder(SubjectBuilder[ProducerIdsImage]):
    FIELD = "next_producer_id"

    def __init__(self, before: ProducerIdsImage, others: Builders) -> None:
        super().__init__(before, others)
        self._next = before

    def allocate(self, record: ProducerIdsRecord) -> None:
        _check_grows(self._next, record.next_producer_id)
        self._next = record.next_producer_id

    STATES = {ProducerIdsRecord: allocate}  # noqa: RUF012 (a ClassVar of the base)

    def finish(self) -> ProducerIdsImage:
        return self._next

    def delta(self) -> dict[str, Any]:
        return {"producer_ids": self.before != self._next}

    @staticmethod
    def touched_lines(image: ProducerIdsImage, touched: "Delta") -> Iterator[str]:
        return ProducerIdsBuilder.lines(image) if touched.producer_ids else iter(())

    @staticmethod
    def lines(image: ProducerIdsImage) -> Iterator[str]:
        if image is not None:
            yield f"i|{image}"

    @staticmethod
    def records(image: ProducerIdsImage) -> Iterator[Record]:
        if image is not None:
            yield ProducerIdsRecord(BrokerId(-1), -1, image)

    @staticmethod
    def view(image: ProducerIdsImage) -> dict[str, Any]:
        return {"next_producer_id": image}


def _check_grows(before: ProducerIdsImage, after: int) -> None:
    """Check that a block ends beyond the one before it: else ids would be given away twice."""
    if before is not None and after <= before:
        raise ValueError(f"the next producer id is {before}, and {after} does not lie beyond it")
