"""Edge: how many partitions lacked something over time, drawn as steps, and how much changed by the hour.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from metadata_log.replay.library import Log
from metadata_log.replay.page.drawn import MARK, Incident, asked, figure, levels, marks, panel
from metadata_log.replay.page.scale import AXIS, LEFT, WIDTH, Scale
from metadata_log.replay.page.style import bar, key, line_key

BUCKETS: Final = 300
"""Steps of a line: more would not be seen."""
_HOUR_MS: Final = 3_600_000
_LINES: Final = (
    ("leaderless", "leaderless_spells", "without a leader"),
    ("minisr", "under_min_isr_spells", "under min.insync.replicas"),
    ("thinned", "under_replicated_spells", "under-replicated"),
)
_BARS: Final = (
    ("leaders", None, "leader changes"),
    ("shrinks", "FENCED", "ISR shrinks"),
    ("flaps", "OFFLINE", "flaps"),
)


def conditions(log: Log, scale: Scale, incidents: Sequence[Incident]) -> str:
    width_ms = max(1, -(-(scale.last_ms - scale.first_ms) // BUCKETS))
    counts = {kind: _open_spells(log, table, scale, width_ms) for kind, table, _ in _LINES}
    top, height = max(1, *(max(values) for values in counts.values())), 150
    parts = [*levels(top, height), *scale.axis(height)]
    for kind, _, label in _LINES:
        parts.append(
            f'<path class="step {kind}" d="{_steps(counts[kind], scale, width_ms, top, height)}">'
            f"<title>{label}</title></path>"
        )
    parts += marks(incidents, scale, height)
    legend = "".join(line_key(kind, label) for kind, _, label in _LINES)
    details = f"{scale.text}; the most in each of {BUCKETS} equal spans of time; numbers: the incidents below"
    return figure(f"How many partitions were {legend}", details, [panel(height + AXIS, parts)])


def _steps(values: Sequence[int], scale: Scale, width_ms: int, top: int, height: int) -> str:
    """Return the path of a line that stays where it is until it changes."""

    def y(value: int) -> str:
        return f"{height - value * (height - MARK - 4) / top:.1f}"

    path, before = [f"M{LEFT} {y(values[0])}"], values[0]
    for place, value in enumerate(values):
        if value != before:
            path.append(f"H{scale.x(scale.first_ms + place * width_ms):.1f}V{y(value)}")
            before = value
    return "".join([*path, f"H{WIDTH}"])


def _open_spells(log: Log, table: str, scale: Scale, width_ms: int) -> list[int]:
    """Return how many spells were open at most in each bucket of time: those that begin in one count before any end."""
    begun, ended = [0] * (BUCKETS + 2), [0] * (BUCKETS + 2)
    for column, steps in (("from_ts", begun), ("to_ts", ended)):
        for bucket, count in asked(
            log,
            f"SELECT CAST(floor(greatest(0, unix_millis({column}) - {scale.first_ms}) / {width_ms}) AS INT) AS bucket, "  # noqa: S608
            f"count(*) AS n FROM {table} WHERE {column} IS NOT NULL GROUP BY 1",
            table,
        ):
            steps[min(bucket, BUCKETS + 1)] += count
    before = [0, *accumulate(up - down for up, down in zip(begun, ended, strict=True))]
    return [max(0, there + up) for there, up in zip(before, begun, strict=False)][:BUCKETS]


def churn(log: Log, incidents: Sequence[Incident]) -> str:
    hours = asked(
        log,
        "SELECT CAST(unix_millis(hour) AS BIGINT) AS at, CAST(sum(leader_changes) AS BIGINT) AS leaders, "
        "CAST(sum(isr_shrinks) AS BIGINT) AS shrinks, "
        "CAST(sum(flaps) AS BIGINT) AS flaps FROM churn GROUP BY hour ORDER BY hour",
        "churn",
    )
    if not hours:
        return figure("Churn: no partition changed", "", [])
    newest_ms = hours[-1][0] + _HOUR_MS
    scale = Scale(max(hours[0][0], newest_ms - BUCKETS * _HOUR_MS), newest_ms)
    shown = [row for row in hours if row[0] >= scale.first_ms]
    height, top = 130, max(1, *(max(row[1:]) for row in shown))
    wide = (WIDTH - LEFT) * _HOUR_MS / (scale.last_ms - scale.first_ms)
    parts = [*levels(top, height), *scale.axis(height)]
    for at_ms, *values in shown:
        said = ", ".join(f"{value:,} {label}" for value, (_, _, label) in zip(values, _BARS, strict=True))
        shapes = "".join(
            bar(
                kind,
                scale.x(at_ms) + at * wide / 3,
                height - tall,
                max(wide / 3 - 0.5, 0.5),
                round(tall, 1),
                pattern=hatch,
            )
            for at, (value, (kind, hatch, _)) in enumerate(zip(values, _BARS, strict=True))
            for tall in [value * (height - MARK - 4) / top]
            if value
        )
        parts.append(f"<g><title>{said}</title>{shapes}</g>")
    parts += marks([each for each in incidents if each.at_ms >= scale.first_ms], scale, height)
    legend = "".join(key(kind, label, pattern=hatch) for kind, hatch, label in _BARS)
    cut = f"; newest {len(shown):,} of {len(hours):,} hours with changes" if len(shown) < len(hours) else ""
    return figure(f"Churn per hour {legend}", f"{scale.text}{cut}", [panel(height + AXIS, parts)])
