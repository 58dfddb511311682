"""Pure: answers as text: tables for people; JSON, JSON lines and YAML for machines.

A table shows a choice of what the JSON holds, never more: its cells come from the JSON value itself.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from metadata_log.printable import json_text, printable

Output: TypeAlias = Literal["table", "json", "jsonl", "yaml"]
OUTPUTS: Final[tuple[Output, ...]] = ("table", "json", "jsonl", "yaml")
ROW_OUTPUTS: Final = ("csv", "parquet")
"""What a table of the log can be written as, beside these."""
Row: TypeAlias = Mapping[str, Any]


def plain(value: Any) -> str:
    """Return a value as a cell: `-` for nothing, lists comma-joined, `host:port` for an endpoint."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return printable(value) or "-"
        case {"name": name, "host": host, "port": port}:
            return f"{plain(name)}://{plain(host)}:{port}"
        case list() | tuple():
            return ",".join(_item(item) for item in value) or "-"
        case Mapping():
            return ",".join(f"{plain(key)}={plain(item)}" for key, item in value.items()) or "-"
        case _:
            return str(value)


def _item(value: Any) -> str:
    """Return an item of a list as a cell; one with commas of its own in brackets."""
    match value:
        case {"name": _, "host": _, "port": _}:
            return plain(value)
        case Mapping():
            return f"{{{plain(value)}}}"
        case list() | tuple():
            return f"[{plain(value)}]"
        case _:
            return plain(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the key of an item, and how its value reads."""

    key: str
    title: str = ""
    show: Callable[[Any], str] = plain

    @property
    def heading(self) -> str:
        return self.title or self.key.upper().replace("_", " ")


def rendered(value: Any, *, output: Output, table: Callable[[], str]) -> str:
    """Return `value` as asked for, without a last newline; `table` makes its table."""
    match output:
        case "table":
            return table()
        case "json":
            return json_text(value, indent=2)
        case "jsonl":
            items = value if isinstance(value, list) else [value]
            return "\n".join(json_line(item) for item in items)
        case "yaml":
            return "\n".join(_yaml(value, ""))


def json_line(value: Any) -> str:
    return json_text(value, separators=(",", ":"))


def table(columns: Sequence[Column], items: Iterable[Row], *, empty: str) -> str:
    """Return aligned columns under their headings, numbers to the right; `empty` where there are no items."""
    rows = [[(column.show(item[column.key]), item[column.key]) for column in columns] for item in items]
    if not rows:
        return empty
    numeric = [all(_is_number(row[at][1]) for row in rows) for at in range(len(columns))]
    cells = [[column.heading for column in columns], *([text for text, _ in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )


def fields(items: Iterable[tuple[str, str]]) -> str:
    """Return `name  value` lines, aligned."""
    listed = list(items)
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in listed)


def bytes_text(count: int) -> str:
    """Return a size for people: 900 B, 1.4 KiB, 20.0 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_YAML_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _yaml_scalar(value: Any) -> str:
    """Return one scalar; text that YAML could read as something else is quoted as JSON, which is YAML too."""
    if isinstance(value, str) and _YAML_PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value)


def _yaml(value: Any, indent: str) -> list[str]:
    """Return the lines of a value made of what JSON has, in block style."""
    match value:
        case {} if not value:
            return [f"{indent}{{}}"]
        case list() if not value:
            return [f"{indent}[]"]
        case dict():
            lines = []
            for key, item in value.items():
                if isinstance(item, dict | list) and item:
                    lines += [f"{indent}{_yaml_scalar(key)}:", *_yaml(item, f"{indent}  ")]
                else:
                    lines.append(f"{indent}{_yaml_scalar(key)}: {_yaml(item, '')[0]}")
            return lines
        case list():
            lines = []
            for item in value:
                first, *rest = _yaml(item, f"{indent}  ")
                lines += [f"{indent}- {first[len(indent) + 2 :]}", *rest]
            return lines
        case _:
            return [f"{indent}{_yaml_scalar(value)}"]
