"""Edge: a snapshot that an operator names: a file of another kind is refused by what it is, and is no damaged snapshot.
Tests: tests/unit/ops/verbs/test_kinds.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from metadata_log.replay.kinds import Kind, kind_of, not_for

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage


def read_given(path: Path, verb: str) -> "MetadataImage":
    """Return the state that a snapshot holds.

    Raises:
        InvalidRequest: the file is something else.
        DamagedFile, WrittenByAnotherVersion: as `read_snapshot`.
    """
    from snapshots.snapshot_file import read_snapshot

    check_is_snapshot(path, verb, reads="a snapshot of metaquorum, such as a backup")
    return read_snapshot(path)


def check_is_snapshot(path: Path, verb: str, *, reads: str) -> None:
    """Check that a file begins as a snapshot does, or has the name of one; raises InvalidRequest."""
    kind = kind_of(path)
    # A backup may have any name: then its first bytes are those of a segment.
    if kind is not Kind.SNAPSHOT and (kind is not Kind.SEGMENT or path.suffix == ".log"):
        raise not_for(verb, path, reads=reads)
