"""Edge: download a snapshot by ranges from any node that has it; an interrupted download is resumed.

The bytes of a snapshot are the same on every node, so that a download continues at the next address if one fails. The file
is used only after all of it was verified: its hash, each frame, and the state digest.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import aiohttp

from metadata_log.errors import DamagedFile, MetadataError, SnapshotNotFound
from metadata_log.limits import MIB, SNAPSHOT_CHUNK_BYTES
from metadata_log.node.disk.durable_files import (
    open_private,
    removed_if_it_fails,
    renamed_os_errors,
    sync_directory,
)
from snapshots.snapshot_file import SUFFIX, position_of, read_snapshot
from snapshots.store import sha256_of

CHUNK_TIMEOUT_S: Final = 15.0
"""If one range of SNAPSHOT_CHUNK_BYTES has not arrived within this time, the next address is asked."""
SNAPSHOT_BYTES_MAX: Final = 4 * 1024 * MIB
"""No honest node offers a larger file: the snapshot of a million partitions has about 100 MB."""
_CONTENT_RANGE: Final = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")
_PIECE_BYTES: Final = 64 * 1024
RunInThread = Callable[..., Awaitable[Any]]


class _TryNext(Exception):
    """This address did not send the snapshot; the message says why."""


async def download_snapshot(
    session: aiohttp.ClientSession,
    urls: Sequence[str],
    snapshot_id: str,
    directory: Path,
    *,
    run_in_thread: RunInThread,
    chunk_bytes: int = SNAPSHOT_CHUNK_BYTES,
    timeout_s: float = CHUNK_TIMEOUT_S,
    sha256: str | None = None,
) -> Path:
    """Fetch a snapshot from the first of `urls` (of controllers) that has it, and return its path in `directory`.

    `sha256` is what its bytes must hash to. Without it the sender's own word is taken, which proves no more than that the
    bytes arrived as they were sent.

    The file is verified and durable. The part that an earlier attempt left in `directory` is continued; leftovers of
    other snapshots are removed. One download of a snapshot runs at a time.

    Raises:
        SnapshotNotFound: none of them has it, or none could be reached.
        DamagedFile: what they sent is no sound snapshot.
        DiskFailed: it could not be written.
    """
    position_of(snapshot_id)
    partial = directory / f"{snapshot_id}{SUFFIX}.download"
    is_resumed = await run_in_thread(_leftover_of, partial)
    failure: MetadataError = SnapshotNotFound("no address to fetch a snapshot from", snapshot_id=snapshot_id)
    for url in urls:
        # At most twice: the part that was continued may be wrong, and the second attempt begins from the start.
        for is_again in (is_resumed, False):
            try:
                named = await _download(
                    session, f"{url}/v1/metadata/snapshots/{snapshot_id}", partial, chunk_bytes, timeout_s
                )
                return await _to_its_end(partial, snapshot_id, sha256 or named, run_in_thread)
            except _TryNext as error:
                failure = SnapshotNotFound(
                    f"no snapshot {snapshot_id} from {url}: {error}", snapshot_id=snapshot_id
                )
                is_resumed = True
                break
            except DamagedFile as error:
                failure = error
                with renamed_os_errors(partial):
                    partial.unlink(missing_ok=True)
                is_resumed = False
                if not is_again:
                    break
    raise failure


def _leftover_of(partial: Path) -> bool:
    """Answer whether an earlier attempt left its part of this snapshot; remove the parts of others."""
    with renamed_os_errors(partial):
        for leftover in partial.parent.glob("*.download"):
            if leftover != partial:
                leftover.unlink()
        return partial.exists()


async def _download(
    session: aiohttp.ClientSession, url: str, partial: Path, chunk_bytes: int, timeout_s: float
) -> str:
    """Complete the partial file and return the SHA-256 its sender names."""
    with renamed_os_errors(partial), open_private(partial, "ab") as file:
        # The last byte is fetched again, which tells a complete file from one that is too long.
        position = max(0, file.tell() - 1)
        etag: str | None = None
        total = position + 1
        while position < total:
            headers = {"Range": f"bytes={position}-{position + chunk_bytes - 1}"}
            if etag is not None:
                headers["If-Range"] = etag
            try:
                timeout = aiohttp.ClientTimeout(total=timeout_s)
                async with session.get(
                    url, headers=headers, timeout=timeout, allow_redirects=False
                ) as response:
                    _check(response, partial, etag)
                    etag = response.headers["ETag"]
                    begin, total = _range_of(response, asked=position)
                    if total > SNAPSHOT_BYTES_MAX:
                        raise _TryNext(f"{total} bytes are announced, more than {SNAPSHOT_BYTES_MAX}")
                    file.truncate(begin)
                    position = begin + await _copy(response, file, bytes_max=total - begin)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                # Some are OSErrors although no disk failed. A ValueError means a host that cannot be looked up.
                raise _TryNext(str(error) or type(error).__name__) from error
    assert etag is not None
    return etag.removeprefix("W/").strip('"')


def _check(response: aiohttp.ClientResponse, partial: Path, etag: str | None) -> None:
    if response.status == 416:
        raise DamagedFile(f"{partial}: longer than the snapshot it was to become", path=str(partial))
    if response.status not in (200, 206):
        raise _TryNext(f"HTTP {response.status}")
    named = response.headers.get("ETag")
    if named is None:
        raise _TryNext("an answer without ETag")
    if etag is not None and named != etag:
        raise DamagedFile(f"{partial}: the snapshot changed while it was sent, from {etag} to {named}")


def _range_of(response: aiohttp.ClientResponse, *, asked: int) -> tuple[int, int]:
    """Return where the answer's bytes begin, and how many the whole file has."""
    if response.status == 200:
        if response.content_length is None:
            raise _TryNext("an answer without Content-Length")
        return 0, response.content_length
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != asked:
        raise _TryNext(f"asked for bytes from {asked}, got {response.headers.get('Content-Range')!r}")
    return asked, int(match[3])


async def _copy(response: aiohttp.ClientResponse, file: BinaryIO, *, bytes_max: int) -> int:
    copied = 0
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        copied += len(piece)
        if copied > bytes_max:
            raise _TryNext(f"more than the {bytes_max} bytes announced")
        file.write(piece)
    file.flush()
    if not copied:
        raise _TryNext("an empty answer")
    return copied


async def _to_its_end(partial: Path, snapshot_id: str, sha256: str, run_in_thread: RunInThread) -> Path:
    """Verify a download in a thread. A caller that is cancelled waits for it: the next attempt uses the same file."""
    taking = asyncio.gather(run_in_thread(_take_in, partial, snapshot_id, sha256))
    try:
        (path,) = await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.gather(taking, return_exceptions=True)
        raise
    assert isinstance(path, Path)
    return path


def _take_in(partial: Path, snapshot_id: str, sha256: str) -> Path:
    """Verify a complete download, make it durable, and give it its name.

    If a sync fails, the file goes: the next attempt, perhaps of the next process, would find it complete, and its own sync
    would succeed without writing what the kernel counts as clean by then.
    """
    path = partial.with_name(f"{snapshot_id}{SUFFIX}")
    check_hash(partial, sha256)
    read_snapshot(partial, expected_id=snapshot_id)
    with renamed_os_errors(partial):
        with removed_if_it_fails(partial), partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        with removed_if_it_fails(path):
            sync_directory(path.parent)
    return path


def check_hash(path: Path, sha256: str) -> None:
    """Check that a file has the SHA-256 that was announced.

    Raises:
        DamagedFile: it has another.
        DiskFailed: it cannot be read.
    """
    found = sha256_of(path)
    if found != sha256:
        raise DamagedFile(f"{path}: its SHA-256 is {found}, it should be {sha256}", path=str(path))
