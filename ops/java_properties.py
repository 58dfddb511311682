"""Pure: files of Java's properties, as Kafka's nodes have them. Tests: tests/unit/ops/test_java_properties.py.

Source: java.util.Properties, but for a key that ends at a space.
"""

import re
from collections.abc import Mapping
from typing import Final

_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_GOES_ON: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")
"""An odd number of backslashes at the end of a line."""
_ASSIGNMENT: Final = re.compile(r"((?:\\.|[^\\=:])*)[=:](.*)", re.DOTALL)


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the content of a properties file; no value of ours has a character that Java escapes."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def read_properties(text: str) -> dict[str, str]:
    """Return what a properties file assigns; of a name that it assigns twice, the last value.

    Raises:
        ValueError: a line is neither a comment nor an assignment.
    """
    found = {}
    lines = iter(text.splitlines())
    for line in lines:
        logical = line.strip()
        if not logical or logical.startswith(("#", "!")):
            continue
        while _LINE_GOES_ON.search(logical):
            logical = logical[:-1] + next(lines, "").lstrip()
        assignment = _ASSIGNMENT.fullmatch(logical)
        if assignment is None:
            raise ValueError(f"{logical!r} is no name=value")
        name, value = assignment.groups()
        found[_unescaped(name.strip())] = _unescaped(value.strip())
    return found


def _unescaped(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        character = escape[1]
        return chr(int(character[1:], 16)) if len(character) == 5 else _CONTROLS.get(character, character)

    return _ESCAPED.sub(meant, text)
