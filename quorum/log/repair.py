"""Edge: finds damaged files of the committed log and replaces them with what the other controllers have.

A scrub reads every file once a day, and every reader reports the damage it meets. If the damaged file is still being
written, it is closed and the log goes on in another. Frames are the same bytes on every controller, and each frame holds
the crc of the one before. So what a peer sends either equals what the file held, or is refused.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import aiohttp

from metadata_log.codec import DamagedFrame, check_frame, damaged_answer
from metadata_log.errors import DamagedFile, DiskFailed, MetadataError
from metadata_log.limits import FRAME_BYTES_MAX, KIB, MIB, SCRUB_EVERY_S
from metadata_log.log.segment_file import LogFile, check_frames
from metadata_log.log.segmented_log import SegmentedLog

log = logging.getLogger(__name__)

SCRUB_BYTES: Final = 256 * KIB
SCRUB_PAUSE_S: Final = 0.01
"""The pause after each SCRUB_BYTES, about a millisecond's work, leaves the interpreter and the disk to others."""
RETRY_S: Final = 10.0
REQUEST_BYTES: Final = 4 * MIB
PAGE_BYTES_MAX: Final = REQUEST_BYTES + FRAME_BYTES_MAX
"""A page has one frame at least, and whole ones."""
REQUEST_TIMEOUT_S: Final = 10.0


class LogRepair:
    """Repairs the files of one controller's log; `run` and `scrub` are tasks of its process."""

    def __init__(
        self,
        *,
        committed: SegmentedLog,
        peers: Callable[[], Sequence[str]],
        session: Callable[[], aiohttp.ClientSession],
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._log = committed
        self._peers = peers
        self._session = session
        self._run_in_thread = run_in_thread
        self._wake = asyncio.Event()
        self.damaged: dict[int, str] = {}
        """What is wrong with the file that begins at an offset, until it is repaired."""
        self.repaired_total = 0

    def report(self, error: DamagedFile) -> None:
        """Record the damage that a read met; `run` repairs it."""
        for file in self._log.files():
            if str(file.path) in error.message and file.base_offset not in self.damaged:
                self.damaged[file.base_offset] = error.message
                log.error("log_file_damaged", extra={"path": str(file.path), "reason": error.message})
        self._wake.set()

    async def run(self) -> None:
        """Repair the reported files, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for base_offset in sorted(self.damaged):
                await self._repair(base_offset)
            if self.damaged:
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def scrub(self) -> None:
        """Read every file once a day, until cancelled."""
        while True:
            for file in self._log.files():
                if file.base_offset not in self.damaged:
                    try:
                        await self._check(file)
                    except DamagedFile as error:
                        self.report(error)
                    except MetadataError as error:
                        # Mostly: retention removed the file.
                        log.warning("scrub_failed", extra={"path": str(file.path), "reason": error.message})
            await asyncio.sleep(SCRUB_EVERY_S)

    async def _check(self, file: LogFile) -> None:
        position = 0
        while position < file.size:
            position = await self._run_in_thread(partial(check_frames, file, position, bytes_max=SCRUB_BYTES))
            await asyncio.sleep(SCRUB_PAUSE_S)

    async def _repair(self, base_offset: int) -> None:
        files = self._log.files()
        file = next((file for file in files if file.base_offset == base_offset), None)
        if file is None:
            del self.damaged[base_offset]  # retention removed it
            return
        if file == files[-1]:
            try:
                self._log.begin_file()  # a file that is still being written cannot be replaced
            except DiskFailed as error:
                log.warning("log_repair_failed", extra={"peer": None, "reason": error.message})
                return
        for url in self._peers():
            frames = await fetch_frames(self._session(), url, base_offset, file.end_offset)
            if frames is None:
                continue
            try:
                replacement = await self._run_in_thread(self._log.prepare_replacement, base_offset, frames)
                self._log.replace_segment(replacement)
            except MetadataError as error:
                log.warning("log_repair_failed", extra={"peer": url, "reason": error.message})
                continue
            await self._run_in_thread(self._log.sync)  # else the damaged file could come back
            del self.damaged[base_offset]
            self.repaired_total += 1
            log.warning(
                "log_file_repaired",
                extra={"base_offset": base_offset, "peer": url, "damaged_copy": str(replacement.kept)},
            )
            return


async def fetch_frames(
    session: aiohttp.ClientSession, url: str, from_offset: int, until: int
) -> bytes | None:
    """Return the frames of a range of offsets that a controller has; None if it has not all of them now."""
    frames, at = bytearray(), from_offset
    async for page, end_offset in fetch_pages(session, url, from_offset, until):
        frames += page
        at = end_offset
    return bytes(frames) if at >= until else None


async def fetch_pages(
    session: aiohttp.ClientSession, url: str, from_offset: int, until: int
) -> AsyncIterator[tuple[bytes, int]]:
    """Yield pages of frames, each with its end offset, as far as a controller has the range now."""
    at = from_offset
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    while at < until:
        address = f"{url}/v1/log?consistency=stale&from={at}&until={until}&max_bytes={REQUEST_BYTES}"
        try:
            async with session.get(address, timeout=timeout, allow_redirects=False) as response:
                page = await read_bounded(response, PAGE_BYTES_MAX)
                if response.status != 200 or not page:
                    return
            position = 0
            while position < len(page):
                header = check_frame(page, position)
                position += header.frame_bytes
                at = header.end_offset
        except DamagedFrame as error:
            error.base_offset = at
            log_unreadable(url, error)
            return
        except (aiohttp.ClientError, TimeoutError, ValueError):  # ValueError: the host cannot be looked up
            return
        yield page, at


async def read_bounded(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return a body.

    Raises:
        ValueError: it is larger than any that was asked for.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > bytes_max:
            raise ValueError(f"an answer of more than {bytes_max} bytes")
    return bytes(body)


def log_unreadable(url: str, error: DamagedFrame) -> None:
    """Log which controller sent frames that cannot be read, and the first such frame."""
    log.warning("peer_log_unreadable", extra={"reason": damaged_answer(url, error).message})
