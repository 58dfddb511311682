"""Edge: the report as one self-contained page: the sections of its Markdown, and charts as inline SVG.

Nothing is loaded from elsewhere, and nothing runs: a browser without a network shows it, and a printer prints it.
"""

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log

WIDTH: Final = 1000
LEFT: Final = 90
"""Pixels for names beside the lanes."""
LANE: Final = 16
BUCKETS: Final = 300
"""Steps of a line: more would not be seen."""
LANES_MAX: Final = 60
SPELLS_MAX: Final = 5_000
"""Rectangles of all lanes; of more, the longest are drawn."""

COLORS: Final = {"ONLINE": "#4c9a6a", "STOPPING": "#c9a227", "FENCED": "#d97b3d", "OFFLINE": "#b33a3a"}
_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; max-width: 1040px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: .5em 0; font-size: 13px; }
td, th { border: 1px solid #ddd; padding: 2px 8px; text-align: left; vertical-align: top; }
th { background: #f3f3f3; } code { font-size: 12px; word-break: break-all; }
figure { margin: 1.5em 0; } figcaption { font-weight: 600; margin-bottom: .3em; }
svg text { font: 11px system-ui, sans-serif; }
"""


def page(sections: Sequence[str], figures: Iterable[str]) -> str:
    """Return a page of the sections, the charts behind the first two: what it is, and the summary."""
    title = sections[0].splitlines()[0].removeprefix("# ")
    body = "\n".join([*map(_of_markdown, sections[:2]), *figures, *map(_of_markdown, sections[2:])])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def charts(log: Log) -> list[str]:
    """Return the figures: lanes of brokers with takeovers, partitions that lacked something, and churn."""
    first_ms, last_ms = _span(log)
    if last_ms <= first_ms:
        return []
    return [_lanes(log, first_ms, last_ms), _conditions(log, first_ms, last_ms), _churn(log)]


def _span(log: Log) -> tuple[int, int]:
    ((first, last),) = _rows(
        log, "SELECT min(unix_millis(ts)) AS a, max(unix_millis(ts)) AS b FROM records", "records"
    )
    return first, last


def _rows(log: Log, query: str, *tables: str) -> list[tuple[Any, ...]]:
    return rows(log.engine.arrow(log.engine.query(query, {name: log.table_of(name) for name in tables})))


# --- charts


def _lanes(log: Log, first_ms: int, last_ms: int) -> str:
    intervals = _rows(
        log,
        "SELECT broker_id, state, unix_millis(from_ts) AS a, coalesce(unix_millis(to_ts), -1) AS b, duration_ms, "
        "coalesce(cause_code, '') AS cause FROM broker_state_intervals ORDER BY duration_ms DESC, broker_id, from_offset",
        "broker_state_intervals",
    )
    brokers = sorted({row[0] for row in intervals})
    places = {broker: place for place, broker in enumerate(brokers[:LANES_MAX])}
    shown = [row for row in intervals[:SPELLS_MAX] if row[0] in places]

    def x(ms: int) -> float:
        return LEFT + (min(max(ms, first_ms), last_ms) - first_ms) * (WIDTH - LEFT) / (last_ms - first_ms)

    height = LANE * len(places) + 20
    parts = [
        f'<text x="0" y="{place * LANE + 12}">broker {broker}</text>' for broker, place in places.items()
    ]
    for broker, state, begin, end, _, cause in shown:
        left, right = x(begin), x(last_ms if end < 0 else end)
        parts.append(
            f'<rect x="{left:.1f}" y="{places[broker] * LANE + 2}" width="{max(right - left, 0.5):.1f}" '
            f'height="{LANE - 4}" fill="{COLORS[state]}"><title>broker {broker} {state} from {_time(begin)}'
            f"{html.escape(f' ({cause})') if cause else ''}</title></rect>"
        )
    claims = _rows(
        log,
        "SELECT unix_millis(ts) AS at, controller_id, kind FROM controller_takeovers",
        "controller_takeovers",
    )
    parts += [
        f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="0" y2="{LANE * len(places)}" stroke="#333" stroke-dasharray="2 2">'
        f"<title>controller {controller} took over at {_time(at)}: {kind}</title></line>"
        for at, controller, kind in claims
    ]
    parts.append(_axis(first_ms, last_ms, LANE * len(places) + 14))
    legend = ", ".join(
        f'<span style="color:{color}">&#9632;</span> {state}' for state, color in COLORS.items()
    )
    cut = "".join(
        f"; {what}"
        for what in (
            f"first {LANES_MAX} of {len(brokers):,} brokers by id" if len(brokers) > LANES_MAX else "",
            f"longest {SPELLS_MAX:,} of {len(intervals):,} states" if len(intervals) > SPELLS_MAX else "",
        )
        if what
    )
    return _figure(f"Brokers ({legend}; dashed: a controller took over{cut})", height, parts)


def _conditions(log: Log, first_ms: int, last_ms: int) -> str:
    width_ms = max(1, (last_ms - first_ms) // BUCKETS)
    lines = {
        "without a leader": ("leaderless_spells", "#b33a3a"),
        "under min.insync.replicas": ("under_min_isr_spells", "#6a4c9a"),
        "under-replicated": ("under_replicated_spells", "#d9a13d"),
    }
    height = 140
    counts = {label: _open_spells(log, table, first_ms, width_ms) for label, (table, _) in lines.items()}
    top = max(1, *(max(values) for values in counts.values()))
    parts = [f'<text x="0" y="12">{top:,}</text>', f'<text x="0" y="{height}">0</text>']
    for label, values in counts.items():
        points = " ".join(
            f"{LEFT + place * (WIDTH - LEFT) / len(values):.1f},{height - value * (height - 6) / top:.1f}"
            for place, value in enumerate(values)
        )
        color = lines[label][1]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"><title>{label}</title></polyline>'
        )
    parts.append(_axis(first_ms, last_ms, height + 14))
    legend = ", ".join(
        f'<span style="color:{color}">&#9632;</span> {label}' for label, (_, color) in lines.items()
    )
    return _figure(f"Partitions ({legend})", height + 20, parts)


def _open_spells(log: Log, table: str, first_ms: int, width_ms: int) -> list[int]:
    """Return how many spells were open at the end of each bucket of time."""
    steps = [0] * (BUCKETS + 2)
    for column, step in (("from_ts", 1), ("to_ts", -1)):
        for bucket, count in _rows(
            log,
            f"SELECT CAST(floor(greatest(0, unix_millis({column}) - {first_ms}) / {width_ms}) AS INT) AS bucket, "  # noqa: S608
            f"count(*) AS n FROM {table} WHERE {column} IS NOT NULL GROUP BY 1",
            table,
        ):
            steps[min(bucket, BUCKETS + 1)] += step * count
    return [max(0, value) for value in accumulate(steps)]


def _churn(log: Log) -> str:
    hours = _rows(
        log,
        "SELECT hour, CAST(sum(leader_changes) AS BIGINT) AS leaders, CAST(sum(isr_shrinks) AS BIGINT) AS shrinks, "
        "CAST(sum(flaps) AS BIGINT) AS flaps FROM churn GROUP BY hour ORDER BY hour",
        "churn",
    )
    shown = hours[-BUCKETS:]
    if not shown:
        return _figure("Churn: no partition changed", 20, [])
    height, top = 120, max(1, *(max(row[1:]) for row in shown))
    wide = (WIDTH - LEFT) / len(shown)
    parts = [f'<text x="0" y="12">{top:,}</text>', f'<text x="0" y="{height}">0</text>']
    for place, (hour, *values) in enumerate(shown):
        for at, (value, color) in enumerate(zip(values, ("#3d6fd9", "#d97b3d", "#6a4c9a"), strict=True)):
            tall = value * (height - 6) / top
            parts.append(
                f'<rect x="{LEFT + place * wide + at * wide / 3:.1f}" y="{height - tall:.1f}" '
                f'width="{max(wide / 3 - 0.5, 0.5):.1f}" height="{tall:.1f}" fill="{color}">'
                f"<title>{hour:%Y-%m-%d %H:00}: {values[0]:,} leader changes, "
                f"{values[1]:,} ISR shrinks, {values[2]:,} flaps</title></rect>"
            )
    parts.append(
        f'<text x="{LEFT}" y="{height + 14}">{shown[0][0]:%Y-%m-%d %H:00}</text>'
        f'<text x="{WIDTH}" y="{height + 14}" text-anchor="end">{shown[-1][0]:%Y-%m-%d %H:00}</text>'
    )
    cut = f"; newest {BUCKETS} of {len(hours):,} hours" if len(hours) > BUCKETS else ""
    return _figure(
        'Churn per hour (<span style="color:#3d6fd9">&#9632;</span> leader changes, '
        '<span style="color:#d97b3d">&#9632;</span> ISR shrinks, '
        f'<span style="color:#6a4c9a">&#9632;</span> flaps{cut})',
        height + 20,
        parts,
    )


def _figure(caption: str, height: int, parts: Iterable[str]) -> str:
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img">{"".join(parts)}</svg></figure>'
    )


def _axis(first_ms: int, last_ms: int, y: int) -> str:
    return (
        f'<text x="{LEFT}" y="{y}">{_time(first_ms)}</text>'
        f'<text x="{WIDTH}" y="{y}" text-anchor="end">{_time(last_ms)} UTC</text>'
    )


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


# --- Markdown


def _of_markdown(section: str) -> str:
    """Return the HTML of what the report writes: headings, lists, tables and paragraphs."""
    parts: list[str] = []
    for block in section.split("\n\n"):
        lines = [line for line in block.splitlines() if line]
        if not lines:
            continue
        if lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            parts.append(f"<h{level}>{_inline(lines[0].lstrip('# '))}</h{level}>")
            lines = lines[1:]
        if lines and lines[0].startswith("| "):
            head, _, *body = ([_inline(cell) for cell in _cells(line)] for line in lines)
            parts.append(
                f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"
                + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
                + "</table>"
            )
        elif lines and lines[0].startswith("- "):
            parts.append(f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>")
        else:
            parts += [f"<p>{_inline(line)}</p>" for line in lines]
    return "\n".join(parts)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def _inline(text: str) -> str:
    escaped = html.escape(text)
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]*)\*\*", r"<b>\1</b>", escaped)
