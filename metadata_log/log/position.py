"""Pure: where a reader of the log stands, identified by the frame that ends there.
Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

from typing import Final, NamedTuple


class Position(NamedTuple):
    """What a reader knows of the frame that ends where it stands: enough to tell whether it reads our log."""

    controller_epoch: int
    crc: int


AT_ZERO: Final = Position(-1, 0)
"""No frame ends at offset 0; MetadataFetch writes it so."""
