"""Edge: snapshots over HTTP: list, take, download."""

import os
from typing import Final

from aiohttp import hdrs, web
from msgspec import structs

from metadata_log import limits
from metadata_log.errors import DamagedFile, MetadataError, PositionOutOfRange, SnapshotNotFound
from quorum.http.bodies import OCTETS, read_no_body
from quorum.http.door import Door
from quorum.http.routes import HERE, reading, writing


async def list_snapshots(door: Door, request: web.Request) -> web.Response:
    committed = door.controller.committed
    offers = await door.downloads.run(door.keeper.offers)
    body = {
        "end_offset": committed.end_offset,
        "controller_epoch": committed.controller_epoch,
        "items": [structs.asdict(offer) for offer in offers],
    }
    return door.ok(request, body)


async def take_snapshot(door: Door, request: web.Request) -> web.Response:
    await read_no_body(request)
    with door.audited(request, "TakeSnapshot"):
        offer = await door.keeper.take()
    return door.ok(request, structs.asdict(offer), status=201)


async def download_snapshot(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with the bytes of a snapshot, or with the range of them that the client asks for."""
    name = request.match_info["id"]
    path = door.store.path(name)
    with door.keeper.downloading(name):
        offer = await door.downloads.run(door.keeper.offer, name)
        etag = f'"{offer.sha256}"'
        start, end = _range(request, offer.bytes, etag)
        try:
            if start == 0:
                await door.keeper.check(name, door.downloads.run)
            file = path.open("rb")  # keeps the bytes if another download finds damage and moves the file
        except (DamagedFile, FileNotFoundError) as error:
            raise SnapshotNotFound(f"snapshot {name} was damaged here: fetch the metadata anew") from error
        with file:
            headers = {
                **door.headers(),
                "ETag": etag,
                "Accept-Ranges": "bytes",
                "Content-Length": str(end - start),
            }
            is_partial = (start, end) != (0, offer.bytes)
            if is_partial:
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{offer.bytes}"
            response = web.StreamResponse(status=206 if is_partial else 200, headers=headers)
            response.content_type = OCTETS
            await response.prepare(request)
            # Write nothing to a HEAD: aiohttp would send it, and the connection's next answer would begin with it.
            if request.method != hdrs.METH_HEAD:
                for at in range(start, end, limits.ANSWER_PIECE_BYTES):
                    _check_still(door, request)
                    size = min(limits.ANSWER_PIECE_BYTES, end - at)
                    await response.write(await door.downloads.run(os.pread, file.fileno(), size, at))
                await response.write_eof()
            return response


def _check_still(door: Door, request: web.Request) -> None:
    """Cut the answer short where its client's certificate or role has ended meanwhile."""
    try:
        door.identities.recheck(request)
    except MetadataError as error:
        if request.transport is not None:
            request.transport.close()
        raise ConnectionResetError("the answer is cut short: its client may not have the rest") from error


def _range(request: web.Request, size: int, etag: str) -> tuple[int, int]:
    """Return the wanted bytes, end exclusive; all of them if If-Range names another content."""
    if request.headers.get("If-Range", etag) != etag:
        return 0, size
    try:
        wanted = request.http_range
    except ValueError as error:
        raise PositionOutOfRange(f"no range: {request.headers.get('Range')}") from error
    start = 0 if wanted.start is None else wanted.start
    if start == 0 and "-0" in request.headers.get("Range", "").replace("=", " ").split():
        start = size  # the last no bytes
    if start < 0:
        start = max(0, size + start)
    end = size if wanted.stop is None else min(wanted.stop, size)
    if start >= end:
        raise PositionOutOfRange(
            f"the snapshot has {size} bytes; {request.headers.get('Range')} holds none of them"
        )
    return start, end


ROUTES: Final = (
    reading("/v1/metadata/snapshots/{id}", download_snapshot, "FetchSnapshot", HERE, forwarded=False),
    reading("/v1/snapshots", list_snapshots, "ListSnapshots", HERE),
    writing("POST", "/v1/snapshots", take_snapshot, "TakeSnapshot"),
)
