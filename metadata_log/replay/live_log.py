"""Edge: the log of a running cluster, asked of its controllers, and exported for one reader.

The controllers are asked from the beginning on, in a thread: what reads the log takes longer to import than they to answer.
Tests: tests/unit/metadata_log/replay/test_live_log.py.
"""

import tempfile
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.codec import DamagedFrame, FrameHeader, check_frame, damaged_answer
from metadata_log.errors import BrokerNotAvailable, OffsetCompacted
from metadata_log.replay.controller_client import NOTHING_SHOWN, ControllerClient, Shown, controllers
from metadata_log.replay.failing import Failing
from metadata_log.wire.answers import LogStatus

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import MetadataImage
    from metadata_log.replay.scratch import Scratch

PAGE_BYTES: Final = 8 * 1024 * 1024
"""The most that one answer of /v1/log holds."""


class _Told(NamedTuple):
    """What a controller told first: its status, and the frames from offset 0 on, if it has them."""

    client: ControllerClient
    status: LogStatus
    first_page: bytes


class LiveLog:
    """What a controller holds of the log, up to its high watermark: a follower of the quorum that answers at the URLs.

    Its methods raise, beside what they name:
        BrokerNotAvailable: no node answers there, or it is no controller.
        NotAuthorized: what is shown is not enough.
    """

    def __init__(self, urls: str, shown: Shown = NOTHING_SHOWN) -> None:
        """Begin to ask the controllers at `urls`, which commas separate."""
        self._urls, self._shown = urls, shown
        self._answer: Future[_Told] = Future()
        Thread(target=self._ask, name="asks for the log", daemon=True).start()

    def __str__(self) -> str:
        return self._urls

    def _ask(self) -> None:
        with Failing(self._answer):
            client = controllers(self._urls, self._shown).followers_first().alone()
            status = client.status()
            begins_at, ends_at = status.log_start_offset, status.high_watermark
            page = _page(client, 0, ends_at) if begins_at == 0 < ends_at else b""
            self._answer.set_result(_Told(client, status, page))

    def check(self) -> None:
        """Raise what the controllers have answered, if it is known by now that they give no log."""
        if self._answer.done():
            self._answer.result()

    def exported(self, *, is_passing: bool) -> "tuple[Path, Scratch]":
        """Export the log for one reader, and return the directory and what removes it; as `export`."""
        from metadata_log.replay.scratch import Scratch

        scratch = Scratch()
        self.export(scratch.path, is_passing=is_passing)
        return scratch.path, scratch

    def export(self, to: Path, *, is_passing: bool = False) -> dict[str, Any]:
        """Export the log to a directory, and return the manifest; `is_passing` as in `export_log`.

        Raises:
            BrokerNotAvailable: it has less of the log than it says.
            OffsetCompacted: its log does not begin at 0, and it has no snapshot to begin at.
        """
        from metadata_log.replay.export import export_log

        client, status, _ = self._answer.result()
        begins_at = status.log_start_offset
        return export_log(
            self.frames,
            to,
            cluster_id=status.cluster_id,
            snapshot=_downloaded(client, not_below=begins_at) if begins_at else None,
            begins_at=begins_at,
            ends_at=status.high_watermark,
            observed_until_ms=status.observed_until_ms,
            is_passing=is_passing,
        )

    def frames(self, first: int, until: int | None) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield whole frames from the one that contains an offset, up to another (exclusive) or the high watermark.

        Raises:
            BrokerNotAvailable: it has less of the log than it says.
            DamagedFile: a frame is damaged.
        """
        client, status, page = self._answer.result()
        ends_at = status.high_watermark
        stop = ends_at if until is None else min(until, ends_at)
        if first > 0 or stop < ends_at:
            page = b""
        while first < stop:
            data, page = page or _page(client, first, stop), b""
            at = 0
            while at < len(data):
                try:
                    header = check_frame(data, at)
                except DamagedFrame as error:
                    raise damaged_answer(client.urls[0], error) from error
                yield header, data[at : at + header.frame_bytes]
                at += header.frame_bytes
                first = header.end_offset
            if not data:
                raise BrokerNotAvailable(
                    f"{client.urls[0]} has nothing at offset {first} of the {ends_at} records that it has told of: try again"
                )


def _page(client: ControllerClient, first: int, stop: int) -> bytes:
    """Return the frames that one answer holds."""
    asked = {"from": first, "until": stop, "max_bytes": PAGE_BYTES, "consistency": "stale"}
    return client.body(f"/v1/log?{urllib.parse.urlencode(asked)}", accept="application/octet-stream")


def _downloaded(client: ControllerClient, *, not_below: int) -> "MetadataImage":
    from snapshots.snapshot_file import read_snapshot

    fitting = [item for item in client.snapshots() if item.end_offset >= not_below]
    if not fitting:
        raise OffsetCompacted(
            f"{client.urls[0]}: its log begins at {not_below}, and it has no snapshot to begin at"
        )
    oldest = min(fitting, key=lambda item: item.end_offset)
    with tempfile.TemporaryDirectory(prefix="metaquorum-") as folder:
        path = Path(folder, f"{oldest.id}.snapshot")
        path.write_bytes(
            client.body(f"/v1/metadata/snapshots/{oldest.id}", accept="application/octet-stream")
        )
        return read_snapshot(path)
