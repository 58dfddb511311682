"""The audit logs of real nodes: both doors, a broker that sends on, kill -9, full files, and a disk without room."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata_log.limits import MIB
from metadata_log.node.addresses import read_address
from metadata_log.node.audit_settings import AuditSettings
from ops.local.cluster import LocalCluster
from quorum.node.config import ControllerSettings
from tests.support.kafka_client import KafkaClient
from tests.support.processes import poll_until
from tests.support.wire import NO_ANSWER, ask, calm

pytestmark = pytest.mark.slow
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
INCREMENTAL_ALTER_CONFIGS, UNREGISTER_BROKER = 44, 64


@contextmanager
def alone(directory: Path, audit: AuditSettings, **how: Any) -> Iterator[LocalCluster]:
    """Run one controller with an audit log."""

    def adjust(settings: ControllerSettings) -> ControllerSettings:
        return replace(calm(settings), audit=audit)

    cluster = LocalCluster(directory / "c", controllers=1, adjust=adjust, **{"brokers": 0, **how})
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; each has to be whole."""
    text = file.read_bytes()
    assert text.endswith(b"\n") or not text
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def set_to(cluster: LocalCluster, number: int, **headers: str) -> int:
    body = {"cluster": True, "set": {"retention.ms": str(number)}}
    return ask(cluster.http(1), "PATCH", "/v1/configs", body, headers=headers).status


def wait_for(file: Path, count: int) -> list[dict[str, Any]]:
    poll_until(lambda: file.exists() and file.read_bytes().count(b"\n") >= count, deadline_s=60, what="lines")
    return lines(file)


def test_what_both_doors_and_a_broker_are_asked_is_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with alone(tmp_path, AuditSettings(file=file), kafka=True) as cluster:
        assert set_to(cluster, 1, traceparent=TRACE) == 200
        assert ask(cluster.http(1), "DELETE", "/v1/topics/nothing").status == 404
        assert ask(cluster.http(1), "GET", "/v1/topics").status == 200

        async def over_kafka() -> None:
            client = await KafkaClient.connect(read_address(str(cluster.member(1).kafka)))
            changes = [(4, "", [("retention.ms", 0, "7")])]
            await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, changes, False)
            await client.ask(UNREGISTER_BROKER, 0, 99)
            client.close()

        asyncio.run(over_kafka())
        changed, refused, changed_by_kafka, refused_by_kafka = wait_for(file, 4)
    assert (changed["door"], changed["operation"], changed["outcome"]) == (
        "http",
        "IncrementalAlterConfigs",
        "allowed",
    )
    assert changed["trace_id"] == TRACE[3:35]
    assert changed["address"] == "127.0.0.1"
    assert changed["offsets"]["end"] > changed["offsets"]["base"]
    assert (refused["outcome"], refused["error"]) == ("refused", "UNKNOWN_TOPIC_OR_PARTITION")
    assert refused["resources"] == ["topic nothing"]
    assert (changed_by_kafka["door"], changed_by_kafka["operation"]) == ("kafka", "IncrementalAlterConfigs")
    assert (refused_by_kafka["door"], refused_by_kafka["outcome"]) == ("kafka", "refused")
    assert refused_by_kafka["error"] == "BROKER_ID_NOT_REGISTERED"


def test_who_shows_no_identity_and_who_lacks_the_right_are_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with alone(tmp_path, AuditSettings(file=file), secure=True) as cluster:
        tls = cluster.directory / "tls"
        told = subprocess.run(
            ["curl", "-s", "--cacert", str(tls / "ca.crt"), f"{cluster.http(1)}/v1/topics"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "SASL_AUTHENTICATION_FAILED" in told.stdout
        (line,) = wait_for(file, 1)
    assert (line["outcome"], line["error"]) == ("refused", "SASL_AUTHENTICATION_FAILED")
    assert line["operation"] == "GET /v1/topics"
    assert file.stat().st_mode & 0o777 == 0o600


def test_kill_9_leaves_whole_lines_and_the_next_start_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with alone(tmp_path, AuditSettings(file=file)) as cluster:
        answered = 0
        for round_ in range(3):
            before = answered
            for number in range(40):
                answered += set_to(cluster, 1_000 * round_ + number) == 200
            wait_for(file, before + 1)
            cluster.kill(1)
            with file.open("ab") as torn:
                torn.write(b'{"time":"2026')  # as a kill amid a write leaves it
            asyncio.run(cluster.start_one(1))
            poll_until(lambda: _is_up(cluster), deadline_s=60, what="it leads again")
            set_to(cluster, 5)
            answered += 1
            wait_for(file, before + 2)
        found = lines(file)
    assert answered - 3 * 40 <= len(found) <= answered
    offsets = [line["offsets"]["base"] for line in found]
    assert offsets == sorted(set(offsets)), "no line is there twice"


def _is_up(cluster: LocalCluster) -> bool:
    with suppress(*NO_ANSWER):
        return ask(cluster.http(1), "GET", "/v1/topics").status == 200
    return False


def test_a_full_file_is_moved_aside_and_so_many_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "audit.jsonl"
    file.parent.mkdir()
    with alone(tmp_path, AuditSettings(file=file, file_bytes=MIB, files_kept=2)) as cluster:
        commands = [
            {"operation": "DeleteTopics", "body": {"name": f"{'x' * 200}{number}"}} for number in range(1_000)
        ]
        for _ in range(10):
            assert ask(cluster.http(1), "POST", "/v1/batch", {"commands": commands}).status == 200
        poll_until(lambda: len(list(file.parent.iterdir())) == 3, deadline_s=60, what="three files")
        assert {path.name for path in file.parent.iterdir()} == {
            "audit.jsonl",
            "audit.jsonl.1",
            "audit.jsonl.2",
        }
        metrics = ask(cluster.http(1), "GET", "/metrics").body.decode()
    assert "metaquorum_audit_lines_lost_total 0.0" in metrics
    assert all(path.stat().st_size <= MIB for path in file.parent.iterdir())
    assert all(lines(path) for path in file.parent.iterdir())


def test_a_disk_without_room_for_the_audit_log_stops_no_node(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        file = small / "audit.jsonl"
        with alone(tmp_path, AuditSettings(file=file)) as cluster:
            for number in range(300):
                assert set_to(cluster, number) == 200
            told = poll_until(
                lambda: next(
                    (
                        reason
                        for reason in ask(cluster.http(1), "GET", "/readyz").value()["reasons"]
                        if reason["code"] == "AUDIT_NOT_WRITTEN"
                    ),
                    None,
                ),
                deadline_s=60,
                what="health says it",
            )
            assert told is not None
            assert "No space left on device" in told["detail"]
            lines(file)  # whole, though the disk was full amid a write
            assert ask(cluster.http(1), "GET", "/healthz").status == 200
            subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
            poll_until(
                lambda: ask(cluster.http(1), "GET", "/readyz").value()["reasons"] == [],
                deadline_s=60,
                what="there is room",
            )
            poll_until(lambda: len(lines(file)) == 300, deadline_s=60, what="no line is lost")
    finally:
        subprocess.run(["umount", str(small)], check=True)
