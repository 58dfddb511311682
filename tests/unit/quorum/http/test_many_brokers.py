"""Edge: a list of many brokers is made in a thread, of what was known when it was asked for."""

import threading
from pathlib import Path
from typing import Any

import pytest

from metadata_log import limits
from metadata_log.ids import BrokerId
from quorum.http import brokers
from quorum.http.brokers import describe_broker
from quorum.views.broker_view import BrokerView
from tests.support.desk import at_desk
from tests.support.lab import online


@pytest.mark.parametrize("piece_bytes", [1, limits.ANSWER_PIECE_BYTES])
async def test_many_brokers_are_listed_as_few_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    threads: set[bool] = set()
    async with at_desk(tmp_path) as (desk, ask):
        controller = desk.controller
        for broker_id in (11, 12):
            await online(desk.lab, controller, broker_id)
        few = await ask("GET", "/v1/brokers?consistency=stale")
        assert [row["broker_id"] for row in few[1]["items"]] == [11, 12]
        assert few[1]["items"][0]["applied_offset"] is not None
        sessions, epoch = controller.sessions, controller.committed.brokers[BrokerId(11)].broker_epoch

        def noted(view: BrokerView, broker_id: BrokerId) -> dict[str, Any]:
            threads.add(threading.current_thread() is threading.main_thread())
            sessions.contact(BrokerId(11), epoch, now_ms=desk.lab.now_ms + 999, applied_offset=999)
            return describe_broker(view, broker_id)

        monkeypatch.setattr(limits, "LARGE_VIEW_ITEMS", 1)
        monkeypatch.setattr(limits, "ANSWER_PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(brokers, "describe_broker", noted)
        assert await ask("GET", "/v1/brokers?consistency=stale") == few
        assert threads == {False}
