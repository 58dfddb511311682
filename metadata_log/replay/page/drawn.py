"""Edge: what all charts share: rows of the log's tables, the span of time, the incidents, and figures of panels.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

import html
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log
from metadata_log.replay.page.scale import AXIS, LEFT, WIDTH, Scale, time_text

LANE: Final = 16
PANEL_LANES: Final = 20
"""Lanes of one panel: a printer breaks a figure between panels, and never within one."""
NAME_CHARS: Final = 17
"""Room for a name beside a lane; of a longer one the end is shown, which has its number, after an ellipsis."""
MARK: Final = 13
"""Room above a panel for the numbers of incidents."""
MARKS_APART: Final = 16
"""Numbers of incidents closer than this are left out; the lines stay."""


class Incident(NamedTuple):
    number: int
    at_ms: int


def asked(log: Log, query: str, *tables: str) -> list[tuple[Any, ...]]:
    return rows(log.engine.arrow(log.engine.query(query, {name: log.table_of(name) for name in tables})))


def scale_of(log: Log) -> Scale | None:
    """Return the span of what is looked at; None where it has no length."""
    ((first, last),) = asked(
        log, "SELECT min(unix_millis(ts)) AS a, max(unix_millis(ts)) AS b FROM records", "records"
    )
    begin = first if first is not None else log.first.time_ms
    end = max(last or 0, log.last.time_ms)
    return Scale(begin, end) if end > begin else None


def incidents_of(log: Log) -> list[Incident]:
    """Return when each incident began; losses that overlap share a number."""
    found = asked(
        log,
        "SELECT incident, min(unix_millis(from_ts)) AS at FROM incidents GROUP BY incident ORDER BY incident",
        "incidents",
    )
    return [Incident(*row) for row in found]


def unknown_of(log: Log) -> list[tuple[int, int]]:
    """Return the times of which the log proves nothing."""
    return asked(
        log,
        "SELECT unix_millis(r.ts) - c.gap_unknown_ms AS a, unix_millis(r.ts) AS b FROM clock AS c "
        "JOIN records AS r ON r.log_offset = c.batch_base WHERE c.gap_unknown_ms > 0 ORDER BY 1",
        *("clock", "records"),
    )


def marks(incidents: Sequence[Incident], scale: Scale, bottom: float) -> Iterable[str]:
    """Yield a line for each incident, and its number, which is that of the table."""
    free = float(-MARKS_APART)
    for number, at_ms in sorted(incidents, key=lambda each: each.at_ms):
        x = scale.x(at_ms)
        label = ""
        if x - free >= MARKS_APART:
            anchor = "end" if x > WIDTH - MARKS_APART else "middle"
            label, free = f'<text x="{x:.1f}" y="9" text-anchor="{anchor}">{number}</text>', x
        yield (
            f'<a href="#incident-{number}"><title>incident {number} at {time_text(at_ms)}</title>'
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{MARK - 2}" y2="{bottom:.0f}"/>{label}</a>'
        )


def lanes(
    names: Sequence[str],
    drawn: Sequence[Sequence[str]],
    *,
    scale: Scale,
    incidents: Sequence[Incident],
    behind: Sequence[tuple[int, int]] = (),
    over: Sequence[tuple[int, str]] = (),
) -> list[str]:
    """Return panels of lanes: a name and what is drawn in each, placed from its own top at 0.

    `behind` are times that are shaded, `over` moments with a line across all lanes, and what it means.
    """
    panels = []
    for begin in range(0, len(names), PANEL_LANES):
        part = names[begin : begin + PANEL_LANES]
        bottom = MARK + LANE * len(part)
        parts = [
            f'<rect class="unknown" x="{scale.x(a):.1f}" y="{MARK}" width="{scale.x(b) - scale.x(a):.1f}" '
            f'height="{LANE * len(part)}"><title>unknown: the log proves nothing of this time</title></rect>'
            for a, b in behind
        ]
        parts += scale.axis(bottom)
        for place, name in enumerate(part):
            top = MARK + place * LANE
            parts.append(f'<text x="0" y="{top + 11}">{html.escape(_label(name))}</text>')
            parts.append(f'<g transform="translate(0 {top})">{"".join(drawn[begin + place])}</g>')
        parts += [
            f'<line class="claim" x1="{scale.x(at):.1f}" x2="{scale.x(at):.1f}" y1="{MARK}" y2="{bottom}">'
            f"<title>{html.escape(what)}</title></line>"
            for at, what in over
        ]
        parts += marks(incidents, scale, bottom)
        panels.append(panel(bottom + AXIS, parts))
    return panels


def panel(height: float, parts: Iterable[str]) -> str:
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'


def figure(caption: str, details: str, panels: Iterable[str]) -> str:
    return (
        f"<figure><figcaption>{caption}<small>{details}</small></figcaption>"
        f'<div class="wide">{"".join(panels)}</div></figure>'
    )


def levels(top: int, height: int) -> Iterable[str]:
    """Yield the numbers beside a chart of counts."""
    yield f'<text x="0" y="{MARK + 8}">{top:,}</text><text x="0" y="{height}">0</text>'
    yield f'<line class="tick" x1="{LEFT}" x2="{WIDTH}" y1="{height}" y2="{height}"/>'


def _label(name: str) -> str:
    return name if len(name) <= NAME_CHARS else f"\N{HORIZONTAL ELLIPSIS}{name[1 - NAME_CHARS :]}"
