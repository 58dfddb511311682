"""What a broker's audit log says of the requests that it sends on, and that it sends trace contexts on."""

import json
from pathlib import Path
from unittest.mock import patch

from broker_agent.config import BrokerSettings
from metadata_log.node.audit_settings import AuditSettings
from tests.support.processes import poll_until
from tests.unit.broker_agent.test_forwarding import DONE, REQUEST_ID, ask, breaks, broker, run, says

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
REFUSED = says(409, {"error": "TOPIC_ALREADY_EXISTS", "message": "it is there"})


def test_what_a_broker_sends_on_is_in_its_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    async def story() -> None:
        async with broker(tmp_path, [DONE, REFUSED, breaks]) as (agent, [controller]):
            assert agent.access.audit.is_on
            _, _, headers = await ask(
                agent, "POST", "/v1/topics", {"name": "t"}, X_Request_Id=REQUEST_ID, traceparent=TRACE
            )
            assert headers["traceparent"] == TRACE
            assert controller.seen[0][2]["traceparent"] == TRACE
            await ask(agent, "POST", "/v1/topics", {"name": "t"}, traceparent="no trace")
            assert "traceparent" not in controller.seen[1][2]
            assert agent.access.traces_ignored == 1
            status, _, _ = await ask(agent, "DELETE", "/v1/topics/t")
            assert status == 504
            await ask(agent, "GET", "/v1/status")

    audited = AuditSettings(file=file)
    with patch(
        "tests.unit.broker_agent.test_forwarding.BrokerSettings",
        lambda **fields: BrokerSettings(**fields, audit=audited),
    ):
        run(story())
    poll_until(lambda: file.read_bytes().count(b"\n") >= 3, deadline_s=20, what="lines")
    created, refused, unknown = map(json.loads, file.read_text().splitlines())
    assert (created["node"], created["operation"], created["outcome"]) == (
        "Broker:11",
        "POST /v1/topics",
        "allowed",
    )
    assert (created["request_id"], created["trace_id"]) == (REQUEST_ID, TRACE[3:35])
    assert refused["outcome"] == "refused"
    assert (unknown["operation"], unknown["outcome"]) == ("DELETE /v1/topics/t", "unknown")
