"""Edge: the W3C trace context of a request: read, passed on, logged and answered back; no spans are made here.

Source: W3C Trace Context, section 3.2 (traceparent). Tests: tests/unit/metadata_log/node/http/test_trace.py.
"""

import re
import secrets
from typing import Final

from aiohttp import web

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII)
_LENGTH_MAX: Final = 256
TRACE: Final = web.RequestKey("traceparent", str)
"""The traceparent of a request, as it came; absent where there is none, or none of W3C's form."""


def is_traceparent(text: str) -> bool:
    """Answer whether a text is a traceparent: of version 00, or as a later version may continue it."""
    matched = _FORM.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if matched is None:
        return False
    version, trace_id, parent_id, more = matched.groups()
    if version == "ff" or trace_id == "0" * 32 or parent_id == "0" * 16:
        return False
    return more is None or (version != "00" and more.isprintable())


def note_trace(request: web.Request) -> bool:
    """Remember the trace context of a request; answer whether there was one that had to be ignored."""
    found = request.headers.getall(TRACEPARENT, ())
    if not found:
        return False
    if len(found) > 1 or not is_traceparent(found[0]):
        return True
    request[TRACE] = found[0]
    return False


def trace_id_of(request: web.BaseRequest) -> str | None:
    """Return the 32 hex digits that all requests of one trace share; None where a request has no trace context."""
    traceparent = request.get(TRACE)
    return None if traceparent is None else traceparent[3:35]


def trace_headers(request: web.BaseRequest) -> dict[str, str]:
    """Return what answers a trace context back."""
    traceparent = request.get(TRACE)
    return {} if traceparent is None else {TRACEPARENT: traceparent}


def new_traceparent() -> str:
    """Return the trace context of a request that begins a trace; it is marked as sampled."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
