"""Edge: a lane for each broker: its states, the incidents, and when controllers took over.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

import html
from collections.abc import Sequence
from typing import Final

from metadata_log.replay.library import Log
from metadata_log.replay.page.drawn import LANE, Incident, asked, figure, lanes, unknown_of
from metadata_log.replay.page.scale import Scale, time_text
from metadata_log.replay.page.style import STATES, bar, key, pattern_of

LANES_MAX: Final = 60
SPELLS_MAX: Final = 5_000
"""Rectangles of all lanes; of more, the longest are drawn."""


def brokers(log: Log, scale: Scale, incidents: Sequence[Incident], broker: int | None) -> str:
    """Return the figure, with `broker` that broker's lane alone."""
    which = "true" if broker is None else f"broker_id = {broker}"
    intervals = asked(
        log,
        "SELECT broker_id, state, unix_millis(from_ts) AS a, coalesce(unix_millis(to_ts), -1) AS b, duration_ms, "  # noqa: S608
        f"coalesce(cause_code, '') AS cause FROM broker_state_intervals WHERE {which} "
        "ORDER BY duration_ms DESC, broker_id, from_offset",
        "broker_state_intervals",
    )
    out_ms: dict[int, int] = {}
    for each, state, _, _, duration_ms, _ in intervals:
        out_ms[each] = out_ms.get(each, 0) + (0 if state == "ONLINE" else duration_ms or 0)
    ordered = sorted(out_ms, key=lambda each: (-out_ms[each], each))
    places = {each: place for place, each in enumerate(ordered[:LANES_MAX])}
    drawn: list[list[str]] = [[] for _ in places]
    for each, state, begin, end, _, cause in intervals[:SPELLS_MAX]:
        if each not in places:
            continue
        left, wide = scale.stretch(begin, scale.last_ms if end < 0 else end)
        why = html.escape(f" ({cause})") if cause else ""
        shape = bar(state, left, 2, wide, LANE - 4, pattern=pattern_of(state))
        drawn[places[each]].append(
            f"<g><title>broker {each} {state} from {time_text(begin)}{why}</title>{shape}</g>"
        )
    claims = asked(
        log,
        "SELECT unix_millis(ts) AS at, controller_id, kind FROM controller_takeovers",
        "controller_takeovers",
    )
    over = [
        (at, f"controller {controller} took over at {time_text(at)}: {kind}")
        for at, controller, kind in claims
    ]
    unknown = unknown_of(log)
    legend = "".join(key(state, state, pattern=pattern_of(state)) for state in STATES)
    legend += key("unknown", "unknown") if unknown else ""
    details = [
        f"{scale.text}; dashed: a controller took over; numbers: the incidents below; longest out of service first",
        f"first {LANES_MAX} of {len(ordered):,} brokers" if len(ordered) > LANES_MAX else "",
        f"longest {SPELLS_MAX:,} of {len(intervals):,} states" if len(intervals) > SPELLS_MAX else "",
    ]
    panels = lanes(
        [f"broker {each}" for each in places],
        drawn,
        scale=scale,
        incidents=incidents,
        behind=unknown,
        over=over,
    )
    return figure(f"Brokers {legend}", "; ".join(filter(None, details)), panels)
