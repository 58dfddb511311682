"""Edge: `python -m tests.settings_page`: writes docs/settings.md from the one description of the keys."""

from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Final

from broker_agent.config import BOUNDS as OF_BROKERS
from metadata_log.node.disk.data_directory import Role
from ops.settings import KEYS, Key
from quorum.node.config import BOUNDS as OF_CONTROLLERS

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD: Final = """\
# Settings

The settings of a controller and of a broker are a TOML file each, named with `--config`. The examples in
[ops/config](../ops/config) explain how they belong together; this page has every key. It is written by
`python -m tests.settings_page` from `ops/settings.py`, which also reads and writes the files.

Times are milliseconds where the key says `_ms`, sizes are bytes, and paths are relative to the file. A key that is unknown,
missing or of another kind is refused with the file and the key. [formats.md](formats.md) says what `[tls]` and `[identity]`
mean to a running node.
"""


def page() -> str:
    return HEAD + "".join(_tables())


def _tables() -> Iterator[str]:
    heading = None
    for key in KEYS:
        if key.table != heading:
            heading = key.table
            title = f"[[{heading}]]" if heading == "voters" else f"[{heading}]"
            yield f"\n## {title if heading else 'At the top of the file'}\n\n"
            yield "| key | of | kind | default | bounds | what it is for |\n|---|---|---|---|---|---|\n"
        role: Role = key.roles[0]
        of = "both" if len(key.roles) == 2 else f"a {role}"
        yield f"| `{key.key}` | {of} | {key.kind.name} | {_shown(key.default(role))} | {_bounds(key)} | {key.does} |\n"


def _shown(default: Any) -> str:
    if default is MISSING:
        return "needed"
    return "" if default in (None, ()) else str(default).lower() if default is False else str(default)


def _bounds(key: Key) -> str:
    name = f"{key.table}.{key.key}".lstrip(".")
    least, most = {**OF_CONTROLLERS, **OF_BROKERS}.get(name, (None, None))
    if least is None:
        return ""
    return f"from {least}" if most == 2**63 - 1 else f"{least} to {most}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
