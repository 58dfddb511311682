"""Edge: the report as one self-contained page: the sections of its Markdown, and charts as inline SVG.

Nothing is loaded from elsewhere, and nothing runs: a browser without a network shows it, and a printer prints it.
"""

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple

from metadata_log.ids import NO_LEADER
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

NAME_CHARS: Final = 15
"""Room for a partition's name; of a longer one the end is shown, which has its number, behind an ellipsis."""
PALETTE: Final = (
    *(
        "#3d6fd9",
        "#7a5195",
        "#2f8f9d",
        "#8a8d2b",
        "#c06c9b",
        "#5b7083",
        "#a0703a",
        "#4b4fa8",
        "#6aa84f",
        "#9aa5b1",
    ),
)
LOST: Final = "#d62728"
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


def charts(log: Log, *, broker: int | None = None) -> list[str]:
    """Return the figures: lanes of brokers with takeovers, of partitions with leader and ISR, partitions that lacked
    something, and churn; with `broker`, that broker's lane alone.
    """
    first_ms, last_ms = _span(log)
    if last_ms <= first_ms:
        return []
    return [
        _lanes(log, first_ms, last_ms, broker),
        _partitions(log, first_ms, last_ms),
        _conditions(log, first_ms, last_ms),
        _churn(log),
    ]


def _span(log: Log) -> tuple[int, int]:
    ((first, last),) = _rows(
        log, "SELECT min(unix_millis(ts)) AS a, max(unix_millis(ts)) AS b FROM records", "records"
    )
    return first, last


def _rows(log: Log, query: str, *tables: str) -> list[tuple[Any, ...]]:
    return rows(log.engine.arrow(log.engine.query(query, {name: log.table_of(name) for name in tables})))


# --- charts


def _lanes(log: Log, first_ms: int, last_ms: int, broker: int | None) -> str:
    which = "true" if broker is None else f"broker_id = {broker}"
    intervals = _rows(
        log,
        "SELECT broker_id, state, unix_millis(from_ts) AS a, coalesce(unix_millis(to_ts), -1) AS b, duration_ms, "  # noqa: S608
        f"coalesce(cause_code, '') AS cause FROM broker_state_intervals WHERE {which} "
        "ORDER BY duration_ms DESC, broker_id, from_offset",
        "broker_state_intervals",
    )
    brokers = sorted({row[0] for row in intervals})
    places = {each: place for place, each in enumerate(brokers[:LANES_MAX])}
    shown = [row for row in intervals[:SPELLS_MAX] if row[0] in places]

    def x(ms: int) -> float:
        return LEFT + (min(max(ms, first_ms), last_ms) - first_ms) * (WIDTH - LEFT) / (last_ms - first_ms)

    height = LANE * len(places) + 20
    parts = [f'<text x="0" y="{place * LANE + 12}">broker {each}</text>' for each, place in places.items()]
    for each, state, begin, end, _, cause in shown:
        left, right = x(begin), x(last_ms if end < 0 else end)
        parts.append(
            f'<rect x="{left:.1f}" y="{places[each] * LANE + 2}" width="{max(right - left, 0.5):.1f}" '
            f'height="{LANE - 4}" fill="{COLORS[state]}"><title>broker {each} {state} from {_time(begin)}'
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


class _Stay(NamedTuple):
    """A partition as it was from one change to the next."""

    pkey: int
    name: str
    begin_ms: int
    leader: int | None
    isr: list[int]
    replicas: list[int]


def _partitions(log: Log, first_ms: int, last_ms: int) -> str:
    """Draw who led each partition, and below whether its ISR was whole: of many, those that changed most."""
    stays, ends, total, changes = _stays(log, first_ms)
    if not stays:
        return _figure("Partitions: none changed", 20, [])
    lanes = {name: place for place, name in enumerate(sorted({stay.name for stay in stays}, key=_by_number))}
    leaders = sorted({stay.leader for stay in stays if stay.leader not in (None, NO_LEADER)})
    colors = {leader: PALETTE[place % len(PALETTE)] for place, leader in enumerate(leaders)} | {
        NO_LEADER: LOST
    }

    def x(ms: int) -> float:
        return LEFT + (min(max(ms, first_ms), last_ms) - first_ms) * (WIDTH - LEFT) / (last_ms - first_ms)

    parts = [
        f'<text x="0" y="{place * LANE + 11}">{html.escape(_label(name))}</text>'
        for name, place in lanes.items()
    ]
    for stay, end_ms in zip(stays, ends, strict=True):
        if stay.leader is None:
            continue
        left, top = x(stay.begin_ms), lanes[stay.name] * LANE + 2
        wide = max(x(last_ms if end_ms is None else end_ms) - left, 0.5)
        whole = set(stay.isr) >= set(stay.replicas)
        leader = "no leader" if stay.leader == NO_LEADER else f"leader {stay.leader}"
        said = (
            f"<title>{html.escape(stay.name)}: {leader}, ISR {', '.join(map(str, stay.isr))} of "
            f"{', '.join(map(str, stay.replicas))} from {_time(stay.begin_ms)}</title>"
        )
        isr = COLORS["ONLINE"] if whole else COLORS["OFFLINE"] if len(stay.isr) == 1 else COLORS["FENCED"]
        drawn = "".join(
            f'<rect x="{left:.1f}" y="{y}" width="{wide:.1f}" height="{tall}" fill="{color}"/>'
            for y, tall, color in ((top, 8, colors[stay.leader]), (top + 9, 3, isr))
        )
        parts.append(f"<g>{said}{drawn}</g>")
    parts.append(_axis(first_ms, last_ms, LANE * len(lanes) + 14))
    legend = ", ".join(
        f'<span style="color:{colors[leader]}">&#9632;</span> {leader}' for leader in leaders[: len(PALETTE)]
    )
    cut = "".join(
        f"; {what}"
        for what in (
            f"the {LANES_MAX} of {total:,} partitions that changed most" if total > LANES_MAX else "",
            f"newest {SPELLS_MAX:,} of their {changes:,} changes" if changes > SPELLS_MAX else "",
            "colors repeat" if len(leaders) > len(PALETTE) else "",
        )
        if what
    )
    return _figure(
        f'Leader and ISR of partitions (leader: {legend}, <span style="color:{LOST}">&#9632;</span> nobody; thin line: the '
        f'ISR is <span style="color:{COLORS["ONLINE"]}">&#9632;</span> whole, '
        f'<span style="color:{COLORS["FENCED"]}">&#9632;</span> smaller, '
        f'<span style="color:{COLORS["OFFLINE"]}">&#9632;</span> one replica{cut})',
        LANE * len(lanes) + 20,
        parts,
    )


def _stays(log: Log, first_ms: int) -> tuple[list[_Stay], list[int | None], int, int]:
    """Return the newest stays of the partitions that changed most, when each ended, and how many partitions and changes
    there are in all. After a deletion, a stay has the leader None.
    """
    ((total,),) = _rows(log, "SELECT count(DISTINCT pkey) AS n FROM partition_changes", "partition_changes")
    busy = _rows(
        log,
        "SELECT pkey, count(*) AS n FROM partition_changes GROUP BY pkey "  # noqa: S608 a number
        f"ORDER BY n DESC, pkey LIMIT {LANES_MAX}",
        "partition_changes",
    )
    if not busy:
        return [], [], 0, 0
    chosen = ", ".join(str(pkey) for pkey, _ in busy)
    newest = _rows(
        log,
        "SELECT pkey, topic_name, partition, unix_millis(ts) AS at, op, leader, isr, replicas "  # noqa: S608 numbers
        f"FROM partition_changes WHERE pkey IN ({chosen}) ORDER BY log_offset DESC LIMIT {SPELLS_MAX}",
        "partition_changes",
    )
    changes = sum(count for _, count in busy)
    before = _rows(
        log,
        "SELECT * FROM (SELECT topic_seq * 16777216 + partition AS pkey, topic_name, partition, leader, isr, replicas "  # noqa: S608
        f"FROM initial WHERE partition IS NOT NULL) AS p WHERE pkey IN ({chosen})",
        "initial",
    )
    stays = [
        *(
            _Stay(pkey, f"{topic}:{n}", first_ms, *rest)
            for pkey, topic, n, *rest in before
            if changes <= SPELLS_MAX
        ),
        *(
            _Stay(pkey, f"{topic}:{n}", at, None if op == "delete" else leader, isr or [], replicas or [])
            for pkey, topic, n, at, op, leader, isr, replicas in reversed(newest)
        ),
    ]
    ends: list[int | None] = []
    next_ms: dict[int, int] = {}
    for stay in reversed(stays):
        ends.append(next_ms.get(stay.pkey))
        next_ms[stay.pkey] = stay.begin_ms
    return stays, ends[::-1], total, changes


def _label(name: str) -> str:
    return name if len(name) <= NAME_CHARS else f"\N{HORIZONTAL ELLIPSIS}{name[1 - NAME_CHARS :]}"


def _by_number(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition(":")
    return topic, int(partition)


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
