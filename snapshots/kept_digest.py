"""Edge: what a node's newest snapshot's state digest is made of, kept beside the snapshots.

To count a snapshot's records takes longer than to read them. Nothing rests on this file: buckets that do not add up to the
footer's digest are not used. Tests: tests/unit/broker_agent/test_cache.py.
"""

import logging
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from metadata_log.digest import EMPTY_BUCKETS, Buckets
from metadata_log.errors import DiskFailed
from metadata_log.node.disk.durable_files import (
    checked_json,
    from_checked_json,
    renamed_os_errors,
    replace_file,
)
from metadata_log.wire.shapes import Shape

log = logging.getLogger(__name__)
FILE: Final = "state-digest.json"


class _Content(Shape, frozen=True):
    buckets: Annotated[Buckets, Meta(min_length=len(EMPTY_BUCKETS), max_length=len(EMPTY_BUCKETS))]


class KeptDigest:
    """The file of one node. Its methods block: call them in a worker thread."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._kept: Buckets | None = None

    def buckets(self) -> Buckets | None:
        """Return what was kept, None if nothing readable was.

        Raises:
            DiskFailed: the disk refuses.
        """
        with renamed_os_errors(self._path):
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            self._kept = from_checked_json(content, _Content).buckets
        except ValueError as error:
            # The snapshot's records are counted instead.
            log.warning("state_digest_unreadable", extra={"path": str(self._path), "reason": str(error)})
            self._kept = None
        return self._kept

    def keep(self, buckets: Buckets) -> None:
        """Keep the buckets of the newest snapshot's digest, so that the next start need not count its records."""
        if self._kept == buckets:
            return
        try:
            replace_file(self._path, checked_json({"buckets": buckets}))
        except DiskFailed as error:
            # The next start takes longer, no more.
            log.warning("state_digest_not_kept", extra={"reason": error.message})
        else:
            self._kept = buckets
