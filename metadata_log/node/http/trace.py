"""Pure: the W3C trace context of a request: read, passed on, logged and answered back; no spans are made here.

Tests: tests/unit/metadata_log/node/http/test_trace.py.
"""

from typing import Final

from aiohttp import web

from metadata_log.node.traceparent import TRACEPARENT, is_traceparent

TRACE: Final = web.RequestKey("traceparent", str)
"""The traceparent of a request, as it came; absent where there is none, or none of W3C's form."""


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
