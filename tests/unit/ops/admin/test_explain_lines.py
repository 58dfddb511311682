"""Pure: what a reader is told of partitions and brokers is what the frames tell, but for candidates and epochs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from metadata_log.log.lines import log_lines
from ops import cli
from ops.admin.explain import explain_broker, explain_partition
from ops.admin.explain_lines import broker_changes, partition_changes
from tests.support.told_node import Reply, Seen, error, node
from tests.unit.ops.admin.test_explain import History, a_history


def lines_of(history: History) -> Iterator[dict[str, Any]]:
    for step in history._steps:
        yield from json.loads(json.dumps([*log_lines(step.batch)]))


def known(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without what a reader does not know, as JSON has it."""
    kept = {
        key: value
        for key, value in row.items()
        if key not in {"leader_epoch", "partition_epoch", "rule", "candidates"}
    }
    found: dict[str, Any] = json.loads(json.dumps(kept))
    return found


def a_story() -> History:
    history = a_history()
    history.run("BrokerHeartbeat", broker_id=1, want_fence=True)
    return history


def test_lines_tell_of_a_partition_what_frames_tell() -> None:
    history = a_story()
    rows = [*partition_changes(lines_of(history), "t", 0)]
    assert len(rows) > 1 and [known(row) for row in rows] == [
        known(row) for row in explain_partition(iter(history._steps), "t", 0)
    ]
    assert [*partition_changes(lines_of(history), "t", 99)] == []


def test_lines_tell_of_a_broker_what_frames_tell() -> None:
    history = a_story()
    for broker_id in (1, 2, 9):
        rows = [*broker_changes(lines_of(history), broker_id)]
        assert rows == json.loads(json.dumps([*explain_broker(iter(history._steps), broker_id)]))


def test_a_reader_may_ask_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: the right read is enough. Method: a controller that refuses frames and snapshots, and gives lines."""
    lines = [*lines_of(a_story())]
    end = lines[-1]["offset"] + 1

    def answer(seen: Seen) -> Reply:
        path, _, query = seen.path.partition("?")
        if "max_bytes" in query or path.startswith("/v1/metadata"):
            return error("CLUSTER_AUTHORIZATION_FAILED", 403)
        if path.startswith("/v1/log"):
            body = "".join(f"{json.dumps(line)}\n" for line in (*lines, {"next_offset": end}))
            return Reply(body=body.encode(), headers={"X-High-Watermark": str(end)})
        status = {
            "cluster_id": "c",
            "node_id": 2,
            "leader_id": 1,
            "log_start_offset": 0,
            "high_watermark": end,
        }
        return Reply(
            body=json.dumps({**status, "items": []}).encode(), headers={"X-High-Watermark": str(end)}
        )

    with node() as told:
        told.answer = answer
        assert cli.main(["partitions", "explain", "t:0", "--bootstrap", told.url]) == 0
        shown = capsys.readouterr()
        assert "leader 1 -> " in shown.out and "no candidates" in shown.err
        assert cli.main(["brokers", "explain", "1", "-o", "json", "--bootstrap", told.url]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["changed"] == "fenced"
