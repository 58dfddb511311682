"""Edge: a directory as a bucket of an object store: what pyarrow asks of S3 to read it, by HTTP on a free port."""

import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import escape

BUCKET = "logs"


@contextmanager
def object_store(directory: Path) -> Iterator[str]:
    """Serve a directory, and yield what follows the `?` of a URI in it: s3a://logs/FOLDER?..."""

    class Bucket(_Bucket):
        root = directory

    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
        finally:
            server.shutdown()


class _Bucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: ClassVar[Path]

    def do_HEAD(self) -> None:
        self._object(sends_content=False)

    def do_GET(self) -> None:
        asked = urllib.parse.urlsplit(self.path)
        if asked.path.strip("/") == BUCKET:
            query = dict(urllib.parse.parse_qsl(asked.query))
            self._listing(query.get("prefix", ""), has_delimiter="delimiter" in query)
        else:
            self._object(sends_content=True)

    def _object(self, *, sends_content: bool) -> None:
        key = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")
        file = self.root / key
        if not file.is_file():
            missing = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
            return self._answer(404, missing, sends_content=sends_content)
        content = file.read_bytes()
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, content, sends_content=sends_content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content)) + 1]
        at = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return self._answer(206, part, sends_content=sends_content, at=at)

    def _listing(self, prefix: str, *, has_delimiter: bool) -> None:
        keys = sorted(
            (str(file.relative_to(self.root)), file.stat().st_size)
            for file in self.root.rglob("*")
            if file.is_file()
        )
        found, folders = [], set()
        for key, size in keys:
            below = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if has_delimiter and "/" in below:
                folders.add(prefix + below.partition("/")[0] + "/")
            else:
                found.append((key, size))
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, size in found
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        text = (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>{contents}{common}"
            "</ListBucketResult>"
        )
        self._answer(200, text.encode(), sends_content=True)

    def _answer(self, status: int, content: bytes, *, sends_content: bool, at: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/xml" if at is None else "application/octet-stream")
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if at is not None:
            self.send_header("Content-Range", at)
        self.end_headers()
        if sends_content:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
