"""Edge: docs/metrics.md lists exactly the metrics that the processes expose."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker_agent.kafka_state import KafkaState
from broker_agent.lifecycle import State
from broker_agent.metrics import AppliedBatches, BrokerNumbers
from broker_agent.metrics import exposition as broker_exposition
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.node.audit_log import Counts
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.revocations import Revoked
from metadata_log.node.release import VERSION
from quorum.http.metrics import TurnMetrics, exposition
from quorum.pace.loop_turns import TimedSelector
from tests.support.callers import anybody
from tests.support.desk import at_desk
from tests.support.lab import online, poll
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


async def test_a_controllers_metrics_are_documented(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, _ask):
        desk.status.controller.metrics.registry.register(TurnMetrics(TimedSelector()))  # as a process does
        text = exposition(desk.status, now_ms=desk.door.now_ms()).decode()
        assert exposed(text) == documented("Controllers")


def test_a_brokers_metrics_are_documented() -> None:
    assert exposed(broker_exposition(BROKER).decode()) == documented("Brokers")


async def test_a_scrape_walks_over_no_topics(tmp_path: Path) -> None:
    """A walk over a million partitions held the loop for 0.7 s. Apply counts what changes."""
    async with at_desk(tmp_path) as (desk, ask):
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


async def test_a_scrape_walks_over_no_brokers(tmp_path: Path) -> None:
    """Three walks over 10,000 brokers held the loop for 3.4 ms."""
    async with at_desk(tmp_path) as (desk, _ask):
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


async def test_a_commit_is_counted_and_measured_at_the_controller_that_wrote_it(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        status, _ = await ask("PATCH", "/v1/configs", {"cluster": True, "set": {"retention.ms": "5"}})
        assert status == 200
        lines = exposition(desk.status, now_ms=desk.door.now_ms()).decode().splitlines()
        assert "metaquorum_writes_total 1.0" in lines
        assert 'metaquorum_commit_latency_seconds_bucket{le="+Inf"} 1.0' in lines
        assert "metaquorum_commit_latency_seconds_count 1.0" in lines
        other = desk.lab.controllers[2].metrics.registry
        assert other.get_sample_value("metaquorum_writes_total") == 0


def values(text: bytes) -> dict[str, float]:
    """Return the value of each sample by its name and labels, without the prefix."""
    lines = [line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#")]
    return {name.removeprefix("metaquorum_"): float(value) for name, _, value in lines}


async def test_each_metric_of_a_controller_has_the_value_of_its_own_fact(tmp_path: Path) -> None:
    """B95, B96, C23: in one state, in which nearly all numbers differ, none shows another's."""
    async with at_desk(tmp_path) as (desk, ask):
        lab, controller = desk.lab, desk.controller
        epochs = {broker_id: await online(lab, controller, broker_id) for broker_id in range(11, 18)}
        for name, assignment in (
            ("a", [[11, 12, 13]] * 6),
            ("b", [[14]]),
            ("c", [[12, 15], [12, 15]]),
            ("d", [[16, 17, 13]]),
        ):
            status, _ = await ask("POST", "/v1/topics", {"name": name, "assignment": assignment})
            assert status == 201
        for broker_id, wish in (
            (14, "want_fence"),
            (15, "want_fence"),
            (11, "want_fence"),
            (16, "want_shut_down"),
        ):
            end = controller.committed.end_offset
            controller.heartbeat(poll(broker_id, epochs[broker_id], applied=end, **{wish: True}), anybody())
            lab.quorum.commit()
        body = {"cluster": True, "set": {"min.insync.replicas": "2"}}
        assert (await ask("PATCH", "/v1/configs", body))[0] == 200
        moves = [("a", 0, [12, 13, 17]), ("a", 1, [12, 13, 17]), ("c", 0, [12, 14])]
        body = {
            "partitions": [{"topic": t, "partition": n, "replicas": replicas} for t, n, replicas in moves]
        }
        assert (await ask("POST", "/v1/partitions/reassign", body))[0] == 200
        lab.now_ms += 700
        controller.heartbeat(poll(12, epochs[12], applied=controller.committed.end_offset - 4), anybody())
        node = lab.quorum.nodes[NodeId(1)]
        raft = replace(
            node.status(),
            elections_total=21,
            messages_ignored_total=22,
            syncs_total=23,
            synced_bytes_total=24,
            disk_stalled_ms=25,
            elections_ms_total=27_000.0,
            election_ms_longest=28.0,
        )
        node.status = lambda: raft  # type: ignore[method-assign]
        desk.room = 26
        found = values(exposition(desk.status, now_ms=desk.door.now_ms()))
        wanted = {
            "active_controller_count": 1,
            "ready": 1,
            "raft_leader_id": 1,
            "raft_voters": 3,
            "raft_is_voter": 1,
            "raft_disk_stalled_milliseconds": 25,
            "controller_epoch": 1,
            "last_applied_record_offset": 57,
            "high_watermark": 58,
            "fenced_broker_count": 3,  # 11, 14, 15
            "active_broker_count": 4,
            "controlled_shutdown_broker_count": 1,  # 16
            "global_topic_count": 4,
            "global_partition_count": 10,
            "offline_partition_count": 1,  # of b
            "under_replicated_partition_count": 10,  # all: the ISR of b is empty, and 14 stays eligible
            "under_min_isr_partition_count": 3,  # of b and c
            "at_min_isr_partition_count": 7,  # of a and d
            "preferred_replica_imbalance_count": 6,  # of a where it is not reassigned, of b and d
            "reassigning_partition_count": 3,
            "stuck_reassignment_count": 1,  # to 14
            "data_directory_free_bytes": 26,
            "latest_snapshot_end_offset": -1,
            "raft_elections_total": 21,
            "raft_links_dropped_total": 7,
            "raft_messages_ignored_total": 22,
            "raft_syncs_total": 23,
            "raft_synced_bytes_total": 24,
            'raft_role{role="leader"}': 1,
            'raft_role{role="follower"}': 0,
            'broker_registration_state{broker="11"}': 10,
            'broker_registration_state{broker="12"}': 30,
            'broker_registration_state{broker="16"}': 20,
            'broker_last_contact_milliseconds{broker="12"}': 0,
            'broker_last_contact_milliseconds{broker="13"}': 700,
            'broker_lag_records{broker="12"}': 4,
            'broker_metadata_age_seconds{broker="12"}': 0.7,
            'broker_would_serve_stale{broker="12"}': 1,
            'broker_would_serve_stale{broker="14"}': 0,  # it is fenced
            "raft_election_latency_seconds_sum": 27,
            "raft_election_latency_seconds_count": 21,
            "raft_election_longest_milliseconds": 28,
            "raft_unknown_voter_connections": 0,
            "raft_links_outdated": 0,
            "last_applied_record_lag_ms": 0,
            "log_end_offset": 58,
            "current_metadata_version": 30,
            "records_appended_total": 58,
            "latest_snapshot_generated_age_milliseconds": -1,
            "unclean_leader_elections_total": 0,
            "elections_from_eligible_leader_replicas_total": 0,
            "batches_applied_total": 25,
            "records_applied_total": 58,
            "new_active_controllers_total": 1,
        }
        assert {name: found[name] for name in wanted} == wanted


def test_each_metric_of_a_broker_has_the_value_of_its_own_fact() -> None:
    """B97: Each number is another one, and so is each line of the answer."""
    access = Access(None, cluster_id="")
    access.refusals.counts["http", "unauthorized"] = 24
    access.traces_ignored = 30
    access.audit.counts = Counts(written=31, lost=32, strangers_left_out=33)
    batches = AppliedBatches(count=25, records=26, seconds=27.0)
    numbers = replace(
        BROKER,
        state=State.ONLINE,
        kafka_state=KafkaState.RUNNING,
        serves=True,
        image=replace(EMPTY, end_offset=11, last_time_ms=12),
        high_watermark=13,
        broker_epoch=14,
        session_left_ms=15,
        lag_ms=16,
        applied_at_ms=17,
        records_fetched=18,
        snapshots_fetched=19,
        load_errors=20,
        snapshots_failed=21,
        warnings=(("CERTIFICATE_ENDS", "soon"),),
        calls_failed=22,
        logged_faults={"SNAPSHOT_FAILED": 23},
        revoked=Revoked(frozenset(map(str, range(25))), digest="ab"),
        access=access,
        controller_id=28,
        level_ms_ago=29_000,
        batches=batches,
    )
    (build,) = [line for line in broker_exposition(numbers).decode().splitlines() if "build_info{" in line]
    assert f'role="broker",version="{VERSION}"}} 1.0' in build
    found = values(broker_exposition(numbers))
    assert {name: value for name, value in found.items() if not name.startswith("build_info")} == {
        "current_controller_id": 28,
        "trace_contexts_ignored_total": 30,
        "audit_lines_written_total": 31,
        "audit_lines_lost_total": 32,
        "audit_lines_left_out_total": 33,
        "current_metadata_version": 0,
        "metadata_age_seconds": 29,
        "metadata_batch_processing_time_seconds_count": 25,
        "metadata_batch_processing_time_seconds_sum": 27,
        "metadata_batch_records_count": 25,
        "metadata_batch_records_sum": 26,
        "last_applied_record_offset": 10,
        "last_applied_record_timestamp": 12,
        "high_watermark": 13,
        "broker_epoch": 14,
        "session_left_milliseconds": 15,
        "last_applied_record_lag_ms": 16,
        "last_applied_record_applied_at": 17,
        "records_fetched_total": 18,
        "snapshots_fetched_total": 19,
        "metadata_load_errors_total": 20,
        "snapshots_failed_total": 21,
        "certificates_revoked": 25,
        'certificates_revoked_list{digest="ab"}': 1,
        "controller_calls_failed_total": 22,
        "broker_state": 3,
        "global_topic_count": 0,
        'health_reason{code="CERTIFICATE_ENDS"}': 1,
        'logged_faults_total{code="SNAPSHOT_FAILED"}': 23,
        'requests_refused_total{door="http",reason="unauthenticated"}': 0,
        'requests_refused_total{door="http",reason="unauthorized"}': 24,
        'requests_refused_total{door="kafka",reason="unauthenticated"}': 0,
        'requests_refused_total{door="kafka",reason="unauthorized"}': 0,
        'broker_registration_state{state="OFFLINE"}': 0,
        'broker_registration_state{state="FENCED"}': 0,
        'broker_registration_state{state="ONLINE"}': 1,
        'broker_registration_state{state="STOPPING"}': 0,
    }
