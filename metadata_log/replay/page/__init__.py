"""Edge: the report as one self-contained page: the sections of its Markdown, and charts as inline SVG.

Nothing is loaded from elsewhere, and nothing runs: a browser without a network shows it, and a printer prints it.
The first line is what it cost; the log is described below the charts.
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

from metadata_log.replay.library import Log
from metadata_log.replay.page.brokers import brokers
from metadata_log.replay.page.counts import churn, conditions
from metadata_log.replay.page.drawn import incidents_of, scale_of
from metadata_log.replay.page.markdown import Page, inline
from metadata_log.replay.page.partitions import partitions
from metadata_log.replay.page.style import PATTERNS, STYLE

_ANCHOR: Final = re.compile(r' id="((?:incident|at)-\d+)"')
_LINK: Final = re.compile(r'<a href="#((?:incident|at)-\d+)">(.*?)</a>')
"""A table that leaves out rows has no place for links to them."""


def page(sections: Sequence[str], figures: Iterable[str]) -> str:
    """Return a page of the sections: the first is what the log is, the second the summary, which begins with the impact."""
    made = Page(sections)
    heading, _, about = sections[0].partition("\n")
    title = heading.removeprefix("# ")
    impact, summary = _impact(sections[1])
    body = "\n".join(
        [
            f"<h1>{inline(title)}</h1>",
            f'<p class="impact">{inline(impact)}</p>' if impact else "",
            made.of(summary),
            *figures,
            f'<div class="about"><h2>The log</h2>{made.of(about.strip())}</div>',
            *map(made.of, sections[2:]),
        ]
    )
    there = set(_ANCHOR.findall(body))
    body = _LINK.sub(lambda link: link[0] if link[1] in there else link[2], body)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{PATTERNS}\n{body}\n</body></html>\n"
    )


def _impact(summary: str) -> tuple[str, str]:
    """Return the first sentence of the summary, a paragraph or the first of its points, and the rest of it."""
    lines = summary.splitlines()
    for place, line in enumerate(lines):
        if line and not line.startswith("#"):
            return line.removeprefix("- "), "\n".join([*lines[:place], *lines[place + 1 :]])
    return "", summary


def charts(log: Log, *, broker: int | None = None) -> list[str]:
    """Return the figures: lanes of brokers with takeovers, of partitions with leader and ISR, partitions that lacked
    something, and churn; with `broker`, that broker's lane alone.
    """
    scale = scale_of(log)
    if scale is None:
        return []
    incidents = incidents_of(log)
    return [
        brokers(log, scale, incidents, broker),
        partitions(log, scale, incidents),
        conditions(log, scale, incidents),
        churn(log, incidents),
    ]
