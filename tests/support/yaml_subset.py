"""Pure: YAML as far as compose.yaml goes: mappings, lists in brackets, scalars, one anchor merged with `<<: *name`."""

import json
import re
from typing import Any, Final

_KEY: Final = re.compile(r"( *)([\w.<-]+):(?: (.*))?")


def parsed(text: str) -> Any:
    """Return the mapping that a text is.

    Raises:
        ValueError: names the line that is none of the above.
    """
    anchors: dict[str, dict[str, Any]] = {}
    root: dict[str, Any] = {}
    open_mappings: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            raise ValueError(f"line {number}: {line!r}")
        depth, key, value = len(found[1]), found[2], (found[3] or "").strip()
        while open_mappings[-1][0] >= depth:
            open_mappings.pop()
        parent = open_mappings[-1][1]
        if key in parent:
            raise ValueError(f"line {number}: {key} is there twice")
        if key == "<<":
            for name, merged in anchors[value.removeprefix("*")].items():
                parent.setdefault(name, merged)
        elif value == "" or value.startswith("&"):
            inner: dict[str, Any] = {}
            parent[key] = inner
            open_mappings.append((depth, inner))
            if value:
                anchors[value[1:]] = inner
        else:
            parent[key] = _scalar(value)
    return root


def _scalar(value: str) -> Any:
    if value[0] in '[{"' or value in ("true", "false"):
        return json.loads(value)
    return value
