"""Modules of the console in Chromium, without a node: what pages make of lines of the log."""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from metadata_log.node.console.pages import FOLDER
from ops.bench.chromium import chromium

pytestmark = pytest.mark.slow
FENCING: Final = {"code": "SESSION_EXPIRED", "ref_offset": 1, "detail": {"broker_id": 11}}


async def test_batches_of_some_types_of_records_are_put_together() -> None:
    """Method: the pages' own modules in a browser without a node, on lines as `types=` narrows them."""
    async with chromium() as browser:
        page = await browser.new_page()
        batches = await page.evaluate(
            """async ([batches, lines, part]) => {
              const { grouped, joined } = await import(batches);
              const whole = grouped(lines), narrowed = grouped(lines, true);
              narrowed[1].isPart = part;
              const told = narrowed.map((one) => [one.offset, one.end_offset, one.topics]);
              return [whole.length, told, joined(narrowed).map((one) => [one.batches, one.isPart])];
            }""",
            [
                _module("batches.js"),
                [_line(3, "a"), _line(9, "b"), _line(12, "c", FENCING), _line(15, "d", FENCING, 1)],
                True,
            ],
        )
        assert batches == [
            4,
            [[3, 10, ["a", "b"]], [12, 13, ["c"]], [15, 16, ["d"]]],
            [[1, None], [2, True]],
        ]
        lanes = await page.evaluate(
            """async ([lanes, looked, told]) => {
              const { followed, intervals } = await import(lanes);
              const lines = followed(looked, told);
              const at = intervals(lines, 100).get(11).map((one) => [one.state, one.from, one.to]);
              return [lines.map((one) => one.offset), at];
            }""",
            [
                _module("lanes.js"),
                [_change(5, 10, cordoned_log_dirs=[])],
                [_change(9, 40, fenced=True), _change(5, 10), _change(7, 30, fenced=False)],
            ],
        )
        begin = 100 - 600_000
        assert lanes == [
            [5, 7, 9],
            [["FENCED", begin, 30], ["ONLINE", 30, 40], ["FENCED", 40, 100]],
        ], "a change of directories alone says nothing of the state before it"


async def test_a_refresh_leaves_the_focus_where_it_is() -> None:
    """Goal: a page is used by keyboard while it follows a log. Method: a control that is put in again, ones that are made
    again, and a row that is gone.
    """
    async with chromium() as browser:
        page = await browser.new_page()
        held = await page.evaluate(
            """async (dom) => {
              const { h, replace } = await import(dom);
              const root = document.body.appendChild(h("div")), pick = h("select", { "aria-label": "which" });
              const acts = () => h("td", {}, h("button", {}, "Show"), h("button", {}, "Delete"));
              const row = (name) => h("tr", {}, h("td", {}, name), acts());
              const draw = (...names) => replace(root, pick, h("button", {}, "Create"), h("table", {}, names.map(row)));
              const rowOf = (one) => one.closest("tr")?.firstChild.textContent;
              const focused = () => [document.activeElement.textContent, rowOf(document.activeElement)];
              const buttons = () => [...root.querySelectorAll("button")];
              draw("a", "b");
              pick.focus();
              draw("a", "b");
              const kept = document.activeElement === pick;
              buttons()[0].focus();
              draw("b");
              const created = focused();
              buttons()[2].focus();
              draw("a", "b", "c");
              const moved = focused();
              draw("a", "c");
              return [kept, created, moved, document.activeElement === document.body];
            }""",
            _module("dom.js"),
        )
        assert held == [True, ["Create", None], ["Delete", "b"], True]


def _line(
    offset: int, topic: str, cause: Mapping[str, Any] | None = None, time_ms: int = 0
) -> dict[str, Any]:
    about = {"controller_epoch": 1, "actor": None, "request_id": None, "operation": "CreateTopics"}
    record = {"name": topic}
    return {"offset": offset, "type": "Topic", "time_ms": time_ms, "cause": cause, "record": record, **about}


def _change(offset: int, time_ms: int, **changed: Any) -> dict[str, Any]:
    record = {"broker_id": 11, "fenced": None, "in_controlled_shutdown": None, **changed}
    return {"offset": offset, "type": "BrokerRegistrationChange", "time_ms": time_ms, "record": record}


def _module(name: str) -> str:
    """Return a module of the pages, and those that it imports, as one address."""
    text = re.sub(r'"\./(\w+\.js)"', lambda found: f'"{_module(found[1])}"', (FOLDER / name).read_text())
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
