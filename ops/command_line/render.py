"""Pure: answers as text: tables for people; JSON, JSON lines and YAML for machines.

A table shows a choice of what the JSON holds, never more: its cells come from the JSON value itself.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from metadata_log.printable import json_text, printable

Output: TypeAlias = Literal["table", "wide", "json", "jsonl", "yaml"]
OUTPUTS: Final[tuple[Output, ...]] = ("table", "wide", "json", "jsonl", "yaml")
TEXT: Final = frozenset({"table", "wide"})
"""The outputs for people."""
ROW_OUTPUTS: Final = ("csv", "parquet")
"""What a table of the log can be written as, beside these."""
Row: TypeAlias = Mapping[str, Any]
WIDTH: Final = 100
"""The columns of a table where no terminal says how many it has."""
LAST_MIN: Final = 20
"""The narrowest that a last column is wrapped to: a word or two."""
CELL_MIN: Final = 8
Tone: TypeAlias = Literal["", "good", "warning", "bad", "heading", "faint"]
_SGR: Final[Mapping[Tone, str]] = {"good": "32", "warning": "33", "bad": "31", "heading": "1", "faint": "2"}
"""The parameters of ANSI's escape sequence for each tone; no meaning is in the colour alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How tables are drawn: `width` None is as wide as the cells are."""

    width: int | None = WIDTH
    is_wide: bool = False
    """Whether columns are shown that a narrow table leaves out."""
    shortens: bool = False
    """Whether cells are cut where they do not fit: on a terminal alone, since programs may read what is piped."""
    colours: bool = False

    def painted(self, text: str, tone: Tone) -> str:
        return f"\x1b[{_SGR[tone]}m{text}\x1b[0m" if self.colours and tone and text else text


PLAIN: Final = Look()


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
    """One column of a table: the key of an item, how its value reads, and whether only a wide table has it."""

    key: str
    title: str = ""
    show: Callable[[Any], str] = plain
    is_wide: bool = False
    tone: Callable[[Any], Tone] | None = None

    @property
    def heading(self) -> str:
        return self.title or self.key.upper().replace("_", " ")


def rendered(value: Any, *, output: Output, table: Callable[[], str]) -> str:
    """Return `value` as asked for, without a last newline; `table` makes its table."""
    match output:
        case "table" | "wide":
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


NOTHING: Final = "-"


class _Cell(NamedTuple):
    text: str
    tone: Tone
    is_number: bool


def table(columns: Sequence[Column], items: Iterable[Row], *, empty: str, look: Look = PLAIN) -> str:
    """Return aligned columns under their headings, numbers to the right; `empty` where there are no items.

    Where the table is wider than `look` allows, its last column is wrapped, and on a terminal the widest cells are cut.
    """
    shown = [column for column in columns if look.is_wide or not column.is_wide]
    rows = [[_cell(column, item[column.key]) for column in shown] for item in items]
    if not rows:
        return empty
    head = [_Cell(column.heading, "heading", is_number=False) for column in shown]
    numeric = [
        all(row[at].is_number or row[at].text == NOTHING for row in rows)
        and any(row[at].is_number for row in rows)
        for at in range(len(shown))
    ]
    widths = _widths([head, *rows], look, wraps=not numeric[-1])
    return "\n".join(line for row in (head, *rows) for line in _lines_of(row, widths, numeric, look))


def _cell(column: Column, value: Any) -> _Cell:
    tone: Tone = column.tone(value) if column.tone is not None else ""
    return _Cell(column.show(value), tone, _is_number(value))


def _widths(rows: Sequence[Sequence[_Cell]], look: Look, *, wraps: bool) -> list[int]:
    """Return the width of each column: what its cells need, less where the table would not fit."""
    widths = [max(len(row[at].text) for row in rows) for at in range(len(rows[0]))]
    if look.width is None:
        return widths
    over = sum(widths) + 2 * (len(widths) - 1) - look.width
    if over > 0 and wraps:
        # A column that would be narrower than LAST_MIN is left as it is: a word in a line is hard to read.
        kept = min(widths[-1], max(widths[-1] - over, LAST_MIN))
        over -= widths[-1] - kept
        widths[-1] = kept
    while over > 0 and look.shortens:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= CELL_MIN:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def _lines_of(
    row: Sequence[_Cell], widths: Sequence[int], numeric: Sequence[bool], look: Look
) -> Iterator[str]:
    """Yield a row: its line, and those on which the text of the last cell goes on."""
    *front, last = row
    first, *more = _wrapped(last.text, widths[-1])
    cells = [
        *(cell._replace(text=_cut(cell.text, width)) for cell, width in zip(front, widths, strict=False))
    ]
    cells.append(last._replace(text=first))
    padded = [
        look.painted(cell.text.rjust(width) if right else cell.text, cell.tone)
        + ("" if right else " " * (width - len(cell.text)))
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    yield "  ".join(padded).rstrip()
    indent = " " * sum(width + 2 for width in widths[:-1])
    for line in more:
        yield indent + look.painted(line, last.tone)


def _wrapped(text: str, width: int) -> list[str]:
    """Return text in lines that end between words; one longer than a line, such as a path, stays whole."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 2]}.."


def fields(items: Iterable[tuple[str, str]]) -> str:
    """Return `name  value` lines, aligned."""
    listed = list(items)
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in listed)


def address(endpoints: Any) -> str:
    """Return where the first listener of some endpoints is."""
    return f"{plain(endpoints[0]['host'])}:{endpoints[0]['port']}" if endpoints else "-"


def good_if(wanted: object) -> Callable[[Any], Tone]:
    """Return what paints other values than this one."""
    return lambda value: "" if value == wanted else "bad"


def bytes_text(count: int) -> str:
    """Return a size for people: 900 B, 1.4 KiB, 20.0 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_YAML_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _yaml_scalar(value: Any) -> str:
    """Return one scalar; text that YAML could read as something else is quoted as JSON, which is YAML too."""
    if isinstance(value, str) and _YAML_PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return json_text(value)


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
