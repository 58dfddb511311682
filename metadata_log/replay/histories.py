"""Edge: whether a log and an export are one history: the batch at the last offset that both have must be the same."""

import logging
from typing import NamedTuple

import pyarrow.parquet as pq

from metadata_log.errors import InvalidRequest, InvariantBroken
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.tables import RECORDS, Export, ExportedFile, check_files

log = logging.getLogger(__name__)

_ENDING = ("batch_last_offset", "controller_epoch", "batch_crc")


class Ending(NamedTuple):
    """A batch, by where it ends (exclusive), its epoch, and the CRC-32C of its frame."""

    end_offset: int
    controller_epoch: int
    crc: int

    def __str__(self) -> str:
        return f"a batch of epoch {self.controller_epoch} with CRC-32C {self.crc:08x} that ends at offset {self.end_offset}"


def check_history(export: Export, last: Ending | None, *, begins_at: int, ends_at: int) -> None:
    """Check that a log, which holds the offsets from `begins_at` up to `ends_at`, is the one that was exported.

    `last` is its batch with the last offset that both have; None where they have none in common. A log that is an older
    copy has nothing to add: a warning says where both end.

    Raises:
        InvalidRequest: the two have no offset in common, and the log ends below the export.
        InvariantBroken: they are two histories.
    """
    if last is None or last.end_offset <= export.first_offset:
        if ends_at < export.end_offset:
            raise InvalidRequest(
                f"the log has the offsets {begins_at} up to {ends_at}, and {export.directory} has {export.first_offset} up "
                f"to {export.end_offset}: they have none in common, so nothing shows that they are one history: export to "
                "another directory"
            )
        return  # it goes on where the export ends, or leaves a gap: the first batch after the export shows which
    exported = _ending_at(export, min(last.end_offset, export.end_offset) - 1)
    if exported is not None and exported != last:
        raise InvariantBroken(
            f"the log does not continue what was exported, this is another history: it has {last}, and {export.directory}, "
            f"which ends at offset {export.end_offset}, has {exported}: export to another directory"
        )
    if ends_at < export.end_offset:
        log.warning(
            "the log ends at offset %d, and %s at %d: it is an older copy of the same history, and nothing was added",
            *(ends_at, export.directory, export.end_offset),
        )


def _ending_at(export: Export, offset: int) -> Ending | None:
    """Return the exported batch that holds an offset; None where an older release did not write its CRC."""
    holding = [
        file
        for file in export.files
        if file.family == RECORDS and file.first_offset <= offset <= file.last_offset
    ]
    for file in holding:
        found = _row(export, file, offset)
        if found is None:
            check_files(export, [file])  # raises if it is not what was written
        else:
            end, epoch, crc = found
            return None if crc is None else Ending(end + 1, epoch, crc)
    raise InvariantBroken(f"{export.directory} names no file with the exported offset {offset}")


def _row(export: Export, file: ExportedFile, offset: int) -> tuple[int, int, int | None] | None:
    path = export.directory / file.path
    with renamed_os_errors(path):
        rows = pq.read_table(
            path, columns=list(_ENDING), filters=[("log_offset", "==", offset)], partitioning=None
        )
    if not rows.num_rows:
        return None
    end, epoch, crc = (rows.column(name)[0].as_py() for name in _ENDING)
    return end, epoch, crc
