"""Pure: the report's Markdown as HTML, with links between an incident and the line that tells of it.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

import html
import re
from collections.abc import Sequence
from typing import Final

_STORY: Final = re.compile(r"\S+ offset ([\d,]+): ")
"""How a line of the timeline begins."""


class Page:
    """Turns sections into HTML; remembers what can be linked to."""

    def __init__(self, sections: Sequence[str]) -> None:
        self._told = {
            found[1]
            for section in sections
            for line in section.splitlines()
            if (found := _STORY.match(line[2:]))
        }
        self._incident_at: dict[str, str] = {}
        self._seen: set[str] = set()
        for section in sections:
            for cells in _incidents(section):
                self._incident_at.setdefault(cells[1], cells[0])

    def of(self, section: str) -> str:
        """Return the HTML of what the report writes: headings, lists, tables and paragraphs."""
        parts: list[str] = []
        for block in section.split("\n\n"):
            lines = [line for line in block.splitlines() if line]
            if not lines:
                continue
            if lines[0].startswith("#"):
                level = len(lines[0]) - len(lines[0].lstrip("#"))
                parts.append(f"<h{level}>{inline(lines[0].lstrip('# '))}</h{level}>")
                lines = lines[1:]
            if lines and lines[0].startswith("| "):
                parts.append(self._table(lines, is_incidents=section.startswith("## Incidents")))
            elif lines and lines[0].startswith("- "):
                parts.append(f"<ul>{''.join(map(self._item, lines))}</ul>")
            else:
                parts += [f"<p>{inline(line)}</p>" for line in lines]
        return "\n".join(parts)

    def _table(self, lines: Sequence[str], *, is_incidents: bool) -> str:
        head, _, *body = (_cells(line) for line in lines)
        rows = []
        for cells in body:
            shown = [inline(cell) for cell in cells]
            anchor = ""
            if is_incidents:
                anchor = self._once(f"incident-{cells[0]}")
                if cells[1] in self._told:
                    shown[1] = f'<a href="#at-{_plain(cells[1])}">{shown[1]}</a>'
            rows.append(f"<tr{anchor}>{''.join(f'<td>{cell}</td>' for cell in shown)}</tr>")
        heading = "".join(f"<th>{inline(cell)}</th>" for cell in head)
        return f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'

    def _item(self, line: str) -> str:
        found = _STORY.match(line[2:])
        if found is None:
            return f"<li>{inline(line[2:])}</li>"
        anchor = self._once(f"at-{_plain(found[1])}")
        number = self._incident_at.get(found[1]) if anchor else None
        link = "" if number is None else f' <a href="#incident-{number}">incident {number}</a>'
        return f"<li{anchor}>{inline(line[2:])}{link}</li>"

    def _once(self, name: str) -> str:
        """Return an anchor; the first thing of a name has it."""
        if name in self._seen:
            return ""
        self._seen.add(name)
        return f' id="{name}"'


def _incidents(section: str) -> list[list[str]]:
    """Return the rows of the table of incidents: number, offset, and more."""
    if not section.startswith("## Incidents"):
        return []
    return [_cells(line) for line in section.splitlines() if line.startswith("| ")][2:]


def _plain(number: str) -> str:
    return re.sub(r"\D", "", number)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def inline(text: str) -> str:
    escaped = html.escape(text)
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]*)\*\*", r"<b>\1</b>", escaped)
