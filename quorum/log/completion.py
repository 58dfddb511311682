"""Edge: fetches the end of the committed log that this node lost and that its own Raft log no longer holds.
Tests: tests/unit/quorum/node/test_server.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import aiohttp

from metadata_log.codec import DamagedFrame, decode_all, read_header
from metadata_log.errors import DamagedFile
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.clock import monotonic_ms
from quorum.log.repair import fetch_pages, log_unreadable
from quorum.raft.log_start import PointerDisk, stored_pointer
from snapshots.snapshot_file import position_of

log = logging.getLogger(__name__)

COMPLETE_LOG_MS: Final = 20_000
"""A node whose log lost its end to damage waits this long for a controller that has it."""
COMPLETE_LOG_AGAIN_S: Final = 0.5


def covered_offset(disk: PointerDisk) -> int:
    """Return the end of the snapshot at which the journal begins: Raft commits everything after it once more.

    Raises:
        WrittenByAnotherVersion: before a file of the log is touched.
    """
    try:
        pointer = stored_pointer(disk)
        return 0 if pointer is None else position_of(pointer.snapshot_id)[0]
    except (DamagedFile, ValueError):
        return 0  # the Raft log itself will be refused


async def complete_log(
    segments: SegmentedLog,
    covered: int,
    *,
    peers: Callable[[], Sequence[str]],
    session: Callable[[], aiohttp.ClientSession],
    run_in_thread: Callable[..., Awaitable[Any]],
) -> str | None:
    """Fetch what the log lacks below `covered`, before this node goes on there; Raft has trimmed it already.

    If no other controller has more of it for COMPLETE_LOG_MS, return what is missing: the log then begins at the snapshot.
    """
    deadline_ms = monotonic_ms() + COMPLETE_LOG_MS
    while segments.end_offset < covered and monotonic_ms() < deadline_ms:
        for url in peers():
            begin = segments.end_offset
            async for frames, _ in fetch_pages(session(), url, begin, covered):
                if not _append_next(segments, frames, url):
                    break  # another history than this node's
                await run_in_thread(segments.sync)
            if segments.end_offset > begin:
                deadline_ms = monotonic_ms() + COMPLETE_LOG_MS
                log.warning("log_completed", extra={"from": begin, "until": segments.end_offset, "peer": url})
        if segments.end_offset < covered:
            await asyncio.sleep(COMPLETE_LOG_AGAIN_S)
    if segments.end_offset >= covered:
        return None
    return (
        f"the log ended at offset {segments.end_offset}, below the snapshot at {covered} on which the journal "
        "stands, and no other controller that runs had the rest: it begins at the snapshot"
    )


def _append_next(segments: SegmentedLog, frames: bytes, url: str) -> bool:
    """Append a peer's frames to the log; answer whether all of them are batches that continue it."""
    try:
        for batch, frame in decode_all(frames):
            if (batch.base_offset, batch.previous_crc) != (segments.end_offset, segments.last_crc):
                log.warning("peer_log_differs", extra={"peer": url, "offset": batch.base_offset})
                return False
            segments.append(frame, read_header(frame))
    except DamagedFrame as error:
        log_unreadable(url, error)
        return False
    return True
