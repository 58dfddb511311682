"""Edge: a snapshot by range, against a real server."""

import asyncio
import hashlib
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from metadata_log.errors import DamagedFile, SnapshotNotFound
from metadata_log.image.metadata_image import MetadataImage
from snapshots.download import download_snapshot
from snapshots.snapshot_file import read_snapshot, snapshot_id, write_snapshot
from tests.support.histories import history_of

IMAGE = history_of(5, 40)[-1].image
ID = snapshot_id(IMAGE.end_offset, IMAGE.controller_epoch)
CHUNK = 500


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return write_snapshot(IMAGE, tmp_path).read_bytes()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "snapshots"
    directory.mkdir()
    return directory


@dataclass
class Server:
    """Serves some bytes by range, and fails as it is told to."""

    content: bytes
    etag: str | None = None
    fails_after: int = 10**9
    ignores_ranges: bool = False
    ranges: list[str | None] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path == f"/v1/metadata/snapshots/{ID}"
        self.ranges.append(request.headers.get("Range"))
        if len(self.ranges) > self.fails_after:
            return web.Response(status=503)
        etag = self.etag or f'"{hashlib.sha256(self.content).hexdigest()}"'
        if_range = request.headers.get("If-Range")
        if self.ignores_ranges or (if_range is not None and if_range != etag):
            return web.Response(body=self.content, headers={"ETag": etag})
        part = request.http_range
        if part.start >= len(self.content):
            return web.Response(status=416)
        body = self.content[part]
        end = part.start + len(body) - 1
        headers = {"ETag": etag, "Content-Range": f"bytes {part.start}-{end}/{len(self.content)}"}
        return web.Response(status=206, body=body, headers=headers)


def downloaded(directory: Path, *servers: Server | str | None, sha256: str | None = None) -> Path:
    """Download from the servers in turn; a text is a URL, and None an address where nobody listens."""

    async def run() -> Path:
        runners, urls = [], []
        for server in servers:
            if server is None or isinstance(server, str):
                urls.append(server or "http://127.0.0.1:1")
                continue
            application = web.Application()
            application.router.add_get("/{path:.*}", server.answer)
            runner = web.AppRunner(application)
            await runner.setup()
            runners.append(runner)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        try:
            async with aiohttp.ClientSession() as session:
                return await download_snapshot(
                    session,
                    urls,
                    ID,
                    directory,
                    run_in_thread=asyncio.to_thread,
                    chunk_bytes=CHUNK,
                    sha256=sha256,
                )
        finally:
            for runner in runners:
                await runner.cleanup()

    return asyncio.run(run())


def test_it_arrives_in_chunks_and_is_verified(directory: Path, content: bytes) -> None:
    server = Server(content)
    path = downloaded(directory, server)
    assert path == directory / f"{ID}.snapshot"
    assert path.read_bytes() == content
    assert read_snapshot(path) == IMAGE
    assert server.ranges == [f"bytes={at}-{at + CHUNK - 1}" for at in range(0, len(content), CHUNK)]
    assert list(directory.iterdir()) == [path]


def test_another_goes_on_where_one_fails(directory: Path, content: bytes) -> None:
    first, second = Server(content, fails_after=2), Server(content)
    path = downloaded(directory, None, Server(b"", fails_after=0), first, second)
    assert path.read_bytes() == content
    assert second.ranges[0] == f"bytes={2 * CHUNK - 1}-{3 * CHUNK - 2}"


def test_a_sound_snapshot_of_other_bytes_than_were_named_is_refused(directory: Path, content: bytes) -> None:
    """Who sends the bytes says nothing of what they must be: another cluster's are as sound."""
    other = replace(IMAGE, last_time_ms=IMAGE.last_time_ms + 1)
    forged = write_snapshot(other, directory).read_bytes()
    wanted = hashlib.sha256(content).hexdigest()
    with pytest.raises(DamagedFile, match=f"it should be {wanted}"):
        downloaded(directory, Server(forged), sha256=wanted)
    assert downloaded(directory, Server(forged), Server(content), sha256=wanted).read_bytes() == content


def test_an_address_that_cannot_be_looked_up_is_passed_over(directory: Path, content: bytes) -> None:
    path = downloaded(directory, "http://a..b:80", "http://a\\b:80", Server(content))
    assert path.read_bytes() == content


def test_a_later_attempt_goes_on_where_an_earlier_failed(directory: Path, content: bytes) -> None:
    (directory / "another.snapshot.download").write_bytes(b"x")
    with pytest.raises(SnapshotNotFound, match="HTTP 503"):
        downloaded(directory, Server(content, fails_after=3))
    assert [path.name for path in directory.iterdir()] == [f"{ID}.snapshot.download"]
    server = Server(content)
    assert downloaded(directory, server).read_bytes() == content
    assert server.ranges[0] == f"bytes={3 * CHUNK - 1}-{4 * CHUNK - 2}"


@pytest.mark.parametrize("left", ["complete", "wrong", "too long"])
def test_whatever_an_earlier_attempt_left(directory: Path, content: bytes, left: str) -> None:
    leftover = {"complete": content, "wrong": bytes(700), "too long": content + b"x" * 10}[left]
    (directory / f"{ID}.snapshot.download").write_bytes(leftover)
    server = Server(content)
    assert downloaded(directory, server).read_bytes() == content
    assert (len(server.ranges) == 1) == (left == "complete")


def test_an_answer_without_ranges_is_taken_whole(directory: Path, content: bytes) -> None:
    server = Server(content, ignores_ranges=True)
    assert downloaded(directory, server).read_bytes() == content
    assert len(server.ranges) == 1


def test_damage_on_the_way_is_refused_and_the_next_address_is_asked(directory: Path, content: bytes) -> None:
    broken = content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]
    honest = f'"{hashlib.sha256(content).hexdigest()}"'
    for server in (Server(broken), Server(broken, etag=honest), Server(content[:-1], etag=honest)):
        with pytest.raises(DamagedFile):
            downloaded(directory, server)
        assert list(directory.iterdir()) == [], "nothing of it is kept"
        assert downloaded(directory, server, Server(content)).read_bytes() == content
        (directory / f"{ID}.snapshot").unlink()


def test_another_snapshot_under_this_id_is_refused(directory: Path, tmp_path: Path) -> None:
    other = history_of(6, 30)[-1].image
    with pytest.raises(DamagedFile, match="that of snapshot"):
        downloaded(directory, Server(write_snapshot(other, tmp_path).read_bytes()))


def test_nobody_has_it(directory: Path) -> None:
    with pytest.raises(SnapshotNotFound, match="no address"):
        downloaded(directory)
    with pytest.raises(SnapshotNotFound, match=r"127\.0\.0\.1:1"):
        downloaded(directory, None)


async def test_who_is_cancelled_while_it_is_checked_leaves_no_thread_behind(
    directory: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt finds the same file: two threads that check and rename it would meet."""
    reads, may_end = threading.Semaphore(0), threading.Event()

    def slowly(*args: Any, **named: Any) -> MetadataImage:
        reads.release()
        may_end.wait()
        return read_snapshot(*args, **named)

    async def has_come(*_: object) -> str:
        partial.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    partial = directory / f"{ID}.snapshot.download"
    monkeypatch.setattr("snapshots.download.read_snapshot", slowly)
    monkeypatch.setattr("snapshots.download._download", has_come)
    downloading = download_snapshot(None, ["a"], ID, directory, run_in_thread=asyncio.to_thread)  # type: ignore[arg-type]
    attempt = asyncio.ensure_future(downloading)
    await asyncio.to_thread(reads.acquire)
    attempt.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    was_done = attempt.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not was_done
    assert [path.name for path in directory.iterdir()] == [f"{ID}.snapshot"]
