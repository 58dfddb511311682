"""Pure: the looks of the page: colours of both themes, and the patterns that say the same without colours.
Tests: tests/unit/metadata_log/replay/test_page.py.
"""

from typing import Final

STATES: Final = ("ONLINE", "STOPPING", "FENCED", "OFFLINE")
"""Of brokers; each has a colour and a pattern of its own."""
LEADERS: Final = 10
"""Colours of leaders; a leader's lane also shows its number."""

STYLE: Final = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2127; --muted: #5b6570; --rule: #d8dde2; --head: #f1f3f5;
 --link: #1f5fbf; --unknown: #e9ecef; --online: #4c9a6a; --stopping: #c9a227; --fenced: #d97b3d; --offline: #b33a3a;
 --lost: #d62728; --minisr: #6a4c9a; --thin: #b97f10; --bar: #3d6fd9; --ink: #fff;
 --p0: #3d6fd9; --p1: #7a5195; --p2: #26808d; --p3: #74771f; --p4: #b45a8b; --p5: #5b7083; --p6: #94632f;
 --p7: #4b4fa8; --p8: #4f8f36; --p9: #6f7c89; }
@media screen and (prefers-color-scheme: dark) { :root { --bg: #14181d; --fg: #e3e8ed; --muted: #9aa5b0;
 --rule: #343c45; --head: #1f262d; --link: #7db0ff; --unknown: #262d34; --online: #3f8a5c; --stopping: #d5b03a;
 --fenced: #e28a4c; --offline: #d4595a; --lost: #ff5c5c; --minisr: #a98be0; --thin: #e0ad4b; --bar: #6f9bff;
 --ink: #0d1013; --p0: #7da2ff; --p1: #b78fd0; --p2: #57b8c5; --p3: #b8bb58; --p4: #de90b8; --p5: #93a7b9;
 --p6: #d0a06c; --p7: #9a9dea; --p8: #86c46c; --p9: #aab4be; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 1.5em auto; padding: 0 1em; color: var(--fg);
 background: var(--bg); overflow-wrap: anywhere; }
h1 { font-size: 1.5em; margin-bottom: .3em; } h2 { font-size: 1.2em; margin: 1.6em 0 .4em; }
p.impact { font-size: 1.15em; font-weight: 600; margin: .4em 0 .8em; }
p.impact code { font-size: .95em; word-break: normal; }
 .about { color: var(--muted); font-size: .9em; }
a { color: var(--link); } :target { background: var(--head); outline: 2px solid var(--link); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5em 0; font-size: 13px; overflow-wrap: normal; }
td, th { border: 1px solid var(--rule); padding: 2px 8px; text-align: left; vertical-align: top; }
th { background: var(--head); } code { font-size: 12px; word-break: break-all; }
figure { margin: 1.4em 0; } figcaption { font-weight: 600; margin-bottom: .3em; }
figcaption small { display: block; font-weight: 400; color: var(--muted); }
.key { display: inline-block; margin-right: .9em; white-space: nowrap; font-weight: 400; }
.key svg { width: 22px; height: 12px; vertical-align: -1px; margin-right: .3em; }
svg.chart { display: block; width: 100%; min-width: 760px; height: auto; margin-bottom: 4px; }
svg text { font: 11px system-ui, sans-serif; fill: var(--fg); } svg text.axis { fill: var(--muted); }
svg text.inside { font-size: 9px; fill: var(--ink); pointer-events: none; } svg a text { fill: var(--link); }
.tick { stroke: var(--rule); stroke-width: 1; } .claim { stroke: var(--fg); stroke-dasharray: 2 2; }
.mark { stroke: var(--link); stroke-width: 1; stroke-dasharray: 1 2; } .unknown { fill: var(--unknown); }
.ONLINE { fill: var(--online); } .STOPPING { fill: var(--stopping); } .FENCED { fill: var(--fenced); }
.OFFLINE { fill: var(--offline); } .lost { fill: var(--lost); } .over { fill: none; } .hatch { stroke: var(--bg); }
.step { fill: none; stroke-width: 1.8; } .leaderless { stroke: var(--lost); }
.minisr { stroke: var(--minisr); stroke-dasharray: 7 3; } .thinned { stroke: var(--thin); stroke-dasharray: 2 2; }
.leaders { fill: var(--bar); } .shrinks { fill: var(--fenced); } .flaps { fill: var(--minisr); }
@media (max-width: 600px) { body { margin: .6em auto; padding: 0 .7em; font-size: 14px; } }
@media print { body { max-width: none; margin: 0; padding: 0; font-size: 10pt; } svg.chart { min-width: 0; }
 * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } .wide { overflow: visible; }
 table { font-size: 8pt; width: 100%; } tr, svg.chart, li, figcaption { break-inside: avoid; }
 h2, h3, figcaption { break-after: avoid; } a { color: inherit; text-decoration: none; } @page { margin: 14mm; } }
""" + "".join(f".p{place} {{ fill: var(--p{place}); }} " for place in range(LEADERS))

PATTERNS: Final = """<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<pattern id="h-FENCED" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path class="hatch" d="M0 0V6" stroke-width="2"/></pattern>
<pattern id="h-OFFLINE" width="5" height="5" patternUnits="userSpaceOnUse">
<path class="hatch" d="M0 0L5 5M5 0L0 5"/></pattern>
<pattern id="h-STOPPING" width="5" height="5" patternUnits="userSpaceOnUse"><path class="hatch" d="M0 2.5H5"/></pattern>
</defs></svg>"""


def bar(kind: str, x: float, y: float, wide: float, tall: float, *, pattern: str | None = None) -> str:
    """Return a rectangle of a colour, and over it a pattern."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:g}"'
    over = "" if pattern is None else f'<rect {place} fill="url(#h-{pattern})"/>'
    return f'<rect class="{kind}" {place}/>{over}'


def key(kind: str, text: str, *, pattern: str | None = None) -> str:
    """Return an entry of a legend: a rectangle as it is drawn, and what it means."""
    return f'<span class="key"><svg viewBox="0 0 22 12">{bar(kind, 0, 0, 22, 12, pattern=pattern)}</svg>{text}</span>'


def line_key(kind: str, text: str) -> str:
    return f'<span class="key"><svg viewBox="0 0 22 12"><path class="step {kind}" d="M0 6H22"/></svg>{text}</span>'


def pattern_of(state: str) -> str | None:
    """Return the pattern of a broker's state; one that serves has none."""
    return None if state == "ONLINE" else state
