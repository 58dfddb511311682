"""Output in any encoding: no letter ends a verb, and what is for machines stays what its format says."""

import io
import json
import sys
import xml.etree.ElementTree as ET

import pytest

from ops.command_line.talk import accept_any_encoding, put

TEXT = "\u00e9 \u2192 \U0001f600 \udcff"
"""A letter of Latin-1, one beyond it, one beyond the first plane, and a byte that was no text."""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "cp1252"])
def test_no_letter_ends_a_verb(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a verb prints whatever a log holds. Method: each form of output, in encodings that lack some of the letters."""
    for output in ("table", "json", "html", "yaml", "md"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        accept_any_encoding()
        text = TEXT if output != "html" else TEXT[:-1]
        given = {"json": json.dumps([TEXT], ensure_ascii=False), "html": f"<p>{text}</p>"}.get(output, text)
        put(given, output=output, flush=True)
        shown = raw.getvalue()
        assert shown.endswith(b"\n")
        if output == "json":
            assert json.loads(shown) == [TEXT]
        elif output == "html":
            assert ET.fromstring(shown.decode("utf-8")).text == text
        elif encoding != "utf-8":
            assert b"\\u2192" in shown
