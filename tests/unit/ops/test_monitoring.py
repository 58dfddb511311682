"""The alerts and dashboards of ops/monitoring: what they name exists, and each alert can be looked up.

tests/cluster/test_monitoring.py evaluates them, with promtool and on clusters with faults.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from quorum.http.metrics import TurnMetrics
from quorum.pace import loop_turns
from quorum.pace.loop_turns import LAG_SECONDS, TimedSelector

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "ops/monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
TESTS = (MONITORING / "alerts_test.yml").read_text(encoding="utf-8")
NAME = re.compile(r"\bmetaquorum_[a-z0-9_]+\b")
JOBS = {"metaquorum_controller", "metaquorum_broker"}
_METRIC = re.compile(r"^\| `(metaquorum_\w+)(?:\{[^}]*\})?` \| (\w+) \|", re.MULTILINE)


def rules() -> dict[str, dict[str, str]]:
    """Return what each alert says, by its name."""
    found: dict[str, dict[str, str]] = {}
    for block in re.split(r"^      - ", ALERTS, flags=re.MULTILINE)[1:]:
        fields = dict(re.findall(r"^ *(\w+): '?(.*?)'?$", block, re.MULTILINE))
        if "alert" in fields:
            found[fields["alert"]] = fields
    return found


def samples() -> set[str]:
    """Return the names of all series of the metrics that docs/metrics.md has: tests hold that page to /metrics."""
    found = set()
    for name, kind in _METRIC.findall((ROOT / "docs/metrics.md").read_text(encoding="utf-8")):
        more = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}.get(kind, ("",))
        found |= {f"{name}{ending}" for ending in more}
    return found


def dashboards() -> dict[str, Any]:
    return {path.name: json.loads(path.read_bytes()) for path in MONITORING.glob("dashboard-*.json")}


def test_each_metric_that_a_rule_names_exists() -> None:
    expressions = re.findall(r"^ *expr: '(.*)'$", ALERTS, re.MULTILINE)
    assert len(expressions) > 30
    named = {name for expression in expressions for name in NAME.findall(expression)} - JOBS
    assert named <= samples()
    series = re.findall(r"series: '(\w+)", TESTS)
    assert set(series) <= samples() | {"up"}


def test_each_metric_that_a_dashboard_names_exists() -> None:
    recorded = set(re.findall(r"record: (\S+)", ALERTS))
    assert len(dashboards()) == 2
    for name, board in dashboards().items():
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        assert expressions, name
        named = {found for expression in expressions for found in NAME.findall(expression)}
        assert named <= samples(), name
        assert set(re.findall(r"metaquorum:[\w:]+", " ".join(expressions))) <= recorded


def test_the_panels_of_a_dashboard_lie_beside_each_other() -> None:
    for board in dashboards().values():
        places = [panel["gridPos"] for panel in board["panels"]]
        taken = {(place["x"] + x, place["y"]) for place in places for x in range(place["w"])}
        assert len(taken) == sum(place["w"] for place in places)
        assert all(place["x"] + place["w"] <= 24 for place in places)
        assert len({panel["id"] for panel in board["panels"]}) == len(places)


@pytest.mark.parametrize("name", sorted(rules()))
def test_each_alert_says_what_it_means_and_what_to_do(name: str) -> None:
    rule = rules()[name]
    assert rule["severity"] in {"critical", "warning", "info"}
    assert 10 < len(rule["summary"]) < 80
    assert rule["description"].endswith(".")
    page = ROOT / "ops/runbooks" / rule["runbook_url"].rpartition("/")[2]
    text = page.read_text(encoding="utf-8")
    assert "**You see**" in text or page.name == "upgrade.md"
    assert re.search(r"^1\. ", text, re.MULTILINE), "what to do, in steps"
    assert f"]({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(rules()))
def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    for ending, wanted in (("fires", "value: 1"), ("does not fire", "exp_samples: []")):
        _, _, block = TESTS.partition(f"  - name: {name} {ending}\n")
        assert wanted in block.partition("  - name:")[0]


def test_c17_a_pause_of_a_loop_beyond_a_second_is_measured_and_alarmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C17: the alert counts what lies above the bucket of one second, and the metric has that bucket."""
    expression = rules()["MetaquorumProcessStalled"]["expr"]
    assert 'metaquorum_loop_lag_seconds_bucket{le="1.0"}' in expression
    assert 1.0 in LAG_SECONDS
    now = 0.0
    monkeypatch.setattr(loop_turns, "perf_counter", lambda: now)
    with TimedSelector() as turns:
        for paused, idle in ((0.91, 0.09), (1.11, 0.09)):
            now += paused
            turns.select(0)
            now += idle
            turns.select(0)
        registry = CollectorRegistry()
        registry.register(TurnMetrics(turns))
        told = {
            name: registry.get_sample_value(f"metaquorum_loop_lag_{name}") or 0.0
            for name in ("seconds_count", "longest_seconds")
        }
        within = registry.get_sample_value("metaquorum_loop_lag_seconds_bucket", {"le": "1.0"}) or 0.0
    assert within < told["seconds_count"]
    assert told["longest_seconds"] == pytest.approx(1.09)


def test_the_example_loads_the_rules_and_has_both_jobs() -> None:
    example = (MONITORING / "prometheus.yml").read_text(encoding="utf-8")
    assert "  - alerts.yml\n" in example
    assert {job for job in JOBS if f"job_name: {job}\n" in example} == JOBS
    assert "ca_file:" in example
