"""Pure: the text of a W3C trace context.

Source: W3C Trace Context, section 3.2 (traceparent). Tests: tests/unit/metadata_log/node/http/test_trace.py.
"""

import re
from typing import Final

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII)
_LENGTH_MAX: Final = 256


def is_traceparent(text: str) -> bool:
    """Answer whether a text is a traceparent: of version 00, or as a later version may continue it."""
    matched = _FORM.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if matched is None:
        return False
    version, trace_id, parent_id, more = matched.groups()
    if version == "ff" or trace_id == "0" * 32 or parent_id == "0" * 16:
        return False
    return more is None or (version != "00" and more.isprintable())
