"""Edge: the files of the web console, as every node serves them: read once, and sent with a policy that lets a page load
and ask nothing but its own node. Tests: tests/unit/quorum/http/test_console.py.
"""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from metadata_log.errors import UnknownRoute
from metadata_log.node.console.document import INDEX, document

FOLDER: Final = Path(__file__).parent / "static"
CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Of a file that is shown alone; that of the page allows its own script and style."""
HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",  # a browser asks each time, and an upgraded node's page is seen at once
    "Vary": "Accept-Encoding",
}


class _File(NamedTuple):
    body: bytes
    zipped: bytes
    content_type: str
    etag: str
    policy: str


@cache
def files() -> Mapping[str, _File]:
    """Return the files of the console by name; the page has its style and its scripts in it."""
    found = {
        path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in CONTENT_TYPES
    }
    page, policy = document({name: body.decode() for name, body in found.items()})
    found[INDEX] = page.encode()
    return {
        name: _File(
            body,
            gzip.compress(body, mtime=0),
            CONTENT_TYPES[Path(name).suffix],
            hashlib.sha256(body).hexdigest()[:32],
            policy if name == INDEX else POLICY,
        )
        for name, body in found.items()
    }


def page(request: web.Request, name: str = INDEX) -> web.Response:
    """Answer with a file of the console.

    Raises:
        UnknownRoute: there is no such file.
    """
    file = files().get(name)
    if file is None:
        raise UnknownRoute(f"no such path: {request.path}")
    is_zipped = "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "")
    etag = f'"{file.etag}{"-gzip" if is_zipped else ""}"'
    headers = {**HEADERS, "Content-Security-Policy": file.policy, "ETag": etag}
    if request.headers.get(hdrs.IF_NONE_MATCH) == etag:
        return web.Response(status=304, headers=headers)
    if is_zipped:
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(
        body=file.zipped if is_zipped else file.body,
        content_type=file.content_type,
        charset="utf-8",
        headers=headers,
    )
