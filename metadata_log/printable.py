"""Pure: text of others as text alone: nothing in it draws on a reader's screen, begins a line, or is markup.

Escape sequences begin with ESC, and with the C1 controls U+0080 to U+009F; other characters turn the direction of a line.
"""

import json
import re
from typing import Any, Final

_MAYBE_UNPRINTABLE: Final = re.compile(r"[^ -~\n]")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal, or turns the direction of a line; a page of ours has none of it but its line breaks."""
_MARKUP: Final = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])\(")
"""What begins a tag, a comment or an autolink, and what makes a link, or an image, of text in brackets."""


def printable(text: str) -> str:
    """Return text on one line, each character that is not printable as its escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def json_text(value: Any, **options: Any) -> str:
    """Return JSON in which each character that is not printable is written as its escape; `options` are `json.dumps`'."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return _MAYBE_UNPRINTABLE.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    letter = found[0]
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]


def without_controls(page: str) -> str:
    """Return a page with the controls in it written as their escapes."""
    return _CONTROLS.sub(lambda found: printable(found[0]), page)


def without_markup(markdown: str) -> str:
    """Return a page of Markdown whose tags, autolinks, links and images are shown as they are written.

    Our own pages have none, so each of them came from a name or a value in a log.
    """
    return _MARKUP.sub(lambda found: f"\\{found[0]}", markdown)
