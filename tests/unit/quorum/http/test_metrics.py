"""Edge: docs/metrics.md lists exactly the metrics that the processes expose."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker_agent.kafka_state import KafkaState
from broker_agent.lifecycle import State
from broker_agent.metrics import BrokerNumbers
from broker_agent.metrics import exposition as broker_exposition
from metadata_log.image.metadata_image import EMPTY
from quorum.http.metrics import TurnMetrics, exposition
from quorum.loop_turns import TimedSelector
from tests.support.desk import Ask, Desk, at_desk
from tests.support.lab import online
from tests.support.unwalked import Unwalked

ROOT = Path(__file__).parents[4]
BROKER = BrokerNumbers(
    state=State.OFFLINE,
    kafka_state=KafkaState.NOT_RUNNING,
    serves=False,
    image=EMPTY,
    high_watermark=0,
    broker_epoch=None,
    session_left_ms=0,
    lag_ms=0,
    applied_at_ms=0,
    records_fetched=0,
    snapshots_fetched=0,
    load_errors=0,
    snapshots_failed=0,
    warnings=(),
    calls_failed=0,
    logged_faults={},
)


def exposed(text: str) -> dict[str, str]:
    """Return the kind of each metric by name."""
    return dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))


def documented(heading: str) -> dict[str, str]:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(metaquorum_\w+)(?:\{[^}]*\})?` \| (\w+) \|", section, re.MULTILINE))


def test_a_controllers_metrics_are_documented(tmp_path: Path) -> None:
    async def story(desk: Desk, _ask: Ask) -> None:
        desk.status.controller.metrics.registry.register(TurnMetrics(TimedSelector()))  # as a process does
        text = exposition(desk.status, now_ms=desk.door.now_ms()).decode()
        assert exposed(text) == documented("Controllers")

    at_desk(tmp_path, story)


def test_a_brokers_metrics_are_documented() -> None:
    assert exposed(broker_exposition(BROKER).decode()) == documented("Brokers")


def test_a_scrape_walks_over_no_topics(tmp_path: Path) -> None:
    """A walk over a million partitions held the loop for 0.7 s. Apply counts what changes."""

    async def story(desk: Desk, ask: Ask) -> None:
        for broker_id in (11, 12):
            await online(desk.lab, desk.controller, broker_id)
        status, _ = await ask("POST", "/v1/topics", {"name": "t", "assignment": [[11], [12]]})
        assert status == 201
        image = desk.controller.committed
        unwalked: dict[str, Any] = {
            name: Unwalked(getattr(image.topics, name)) for name in ("by_id", "ids", "deleted")
        }
        desk.controller.committed = replace(image, topics=replace(image.topics, **unwalked))
        lines = exposition(desk.status, now_ms=desk.door.now_ms()).decode().splitlines()
        assert "metaquorum_global_topic_count 1.0" in lines
        assert "metaquorum_global_partition_count 2.0" in lines
        desk.controller.committed = image

    at_desk(tmp_path, story)


def test_a_scrape_walks_over_no_brokers(tmp_path: Path) -> None:
    """Three walks over 10,000 brokers held the loop for 3.4 ms."""

    async def story(desk: Desk, _ask: Ask) -> None:
        for broker_id in (12, 11):
            await online(desk.lab, desk.controller, broker_id)
        image = desk.controller.committed
        unwalked: Any = Unwalked(image.brokers)
        desk.controller.committed = replace(image, brokers=unwalked)
        lines = exposition(desk.status, now_ms=desk.door.now_ms()).decode().splitlines()
        assert "metaquorum_active_broker_count 2.0" in lines
        assert "metaquorum_fenced_broker_count 0.0" in lines
        shown = [line for line in lines if line.startswith("metaquorum_broker_registration_state{")]
        assert [line.partition('"')[2][:2] for line in shown] == ["11", "12"]
        desk.controller.committed = image

    at_desk(tmp_path, story)


def test_a_commit_is_counted_and_measured_at_the_controller_that_wrote_it(tmp_path: Path) -> None:
    async def story(desk: Desk, ask: Ask) -> None:
        status, _ = await ask("PATCH", "/v1/configs", {"cluster": True, "set": {"retention.ms": "5"}})
        assert status == 200
        lines = exposition(desk.status, now_ms=desk.door.now_ms()).decode().splitlines()
        assert "metaquorum_writes_total 1.0" in lines
        assert 'metaquorum_commit_latency_seconds_bucket{le="+Inf"} 1.0' in lines
        assert "metaquorum_commit_latency_seconds_count 1.0" in lines
        other = desk.lab.controllers[2].metrics.registry
        assert other.get_sample_value("metaquorum_writes_total") == 0

    at_desk(tmp_path, story)
