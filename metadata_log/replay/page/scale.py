"""Pure: time from left to right: where a moment lies, and the ticks below a chart.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

WIDTH: Final = 1000
LEFT: Final = 112
"""Room for names beside the lanes."""
AXIS: Final = 18
"""Room below a chart for its ticks."""
TICKS_MAX: Final = 8
SEEN: Final = 1.5
"""The width of what is too short to be drawn."""
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 30, 91, 365)),
)


class Tick(NamedTuple):
    at_ms: int
    label: str


class Scale(NamedTuple):
    """A span of time, which is longer than nothing."""

    first_ms: int
    last_ms: int

    def x(self, ms: int) -> float:
        """Return where a moment lies; what is outside lies at the edge."""
        inside = min(max(ms, self.first_ms), self.last_ms) - self.first_ms
        return LEFT + inside * (WIDTH - LEFT) / (self.last_ms - self.first_ms)

    def stretch(self, begin_ms: int, end_ms: int) -> tuple[float, float]:
        """Return where a time begins and how wide it is: wide enough to be seen, and within the chart."""
        left, right = self.x(begin_ms), self.x(end_ms)
        wide = max(right - left, SEEN)
        return min(left, WIDTH - wide), wide

    def ticks(self) -> list[Tick]:
        """Return round moments within the span, about TICKS_MAX; the first names its day, and so does each midnight."""
        span = self.last_ms - self.first_ms
        step = next((step for step in _STEPS_MS if span <= step * TICKS_MAX), None)
        if step is None:
            step = math.ceil(span / TICKS_MAX / _STEPS_MS[-1]) * _STEPS_MS[-1]
        moments = range(-(-self.first_ms // step) * step, self.last_ms + 1, step)
        days = [None, *(at // _DAY for at in moments)]
        return [
            Tick(at, _label(at, step, is_new_day=before != day))
            for at, (before, day) in zip(moments, pairwise(days), strict=True)
        ]

    def axis(self, bottom: float) -> Iterator[str]:
        """Yield the ticks of a chart: lines from its top to `bottom`, and their labels below."""
        for at_ms, label in self.ticks():
            x = self.x(at_ms)
            anchor = "end" if x > WIDTH - 40 else "middle"
            yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom:.0f}"/>'
            yield f'<text class="axis" x="{x:.1f}" y="{bottom + 13:.0f}" text-anchor="{anchor}">{label}</text>'

    @property
    def text(self) -> str:
        return f"{time_text(self.first_ms)} to {time_text(self.last_ms)} UTC"


def _label(at_ms: int, step: int, *, is_new_day: bool) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step >= _DAY:
        return f"{at:%Y-%m-%d}"
    if step < _SECOND:
        return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"
    clock = f"{at:%H:%M}" if step >= _MINUTE else f"{at:%H:%M:%S}"
    return f"{at:%m-%d} {clock}" if is_new_day else clock


def time_text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
