"""Edge: a log at a glance: what a prompt or a notebook shows of it, its report, and its end.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

import html
from abc import ABC
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

if TYPE_CHECKING:
    from metadata_log.replay.library import Position
    from metadata_log.replay.scratch import Scratch
    from metadata_log.replay.tables import Export

_MOST: Final = 12
"""Tables that a notebook lists by name; the others are counted."""
FIRST_TO_ASK: Final = (
    *(
        "incidents",
        "broker_availability",
        "leaderless_spells",
        "under_min_isr_spells",
        "fencings",
        "controller_takeovers",
    ),
    *("config_changes", "actions", "leader_intervals", "reassignments", "log_health", "records"),
)


class Report(str):
    """A report as text; a notebook shows it as a page."""

    __slots__ = ("_page",)
    _page: str

    def __new__(cls, text: str, page: str) -> Self:
        report = super().__new__(cls, text)
        report._page = page
        return report

    def _repr_html_(self) -> str:
        # In a frame of its own: a page's style is for the page.
        return f'<iframe style="width:100%;height:40em;border:0" srcdoc="{html.escape(self._page)}"></iframe>'


class Glance(ABC):
    """What a log is in one line, and how it ends."""

    export: "Export"
    first: "Position"
    last: "Position"
    topic: str | None
    _scratch: "Scratch | None"

    def __repr__(self) -> str:
        export = self.export
        of = "Kafka's log" if export.log_format == "kafka" else "log"
        topic = "" if self.topic is None else f", topic {self.topic}"
        return (
            f"<{of} of cluster {export.cluster_id}{topic}: offsets {self.first.end_offset:,}-{self.last.end_offset:,}, "
            f"up to {_time(self.last.time_ms)}>"
        )

    def _repr_html_(self) -> str:
        names = "".join(f"<li><code>log.{name}()</code></li>" for name in FIRST_TO_ASK[:_MOST])
        return (
            f"<p>{html.escape(repr(self)[1:-1])}</p><details><summary>tables</summary><ul>{names}</ul>"
            "<p><code>replay.describe()</code> lists them all, <code>log.report()</code> tells what happened</p></details>"
        )

    def report(self, form: Literal["md", "html", "json"] = "md", *, broker: int | None = None) -> Report:
        """Return the report of the log, or of this part of it: what happened, what it cost, who did it.

        `form` is Markdown, a page of HTML, or JSON; a notebook shows the page. `broker`: of brokers, this one alone.
        """
        from metadata_log.replay.report import report_of

        page = report_of(self, "html", broker=broker)  # type: ignore[arg-type]  # every Glance is a Log
        text = page if form == "html" else report_of(self, form, broker=broker)  # type: ignore[arg-type]
        return Report(text, page)

    def close(self) -> None:
        """Remove what was written for this log alone; nothing of it can be asked after that."""
        if self._scratch is not None:
            self._scratch.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _time(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
