"""What the audit log says of the commands of clients: the same through every way in."""

import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log.node.audit_log import AuditLog
from metadata_log.node.audit_settings import AuditSettings
from tests.support.desk import Desk, at_desk
from tests.support.lab import online

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def audited(desk: Desk, tmp_path: Path) -> AuditLog:
    """Have the audit log of a desk's controller take lines, which nobody writes."""
    log = AuditLog(AuditSettings(file=tmp_path / "audit.jsonl"), "Controller:1")
    desk.access.audit = desk.access.refusals.audit = desk.controller.audit = log
    return log


def taken(log: AuditLog) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log._lines]
    log._lines.clear()
    return found


async def test_a_change_is_noted_with_its_sender_and_offsets(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        log = audited(desk, tmp_path)
        await online(desk.lab, desk.controller, 11)
        assert taken(log) == [], "what nodes report of themselves is in the metadata log"
        headers = {"X-Request-Id": "0" * 8 + "-0000-4000-8000-" + "0" * 11 + "1", "traceparent": TRACE}
        body = {"name": "a", "assignment": [[11]]}
        status, answer = await ask("POST", "/v1/topics", body, headers)
        assert status == 201
        (line,) = taken(log)
        assert line["operation"] == "CreateTopics"
        assert (line["outcome"], line["offsets"]) == ("allowed", answer["offsets"])
        assert line["resources"] == ["topic a"]
        assert line["principal"] == "User:ANONYMOUS"
        assert line["address"] == "127.0.0.1"
        assert line["trace_id"] == TRACE[3:35]
        assert line["request_id"] is not None
        assert (await ask("DELETE", "/v1/topics/a"))[0] == 200
        (line,) = taken(log)
        assert line["resources"] == ["topic a"], "as it was called before it was deleted"


async def test_refusals_are_noted_with_their_reason(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        log = audited(desk, tmp_path)
        await online(desk.lab, desk.controller, 11)
        body = {"name": "a", "assignment": [[11]]}
        assert (await ask("POST", "/v1/topics", body))[0] == 201
        assert (await ask("POST", "/v1/topics", body))[0] == 409
        allowed, refused = taken(log)
        assert allowed["outcome"] == "allowed"
        assert (refused["outcome"], refused["error"]) == ("refused", "TOPIC_ALREADY_EXISTS")
        assert "a" in refused["message"]


async def test_each_command_of_a_batch_has_a_line(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        log = audited(desk, tmp_path)
        await online(desk.lab, desk.controller, 11)
        one = {"operation": "CreateTopics", "body": {"name": "a", "assignment": [[11]]}}
        commands = [one, one, {"operation": "DeleteTopics", "body": {"name": "nothing"}}]
        status, answer = await ask("POST", "/v1/batch", {"commands": commands})
        assert status == 200, answer
        assert [line["outcome"] for line in taken(log)] == ["allowed", "refused", "refused"]


async def test_a_hand_over_and_a_snapshot_have_lines(tmp_path: Path) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        log = audited(desk, tmp_path)
        await ask("POST", "/v1/quorum/transfer", {"to": 99})
        await ask("POST", "/v1/snapshots", None)
        assert [line["operation"] for line in taken(log)] == ["TransferLeadership", "TakeSnapshot"]


@pytest.mark.parametrize("reads", [False, True])
async def test_reads_are_noted_where_the_settings_say_so(tmp_path: Path, reads: bool) -> None:
    async with at_desk(tmp_path) as (desk, ask):
        log = audited(desk, tmp_path)
        log._settings = AuditSettings(file=tmp_path / "audit.jsonl", reads=reads)
        assert (await ask("GET", "/v1/topics"))[0] == 200
        assert [line["operation"] for line in taken(log)] == ["GET /v1/topics"] * reads
