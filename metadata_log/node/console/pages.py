"""Edge: the files of the web console, as every node serves them: read once, and sent with a policy that lets a page load
and ask nothing but its own node. Tests: tests/unit/quorum/http/test_console.py.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from metadata_log.errors import UnknownRoute

FOLDER: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        "require-trusted-types-for 'script'",
    )
)
"""No foreign host, no inline script or style, no frame around it, and no text that becomes markup."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a browser asks each time, and an upgraded node's page is seen at once
}


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


@cache
def files() -> Mapping[str, _File]:
    """Return the files of the console by name."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in CONTENT_TYPES:
            body = path.read_bytes()
            found[path.name] = _File(
                body, CONTENT_TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            )
    return found


def page(request: web.Request, name: str = INDEX) -> web.Response:
    """Answer with a file of the console.

    Raises:
        UnknownRoute: there is no such file.
    """
    file = files().get(name)
    if file is None:
        raise UnknownRoute(f"no such path: {request.path}")
    headers = {**HEADERS, "ETag": file.etag}
    if request.headers.get(hdrs.IF_NONE_MATCH) == file.etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=headers)
